"""Shardwright for JAX: a step on pytrees goes in, a jitted step with the plan's collectives comes out.

step = shardwright.jax.auto_shard(step, state, batch, mesh="dp=2,tp=2", cluster="dgx-h100")
state, loss = step(state, batch)
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .command_line import run_command
from .errors import MismatchError, require_jax
from .planner import find_command

require_jax()

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax import tree_util  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec  # noqa: E402

from .jax_axes import AxisRules, Rules, names_of, read_rules, rules_of, spec_by_rules  # noqa: E402
from .jax_trees import Form, Kind, data_of, form_of, leaf_of, replaced, shape_of  # noqa: E402

__all__ = ["ShardedStep", "auto_shard"]

#: The text of the step in a plan folder.
_TEXT = "step.mlir"
#: A location in it: an alias, a name, or a name with an alias.
_PLACE = re.compile(r' loc\((?:"(?:[^"\\]|\\.)*"|[^()"]|\([^()]*\))*\)')


def auto_shard(
    step: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    mesh: str | Mesh,
    cluster: str,
    donate_argnums: int | Sequence[int] | None = None,
    logical: Any = None,
    rules: Rules | str | os.PathLike[str] | None = None,
    plan: str | os.PathLike[str] | None = None,
    command: Sequence[str] | None = None,
    quiet: bool = False,
    **flags: Any,
) -> ShardedStep:
    """Plans a step and returns it jitted, on the same pytrees, with the collectives of the plan.

    Args:
        step: a function of pytrees of arrays, jitted or not; what it does to its arguments in place is lost, as under `jax.jit`.
        args: its arguments, or their shapes (`jax.ShapeDtypeStruct`, as `jax.eval_shape` gives them). An array that lies on the mesh
            already, with a `NamedSharding`, stays as it lies.
        kwargs: its keyword arguments, by name; the step is then called with keywords, too.
        mesh: sizes by name, outermost first (`dp=2,tp=2`; one may be -1, for the devices that there are), or a `jax.sharding.Mesh`.
        cluster: name of a node design (`dgx-h100`), or a JSON file.
        donate_argnums: as of `jax.jit`; default: what the jitted `step` donates, keyword arguments among it.
        logical: the names of the dims of the first argument, a PartitionSpec for each leaf (`flax.linen.get_partition_spec(state)`); of
            several arguments, a tuple of such trees; keyword arguments stand behind them, sorted by name.
        rules: logical axis rules of Flax or MaxText, `[("mlp", "tp"), ("embed", None)]`, or the path of a YAML file of MaxText that has
            them: arrays all of whose names have one are placed so.
        plan: a folder that `save` wrote. Its plan is taken, and none is made.
        command: how to call Shardwright; default what `find_command` finds.
        quiet: no progress on stderr.
        flags: options of `shardwright plan`, `memory="60GiB"`, `pin=["params['w']=S(0)R"]`.

    Raises:
        CommandError: what the command refused, with its code, place and hint.
        MismatchError: where the devices are not those of the mesh, or `plan` is that of another step.
    """
    sharded = ShardedStep(step, _mesh(mesh), cluster, donate_argnums, command, quiet, flags)
    sharded._logical, sharded._rules = logical, None if rules is None else read_rules(rules)
    sharded._program(_Given(args, kwargs or {}), Path(plan) if plan is not None else None)
    return sharded


@dataclass(frozen=True)
class _Places:
    """How arguments that stand in a row are given: so many without a keyword, and behind them those with one, sorted by name as in JAX."""

    count: int
    keywords: tuple[str, ...]

    def split(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Values in the places of the arguments, as a call takes them."""
        return tuple(values[: self.count]), dict(zip(self.keywords, values[self.count :], strict=True))


class _Given:
    """The arguments of a call, all in a row."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.places = _Places(len(args), tuple(sorted(kwargs)))
        self.all = (*args, *(kwargs[name] for name in self.places.keywords))
        self.form = form_of(self.all)

    def arrays(self) -> list[Any]:
        return self.form.arrays(self.all)


class ShardedStep:
    """A step with the collectives of its plan. Arguments of other shapes are planned when they come first, with arrays on the mesh as
    they lie."""

    def __init__(
        self,
        step: Callable[..., Any],
        mesh: Mesh,
        cluster: str,
        donate_argnums: int | Sequence[int] | None,
        command: Sequence[str] | None,
        quiet: bool,
        flags: dict[str, Any],
    ) -> None:
        functools.update_wrapper(self, step, updated=())
        self._step = step
        self._settings = (cluster, list(command) if command is not None else None, quiet, flags)
        self._donate_argnums = (donate_argnums,) if isinstance(donate_argnums, int) else donate_argnums
        self._programs: dict[tuple[Form, _Places], _Program] = {}
        self._first: _Program | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._logical: Any = None
        self._rules: list[Any] | None = None
        self.mesh = mesh

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the step. Arrays that lie elsewhere are placed; those that are donated can be read no more."""
        given = _Given(args, kwargs)
        return self._program(given)(given.arrays())

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what `jax.jit(step).lower` gives: the program before it is compiled."""
        given = _Given(args, kwargs)
        return self._program(given).lower(given.arrays())

    def place(self, *args: Any, **kwargs: Any) -> Any:
        """The arguments, each array where the plan has it: of one argument itself, else a tuple; with keywords that tuple and a dict."""
        given = _Given(args, kwargs)
        program = self._program(given)
        placed, named = given.places.split(given.form.fill(program.placed(given.arrays())))
        return (placed, named) if named else placed[0] if len(args) == 1 else placed

    @property
    def shardings(self) -> Any:
        """The `NamedSharding` of every array of the arguments, in a tuple of their pytrees; a dict of those with keywords ends it."""
        planned = self._planned
        placed, named = planned.places.split(planned.shardings)
        return (*placed, named) if named else placed

    in_shardings = shardings

    @property
    def out_shardings(self) -> Any:
        """The `NamedSharding` of every array that the step returns, in its pytree."""
        return self._planned.out_shardings

    @property
    def logical_axis_rules(self) -> AxisRules:
        """Rules that say most of the plan by the `logical` names of dims, and the arrays that the plan places otherwise."""
        form = self._planned.form
        args = form.fill(form.array_kinds)
        kinds, specs = form.array_kinds, [sharding.spec for sharding in tree_util.tree_leaves(self.shardings)]
        names = form.pick(self._names(args))
        paths = [tree_util.keystr(path) for path, _ in tree_util.tree_leaves_with_path(form.kind_tree)]
        sizes = [math.prod(kind.shape) * jax.numpy.dtype(kind.dtype).itemsize for kind in kinds]
        return rules_of(dict(zip(paths, zip(names, specs, sizes, strict=True), strict=True)), self.mesh)

    @property
    def collectives(self) -> list[dict[str, Any]]:
        """The collectives of the plan, in the order of the program."""
        return json.loads((self._planned.folder / "jax" / "collectives.json").read_text())["collectives"]

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes the plan of the step: `plan.json` and the rest of a plan folder, its text, and its program below `jax/`."""
        return Path(shutil.copytree(self._planned.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")))

    @property
    def _planned(self) -> _Program:
        assert self._first is not None
        return self._first

    def _program(self, given: _Given, folder: Path | None = None) -> _Program:
        key = (given.form, given.places)
        known = self._programs.get(key)
        if known is None:
            lowered = _Lowered(self._step, given, self._donated(given))
            known = self._programs[key] = _Program(lowered, self.mesh, self._folder(lowered, folder))
            self._first = self._first or known
        return known

    def _donated(self, given: _Given) -> list[bool]:
        """Tells for each array of the arguments whether the step donates it."""
        form = given.form
        if self._donate_argnums is not None:
            argnums = {n % given.places.count for n in self._donate_argnums}
            return [n in argnums for n, arg in enumerate(form.kind_tree) for _ in tree_util.tree_leaves(arg)]
        if not hasattr(self._step, "trace") or not all(kind.is_array for kind in form.kinds):
            return [False] * len(form.array_kinds)
        args, kwargs = given.places.split(given.all)
        return [leaf.donated for leaf in tree_util.tree_leaves(self._step.trace(*args, **kwargs).args_info)]

    def _folder(self, lowered: _Lowered, saved: Path | None) -> Path:
        """A folder with the plan and the program of a step: the saved one, or one that is made."""
        if saved is not None:
            _check_saved(saved, lowered, self.mesh)
            return saved
        cluster, command, quiet, flags = self._settings
        self._temporary = self._temporary or tempfile.TemporaryDirectory(prefix="shardwright-")
        folder = Path(self._temporary.name) / str(len(self._programs))
        folder.mkdir()
        (folder / _TEXT).write_text(lowered.text)
        pins = _pins(lowered.given.arrays(), self.mesh, self._specs(lowered.given))
        _make_plan(folder, self.mesh, cluster, pins, command or find_command(), quiet, flags)
        return folder

    def _names(self, args: Sequence[Any]) -> list[PartitionSpec]:
        if self._logical is None:
            hint = "give auto_shard logical=flax.linen.get_partition_spec(state)."
            raise MismatchError("E_AXES", "no names of dims were given", hint=hint)
        return names_of(self._logical, args)

    def _specs(self, given: _Given) -> list[PartitionSpec | None]:
        """The placements that rules state for the arrays of the arguments."""
        if self._rules is None:
            return [None] * len(given.form.array_kinds)
        names = given.form.pick(self._names(given.all))
        return [spec_by_rules(own, self._rules, self.mesh) if own else None for own in names]


class _Lowered:
    """The text of a step on arrays, with the names of its pytrees, and what it returns."""

    def __init__(self, step: Callable[..., Any], given: _Given, donated: list[bool]) -> None:
        form, places = given.form, given.places
        self.given = given
        self.donated = donated
        returned: list[Form] = []

        def traced(*arrays: Any) -> Any:
            given = tree_util.tree_leaves(arrays)
            leaves = [leaf_of(array, kind) for array, kind in zip(given, form.array_kinds, strict=True)]
            args, kwargs = places.split(form.fill(leaves))
            result = step(*args, **kwargs)
            returned[:] = [form_of(result)]
            return returned[0].fill([data_of(leaf) for leaf in returned[0].arrays(result)], values=False)

        # JAX names the inputs of the text after the parameters of the function and the keys of its trees.
        traced.__signature__ = _signature(step, places)  # type: ignore[attr-defined]
        traced.__name__ = getattr(step, "__name__", "step")
        shapes = form.fill([shape_of(kind) for kind in form.array_kinds], values=False)
        lowered = jax.jit(traced, keep_unused=True).lower(*shapes)
        self.returned = returned[0]
        pairs = replaced(form.kind_tree, self.returned.kind_tree, donated)
        self.text = _with_replaced(lowered.compiler_ir("stablehlo"), pairs)


def _signature(step: Callable[..., Any], places: _Places) -> inspect.Signature:
    """Parameters of the names of the step's, one for each argument."""
    count = places.count
    try:
        names = [name for name, one in inspect.signature(step).parameters.items() if one.kind <= one.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        names = []
    names += [f"arg{n}" for n in range(len(names), count)]
    every = [*names[:count], *places.keywords]
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in every])


def _with_replaced(module: Any, pairs: dict[int, int]) -> str:
    """The text of a module whose main function says which results replace which arguments, as JAX says it of those that are donated."""
    from jaxlib.mlir import ir

    with module.context:
        main = next(op for op in module.body.operations if op.name.value == "main")
        rows = []
        for n, row in enumerate(main.arg_attrs):
            entries = {entry.name: entry.attr for entry in row if entry.name != "tf.aliasing_output"}
            if n in pairs:
                entries["tf.aliasing_output"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), pairs[n])
            rows.append(ir.DictAttr.get(entries))
        main.arg_attrs = ir.ArrayAttr.get(rows)
        return module.operation.get_asm(enable_debug_info=True)


class _Program:
    """The program of a plan on the pytrees of its step."""

    def __init__(self, lowered: _Lowered, mesh: Mesh, folder: Path) -> None:
        self.places = lowered.given.places
        self.form = lowered.given.form
        self.returned = lowered.returned
        self.folder = folder
        program = _import(folder / "jax" / "program.py")
        over = program.over(mesh)
        given, made = self.form.array_kinds, self.returned.array_kinds
        self._in = tuple(NamedSharding(mesh, spec) for spec in program.IN_SPECS)
        self._out = tuple(NamedSharding(mesh, spec) for spec in program.OUT_SPECS)

        def on_leaves(*leaves: Any) -> list[Any]:
            arrays = [jax.numpy.asarray(data_of(leaf), shape_of(kind).dtype) for leaf, kind in zip(leaves, given, strict=True)]
            return [leaf_of(array, kind) for array, kind in zip(over(*arrays), made, strict=True)]

        # A typed key has fewer dims than its data, none of which is cut in the key itself.
        self._in = tuple(_of_leaf(sharding, kind) for sharding, kind in zip(self._in, given, strict=True))
        self._out = tuple(_of_leaf(sharding, kind) for sharding, kind in zip(self._out, made, strict=True))
        donated = tuple(n for n, is_donated in enumerate(lowered.donated) if is_donated)
        self._jitted = jax.jit(on_leaves, donate_argnums=donated, in_shardings=self._in, out_shardings=list(self._out), keep_unused=True)

    def __call__(self, arrays: Sequence[Any]) -> Any:
        return self.returned.fill(self._jitted(*self.placed(arrays)))

    def lower(self, arrays: Sequence[Any]) -> Any:
        return self._jitted.lower(*arrays)

    def placed(self, leaves: Sequence[Any]) -> list[Any]:
        return [_placed(leaf, sharding) for leaf, sharding in zip(leaves, self._in, strict=True)]

    @property
    def shardings(self) -> Any:
        return self.form.fill(self._in, values=False)

    @property
    def out_shardings(self) -> Any:
        return self.returned.fill(self._out, values=False)


def _placed(leaf: Any, sharding: NamedSharding) -> Any:
    if isinstance(leaf, jax.core.Tracer):
        return leaf
    if isinstance(leaf, jax.Array) and leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
        return leaf
    return jax.device_put(leaf, sharding)


def _of_leaf(sharding: NamedSharding, kind: Kind) -> NamedSharding:
    if kind.key is None:
        return sharding
    return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[: len(kind.shape)]))


def _mesh(given: str | Mesh) -> Mesh:
    """A mesh of JAX whose dims the partitioner may use."""
    if isinstance(given, Mesh):
        return Mesh(given.devices, given.axis_names, axis_types=(AxisType.Auto,) * len(given.axis_names))
    names, sizes = [], []
    for part in given.split(","):
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().lstrip("-").isdigit():
            raise MismatchError("E_MESH", f"mesh {given!r} is not a list of sizes by name", hint='write mesh="dp=2,tp=2".')
        names.append(name.strip())
        sizes.append(int(size))
    devices = jax.devices()
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = len(devices) // -math.prod(sizes)
    count = math.prod(sizes)
    if count < 1 or count > len(devices):
        raise MismatchError(
            "E_MESH",
            f"mesh {given} has {count} devices, JAX has {len(devices)}",
            hint=f"give the mesh at most {len(devices)} devices; on a CPU XLA_FLAGS=--xla_force_host_platform_device_count={max(1, count)} "
            "stands in for more, set before JAX starts.",
        )
    return Mesh(np.array(devices[:count]).reshape(sizes), tuple(names), axis_types=(AxisType.Auto,) * len(names))


def _pins(leaves: Sequence[Any], mesh: Mesh, stated: Sequence[PartitionSpec | None]) -> list[str]:
    """The placements of arrays that lie on the mesh already, or that rules state, as the command takes them."""
    pins = []
    for n, (leaf, spec) in enumerate(zip(leaves, stated, strict=True)):
        own = _placement(leaf, mesh)
        own = spec if own is None else own
        if own is not None:
            pins.append(f"arg{n}={_spec_text(own, mesh)}")
    return pins


def _placement(leaf: Any, mesh: Mesh) -> PartitionSpec | None:
    """The spec of an array that lies on the mesh."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh.axis_names != mesh.axis_names:
        return None
    if not isinstance(sharding.mesh, Mesh) or not np.array_equal(sharding.mesh.devices, mesh.devices):
        return None
    return sharding.spec


def _spec_text(spec: PartitionSpec, mesh: Mesh) -> str:
    axes = [() if of is None else of if isinstance(of, tuple) else (of,) for of in spec]
    if not any(axes):
        return "R" * len(mesh.axis_names)
    dims = [json.dumps(of[0]) if len(of) == 1 else f"({', '.join(map(json.dumps, of))})" if of else "None" for of in axes]
    return f"P({', '.join(dims)})"


def _make_plan(
    folder: Path, mesh: Mesh, cluster: str, pins: Sequence[str], call: Sequence[str], quiet: bool, flags: dict[str, Any]
) -> None:
    """Writes the plan of a text, and its program."""
    sizes = ",".join(f"{name}={size}" for name, size in mesh.shape.items())
    argv = ["plan", str(folder / _TEXT), "--mesh", sizes, "--cluster", str(cluster), "-o", str(folder), "--json"]
    # A program of JAX holds equally many rows on all devices, and the step has its optimizer in it.
    # Literal prices of other planners know calls one by one only.
    compiled = flags.get("cost") != "autoparallel"
    settings = {"uneven": "forbid", "optimizer": "none", "compiled": compiled, **flags}
    settings["pin"] = [*pins, *_list(settings.get("pin"))]
    for key, value in settings.items():
        name = f"--{key.replace('_', '-')}"
        if value is True:
            argv.append(name)
        elif value is not None and value is not False:
            for one in _list(value):
                argv += [name, str(one)]
    run_command(call, argv, quiet, allowed=(0, 4))
    export = ["export", str(folder), "--target", "jax", "-o", str(folder / "jax"), "--json"]
    answer = run_command(call, export, quiet)
    if not (folder / "jax" / "program.py").exists():
        raise MismatchError("E_EXPORT", f"the plan has no program in JAX: {answer.strip()[:2000]}", place=str(folder))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def _check_saved(folder: Path, lowered: _Lowered, mesh: Mesh) -> None:
    """Refuses the plan of another step or mesh."""
    text, program = folder / _TEXT, folder / "jax" / "program.py"
    for file in (text, program):
        if not file.exists():
            raise MismatchError("E_PLAN", f"{file.name} is not there", place=str(folder), hint="give a folder that save wrote.")
    if _without_places(text.read_text()) != _without_places(lowered.text):
        raise MismatchError(
            "E_PLAN", "the plan is that of another step, or of other shapes", place=str(text), hint="leave plan= out, to plan this one."
        )
    planned = _import(program)
    if planned.MESH_NAMES != mesh.axis_names or tuple(planned.MESH_SHAPE) != mesh.devices.shape:
        raise MismatchError(
            "E_MESH", f"the plan is for {dict(zip(planned.MESH_NAMES, planned.MESH_SHAPE, strict=True))}, the mesh is {dict(mesh.shape)}"
        )


def _without_places(text: str) -> str:
    """A text without the lines of files: an edit above a function leaves it the same function."""
    lines = (line for line in text.splitlines() if not line.startswith("#loc"))
    return _PLACE.sub("", "\n".join(lines))


def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shardwright_jax_{abs(hash(path.resolve()))}", path)
    if spec is None or spec.loader is None:
        raise MismatchError("E_IO", "it cannot be imported", place=str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
