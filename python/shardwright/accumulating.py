"""Gradient accumulation: parts of gradients are added up over backward passes and reduced once.

Between two reductions `.grad` of a parameter whose gradient waits for one is zero. As with DDP and FSDP2, `no_sync()` says that a pass
reduces nothing; `accumulate=N` lets every Nth reduce.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .errors import MismatchError
from .placements import as_dtensor, part_of, placements
from .precision import dtype_of

if TYPE_CHECKING:
    from .run import Run


class Accumulation:
    """Parts of gradients of one model that no pass has reduced yet."""

    def __init__(self, every: int | None) -> None:
        #: Passes for one reduction; None: `synced` decides.
        self.every = every
        self.synced = True
        self.passes = 0
        self.reduces = True
        self.parts: dict[Run, list[torch.Tensor]] = {}
        self._task = -1
        self._model: Any = None

    def of(self, model: nn.Module) -> None:
        """Notes whose gradients they are."""
        if self._model is None or self._model() is not model:
            self._model = weakref.ref(model)

    def begin(self) -> None:
        """A program, or a call with whole weights, runs backward: in a new pass says whether it reduces."""
        if torch.is_grad_enabled():
            # A gradient with create_graph=True is computed with whole weights, and nothing of it waits.
            return
        task = torch._C._current_graph_task_id()
        if task == self._task:
            return
        self._task = task
        self.count()
        if any(p.requires_grad and p.grad is None for run in self.parts for p in self._waiting(run)):
            # They were set to None since: what belongs to them is gone, too.
            self.parts.clear()
        if self.reduces and self.parts:
            torch.autograd.Variable._execution_engine.queue_callback(self.reduce_rest)

    def count(self) -> None:
        """A pass begins: says whether it reduces."""
        self.passes += 1
        self.reduces = self.synced and (self.every is None or self.passes % self.every == 0)

    def taken(self, run: Run, parts: list[torch.Tensor]) -> list[Any] | None:
        """Adds the parts of a pass; the gradients of the program's deferred primals, None where nothing is to be added to them.

        In a pass that reduces nothing they are zeros at first, so that an optimizer that sets them to None drops the parts.
        """
        known = self.parts.pop(run, None)
        total = parts if known is None else _sums(known, parts)
        assert run.unreduced is not None
        if self.reduces:
            return run.unreduced.reduce(run.here, total)
        self.parts[run] = total
        _WAITING.add(self)
        if known is not None:
            return None
        rows = [run.gradients[run.primals[k]["of"]] if k in run.unreduced.deferred else None for k in range(len(run.primals))]
        return [None if row is None else _zeros(row, run) for row in rows]

    def reduce_rest(self) -> None:
        """Reduces what other programs left; all ranks call this together."""
        for run in list(self.parts):
            assert run.unreduced is not None
            found = run.unreduced.reduce(run.here, self.parts.pop(run))
            with torch.no_grad():
                for k in run.unreduced.deferred:
                    row = run.gradients[run.primals[k]["of"]]
                    p = self._model().get_parameter(row["of"])
                    gradient = as_dtensor(found[k].contiguous(), row, run.mesh)
                    p.grad = gradient if p.grad is None else p.grad + gradient

    def refuse_step(self, parameters: set[int]) -> None:
        """Refuses an optimizer's step on parameters whose gradients are not reduced."""
        for run in self.parts:
            own = next((row for row in self._waiting(run) if id(row) in parameters), None)
            if own is None:
                continue
            passes = f"{self.passes % self.every} of {self.every} passes" if self.every else "passes under no_sync()"
            raise MismatchError(
                "E_ACCUMULATE",
                f"the gradients of {passes} are not reduced",
                place="optimizer.step()",
                hint="call shardwright.reduce_gradients(model) before clipping and the step where data ends early, or leave no_sync() "
                "for the last pass.",
            )

    def _waiting(self, run: Run) -> Sequence[nn.Parameter]:
        assert run.unreduced is not None
        model = self._model()
        return [model.get_parameter(run.primals[k]["of"]) for k in run.unreduced.deferred if run.primals[k]["role"] == "parameter"]


def reduce_gradients(model: Any) -> None:
    """Reduces the gradients of passes under `no_sync()` or of fewer than `accumulate=`; all ranks call this together.

    Args:
        model: from `parallelize` or `auto_parallelize`.
    """
    accumulation: Accumulation = model.shardwright.accumulation
    accumulation.passes = 0
    accumulation.reduce_rest()


def _sums(known: list[torch.Tensor], parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """Sums of two lists, whose members are freed one after another. None is written in place: a part may be the script's own gradient."""
    total = []
    while known:
        total.append(known.pop() + parts.pop())
    return total[::-1]


def _zeros(row: dict[str, Any], run: Run) -> torch.Tensor:
    dtype = dtype_of(row["dtype"], "placements.json")
    # Where rows do not divide, each device has a size of its own.
    whole = torch.empty(row["shape"], dtype=dtype, device="meta")
    shape = part_of(whole, placements(row), run.plan.mesh_shape, run.here.coordinate).shape
    return torch.zeros(shape, dtype=dtype, device=run.here.device)


#: Models with parts, for optimizers that step too early.
_WAITING: weakref.WeakSet[Accumulation] = weakref.WeakSet()


def _before_step(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Refuses a step before gradients are reduced; of a step with a closure, which may be the pass that reduces, after the closure."""
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if closure is None:
        _refuse_early(optimizer)
        return None

    def checked() -> Any:
        loss = closure()
        _refuse_early(optimizer)
        return loss

    return args[:1], {**kwargs, "closure": checked}


def _refuse_early(optimizer: torch.optim.Optimizer) -> None:
    waiting = [accumulation for accumulation in _WAITING if accumulation.parts]
    if waiting:
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for accumulation in waiting:
            accumulation.refuse_step(own)


def _after_step(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Counts a version of what a fused optimizer has written: DTensor does not."""
    if optimizer.defaults.get("fused"):
        stepped = [p for group in optimizer.param_groups for p in group["params"] if isinstance(p, DTensor) and p.grad is not None]
        if stepped:
            torch.autograd.graph.increment_version(stepped)


register_optimizer_step_pre_hook(_before_step)
register_optimizer_step_post_hook(_after_step)
