"""A model that runs by a plan. In: the model, its plan and a device mesh. Out: an `nn.Module` whose parameters are DTensors.

DTensors are what state, checkpoints, optimizers and clipping see; the step itself is the plan's program (`run.py`).
"""

from __future__ import annotations

import hashlib
import os
import socket
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .errors import MismatchError
from .folder import Plan, load
from .graph_capture import rebuild_tree
from .placements import as_dtensor, part_of, placements
from .run import STATES, Run


def parallelize(
    model: nn.Module,
    plan: Plan | str | os.PathLike[str],
    device_mesh: DeviceMesh,
    *,
    compile: bool | Literal["joint"] = False,
    timeout: timedelta | None = None,
    check_hosts: bool = True,
) -> ParallelModule:
    """Takes a model over: its parameters and buffers become DTensors, its forward and backward the plan's programs.

    Every rank must hold the same weights, say by the same seed, or the model must be on the meta device; then call
    `to_empty(device=...)` and load a checkpoint or initialise: no rank ever holds a whole parameter.

    Args:
        model: the model that was captured.
        plan: from `plan` or `load`, or the folder.
        device_mesh: of the plan's sizes, in its order.
        compile: run the local programs through `torch.compile`; "joint": as one joint graph through AOTAutograd and Inductor, which
            is what `compile_joint` does.
        timeout: of the collectives; a rank that does not come within it ends the run. Default: that of the groups.
        check_hosts: refuse ranks that lie on other hosts than the plan was priced for, where the launcher says where they are.

    Raises:
        MismatchError: where model, mesh or hosts are not those of the plan, or ranks have other plans, with both values; where a
            program that decides by values is to be compiled.
    """
    opened = plan if isinstance(plan, Plan) else load(plan)
    decides: tuple[str, ...] = getattr(opened.program, "DECIDES", ())
    if compile and decides:
        raise MismatchError(
            "E_COMPILE",
            f"values decide what {', '.join(decides)} run, and torch.compile takes no collectives in its own conditions",
            hint="compile=False; scan and map, whose number of trips is known, are compiled.",
        )
    try:
        here = opened.program.Here(device_mesh)
    except ValueError as error:
        made = f"init_device_mesh(device, {opened.mesh_shape}, mesh_dim_names={opened.mesh_dim_names})"
        raise MismatchError("E_MESH", str(error), hint=made) from error
    if timeout is not None:
        for name in here.groups.values():
            dist.distributed_c10d._set_pg_timeout(timeout, dist.distributed_c10d._resolve_process_group(name))  # type: ignore[attr-defined]
    _check_model(model, opened)
    _check_ranks(opened, device_mesh, check_hosts)
    _distribute(model, opened, device_mesh, here)
    module = ParallelModule(Run(model, opened, device_mesh, here, compile is True))
    if compile == "joint":
        from .joint import compile_joint

        compile_joint(module)
    return module


class ParallelModule(nn.Module):
    """The model under its plan; names of parameters, buffers and submodules are the model's own."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.__dict__["_modules"] = run.model._modules
        self.__dict__["_parameters"] = run.model._parameters
        self.__dict__["_buffers"] = run.model._buffers
        # One name of ours: any other could be one of the model's.
        self.__dict__["shardwright"] = run
        self.training = run.model.training

    def train(self, mode: bool = True) -> ParallelModule:
        """As of every module; the program itself is that of the mode in which the model was captured."""
        run_of(self).model.train(mode)
        self.training = mode
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the forward program.

        Inputs are those of the captured model, then those of its loss: DTensors in the plan's placements (`shard_inputs`), or
        whole tensors of which each rank takes its part, so that all ranks must pass the same.

        Returns:
            What the captured model returns: plain tensors where every rank has the whole, else DTensors.
        """
        run = run_of(self)
        record = run.plan.capture
        if record is not None and record["training"] != self.training:
            mode = {True: "training", False: "evaluation"}
            raise MismatchError(
                "E_MODE",
                f"the model was captured in {mode[record['training']]} mode and is in {mode[self.training]} mode",
                hint="call .train() or .eval(), or capture the model in the other mode too.",
            )
        if not run.has_drawn:
            _check_seeds(run)
        inputs = iter([run.local_input(entry, value) for entry, value in run.named_inputs(args, kwargs)])
        primals = [run.state(entry) if entry["role"] in STATES else next(inputs) for entry in run.primals]
        leaves = run.call(*primals)
        if record is None:
            return leaves[0] if len(leaves) == 1 else leaves
        return rebuild_tree(record["outputs"]["tree"], leaves)


def run_of(module: ParallelModule) -> Run:
    """What a parallel module runs."""
    return module.__dict__["shardwright"]


def _check_model(model: nn.Module, plan: Plan) -> None:
    """Refuses a model whose parameters and buffers are not those of the plan; says which."""
    entries = [entry for entry in plan.placements["primals"] if entry["role"] in STATES]
    wanted = {entry["of"]: f"{entry['dtype']}{entry['shape']}" for entry in entries}
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    found = {name: f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for name, t in tensors}
    kinds = [
        [f"{name} is missing" for name in wanted if name not in found],
        [f"{name} is not in the plan" for name in found if name not in wanted],
        [f"{name} is {found[name]}, planned is {wanted[name]}" for name in wanted if found.get(name, wanted[name]) != wanted[name]],
    ]
    if not any(kinds):
        return
    faults = [fault for kind in kinds for fault in kind[:3]]
    rest = sum(map(len, kinds)) - len(faults)
    more = f"; and {rest} more" if rest else ""
    raise MismatchError(
        "E_MODEL",
        f"{type(model).__name__} is not the model that was planned ({plan.placements['model']}): {'; '.join(faults)}{more}",
        hint="capture and plan this model.",
    )


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


def _check_ranks(plan: Plan, mesh: DeviceMesh, check_hosts: bool) -> None:
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


def _check_seeds(run: Run) -> None:
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


def _distribute(model: nn.Module, plan: Plan, mesh: DeviceMesh, here: Any) -> None:
    """Replaces every parameter and buffer of a model by its DTensor; each rank keeps its own part alone."""
    made: dict[torch.Tensor, torch.Tensor] = {}
    for entry in plan.placements["primals"]:
        if entry["role"] not in STATES:
            continue
        path, _, last = entry["of"].rpartition(".")
        owner = model.get_submodule(path)
        table: dict[str, Any] = owner._parameters if last in owner._parameters else owner._buffers
        whole = table[last]
        # Tied names are one tensor, which stays one; a tensor is a key by its identity.
        if whole not in made:
            made[whole] = _placed(whole, entry, plan, mesh, here)
        table[last] = made[whole]


def _placed(whole: torch.Tensor, entry: dict[str, Any], plan: Plan, mesh: DeviceMesh, here: Any) -> torch.Tensor:
    if isinstance(whole, DTensor):
        raise MismatchError("E_MODEL", "it is a DTensor already", place=entry["of"], hint="give the plain model.")
    device = here.device if whole.device.type != "meta" else whole.device
    with torch.no_grad():
        own = part_of(whole.detach(), placements(entry), plan.mesh_shape, here.coordinate)
        dtensor = as_dtensor(own.to(device, copy=True).contiguous(), entry, mesh)
    return nn.Parameter(dtensor, requires_grad=whole.requires_grad) if isinstance(whole, nn.Parameter) else dtensor
