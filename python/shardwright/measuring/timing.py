"""Times points on all ranks together, round after round, until their medians are known or their time is over.

A sample is the time of one call, taken over as many calls as last a while, and the longest of all ranks: a step waits for the slowest.
Points take turns, so that what disturbs the machine for a second disturbs one sample of each and not all samples of one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

#: Seconds that the calls of one sample last at least: several time slices of a scheduler; and where little time is left.
BLOCK_SECONDS, SHORT_SECONDS = 0.02, 0.006
#: Samples before a median is taken for known, and at most.
LEAST, MOST = 5, 41
#: Half of the interval that holds the median in 19 of 20 cases, over the median, at which it is known.
KNOWN = 0.05
#: A sample of more than so many medians is named.
OUTLIER = 3.0


@dataclass
class Point:
    """One thing that is timed. `run(i)` calls it; `minus` is timed beside it and taken off, round by round."""

    name: str
    run: Callable[[int], object]
    #: What becomes of it in the file, to which its seconds are added.
    record: dict[str, Any]
    minus: Point | None = None
    inner: int = 1
    samples: list[float] = field(default_factory=list)
    #: Seconds of one round.
    round_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Median of a call."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half of the samples lie in a range of so many medians."""
        if len(self.samples) < 3:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / max(abs(self.seconds), 1e-12)

    @property
    def outliers(self) -> list[float]:
        """Samples of more than `OUTLIER` medians."""
        return [value for value in self.samples if self.seconds > 0 and value > OUTLIER * self.seconds]

    @property
    def is_known(self) -> bool:
        """Whether the median has an interval of 5 % on either side, by the ranks of the samples (binomial, 19 of 20 cases)."""
        n = len(self.samples)
        if n < LEAST:
            return False
        ordered = sorted(self.samples)
        reach = 0.98 * n**0.5
        low = ordered[max(0, int(n / 2 - reach))]
        high = ordered[min(n - 1, int(n / 2 + reach))]
        return (high - low) / 2 <= KNOWN * abs(self.seconds)


class Ranks:
    """The ranks that measure together; what they agree on goes over a group of its own, so that a stalled one is told."""

    def __init__(self, stall: float) -> None:
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.control = dist.new_group(backend="gloo", timeout=timedelta(seconds=stall)) if self.world > 1 else None

    def together(self) -> None:
        """Waits for all ranks."""
        if self.control is not None:
            dist.barrier(self.control)

    def all_here(self) -> None:
        """Waits for all ranks; the error names those that did not come."""
        if self.control is not None:
            dist.monitored_barrier(self.control, wait_all_ranks=True)

    def most(self, values: Sequence[float]) -> list[float]:
        """The largest of all ranks, value by value."""
        if self.control is None:
            return list(values)
        told = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self.control)
        return [float(value) for value in told]

    def agreed(self, fault: str | None) -> str | None:
        """The first fault of a rank, with its number; None where all ranks are well."""
        if self.control is None:
            return fault
        told: list[Any] = [None] * self.world
        dist.all_gather_object(told, fault, group=self.control)
        return next((f"rank {rank}: {each}" for rank, each in enumerate(told) if each is not None), None)

    def first(self, value: Any) -> Any:
        """What the first rank has, on all ranks."""
        if self.control is None:
            return value
        told = [value]
        dist.broadcast_object_list(told, src=0, group=self.control)
        return told[0]


def synchronize(device: torch.device) -> None:
    """Waits for the device; nothing of a processor, which has done what it was called for."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


def attempt(work: Callable[[], object], device: torch.device) -> str | None:
    """What a call fails by, in one line; out of memory leaves nothing behind."""
    try:
        work()
        synchronize(device)
    except (RuntimeError, MemoryError, NotImplementedError, ValueError, TypeError) as error:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
    return None


def prepared(points: Sequence[Point], ranks: Ranks, device: torch.device, seconds: float, notes: list[str]) -> list[Point]:
    """The points that run on all ranks, with the calls of a sample; the others are named in the notes."""
    kept: list[Point] = []
    block = BLOCK_SECONDS if seconds > 3 * LEAST * BLOCK_SECONDS * len(points) else SHORT_SECONDS
    for point in points:
        if point.minus is not None and point.minus not in kept:
            continue
        fault = ranks.agreed(attempt(lambda point=point: point.run(0), device))  # type: ignore[misc]
        if fault is not None:
            notes.append(f"{point.name}: not measured, {fault}")
            continue
        begin = time.perf_counter()
        point.run(1)
        synchronize(device)
        once = ranks.most([time.perf_counter() - begin])[0]
        point.inner = max(1, min(2000, round(block / max(once, 1e-7))))
        point.round_seconds = once * point.inner
        kept.append(point)
    return kept


def timed_in_parts(
    points: Sequence[Point], ranks: Ranks, device: torch.device, seconds: float, notes: list[str], together: int = 12
) -> list[Point]:
    """Times points, so many at once that their operands do not fill the memory; each part has its share of the seconds."""
    kept: list[Point] = []
    start = time.perf_counter()
    parts = [points[i : i + together] for i in range(0, len(points), together)]
    for k, part in enumerate(parts):
        # What earlier parts did not need is left to later ones.
        left = max(0.05, seconds - ranks.most([time.perf_counter() - start])[0])
        kept += timed(part, ranks, device, left / (len(parts) - k), notes)
        for point in part:
            point.run = _let_go
    return kept


def _let_go(_: int) -> None:
    """Stands for a call whose operands are gone."""


def timed(points: Sequence[Point], ranks: Ranks, device: torch.device, seconds: float, notes: list[str]) -> list[Point]:
    """Times points for at most so many seconds, and gives those that have samples.

    Where not all can have their least number of samples in that time, those that take longest are left out, by name.
    """
    start = time.perf_counter()
    kept = prepared(points, ranks, device, seconds, notes)
    spent = ranks.most([time.perf_counter() - start])[0]
    # Operands took their time, too; half of the seconds are for samples whatever they took.
    kept = _affordable(kept, max(seconds / 2, seconds - spent), notes)
    open_ = list(kept)
    while open_:
        row = []
        for point in open_:
            ranks.together()
            begin = time.perf_counter()
            for i in range(point.inner):
                point.run(i)
            synchronize(device)
            row.append((time.perf_counter() - begin) / point.inner)
        *row, spent = ranks.most([*row, time.perf_counter() - start])
        now = {id(point): value for point, value in zip(open_, row, strict=True)}
        for point in open_:
            point.samples.append(now[id(point)] - (now[id(point.minus)] if point.minus is not None else 0.0))
        if spent > seconds and len(open_[0].samples) >= 3:
            break
        unknown = [point for point in open_ if not point.is_known and len(point.samples) < MOST]
        # What is taken off a point is timed beside it.
        needed = {id(point.minus) for point in unknown} | {id(point) for point in unknown}
        open_ = [point for point in open_ if id(point) in needed]
    return [point for point in kept if point.samples]


def _affordable(points: list[Point], seconds: float, notes: list[str]) -> list[Point]:
    """The points that can have three rounds in the time, the shortest first."""
    left, out = seconds / 3, list[str]()
    chosen: set[int] = set()
    for point in sorted(points, key=lambda point: point.round_seconds):
        left -= point.round_seconds + (point.minus.round_seconds if point.minus is not None and id(point.minus) not in chosen else 0.0)
        if left < 0 and chosen:
            out.append(f"{point.name} ({point.round_seconds:.2g} s a round)")
            continue
        chosen |= {id(point)} | ({id(point.minus)} if point.minus is not None else set())
    if out:
        notes.append(f"not measured, more than the time allows: {'; '.join(out[:4])}{f'; and {len(out) - 4} more' if out[4:] else ''}")
    return [point for point in points if id(point) in chosen]


def told(points: Sequence[Point], notes: list[str]) -> list[dict[str, Any]]:
    """The records of points with median and spread; samples far from their median are named in the notes."""
    far = [(max(point.outliers) / point.seconds, point) for point in points if point.outliers and point.minus is None]
    if far:
        far.sort(key=lambda each: -each[0])
        named = "; ".join(
            f"{point.name} ({len(point.outliers)} of {len(point.samples)} samples, {most:.3g} medians at most)" for most, point in far[:4]
        )
        notes.append(f"{len(far)} of {len(points)} points have samples of more than 3 medians: {named}{'; ...' if far[4:] else ''}")
    return [
        {**point.record, "seconds": float(f"{point.seconds:.4g}"), "spread": float(f"{min(point.spread, 1000):.3g}")}
        for point in points
        if point.seconds > 0
    ]
