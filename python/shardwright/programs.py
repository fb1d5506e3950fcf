"""The programs of one model over the same weights: one for each kind of call, planned when such a call comes first.

A kind of call is told by the modes of the modules, whether gradients are recorded, which parameters want one, sizes and dtypes of the
inputs, and the Python values that `forward` reads from its arguments and from attributes of modules. Parameters stay where the first
plan has them: they are pinned there. Calls that no program is made for are computed with whole weights on every rank (`gathered.py`).
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from .accumulating import Accumulation
from .agreement import Steps, check_batch, check_seeds, compare_random_states, random_state, told_by_all
from .errors import CaptureError, CommandError, MismatchError
from .gathered import Gathered, is_transformed
from .graph_capture import bind_inputs, flatten_named
from .hooks import hooks_of
from .loading import whole_of
from .local_batch import LocalBatch
from .making import make_run
from .modes import PLAIN, autocast_of, values_of
from .module import forward_of
from .output_trees import rebuild_tree
from .precision import MixedPrecision
from .run import STATES, Run
from .second_gradients import Again
from .whole_outputs import WholeOutput, added_up, placed_of

#: So many kinds of calls without gradients are planned when they first occur; later kinds when they occur again, because a generated
#: text has every length once.
_AT_ONCE = 2

#: Values that tell one kind of call from another.
Key = tuple[Any, ...]


@dataclass
class Settings:
    """How programs are made after the first one."""

    folder: Path | None
    cluster: str | None
    loss: Any = None
    targets: int = 0
    flags: dict[str, Any] = field(default_factory=dict)
    compile: bool = False
    #: Programs in all; calls of other kinds are computed with whole weights.
    most: int = 16
    check_batches: bool = True
    inputs: Literal["whole", "local"] | Sequence[str] = "whole"
    outputs: Literal["whole", "placed"] = "whole"
    accumulate: int | None = None
    check_finite: bool = False
    precision: MixedPrecision | None = None


@dataclass
class Call:
    """Inputs of one call by name, and what kind of call it is."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    with_loss: bool
    leaves: list[tuple[str, Any]]
    key: Key | None
    said: str
    #: The dtype of an autocast that was on.
    cast: str | None = None


class Programs:
    """The programs that a parallel module calls."""

    def __init__(self, main: Run, settings: Settings) -> None:
        self.main, self.settings, self.mesh = main, settings, main.mesh
        self.own_forward: Any = None
        self.by_key: dict[Key, Run | None] = {}
        self.seen: set[Key] = set()
        self.accumulation = main.accumulation = Accumulation(settings.accumulate)
        self.gathered = Gathered(self.accumulation)
        self.steps = main.steps = Steps(main.mesh, main.plan.folder)
        main.check_finite = settings.check_finite
        local = settings.inputs
        self.local = None if local == "whole" else LocalBatch(main.mesh, None if local == "local" else tuple(local))
        self.warned: set[str] = set()
        #: True if calls with whole weights are known to draw the same on all ranks.
        self.has_drawn = dist.get_backend() == "fake"

    def __deepcopy__(self, memo: dict[int, Any]) -> Programs:
        """Programs hold no weights: those of a copy of the model are the same."""
        made = copy.copy(self)
        made.accumulation = Accumulation(self.settings.accumulate)
        made.seen, made.gathered = set(self.seen), Gathered(made.accumulation)
        runs = {run: run.of_copy(made.accumulation) for run in {self.main, *self.by_key.values()} if run is not None}
        made.main, made.by_key = runs[self.main], {key: None if run is None else runs[run] for key, run in self.by_key.items()}
        made.own_forward = copy.deepcopy(self.own_forward, memo)
        return made

    def call(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs the program of a call, or makes it."""
        if self.gathered.inside:
            return forward_of(model)(*args, **kwargs)
        args, kwargs = placed_of(tuple(args)), placed_of(dict(kwargs))
        if is_transformed():
            return self.transformed(model, args, kwargs)
        if self.local is not None:
            args, kwargs = self.local.gather(args, kwargs)
        self.accumulation.of(model)
        call = self.read(model, args, kwargs)
        self.steps.begin(call.said)
        if self.settings.check_batches:
            # `shardwright doctor` reads this range: a rank that comes late lets the others wait here.
            with torch.profiler.record_function("shardwright::check_batch"):
                check_batch(self.steps, call.leaves)
        run = self.program_of(model, call)
        output = self.with_whole_weights(model, call) if run is None else self.run(model, run, call)
        return output if self.local is None else self.local.own_rows(output)

    def transformed(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A call that `torch.func` transforms (grad, vmap, jacrev): with whole weights on every rank, which all have the whole batch."""
        if self.local is not None:
            raise MismatchError(
                "E_TRANSFORM",
                "a transform of torch.func sees the rows of one rank, and ranks share no transformed tensors",
                hint='give the whole batch on every rank (inputs="whole"), or use autograd (functional_call and backward() work).',
            )
        call = Call(args, kwargs, False, [], None, "a call that torch.func transforms")
        self.steps.begin(call.said)
        self.warn(call, "no program is transformed")
        return self.gathered.call(model, forward_of(model), call, self.settings)

    def run(self, model: nn.Module, run: Run, call: Call) -> Any:
        """Calls a program."""
        if not run.has_drawn:
            run.has_drawn = True
            check_seeds(run.plan, run.mesh, run.here.device)
        if torch.is_grad_enabled():
            self.gathered.forget()
        tensors = [(name, leaf) for name, leaf in call.leaves if isinstance(leaf, torch.Tensor)]
        inputs = iter([run.local_input(entry, value) for entry, value in run.named_inputs(tensors)])
        primals = [run.state(model, entry) if entry["role"] in STATES else next(inputs) for entry in run.primals]
        if torch.is_grad_enabled() and self.is_computed_again(run):
            run.again = Again.of(run, model, call, primals, self.computed_again, self.warn)
        leaves = run.call(*primals)
        if not torch.is_grad_enabled():
            leaves = tuple(whole_of(leaf) for leaf in leaves)
        elif self.settings.outputs == "whole":
            # A script may read a loss on one rank alone, to print it: that must not be a collective.
            leaves = tuple(added_up(leaf) if isinstance(leaf, DTensor) and leaf.ndim == 0 else leaf for leaf in leaves)
            if self.local is None:
                leaves = tuple(WholeOutput.of(leaf) if isinstance(leaf, DTensor) else leaf for leaf in leaves)
        if run.plan.capture is None:
            return leaves[0] if len(leaves) == 1 else leaves
        return rebuild_tree(run.plan.capture["outputs"]["tree"], leaves)

    def read(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Reads the kind of a call."""
        if self.main.plan.capture is None:
            leaves = flatten_named((args, dict(kwargs)))
            return Call(args, kwargs, False, leaves, None, "a call")
        count = self.settings.targets
        with_loss, named = False, None
        if count and len(args) >= count:
            try:
                named, with_loss = bind_inputs(model, args[: len(args) - count], kwargs, args[len(args) - count :]), True
            except CaptureError:
                pass
        leaves = flatten_named(bind_inputs(model, args, kwargs) if named is None else named)
        records = torch.is_grad_enabled()
        signs = tuple(_sign(name, leaf, records) for name, leaf in leaves)
        cast = autocast_of(self.main.here.device.type)
        key = None if None in signs else (with_loss, records, *signs, cast, str(torch.get_default_dtype()), *_modes(model, records))
        mode = "training" if model.training else "evaluation"
        said = ", ".join(_said(name, leaf) for name, leaf in leaves)
        return Call(args, kwargs, with_loss, leaves, key, f"{mode}{'' if records else ' without gradients'}: {said}", cast)

    def program_of(self, model: nn.Module, call: Call) -> Run | None:
        """The program of a call; None for one with whole weights."""
        if self.main.plan.capture is None:
            return self.main
        if call.key is None:
            self.warn(call, "an input is neither a tensor nor a plain value")
            return None
        if call.key in self.by_key:
            return self.by_key[call.key]
        if self.main.is_of(model, call):
            self.by_key[call.key] = self.main
            return self.main
        if call.with_loss and self.settings.loss is None:
            self.main.refuse(model, call)
        if len(self.by_key) >= self.settings.most:
            self.warn(call, f"there are {self.settings.most} programs already (programs=)")
            return None
        records = call.key[1]
        others = sum(not key[1] for key in self.by_key)
        if not records and others >= _AT_ONCE and call.key not in self.seen:
            self.seen.add(call.key)
            return None
        self.by_key[call.key] = self.make(model, call)
        return self.by_key[call.key]

    def make(self, model: nn.Module, call: Call) -> Run | None:
        """Plans a call with the parameters where they are; all ranks call this together."""
        try:
            told = told_by_all(self.mesh, (call.said, hashlib.sha256(repr(call.key).encode()).hexdigest()))
        except RuntimeError as error:
            raise self.steps.explained(error, "forward") from error
        first = min(told)
        other = next((rank for rank in sorted(told) if told[rank] != told[first]), None)
        if other is not None:
            raise MismatchError(
                "E_INPUT",
                f"rank {first} calls it for {told[first][0]}, rank {other} for {told[other][0]}",
                hint="inputs are the whole batch, the same on every rank; modes and attributes of the model are the same, too.",
            )
        try:
            return make_run(model, self, call)
        except (CaptureError, CommandError) as error:
            self.warn(call, str(error))
            return None

    def with_whole_weights(self, model: Any, call: Call) -> Any:
        """Computes a call on every rank as one process does."""
        before = random_state(self.main.here.device)
        output = self.gathered.call(model, forward_of(model), call, self.settings)
        if not self.has_drawn and random_state(self.main.here.device) != before:
            self.has_drawn = True
            compare_random_states(self.mesh, before, "forward")
        return output

    def is_computed_again(self, run: Run) -> bool:
        """Tells whether gradients of a call may be asked for with create_graph=True: a script must see whole tensors alone."""
        return (
            run.plan.capture is not None
            and self.local is None
            and self.settings.outputs == "whole"
            and self.accumulation.synced
            and (self.settings.accumulate or 1) == 1
        )

    def computed_again(self, model: nn.Module, wholes: Mapping[str, torch.Tensor], call: Call) -> Any:
        """The output of a call with whole weights, and with a graph.

        Raises:
            MismatchError: E_GRADIENT where the model is in another state than it was in.
        """
        dtype = getattr(torch, call.cast) if call.cast else None
        with torch.autocast(self.main.here.device.type, dtype, enabled=dtype is not None):
            if self.read(model, call.args, call.kwargs).key != call.key:
                raise MismatchError(
                    "E_GRADIENT",
                    "modes, attributes, hooks or frozen parameters of the model are others than in the call whose gradient with "
                    "create_graph=True is asked for",
                    place="backward",
                    hint="change them after that gradient.",
                )
            return self.gathered.call(model, forward_of(model), call, self.settings, wholes)

    def plan_ahead(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Plans evaluation of such inputs without gradients."""
        modes = {module: module.training for module in model.modules()}
        model.eval()
        with torch.no_grad():
            call = self.read(model, args, kwargs)
            if call.key is not None and call.key not in self.by_key:
                self.by_key[call.key] = self.make(model, call)
        for module, mode in modes.items():
            module.training = mode

    def warn(self, call: Call, why: str) -> None:
        """Says once why calls are computed with whole weights."""
        if why in self.warned:
            return
        self.warned.add(why)
        if dist.get_rank() == int(self.mesh.mesh.flatten()[0]):
            warnings.warn(f"shardwright computes this with whole weights on every rank ({call.said}): {why}", stacklevel=6)


def _sign(name: str, leaf: Any, records: bool) -> Any:
    if isinstance(leaf, torch.Tensor):
        return name, str(leaf.dtype), tuple(leaf.shape), records and leaf.requires_grad
    return (name, type(leaf).__name__, leaf) if isinstance(leaf, PLAIN) else None


def _said(name: str, leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{name} {str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}{' with a gradient' if leaf.requires_grad else ''}"
    return f"{name} {leaf!r}" if isinstance(leaf, PLAIN) else f"{name} a {type(leaf).__name__}"


def _modes(model: nn.Module, records: bool) -> Key:
    """Plain values, modes and hooks of all modules, and which parameters want a gradient."""
    wanted = tuple(p.requires_grad for p in model.parameters()) if records else ()
    return (values_of(model), tuple(m.training for m in model.modules()), wanted, hooks_of(model))
