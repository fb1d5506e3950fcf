"""Which schedules of `torch.distributed.pipelining` run the stages of a plan, and on which device each stage is then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from .errors import MismatchError
from .staged import StagedPlan


@dataclass(frozen=True)
class Schedule:
    """One of PyTorch's schedules."""

    made: Any
    #: Takes a list of stages, of which a device may have several.
    takes_list: bool = True
    #: Runs gradients of weights apart from those of inputs.
    splits: bool = False
    #: Device k has stage k and the k-th from the end; otherwise stages go round.
    is_v: bool = False


#: Schedules that run, by their names in the plan.
SCHEDULES: dict[str, Schedule] = {
    "gpipe": Schedule(ScheduleGPipe, takes_list=False),
    "1f1b": Schedule(Schedule1F1B, takes_list=False),
    "interleaved": Schedule(ScheduleInterleaved1F1B),
    "zb-h1": Schedule(ScheduleInterleavedZeroBubble, splits=True),
    "zbv": Schedule(ScheduleZBVZeroBubble, splits=True, is_v=True),
    "dualpipev": Schedule(ScheduleDualPipeV, splits=True, is_v=True),
}
#: Names of PyTorch that are not ours in small letters.
_NAMES = {"interleaved1f1b": "interleaved", "interleavedzerobubble": "zb-h1", "zbvzerobubble": "zbv"}


@contextmanager
def forward_only(schedule: Any) -> Iterator[None]:
    """Runs only the forward passes of a schedule of several stages: PyTorch's `eval` of those in a V would hand on gradients."""
    order = getattr(schedule, "pipeline_order_with_comms", None)
    if order is None:
        yield
        return
    kept = {"F", "SEND_F", "RECV_F"}

    def single(action: Any) -> Sequence[Any]:
        return action.sub_actions or (action,)

    names = {rank: [one for action in actions for one in single(action)] for rank, actions in order.items()}
    schedule.pipeline_order_with_comms = {
        rank: [one for one in actions if one.computation_type.value in kept] for rank, actions in names.items()
    }
    try:
        yield
    finally:
        schedule.pipeline_order_with_comms = order


def device_of(staged: StagedPlan, name: str, stage: int) -> int:
    """The device in the row on which a schedule has a stage."""
    chunk, place = divmod(stage, staged.devices)
    return staged.devices - 1 - place if SCHEDULES[name].is_v and chunk % 2 else place


def schedule_of(staged: StagedPlan, asked: str | None, microbatches: int) -> str:
    """The name of the schedule.

    Raises:
        MismatchError: for one that does not run these stages, with those that do.
    """
    name = staged.schedule if asked is None else asked.lower().removeprefix("schedule")
    name = _NAMES.get(name, name)
    fits = ["interleaved", "zb-h1"] if staged.virtual > 1 else ["1f1b", "gpipe", "zb-h1"]
    fits += ["zbv", "dualpipev"] if staged.virtual == 2 else []
    if name not in fits:
        held = f"each device has {staged.virtual} stages" if staged.virtual > 1 else "each device has one stage"
        known = "" if name in SCHEDULES else f"; runs: {', '.join(SCHEDULES)}"
        raise MismatchError(
            "E_SCHEDULE",
            f"schedule {name} does not run these stages: {held}{known}",
            place="schedule",
            hint=" or ".join(f'schedule="{one}"' for one in fits) + ", or plan the stages for it (schedule=, virtual=).",
        )
    least = {"1f1b": staged.devices, "dualpipev": len(staged.stages)}.get(name, 1)
    rounds = max(1, microbatches // staged.devices)
    if microbatches < least or (name in ("interleaved", "zb-h1") and microbatches % rounds != 0):
        near = max(least, round(microbatches / staged.devices) * staged.devices, 1)
        raise MismatchError(
            "E_SCHEDULE",
            f"schedule {name} on {staged.devices} devices in a row does not run {microbatches} microbatches",
            place="microbatches",
            hint=f"microbatches={near}" + (', or schedule="gpipe".' if name == "1f1b" else "."),
        )
    return name
