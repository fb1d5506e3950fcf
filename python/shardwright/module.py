"""A model that runs by a plan. In: the model, its plan and a device mesh. Out: an `nn.Module` whose parameters are DTensors.

Forward and backward are the two functions of the plan's `program.py`, called through `torch.autograd`: local ATen calls and the
plan's collectives, no dispatch of DTensor. DTensors are what state, checkpoints, optimizers and clipping see.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial

from .errors import MismatchError
from .folder import Plan, load
from .graph_capture import bind_inputs, flatten_named, rebuild_tree
from .placements import as_dtensor, part_of, placements


def parallelize(
    model: nn.Module,
    plan: Plan | str,
    device_mesh: DeviceMesh,
    *,
    compile: bool = False,
    timeout: timedelta | None = None,
) -> ParallelModule:
    """Takes a model over: its parameters and buffers become DTensors, its forward and backward the plan's programs.

    Every rank must hold the same weights, say by the same seed, or the model must be on the meta device; then call
    `to_empty(device=...)` and load a checkpoint or initialise: no rank ever holds a whole parameter.

    Args:
        model: the model that was captured.
        plan: from `plan` or `load`, or the folder.
        device_mesh: of the plan's sizes, in its order.
        compile: run the local programs through `torch.compile`.
        timeout: of the collectives; a rank that does not come within it ends the run. Default: that of the groups.

    Raises:
        MismatchError: where model or mesh are not those of the plan, with both values.
    """
    opened = plan if isinstance(plan, Plan) else load(plan)
    try:
        here = opened.program.Here(device_mesh)
    except ValueError as error:
        raise MismatchError(
            "E_MESH",
            str(error),
            hint=f"init_device_mesh(device, {opened.mesh_shape}, mesh_dim_names={opened.mesh_dim_names})",
        ) from error
    if timeout is not None:
        for name in here.groups.values():
            dist.distributed_c10d._set_pg_timeout(timeout, dist.distributed_c10d._resolve_process_group(name))
    _check_model(model, opened)
    _check_hosts(opened)
    _distribute(model, opened, device_mesh, here)
    return ParallelModule(model, opened, device_mesh, here, compile)


class ParallelModule(nn.Module):
    """The model under its plan; names of parameters, buffers and submodules are the model's own."""

    model: nn.Module
    plan: Plan
    mesh: DeviceMesh
    run: _Run

    def __init__(self, model: nn.Module, plan: Plan, mesh: DeviceMesh, here: Any, compile: bool) -> None:
        """Use `parallelize`."""
        super().__init__()
        self.__dict__["_modules"] = model._modules
        self.__dict__["_parameters"] = model._parameters
        self.__dict__["_buffers"] = model._buffers
        self.__dict__["model"] = model
        self.__dict__["plan"] = plan
        self.__dict__["mesh"] = mesh
        self.__dict__["run"] = _Run(plan, mesh, here, compile)
        self.training = model.training

    def train(self, mode: bool = True) -> ParallelModule:
        """As of every module; the program itself is that of the mode in which the model was captured."""
        self.model.train(mode)
        self.training = mode
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the forward program.

        Inputs are those of the captured model, then those of its loss: DTensors in the plan's placements (`shard_inputs`), or
        whole tensors of which each rank takes its part, so that all ranks must pass the same.

        Returns:
            What the captured model returns: plain tensors where every rank has the whole, else DTensors.
        """
        run = self.run
        record = self.plan.capture
        if record is not None and record["training"] != self.training:
            mode = {True: "training", False: "evaluation"}
            raise MismatchError(
                "E_MODE",
                f"the model was captured in {mode[record['training']]} mode and is in {mode[self.training]} mode",
                hint="call .train() or .eval(), or capture the model in the other mode too.",
            )
        inputs = self._inputs(args, kwargs)
        state = [self._state(entry) if entry["role"] in ("parameter", "buffer") else None for entry in run.primals]
        given = iter(inputs)
        primals = [own if own is not None else next(given) for own in state]
        outputs = _Step.apply(run, *primals)
        leaves = list(outputs) if isinstance(outputs, tuple) else [outputs]
        leaves = leaves[: len(run.user_outputs)]
        if record is None:
            return leaves[0] if len(leaves) == 1 else tuple(leaves)
        return rebuild_tree(record["outputs"]["tree"], leaves)

    def _state(self, entry: dict[str, Any]) -> Any:
        path, _, last = entry["of"].rpartition(".")
        return getattr(self.get_submodule(path), last)

    def _inputs(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Tensors in the order of the program, each as this device has it."""
        return [self.run.local_input(entry, value) for entry, value in self.named_inputs(args, kwargs)]

    def named_inputs(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[dict[str, Any], torch.Tensor]]:
        """Inputs of a call with their rows of `placements.json`.

        Raises:
            MismatchError: for inputs that are not those of the captured model, with both.
        """
        record = self.plan.capture
        entries = [e for e in self.run.primals if e["role"] not in ("parameter", "buffer")]
        if record is None:
            leaves = [leaf for leaf in flatten_named((args, kwargs)) if isinstance(leaf[1], torch.Tensor)]
            if len(leaves) != len(entries):
                raise MismatchError("E_INPUT", f"the program takes {len(entries)} tensors, got {len(leaves)}")
            return [(entry, leaf) for entry, (_, leaf) in zip(entries, leaves, strict=True)]
        count = record["targets"]
        positional = list(args)
        targets = positional[len(positional) - count :] if count else []
        rest = positional[: len(positional) - count] if count else positional
        named = flatten_named(bind_inputs(self.model, rest, kwargs, targets))
        tensors = dict((n, v) for n, v in named if isinstance(v, torch.Tensor))
        wanted = [row["name"] for row in record["inputs"]]
        if list(tensors) != wanted:
            raise MismatchError("E_INPUT", f"the inputs are {', '.join(tensors) or 'none'}; captured were {', '.join(wanted) or 'none'}")
        for name, value in named:
            if isinstance(value, torch.Tensor):
                continue
            before = record["constants"].get(name)
            if name not in record["constants"] or before != value:
                raise MismatchError(
                    "E_INPUT",
                    f"it is {value!r}, captured was {before!r}",
                    place=f"input {name}",
                    hint="capture the model with this value.",
                )
        by_index = {entry.get("index", k): entry for k, entry in enumerate(entries)}
        return [(by_index[k], tensors[name]) for k, name in enumerate(wanted) if k in by_index]


class _Run:
    """The program of one device, with the tables that say what goes in and comes out."""

    def __init__(self, plan: Plan, mesh: DeviceMesh, here: Any, compile: bool) -> None:
        self.plan, self.mesh, self.here = plan, mesh, here
        tables = plan.placements
        self.primals: list[dict[str, Any]] = tables["primals"]
        self.tangents: list[dict[str, Any]] = tables["tangents"]
        self.outputs: list[dict[str, Any]] = tables["outputs"]
        self.gradients = {row["of"]: row for row in tables["gradients"]}
        self.user_outputs = [row for row in self.outputs if row["role"] == "output"]
        self.forward, self.backward = plan.program.forward, plan.program.backward
        if compile:
            self.forward = torch.compile(self.forward, fullgraph=True, dynamic=False)
            self.backward = torch.compile(self.backward, fullgraph=True, dynamic=False)

    def local_input(self, entry: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
        """This device's part of an input."""
        shape = list(value.shape)
        if shape != entry["shape"] or str(value.dtype) != f"torch.{entry['dtype']}":
            raise MismatchError(
                "E_INPUT",
                f"it is {str(value.dtype).removeprefix('torch.')}{shape}, planned is {entry['dtype']}{entry['shape']}",
                place=f"input {entry.get('of', entry['name'])}",
                hint="the program has the sizes that were captured: give the global batch, or capture again.",
            )
        at = placements(entry)
        if isinstance(value, DTensor):
            if value.placements != at:
                raise MismatchError(
                    "E_INPUT",
                    f"it is placed {value.placements}, planned is {at}",
                    place=f"input {entry.get('of', entry['name'])}",
                    hint="make it with shard_inputs, or redistribute it.",
                )
            return value.to_local()
        return part_of(value, at, self.plan.mesh_shape, self.here.coordinate).to(self.here.device)

    def wrap(self, local: torch.Tensor, entry: dict[str, Any]) -> torch.Tensor:
        """A local result as the caller gets it."""
        at = placements(entry)
        return local if all(p.is_replicate() for p in at) else as_dtensor(local, entry, self.mesh)

    def tangent(self, entry: dict[str, Any], gradient: torch.Tensor) -> torch.Tensor:
        """This device's part of the gradient of an output, in the placement that the program wants."""
        at = placements(entry)
        if isinstance(gradient, DTensor):
            if gradient.placements == at:
                return gradient._local_tensor
            # The caller's own operations on outputs left it elsewhere: outside the plan, so DTensor may move it.
            if any(isinstance(p, Partial) for p in at):
                gradient = gradient.redistribute(
                    placements=[p if not isinstance(p, Partial) else q for p, q in zip(at, gradient.placements, strict=True)]
                )
            return gradient.redistribute(placements=at)._local_tensor
        return part_of(gradient, at, self.plan.mesh_shape, self.here.coordinate)


class _Step(torch.autograd.Function):
    """One forward call of the program, and its backward call."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *primals: torch.Tensor) -> Any:
        locals_ = [p._local_tensor if isinstance(p, DTensor) else p for p in primals]
        returned, saved = run.forward(run.here, locals_)
        ctx.run, ctx.saved = run, saved
        results: list[torch.Tensor] = []
        free: list[torch.Tensor] = []
        for row, value in zip(run.outputs, returned, strict=True):
            if row["role"] != "output":
                index = next(k for k, entry in enumerate(run.primals) if entry["of"] == row["of"])
                locals_[index].copy_(value)
                continue
            value = run.wrap(value, row)
            results.append(value)
            if not value.is_floating_point():
                free.append(value)
        ctx.mark_non_differentiable(*free)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        run: _Run = ctx.run
        saved, ctx.saved = ctx.saved, None
        if saved is None:
            raise MismatchError(
                "E_BACKWARD",
                "what the forward call saved is freed by the first backward call",
                hint="call forward again before backward.",
            )
        tangents = [run.tangent(entry, gradients[entry.get("index", 0)]) for entry in run.tangents]
        found = run.backward(run.here, saved, tangents)
        out: list[torch.Tensor | None] = []
        for entry, gradient in zip(run.primals, found, strict=True):
            row = run.gradients.get(entry.get("of", entry["name"]))
            if gradient is None or row is None:
                out.append(None)
            elif entry["role"] in ("parameter", "buffer"):
                out.append(as_dtensor(gradient, row, run.mesh))
            else:
                out.append(run.wrap(gradient, row))
        return (None, *out)


def _check_model(model: nn.Module, plan: Plan) -> None:
    """@raises MismatchError listing the first parameters and buffers that differ."""
    entries = [e for e in plan.placements["primals"] if e["role"] in ("parameter", "buffer")]
    wanted = {e["of"]: (e["dtype"], e["shape"]) for e in entries}
    found = {
        name: (str(t.dtype).removeprefix("torch."), list(t.shape))
        for name, t in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    }
    faults = [f"{name} is missing" for name in wanted if name not in found]
    faults += [f"{name} is not in the plan" for name in found if name not in wanted]
    faults += [
        f"{name} is {found[name][0]}{found[name][1]}, planned is {wanted[name][0]}{wanted[name][1]}"
        for name in wanted
        if name in found and found[name] != wanted[name]
    ]
    if faults:
        more = f"; and {len(faults) - 4} more" if len(faults) > 4 else ""
        raise MismatchError(
            "E_MODEL",
            f"{type(model).__name__} is not the model that was planned ({plan.placements['model']}): {'; '.join(faults[:4])}{more}",
            hint="capture and plan this model.",
        )


def _check_hosts(plan: Plan) -> None:
    """Whether ranks lie on hosts as the plan says; only where a launcher tells how many ranks a host has."""
    import os

    per_host = os.environ.get("LOCAL_WORLD_SIZE")
    if per_host is None:
        return
    world = 1
    for size in plan.mesh_shape:
        world *= size
    planned = plan.placements.get("devicesPerHost")
    if planned is not None and min(planned, world) != min(int(per_host), world):
        raise MismatchError(
            "E_HOSTS",
            f"the launcher starts {per_host} ranks on each host, the plan has {planned} devices there",
            hint=f"launch with --nproc-per-node={min(planned, world)}, or plan for a cluster of such hosts.",
        )


def _distribute(model: nn.Module, plan: Plan, mesh: DeviceMesh, here: Any) -> None:
    """Replaces every parameter and buffer of a model by its DTensor; each rank keeps its own part alone."""
    made: dict[int, Any] = {}
    for entry in plan.placements["primals"]:
        if entry["role"] not in ("parameter", "buffer"):
            continue
        path, _, last = entry["of"].rpartition(".")
        owner = model.get_submodule(path)
        table = owner._parameters if entry["role"] == "parameter" and last in owner._parameters else owner._buffers
        whole = table[last]
        assert whole is not None
        placed = made.get(id(whole))
        if placed is None:
            placed = made[id(whole)] = _placed(whole, entry, plan, mesh, here)
            # Keeps the id from being given out again while the loop runs.
            made[id(placed)] = placed
        table[last] = placed


def _placed(whole: torch.Tensor, entry: dict[str, Any], plan: Plan, mesh: DeviceMesh, here: Any) -> Any:
    if isinstance(whole, DTensor):
        raise MismatchError("E_MODEL", "it is a DTensor already", place=entry["of"], hint="give the plain model.")
    with torch.no_grad():
        own = part_of(whole.detach(), placements(entry), plan.mesh_shape, here.coordinate)
        device = here.device if whole.device.type != "meta" else torch.device("meta")
        own = own.to(device, copy=True).contiguous()
        dtensor = as_dtensor(own, entry, mesh)
    if isinstance(whole, nn.Parameter):
        return nn.Parameter(dtensor, requires_grad=whole.requires_grad)
    return dtensor
