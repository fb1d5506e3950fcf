"""What the machine is: devices, memory, versions, and whether others use it while it is measured."""

from __future__ import annotations

import os
import platform
import time
from datetime import datetime, timezone
from typing import Any

import torch

from .timing import Ranks, synchronize

#: Share of its processors that a machine gives to what is measured, below which it is called busy.
QUIET = 0.85
#: Rates of the same products before and after that differ by more say that the machine changed meanwhile.
STEADY = 0.15


def device_name(device: torch.device) -> str:
    """As the driver names it; of a processor its model."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    try:
        with open("/proc/cpuinfo") as lines:
            named = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        named = platform.processor() or platform.machine()
    return f"{named}, {processors()} processors"


def processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_ranks(ranks: Ranks) -> int:
    """Ranks on this host."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))


def memory(device: torch.device, ranks: Ranks) -> tuple[int, int]:
    """Bytes of a device, and those of them that other things than tensors take: context and buffers of communication."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return total, max(0, total - free - torch.cuda.memory_reserved(device))
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // local_ranks(ranks)
    return total, total // 20


def about(device: torch.device, ranks: Ranks, mesh: str, backend: str) -> dict[str, Any]:
    """What a file says of the machine that it was measured on."""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    if device.type == "cuda":
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        versions += f", CUDA {torch.version.cuda or torch.version.hip}, NCCL {nccl}"
    return {
        "device": device_name(device)[:200],
        "software": versions[:500],
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "processes": ranks.world,
        "hosts": max(1, ranks.world // max(1, local_ranks(ranks))),
        **({"mesh": mesh} if mesh else {}),
        **({"backend": backend} if backend else {}),
        **({"threads": torch.get_num_threads()} if device.type == "cpu" else {}),
        # A processor has done a call when it returns; a device is told and works on its own.
        "synchronous": device.type == "cpu",
    }


class Quiet:
    """Products of a fixed size before and after the measurement, by which it is known whether the machine was others', too."""

    def __init__(self, device: torch.device, ranks: Ranks, seconds: float) -> None:
        self.device, self.ranks, self.seconds = device, ranks, seconds
        side = 384 if device.type == "cpu" else 4096
        self.left, self.right = (torch.randn(side, side, device=device) for _ in range(2))
        self.rates: list[float] = []
        self.shares: list[float] = []

    def look(self) -> None:
        """Runs products on all ranks for a while."""
        self.ranks.together()
        begin, worked, calls = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - begin < self.seconds:
            for _ in range(4):
                torch.mm(self.left, self.right)
            synchronize(self.device)
            calls += 4
        wall = time.perf_counter() - begin
        # The slowest rank's rate, and the share of the processors that all ranks of this host had.
        slowest = -self.ranks.most([-calls / wall])[0]
        self.rates.append(slowest)
        if self.device.type == "cpu":
            wanted = min(processors() / local_ranks(self.ranks), torch.get_num_threads())
            self.shares.append(-self.ranks.most([-(time.process_time() - worked) / wall / wanted])[0])

    def told(self) -> list[str]:
        """Why the figures may not be those of the machine alone; nothing where it was quiet."""
        said = []
        if self.shares and min(self.shares) < QUIET:
            said.append(
                f"the machine is busy: the slowest rank had {100 * min(self.shares):.0f} % of its processors while products were timed; "
                "measure again when nothing else runs"
            )
        if len(self.rates) > 1 and max(self.rates) > (1 + STEADY) * min(self.rates):
            said.append(
                f"the machine is not steady: products ran at rates that differ by {100 * (max(self.rates) / min(self.rates) - 1):.0f} % "
                "before and after; too busy to tell less than that"
            )
        return said
