"""`check_finite=True`: every step asks whether its outputs and gradients are finite; where one is not, all ranks end and say what made it.

A step then reads its outputs and gradients once more, and ranks tell each other a number. What made the value is found by calling the
program a second time, call by call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode

from .agreement import told_by_all
from .errors import ShardwrightError

#: A value by the name that messages give it.
Named = Sequence[tuple[str, Any]]


def _bad(value: Any) -> str | None:
    """`nan` or `inf` of a tensor that holds one; None of others."""
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()) or value.is_meta:
        return None
    # One sum tells it of most; that of many large values may overflow.
    if bool(torch.isfinite(value.sum(dtype=torch.float32) if value.element_size() < 4 else value.sum())):
        return None
    return "nan" if bool(value.isnan().any()) else "inf" if bool(value.isinf().any()) else None


def _first_bad(values: Named, wanted: Callable[[Any, str], bool] = lambda value, kind: True) -> tuple[str, str] | None:
    for name, value in values:
        kind = _bad(value)
        if kind is not None and wanted(value, kind):
            return name, kind
    return None


def _on_any(mesh: DeviceMesh, own: bool, device: torch.device) -> bool:
    flag = torch.tensor([int(own)], device=device)
    for d in range(mesh.ndim):
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=mesh.get_group(d))
    return bool(flag.item())


class _Makers(TorchDispatchMode):
    """The first calls of a program that make a nan, or an infinity, out of values that are none."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file, self.count = file, 0
        self.first: dict[str, tuple[int, str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count += 1
        if func.namespace != "aten":
            return out
        kind = next(filter(None, map(_bad, torch.utils._pytree.tree_leaves(out))), None)
        if kind is None or kind in self.first:
            return out
        read = torch.utils._pytree.tree_leaves((args, kwargs))
        infinite = any(isinstance(value, float) and value in (float("inf"), -float("inf")) for value in read)
        known = {_bad(value) for value in read} - {None}
        if not (known or infinite) or (kind == "nan" and "nan" not in known):
            self.first[kind] = self.count, f"{func} ({self.file}:{self._line()})"
        return out

    def _line(self) -> int:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0


@contextmanager
def random_state_of(device: torch.device, state: torch.Tensor | None) -> Iterator[None]:
    """Draws inside what was drawn from a state, and goes on as before; None changes nothing."""
    if state is None:
        yield
        return
    module: Any = torch if device.type == "cpu" else torch.get_device_module(device)
    now = module.get_rng_state()
    module.set_rng_state(state)
    try:
        yield
    finally:
        module.set_rng_state(now)


def check_finite(run: Any, phase: str, given: Named, made: Named, again: Callable[[], Any]) -> None:
    """Refuses values that are not finite; all ranks call this together.

    Args:
        run: whose program made them.
        phase: forward or backward.
        given: what the program read.
        made: outputs, of which infinities are refused in numbers alone (logits may be masked), or gradients.
        again: calls the program once more with the same values.

    Raises:
        ShardwrightError: E_NAN on every rank.
    """
    own = _first_bad(made, lambda value, kind: kind == "nan" or phase == "backward" or value.ndim == 0)
    if not _on_any(run.mesh, own is not None, run.here.device):
        return
    makers = _Makers(run.plan.program.__file__)
    with makers:
        again()
    told = told_by_all(run.mesh, (own, _first_bad(given), makers.first))
    ranks = [rank for rank in sorted(told) if told[rank][0] is not None]
    name, kind = told[ranks[0]][0]
    raise ShardwrightError(
        "E_NAN",
        f"in the {phase} of step {run.steps.count if run.steps else 0} {name} is {kind} on {'rank' if len(ranks) == 1 else 'ranks'} "
        f"{', '.join(map(str, ranks))}: {_reason(told, kind)}",
        hint="check_finite=False goes on with such values, as a GradScaler needs it.",
    )


def _reason(told: dict[int, Any], kind: str) -> str:
    """Names what the ranks found: a value that came in, or the first call."""
    for rank in sorted(told):
        if told[rank][1] is not None:
            name, found = told[rank][1]
            return f"{name} came in as {found} on rank {rank}"
    firsts = [(*found[wanted], rank, wanted) for wanted in (kind, "inf") for rank, (_, _, found) in told.items() if wanted in found]
    firsts.sort(key=lambda one: (one[3] != kind, one[0], one[2]))
    if not firsts:
        return "no single call made it"
    _, text, rank, found = firsts[0]
    return f"rank {rank} made the first {found} in {text}"
