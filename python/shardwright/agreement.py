"""Checks that ranks agree on their plan, hosts, weights and random numbers."""

from __future__ import annotations

import hashlib
import os
import socket
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .errors import MismatchError
from .folder import Plan
from .run import Run

#: What launchers tell every process that they start, with the number of its host: torchrun and Ray Train, Open MPI, MPICH, srun.
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
    told = _told_by_all(mesh, (_host(), f"{plan.placements['plan']} (program {program})"))
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


def _told_by_all(mesh: DeviceMesh, own: Any) -> dict[int, Any]:
    """What each rank of the mesh says, by rank; all of them call this together."""
    told = [(dist.get_rank(), own)]
    for dim in reversed(range(mesh.ndim)):
        parts: list[Any] = [None] * mesh.size(dim)
        dist.all_gather_object(parts, told, group=mesh.get_group(dim))
        told = [one for part in parts for one in part]
    return dict(told)


#: Integers of as many bytes, by which values are compared bit by bit.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def check_weights(model: nn.Module, mesh: DeviceMesh) -> None:
    """Refuses ranks that hold other values of a parameter or a buffer: each would take its part of another model.

    Sums of the bits are compared, so that each rank reads its tensors once and sends a number for each.
    """
    if dist.get_backend() == "fake":
        return
    sums = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta or isinstance(tensor, DTensor):
            continue
        own = tensor.detach()
        plain = torch.view_as_real(own) if own.is_complex() else own
        sums[name] = int(plain.contiguous().view(_BITS[plain.element_size()]).sum(dtype=torch.int64))
    told = _told_by_all(mesh, sums)
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


def check_seeds(run: Run) -> None:
    """Before the first call of a program that draws: refuses ranks whose random numbers would not be those of one process."""
    run.has_drawn = True
    draws: tuple[str, ...] = getattr(run.plan.program, "DRAWS", ())
    if not draws or dist.get_backend() == "fake":
        return
    device = run.here.device
    state = torch.get_rng_state() if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)
    seed = torch.initial_seed() if device.type == "cpu" else torch.get_device_module(device).initial_seed()
    told = _told_by_all(run.mesh, (seed, hashlib.sha256(state.numpy().tobytes()).hexdigest()))
    first = min(told)
    other = next((rank for rank in sorted(told) if told[rank] != told[first]), None)
    if other is None:
        return
    (one, _), (two, _) = told[first], told[other]
    values = f"rank {first} draws from seed {one}, rank {other} from seed {two}"
    raise MismatchError(
        "E_SEED",
        values if one != two else f"rank {other} has drawn other numbers from seed {two} than rank {first}",
        place=draws[0],
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
