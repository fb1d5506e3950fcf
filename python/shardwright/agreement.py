"""Checks that ranks agree on their plan, hosts, weights, batches and random numbers, and says which rank is behind where one is."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import socket
import sys
import uuid
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .errors import MismatchError, ShardwrightError, line_of
from .folder import Plan

#: Variables that launchers set for every process, with the number of its host: torchrun and Ray Train, Open MPI, MPICH, srun.
_LAUNCHERS = {
    "LOCAL_WORLD_SIZE": ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID"),
    "OMPI_COMM_WORLD_LOCAL_SIZE": (),
    "MPI_LOCALNRANKS": (),
    "SLURM_STEP_NUM_TASKS": ("SLURM_NODEID",),
}


def _host() -> str | None:
    """The host of this process as its launcher numbers it, else by its name; None where no launcher started it."""
    for sign, numbers in _LAUNCHERS.items():
        if sign in os.environ:
            return next((os.environ[name] for name in numbers if name in os.environ), socket.gethostname())
    return None


def check_ranks(plan: Plan, mesh: DeviceMesh, check_hosts: bool) -> None:
    """Refuses ranks that hold other plans, and those that lie on hosts otherwise than the plan was priced for.

    Devices of the mesh, in its order, fill host after host; all ranks of the mesh call this together.
    """
    if dist.get_backend() == "fake":
        # One process that stands for all.
        return
    # One plan is exported in several orders of calls.
    program = hashlib.sha256((plan.folder / "program.py").read_bytes()).hexdigest()[:12]
    told = told_by_all(mesh, (_host(), f"{plan.placements['plan']} (program {program})"))
    plans = {rank: name for rank, (_, name) in told.items()}
    ranks: list[int] = mesh.mesh.flatten().tolist()
    other = next((rank for rank in ranks if plans[rank] != plans[ranks[0]]), None)
    if other is not None:
        raise MismatchError(
            "E_PLAN",
            f"rank {ranks[0]} has plan {plans[ranks[0]]}, rank {other} has plan {plans[other]}",
            hint="give all ranks the same folder, or copies of it.",
        )
    if check_hosts:
        _check_hosts(plan, ranks, {rank: host for rank, (host, _) in told.items()})


def told_by_all(mesh: DeviceMesh, own: Any) -> dict[int, Any]:
    """Returns the answer of each rank of the mesh, by rank; all ranks call this together."""
    told = [(dist.get_rank(), own)]
    for dim in reversed(range(mesh.ndim)):
        parts: list[Any] = [None] * mesh.size(dim)
        dist.all_gather_object(parts, told, group=mesh.get_group(dim))
        told = [one for part in parts for one in part]
    return dict(told)


#: Integers of as many bytes, by which values are compared bit by bit.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor as integers of its size."""
    own = tensor.detach()
    plain = torch.view_as_real(own) if own.is_complex() else own
    return plain.contiguous().view(_BITS[plain.element_size()])


#: Elements whose places are written out at once.
_AT_ONCE = 1 << 20


def fingerprint(tensor: torch.Tensor) -> int:
    """A number that tells the bits of a tensor, and their order, from others."""
    bits = bits_of(tensor).flatten()
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for start in range(0, bits.numel(), _AT_ONCE):
        part = bits[start : start + _AT_ONCE].to(torch.int64)
        # The sign of 64 bits would be lost: an even number of highest bits adds up to none.
        part = part ^ (part >> 32)
        total += (part * torch.arange(start + 1, start + 1 + part.numel(), device=bits.device)).sum(dtype=torch.int64)
    return int(total)


def check_weights(model: nn.Module, mesh: DeviceMesh) -> None:
    """Refuses ranks that hold other values of a parameter or a buffer: each would take its part of another model.

    Fingerprints are compared, so that each rank reads its tensors once and sends a number for each.
    """
    if dist.get_backend() == "fake":
        return
    sums = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta or isinstance(tensor, DTensor):
            continue
        sums[name] = fingerprint(tensor)
    told = told_by_all(mesh, sums)
    first = min(told)
    for rank in sorted(told):
        other = [name for name in {**told[first], **told[rank]} if told[first].get(name) != told[rank].get(name)]
        if other:
            rest = f" and {len(other) - 1} more" if len(other) > 1 else ""
            raise MismatchError(
                "E_MODEL",
                f"rank {rank} holds other values of {other[0]}{rest} than rank {first}",
                hint="make the model after torch.manual_seed(0) on every rank, load one checkpoint on all, or give it on the meta device.",
            )


#: The phase of a rank that an exception ended.
_ENDED = "ended"
#: Errors of a collective that other ranks may be the reason of; sizes that do not fit are those of another collective.
_OF_OTHERS = re.compile(
    r"timed out|timeout|connection (was likely )?(closed|reset)|broken pipe|failed to (recv|send)|preamble|gloo|"
    "doesn't match expected size",
    re.IGNORECASE,
)

#: The counts of this process.
_ALL: weakref.WeakSet[Steps] = weakref.WeakSet()


@functools.cache
def _tell_what_ends_this_rank() -> None:
    """Lets an exception that nobody catches be told to the other ranks, which would know of a broken connection alone."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        for steps in _ALL:
            # The store may be gone, which is no reason to hide the exception.
            with contextlib.suppress(Exception):
                steps.end(error)
        before(kind, error, trace)

    sys.excepthook = hook


class Steps:
    """Counts the calls of a model, and tells the other ranks through the store of the process group where this one is.

    What ends a rank is also written into the folder of the plan: the store ends with the rank that holds it.
    """

    def __init__(self, mesh: DeviceMesh, folder: Path) -> None:
        self.mesh, self.count, self.said, self.folder = mesh, 0, "", folder
        self.store: Any = None if dist.get_backend() == "fake" else dist.distributed_c10d._get_default_store()
        #: The name of this model in this run, the same on all ranks of the mesh.
        self.name = ""
        if self.store is not None:
            told = told_by_all(mesh, uuid.uuid4().hex[:12])
            self.name = told[min(told)]
        _ALL.add(self)
        _tell_what_ends_this_rank()

    def __deepcopy__(self, memo: dict[int, Any]) -> Steps:
        """Copies of a model count with it."""
        return self

    def begin(self, said: str) -> None:
        """A call begins."""
        self.count, self.said = self.count + 1, said
        self.tell("forward")

    def tell(self, phase: str) -> None:
        """This rank is in a phase of its call."""
        if self.store is None:
            return
        try:
            self.store.set(f"shardwright/{self.name}/{dist.get_rank()}", f"{self.count}|{phase}|{self.said}")
        except RuntimeError as error:
            raise self.explained(error, phase) from error

    def end(self, error: BaseException) -> None:
        """An exception that nobody caught ends this rank."""
        place = line_of(error)
        said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        text = f"{self.count}|{_ENDED}|{said}{f' ({place})' if place else ''}"
        with contextlib.suppress(OSError):
            self._file(dist.get_rank()).write_text(text)
        self.store.set(f"shardwright/{self.name}/{dist.get_rank()}/{_ENDED}", text)

    def explained(self, error: Exception, phase: str) -> Exception:
        """An error of a collective, with what the other ranks said last."""
        if self.store is None or not _OF_OTHERS.search(str(error)):
            return error
        own = dist.get_rank()
        said = []
        lost = False
        for rank in self.mesh.mesh.flatten().tolist():
            last = self._last(rank)
            if rank == own or last is None:
                lost |= last is None
                continue
            count, at, what = last
            if at == _ENDED:
                said.append(f"rank {rank} ended in step {count} with {what}")
            elif count and what != self.said:
                said.append(f"rank {rank} is in the {at} of step {count} with other inputs ({what})")
            elif (count, at) != (self.count, phase):
                said.append(f"rank {rank} is in the {at} of step {count} ({what})" if count else f"rank {rank} {what}")
        if lost and not said:
            said.append(
                f"{_store_holder()}, which holds the store of the process group, is out of reach: it was killed, or its host is gone"
            )
        others = "; ".join(said) or "all ranks began it"
        first = str(error).strip().splitlines()[0]
        return ShardwrightError(
            "E_RANK",
            f"rank {own} waited in the {phase} of step {self.count} ({self.said}), and {others}: {first}",
            hint="every rank calls the model, and backward, equally often and in the same order.",
        )

    def _file(self, rank: int) -> Path:
        return self.folder / f"{_ENDED}-{self.name}-rank{rank}.txt"

    def _last(self, rank: int) -> tuple[int, str, str] | None:
        """Returns the last words of a rank; None where the store is gone."""
        key = f"shardwright/{self.name}/{rank}"
        if self._file(rank).exists():
            count, phase, what = self._file(rank).read_text().split("|", 2)
            return int(count), phase, what
        try:
            if self.store.check([f"{key}/{_ENDED}"]):
                key = f"{key}/{_ENDED}"
            if not self.store.check([key]):
                return 0, "", "has not called the model"
            count, phase, what = self.store.get(key).decode().split("|", 2)
            return int(count), phase, what
        except Exception:
            return None


def _store_holder() -> str:
    return "the launcher" if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else "rank 0"


def _is_checked(count: int) -> bool:
    return count <= 4 or count % 16 == 0


def check_batch(steps: Steps, leaves: Sequence[tuple[str, Any]]) -> None:
    """Refuses ranks whose calls or values differ, in the first steps and in every 16th."""
    if steps.store is None or not _is_checked(steps.count):
        return
    sums = {}
    for name, leaf in leaves:
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, DTensor) and not leaf.is_meta:
            sums[name] = fingerprint(leaf)
    try:
        told = told_by_all(steps.mesh, (steps.said, sums))
    except RuntimeError as error:
        raise steps.explained(error, "forward") from error
    first = min(told)
    for rank in sorted(told):
        if told[rank] == told[first]:
            continue
        (here, ours), (there, theirs) = told[first], told[rank]
        if here != there:
            raise MismatchError("E_INPUT", f"in step {steps.count} rank {first} calls it for {here}, rank {rank} for {there}")
        name = next(name for name in ours if ours[name] != theirs.get(name))
        raise MismatchError(
            "E_BATCH",
            f"in step {steps.count} rank {rank} gives other values than rank {first}",
            place=f"input {name}",
            hint='give the same whole batch on every rank (without DistributedSampler), or inputs="local" where every rank has its own '
            "rows; check_batches=False compares none.",
        )


def check_seeds(plan: Plan, mesh: DeviceMesh, device: torch.device) -> None:
    """Before the first call of a program that draws: refuses ranks whose random numbers would not be those of one process."""
    draws: tuple[str, ...] = getattr(plan.program, "DRAWS", ())
    if not draws or dist.get_backend() == "fake":
        return
    compare_random_states(mesh, random_state(device), draws[0])


def random_state(device: torch.device) -> tuple[int, str]:
    """The seed of a device, and a hash of the state of its generator."""
    module: Any = torch if device.type == "cpu" else torch.get_device_module(device)
    state = torch.get_rng_state() if device.type == "cpu" else module.get_rng_state(device)
    return module.initial_seed(), hashlib.sha256(state.numpy().tobytes()).hexdigest()


def compare_random_states(mesh: DeviceMesh, own: tuple[int, str], place: str) -> None:
    """Refuses ranks that draw other random numbers than one process; all ranks of the mesh call this together."""
    told = told_by_all(mesh, own)
    first = min(told)
    other = next((rank for rank in sorted(told) if told[rank] != told[first]), None)
    if other is None:
        return
    (one, _), (two, _) = told[first], told[other]
    values = f"rank {first} draws from seed {one}, rank {other} from seed {two}"
    raise MismatchError(
        "E_SEED",
        values if one != two else f"rank {other} has drawn other numbers from seed {two} than rank {first}",
        place=place,
        hint="call torch.manual_seed(0) on every rank before the first step; data may be drawn by a torch.Generator of its own.",
    )


def _check_hosts(plan: Plan, ranks: list[int], hosts: dict[int, str | None]) -> None:
    planned = plan.placements.get("devicesPerHost")
    if planned is None or None in hosts.values():
        return
    wanted = min(planned, len(ranks))
    blocks = [ranks[k : k + wanted] for k in range(0, len(ranks), wanted)]
    seen: dict[Any, int] = {}
    for number, block in enumerate(blocks):
        for rank in block:
            if hosts[rank] != hosts[block[0]] or seen.setdefault(hosts[rank], number) != number:
                names = dict.fromkeys(hosts[r] for r in sorted(ranks))
                found = "; ".join(f"host {host}: ranks {[r for r in sorted(ranks) if hosts[r] == host]}" for host in names)
                raise MismatchError(
                    "E_HOSTS",
                    f"the plan has ranks {'; '.join(map(str, blocks))} on one host each, the launcher has {found}",
                    hint=f"launch with --nproc-per-node={wanted} and hosts in order, plan for a cluster of such hosts, or pass "
                    "check_hosts=False (fast links that join several hosts; a trial on one machine).",
                )
