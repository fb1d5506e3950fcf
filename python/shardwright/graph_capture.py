"""Captures the joint forward and backward graph of a model as a file, with a record of names that is needed to run the graph again.

Example inputs may be real, fake or on the meta device; nothing is computed and no weight is copied.

Source: AOTAutograd's `aot_export_joint_with_descriptors`.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

from .attention_forms import writing_flex_attention
from .constraints import Stated, by_number, placed_inputs, read_constraints, stating
from .decompositions import CHECKS, checks_without_effects, decomposable, layers_of_steps, unknown_operators
from .errors import CaptureError, ShardwrightError, line_of
from .flat_model import FlatCall, FlatModel
from .folder import RECORD_VERSION
from .hooks import refuse_hooks, remove_hooks
from .local_maps import name_groups, recording_local_maps
from .modes import autocast_of, frozen, other_modes, values_hash
from .module import forward_of, original_class, original_of, uncompiled
from .precision import MixedPrecision
from .side_effects import telling_side_effects

#: Begins the line of a captured text that names what was decomposed; the planner reads it as a note.
DECOMPOSED = "Decomposed at capture"


@dataclass(frozen=True)
class Captured:
    """A captured model: where its text is, and its record: names of inputs, parameters and buffers, ties, and how the output is nested."""

    path: Path
    record: dict[str, Any]
    #: Names of the inputs in the graph, in their order.
    inputs: tuple[str, ...] = ()

    @property
    def ties(self) -> list[list[str]]:
        """Groups of names that are one tensor; the first of each owns it."""
        return self.record["ties"]


def record_path(path: str | os.PathLike[str]) -> Path:
    """The path of the record of a captured text: next to it."""
    return Path(f"{os.fspath(path)}.json")


def capture(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[..., Any] | bool | None = None,
    targets: Sequence[Any] = (),
    path: str | os.PathLike[str] = "model.fx.txt",
    device: str | None = None,
    gradients: bool = True,
    mixed_precision: MixedPrecision | None = None,
    in_placements: Stated | None = None,
    out_placements: Stated | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    command: Sequence[str] | None = None,
    hooks: bool = True,
) -> Captured:
    """Writes the joint graph of a model, and its record beside it.

    Args:
        model: any `nn.Module`; its weights may be real, fake or on the meta device. It is not changed.
        args: example inputs by position, of the global batch. Only shapes, strides and dtypes count.
        kwargs: example inputs by name.
        loss: what is trained. None: the model's output, or its `loss` where it has one. A function: `loss(output, *targets)`.
            False: the output as it is.
        targets: example inputs of the loss function; the parallel module takes them after those of the model.
        path: the text file.
        device: type of the device that the graph is for; default that of the first parameter, `cpu` for meta. One that is
            not here is tried in a process of its own.
        gradients: False captures the call as it is under `torch.no_grad()`: the forward graph alone.
        mixed_precision: dtypes in which the step computes.
        in_placements: where inputs are placed, by name or in their order, such as `S(0)R`; example inputs that are DTensors state theirs.
        out_placements: the same of outputs, by their number.
        decompositions: functions in place of operators, such as `{torch.ops.mine.op.default: my_op}`. Operators that the planner does
            not know are decomposed without being named, where PyTorch has a decomposition of them.
        command: how to call the planner, which says what operators it knows; default what `find_command` finds.
        hooks: False leaves out hooks that a script set on modules inside of the model, which are refused otherwise.

    Raises:
        CaptureError: for models that are not a single graph, outputs that are not tensors, and tensors that are not parameters,
            buffers or inputs, each with its name; for a device without which PyTorch records nothing.
    """
    kwargs = dict(kwargs or {})
    kind = device or _device_of(model)
    _refuse_absent(kind)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, Any] = {}

    def fake_alone(tensor: torch.Tensor) -> torch.Tensor:
        wanted = gradients and tensor.requires_grad
        with mode:
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=kind)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=wanted)
        return made.requires_grad_(wanted)

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in fakes:
            fakes[id(tensor)] = fake_alone(tensor)
        return fakes[id(tensor)]

    model = uncompiled(model)
    if hooks:
        refuse_hooks(model)
    twin = _twin(model, fake, kind)
    remove_hooks(twin)
    bound = bind_inputs(model, args, kwargs, targets)
    leaves = flatten_named(bound)
    tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
    constants = {name: leaf for name, leaf in leaves if not isinstance(leaf, torch.Tensor)}
    for name, leaf in constants.items():
        if not isinstance(leaf, (int, float, str, bool, type(None))):
            raise CaptureError("E_INPUT", f"it is a {type(leaf).__name__}, neither a tensor nor a plain value", place=f"input {name}")
    # One tensor that is given twice is two inputs: each has its own placement and gradient.
    inputs = [fake_alone(leaf) for _, leaf in tensors]
    runner = FlatModel(twin, bound, loss, len(targets), mixed_precision or MixedPrecision())
    call: FlatCall = runner.__dict__["_shardwright"]
    call.out_placements = out_placements
    names = [name for name, _ in tensors]
    placed = {**placed_inputs([leaf for _, leaf in tensors]), **by_number(in_placements, names, "in_placements")}
    with ExitStack() as stack:
        stack.enter_context(mode)
        stack.enter_context(writing_flex_attention())
        stack.enter_context(_as_compiling())
        stack.enter_context(stating())
        stack.enter_context(recording_local_maps())
        stack.enter_context(_without_looking_at_masks())
        stack.enter_context(_without_validating())
        stack.enter_context(checks_without_effects())
        stack.enter_context(layers_of_steps())
        stack.enter_context(telling_side_effects(original_class(type(model)).__name__, twin, [loss]))
        try:
            joint, decomposed = _exported(stack, runner, tuple(inputs), decompositions or {}, command)
        except ShardwrightError:
            raise
        except Exception as error:
            raise _explained(error, model) from error
        graph = joint.graph_module
        _refuse_changed(graph, [name for name, _ in tensors])
        called = _name_inputs(graph, [name for name, _ in tensors])
        pins = {**{called[number]: placement for number, placement in placed.items()}, **read_constraints(graph)}
        name_groups(graph)
        _leave_out_empty_parts(graph)
        _inline_constants(graph, kind)
        _write_complex_numbers(graph, kind)
        _promote_by_default_dtype(graph)
        text = _heading(decomposed) + graph.print_readable(print_output=False, include_stride=True, include_device=True, expanded_def=True)
    if call.spec is None:
        raise CaptureError("E_CAPTURE", "the model was not called while it was captured")
    record = {
        "version": RECORD_VERSION,
        "torch": torch.__version__,
        "device": kind,
        "model": original_class(type(model)).__name__,
        "training": bool(model.training),
        "otherModes": other_modes(model),
        "values": values_hash(model),
        "autocast": autocast_of(kind),
        **({"frozen": frozen(model)} if frozen(model) else {}),
        **({"pins": pins} if pins else {}),
        **({} if mixed_precision is None else {"mixedPrecision": mixed_precision.record()}),
        "defaultDtype": _word(torch.get_default_dtype()),
        "parameters": [_entry(name, p) for name, p in model.named_parameters(remove_duplicate=False)],
        "buffers": [_entry(name, b) for name, b in model.named_buffers(remove_duplicate=False)],
        "ties": _ties(model),
        "inputs": [_entry(name, leaf) for name, leaf in tensors],
        "constants": {name: _plain(leaf) for name, leaf in constants.items()},
        "decomposed": decomposed,
        "targets": len(targets),
        "outputs": {"tree": call.spec, "count": call.count},
        "text": hashlib.sha256(text.encode()).hexdigest(),
    }
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    record_path(target).write_text(json.dumps(record, indent=1) + "\n")
    return Captured(target, record, tuple(called[number] for number in range(len(tensors))))


def _exported(
    stack: ExitStack,
    runner: FlatModel,
    inputs: tuple[Any, ...],
    given: Mapping[Any, Callable[..., Any]],
    command: Sequence[str] | None,
) -> tuple[Any, list[str]]:
    """The joint graph without operators that the planner does not know, as far as they decompose, and the names of these."""
    table = {**CHECKS, **given}
    found: list[str] = []
    joint = aot_export_joint_with_descriptors(stack, runner, inputs, decompositions=table)
    while more := {op: body for op, body in decomposable(joint.graph_module, command).items() if op not in table}:
        table.update(more)
        finer = aot_export_joint_with_descriptors(stack, runner, inputs, decompositions=table)
        further = {str(op) for op in decomposable(finer.graph_module, command)}
        # A decomposition into others that the planner does not know either helps nobody.
        if unknown_operators(finer.graph_module, command) - unknown_operators(joint.graph_module, command) - further:
            break
        found += [str(op) for op in more]
        joint = finer
    return joint, sorted([*(str(op) for op in given), *found])


def _heading(decomposed: Sequence[str]) -> str:
    return f"# {DECOMPOSED}: {', '.join(decomposed)}\n" if decomposed else ""


def bind_inputs(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], targets: Sequence[Any] = ()) -> dict[str, Any]:
    """Inputs by the names that the model's `forward` gives them; those of a loss are `target 0`, `target 1`, ...

    Raises:
        CaptureError: where the model does not take them.
    """
    return bind_named(inspect.signature(forward_of(model)), original_class(type(model)).__name__, args, kwargs, targets)


def bind_named(
    signature: inspect.Signature, model: str, args: Sequence[Any], kwargs: Mapping[str, Any], targets: Sequence[Any] = ()
) -> dict[str, Any]:
    """The same by the signature of `forward` alone.

    Args:
        signature: of the method of a model.
        model: what its class is called, for messages.
        args, kwargs, targets: as of `bind_inputs`.
    """
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CaptureError("E_INPUT", f"{model}.forward does not take these inputs: {error}") from error
    named: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if name not in bound.arguments:
            continue
        value = bound.arguments[name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}.{k}": member for k, member in enumerate(value)})
        else:
            named[name] = value
    named.update({f"target {k}": value for k, value in enumerate(targets)})
    return named


def flatten_named(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Leaves of nested lists, tuples and dicts with the path to each, `batch.ids` or `states.0`; in a fixed order."""
    if isinstance(value, Mapping):
        return [leaf for key, member in value.items() for leaf in flatten_named(member, f"{name}.{key}" if name else str(key))]
    if isinstance(value, (list, tuple)):
        return [leaf for k, member in enumerate(value) for leaf in flatten_named(member, f"{name}.{k}")]
    return [(name, value)]


def _twin(model: nn.Module, fake: Callable[[Any], Any], kind: str) -> Any:
    """The same modules with fake tensors in place of the model's: nothing is copied."""
    memo: dict[int, Any] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        memo[id(tensor)] = fake(tensor)
    # deepcopy refuses the tensor that a hook of pruning or of a normed weight computed last; it is computed again.
    for module in model.modules():
        memo.update({id(value): fake(value) for value in vars(module).values() if isinstance(value, torch.Tensor) and not value.is_leaf})
    try:
        twin = copy.deepcopy(model, memo)
    except Exception as error:
        raise CaptureError(
            "E_CAPTURE", f"{original_class(type(model)).__name__} cannot be copied: {error}", hint="remove what deepcopy refuses."
        ) from error
    # Modules inside may be parallel models of their own.
    for module in twin.modules():
        original_of(module)
    for module in twin.modules():
        for key, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and not _is_constant(value, kind):
                module.__dict__[key] = fake(value)
    return twin


def _is_constant(value: torch.Tensor, kind: str) -> bool:
    """Tells whether a tensor that a module has as a plain attribute is small enough to be written into the graph, and has values."""
    return value.device.type == kind and not value.requires_grad and _runs(value) is not None


@contextmanager
def _as_compiling() -> Iterator[None]:
    """Answers yes to `torch.compiler.is_compiling()`, which models ask before they look at the values of tensors: here there are none."""
    module: Any = torch.compiler
    before = getattr(module, "_is_compiling_flag", False)
    module._is_compiling_flag = True
    try:
        yield
    finally:
        module._is_compiling_flag = before


@contextmanager
def _without_looking_at_masks() -> Iterator[None]:
    """The layers of `nn.Transformer` compare the values of a mask with a causal one for a hint only; here there are none."""
    module: Any = nn.modules.transformer
    before = module._detect_is_causal_mask
    module._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        module._detect_is_causal_mask = before


@contextmanager
def _without_validating() -> Iterator[None]:
    """Distributions that `forward` makes look at the values of their parameters; here there are none."""
    kind: Any = torch.distributions.Distribution
    before = kind._validate_args
    kind.set_default_validate_args(False)
    try:
        yield
    finally:
        kind.set_default_validate_args(before)


def _refuse_changed(graph: Any, names: Sequence[str]) -> None:
    """Refuses models that change a parameter or an input in place; buffers may change.

    Raises:
        CaptureError: with the name.
    """
    (output,) = graph.graph.find_nodes(op="output")
    for descriptor in output.meta.get("desc", ()):
        changed = getattr(descriptor, "mutated_input", None)
        target, index = getattr(changed, "target", None), getattr(changed, "idx", None)
        if type(changed).__name__ == "ParamAOTInput":
            raise CaptureError(
                "E_MUTATION",
                "forward changes this parameter in place",
                place=str(target),
                hint="change it after the step under torch.no_grad(), or make it a buffer (register_buffer).",
            )
        if type(changed).__name__ == "PlainAOTInput" and index is not None:
            raise CaptureError(
                "E_MUTATION",
                "forward changes it in place, and a device has only its part of it",
                place=f"input {names[index]}",
                hint="change a clone of it, and return what the caller is to have.",
            )


def _name_inputs(graph: Any, names: Sequence[str]) -> dict[int, str]:
    """Inputs are called what the model calls them; their names in the graph by number."""
    taken = {node.name for node in graph.graph.nodes}
    called: dict[int, str] = {}
    for node in graph.graph.find_nodes(op="placeholder"):
        descriptor = node.meta.get("desc")
        index = getattr(descriptor, "idx", None)
        if type(descriptor).__name__ != "PlainAOTInput" or index is None:
            continue
        wanted = "".join(c if c.isalnum() else "_" for c in names[index])
        if wanted[:1].isalpha() and wanted not in taken:
            taken.add(wanted)
            node._rename(wanted)
            node.target = node.name
        called[index] = node.name
    return called


def _leave_out_empty_parts(graph: Any) -> None:
    """A tensor without elements adds nothing to others that it is joined with: caches of keys and values begin with one."""
    for node in list(graph.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)):
        parts = node.args[0]
        full = [part for part in parts if part.meta["val"].numel() > 0]
        if not 0 < len(full) < len(parts):
            continue
        node.args = (full, *node.args[1:])
        unread = {part for part in parts if part not in full}
        while unread:
            part = unread.pop()
            if part.op == "placeholder" or part.users:
                continue
            unread |= set(part.all_input_nodes)
            graph.graph.erase_node(part)


def _inline_constants(graph: Any, device: str) -> None:
    """Tensors that the model makes from Python numbers become `aten.full`.

    Raises:
        CaptureError: for others that are not a parameter, buffer or input.
    """
    held: list[str] = []
    for node in list(graph.graph.find_nodes(op="get_attr")):
        value = getattr(graph, str(node.target), None)
        if not isinstance(value, torch.Tensor):
            continue
        runs = _runs(value)
        if runs is None:
            held.append(str(node.target))
            continue
        with graph.graph.inserting_before(node):
            made = _written(graph.graph, value, runs, device)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
    if held:
        raise CaptureError(
            "E_CONSTANT",
            f"the model uses {len(held)} tensors that are not parameters, buffers or inputs ({', '.join(held[:3])})",
            hint=f"one with more than {_MOST_RUNS} runs of values is made a buffer (register_buffer), or made in forward from sizes.",
        )


def _write_complex_numbers(graph: Any, device: str) -> None:
    """Complex numbers in the place of a tensor, and values of `full` that are, become `aten.complex` of two reals.

    Raises:
        CaptureError: for one that an operator takes as a number.
    """
    for node in list(graph.graph.nodes):
        numbers = [(place, arg) for place, arg in enumerate(node.args) if isinstance(arg, complex)]
        if not numbers or node.op != "call_function":
            continue
        value = node.meta["val"]
        dtype = value.dtype if value.is_complex() else torch.complex64

        def made(shape: Sequence[int], number: complex, dtype: torch.dtype = dtype) -> torch.fx.Node:
            options = {"dtype": dtype.to_real(), "device": torch.device(device), "pin_memory": False}
            both = (number.real, number.imag)
            parts = [graph.graph.call_function(torch.ops.aten.full.default, (list(shape), part), options) for part in both]
            result = graph.graph.call_function(torch.ops.aten.complex.default, tuple(parts))
            for part in parts:
                part.meta["val"] = torch.empty(list(shape), dtype=dtype.to_real(), device=device)
            result.meta["val"] = torch.empty(list(shape), dtype=dtype, device=device)
            return result

        with graph.graph.inserting_before(node):
            if node.target is torch.ops.aten.full.default:
                node.replace_all_uses_with(made(node.args[0], numbers[0][1]))
                graph.graph.erase_node(node)
                continue
            for place, number in numbers:
                if "Tensor" not in str(node.target._schema.arguments[place].type):
                    raise CaptureError(
                        "E_CONSTANT",
                        f"{node.target} takes the complex number {number}, which a graph has only as a tensor",
                        hint="write it as a tensor: torch.tensor(1j).",
                    )
                node.update_arg(place, made([], number))
    graph.recompile()


def _promote_by_default_dtype(graph: Any) -> None:
    """Writes down the casts of integers that PyTorch makes by its default dtype, where that is not float32: a text does not tell it."""
    default = torch.get_default_dtype()
    if default is torch.float32:
        return
    for node in list(graph.graph.nodes):
        value = node.meta.get("val")
        if torch.Tag.pointwise not in getattr(node.target, "tags", ()) or getattr(value, "dtype", None) is not default:
            continue
        operands = [one for one in node.all_input_nodes if isinstance(one.meta.get("val"), torch.Tensor)]
        if not operands or any(one.meta["val"].is_floating_point() or one.meta["val"].is_complex() for one in operands):
            continue
        for one in operands:
            with graph.graph.inserting_before(node):
                cast = graph.graph.call_function(torch.ops.aten._to_copy.default, (one,), {"dtype": default})
            cast.meta["val"] = one.meta["val"].to(default)
            node.replace_input_with(one, cast)


#: Runs of equal values of a constant up to which it is written into the graph.
_MOST_RUNS = 64


def _runs(value: torch.Tensor) -> list[tuple[float | int | bool, int]] | None:
    """The values of a tensor, row by row, each with how often it follows itself; None for too many, and where there are no values."""
    if isinstance(value, FakeTensor) or value.device.type == "meta" or value.numel() == 0:
        return None
    with unset_fake_temporarily():
        flat = value.detach().flatten()
        values, counts = torch.unique_consecutive(torch.view_as_real(flat) if value.is_complex() else flat, dim=0, return_counts=True)
        if len(values) > _MOST_RUNS or bool(torch.isnan(values).any()):
            return None
        numbers = [complex(*pair) for pair in values.tolist()] if value.is_complex() else values.tolist()
        return list(zip(numbers, counts.tolist(), strict=True))


def _written(graph: torch.fx.Graph, value: torch.Tensor, runs: Sequence[tuple[Any, int]], device: str) -> torch.fx.Node:
    """A constant as calls: a value everywhere, or one run of equal values after the other."""

    def call(op: Any, shape: Sequence[int], *args: Any, **kwargs: Any) -> torch.fx.Node:
        made = graph.call_function(op, args, kwargs)
        made.meta["val"] = torch.empty(list(shape), dtype=value.dtype, device=device)
        return made

    options = {"dtype": value.dtype, "device": torch.device(device), "pin_memory": False}
    shape = list(value.shape)
    if len(runs) == 1:
        return call(torch.ops.aten.full.default, shape, shape, runs[0][0], **options)
    parts = [call(torch.ops.aten.full.default, [n], [n], number, **options) for number, n in runs]
    row = call(torch.ops.aten.cat.default, [value.numel()], parts)
    return call(torch.ops.aten.view.default, shape, row, shape)


def _explained(error: Exception, model: nn.Module) -> CaptureError:
    """Explains a refusal of the engine in words of the user."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    kind = type(error).__name__
    if kind in ("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException"):
        return CaptureError(
            "E_DATA_DEPENDENT",
            f"{original_class(type(model)).__name__} makes a size or a branch out of the values of a tensor: {first}",
            hint="use torch.where, torch.cond or a fixed capacity in its place (nonzero and masks that select rows have no fixed size).",
            place=line_of(error),
        )
    return CaptureError("E_CAPTURE", f"{original_class(type(model)).__name__} is not a single graph: {kind}: {first}", place=line_of(error))


def _ties(model: nn.Module) -> list[list[str]]:
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


#: Autograd asks the runtime of a device for its stream even where tensors are fake; where there is none, PyTorch ends the process.
_PROBE = """
import sys, torch
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    torch.empty(2, device=sys.argv[1], requires_grad=True).sum().backward()
"""


def _refuse_absent(device: str) -> None:
    """Refuses a device that this process has not, where PyTorch cannot do without: another process tries it."""
    kind = torch.device(device).type
    here = torch.accelerator.current_accelerator()
    if kind in ("cpu", "meta") or (here is not None and here.type == kind and torch.accelerator.is_available()):
        return
    tried = subprocess.run([sys.executable, "-c", _PROBE, kind], capture_output=True, check=False)
    if tried.returncode == 0:
        return
    raise CaptureError(
        "E_DEVICE",
        f"PyTorch {torch.__version__} finds no {kind} device here, and without one it records no graph for {kind}",
        hint=f"capture where there is one, or with device='cpu': that graph runs on {kind} too unless it holds kernels of the CPU "
        "alone, which fused attention is; capture it under torch.nn.attention.sdpa_kernel(SDPBackend.MATH).",
    )


def _device_of(model: nn.Module) -> str:
    for tensor in [*model.parameters(), *model.buffers()]:
        return "cpu" if tensor.device.type == "meta" else tensor.device.type
    return "cpu"


def _word(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _entry(name: str, tensor: Any) -> dict[str, Any]:
    return {"name": name, "dtype": _word(tensor.dtype), "shape": list(tensor.shape)}


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
