"""Turns a model into a module that runs by a plan on a device mesh, with DTensors for parameters.

State, checkpoints, optimizers and clipping see the DTensors; the step itself is the plan's program (`run.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .agreement import check_ranks, check_weights
from .dtensor_rules import adopt
from .ending import let_threads_end_first
from .errors import MismatchError
from .folder import Plan, load
from .loading import placed_like, replace_states
from .module import take_over, uncompiled
from .optimizers import hand_over
from .own_rows import adopt_rows
from .placements import as_dtensor, part_of, placements
from .precision import precision_of
from .programs import Programs, Settings
from .run import STATES, Run
from .shared import kept_where_planned, put_present


def parallelize(
    model: nn.Module,
    plan: Plan | str | os.PathLike[str],
    device_mesh: DeviceMesh,
    *,
    compile: bool | Literal["joint"] = False,
    timeout: timedelta | None = None,
    check_hosts: bool = True,
    check_batches: bool = True,
    inputs: Literal["whole", "local"] | Sequence[str] = "whole",
    outputs: Literal["whole", "placed"] = "whole",
    loss: Callable[..., Any] | bool | None = None,
    programs: int = 16,
    accumulate: int | None = None,
    check_finite: bool = False,
    flags: Mapping[str, Any] | None = None,
) -> Any:
    """Takes a model over: its parameters and buffers become DTensors, its forward and backward the plan's programs.

    It is the same object afterwards, of a subclass of its class. Calls of other sizes or in another mode are planned when they first
    occur, with the parameters where they are. Without gradients only the first two kinds of calls are planned at once; a further kind
    is computed with whole weights on every rank the first time, and planned the second time.

    Parameters and buffers that another parallel model has already are shared with it, if this plan has them in the same places.

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
        check_batches: compare what ranks give in the first four steps and in every 16th.
        inputs: "whole": every rank gives the whole batch; "local": its own rows, as with a DistributedSampler; names of mesh dims:
            ranks along these have rows of their own, others the same.
        outputs: "whole": what a script uses of an output is the plain whole, gathered then; "placed": a DTensor.
        loss: the loss function of `capture`, so that calls of another kind that have targets can be planned.
        programs: how many kinds of calls are planned; others are computed with whole weights.
        accumulate: backward passes for each reduction of gradients; None: every pass reduces, but for those under `no_sync()`.
        check_finite: ask in every step whether outputs and gradients are finite; where one is not, every rank ends with what made it.
        flags: of `plan`, for those calls.

    Raises:
        MismatchError: where model, mesh or hosts are not those of the plan, or ranks have other plans or other weights, with both
            values; where a program that decides by values is to be compiled.
    """
    given, model = model, uncompiled(model)
    opened = plan if isinstance(plan, Plan) else load(plan)
    decides: tuple[str, ...] = getattr(opened.program, "DECIDES", ())
    if compile and decides:
        raise MismatchError(
            "E_COMPILE",
            f"values decide what {', '.join(decides)} run, and torch.compile takes no collectives in its own conditions",
            hint="compile=False; scan and map, whose number of trips is known, are compiled.",
        )
    if compile == "joint" and check_finite:
        raise MismatchError(
            "E_COMPILE", "a joint graph is not asked for values that are not finite", place="check_finite", hint="compile=True."
        )
    if compile == "joint" and accumulate is not None:
        raise MismatchError("E_COMPILE", "a joint graph reduces gradients in every pass", place="accumulate", hint="compile=True.")
    try:
        here = opened.program.Here(device_mesh)
    except ValueError as error:
        made = f"init_device_mesh(device, {opened.mesh_shape}, mesh_dim_names={opened.mesh_dim_names})"
        raise MismatchError("E_MESH", str(error), hint=made) from error
    if timeout is not None:
        for name in {*here.groups.values(), *(device_mesh.get_group(d).group_name for d in range(device_mesh.ndim))}:
            dist.distributed_c10d._set_pg_timeout(timeout, dist.distributed_c10d._resolve_process_group(name))  # type: ignore[attr-defined]
    put_present(model)
    _check_model(model, opened)
    let_threads_end_first()
    check_ranks(opened, device_mesh, check_hosts)
    check_weights(model, device_mesh)
    _distribute(model, opened, device_mesh, here)
    adopt(device_mesh)
    if inputs != "whole":
        adopt_rows(device_mesh)
    above = opened.folder.parent / "plan.json"
    record = opened.capture or {}
    settings = Settings(
        folder=above.parent if above.exists() else None,
        cluster=json.loads(above.read_text())["cluster"] if above.exists() else None,
        loss=loss,
        targets=record.get("targets", 0),
        flags=dict(flags or {}),
        compile=compile is True,
        most=programs,
        check_batches=check_batches,
        inputs=inputs,
        outputs=outputs,
        accumulate=accumulate,
        check_finite=check_finite,
        precision=precision_of(opened.capture),
    )
    module = take_over(model, Programs(Run(opened, device_mesh, here, compile is True), settings))
    if compile == "joint":
        # Its parts of PyTorch are slow to import.
        from .joint import compile_joint

        compile_joint(module)
    return module if given is model else given


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


def _distribute(model: nn.Module, plan: Plan, mesh: DeviceMesh, here: Any) -> None:
    """Replaces every parameter and buffer of a model by its DTensor; each rank keeps its own part alone."""
    made: dict[int, torch.Tensor] = {}
    before: list[torch.Tensor] = []
    for entry in plan.placements["primals"]:
        if entry["role"] not in STATES:
            continue
        path, _, last = entry["of"].rpartition(".")
        whole = getattr(model.get_submodule(path), last)
        # Tied names are one tensor, which stays one.
        if isinstance(whole, DTensor):
            kept_where_planned(whole, entry["of"], placements(entry), mesh)
        elif id(whole) not in made:
            made[id(whole)] = placed_state(whole, entry, plan, mesh, here)
            before.append(whole)
    replace_states(model, made)
    hand_over(before, made)


def placed_state(whole: torch.Tensor, entry: dict[str, Any], plan: Plan, mesh: DeviceMesh, here: Any) -> torch.Tensor:
    """The DTensor of a parameter or buffer, with hooks and gradient of it; of a whole tensor each rank keeps its own part."""
    if isinstance(whole, DTensor):
        raise MismatchError("E_MODEL", "it is a DTensor already", place=entry["of"], hint="give the plain model.")
    device = here.device if whole.device.type != "meta" else whole.device
    with torch.no_grad():
        own = part_of(whole.detach(), placements(entry), plan.mesh_shape, here.coordinate)
        dtensor = as_dtensor(own.to(device, copy=True).contiguous(), entry, mesh)
    if not isinstance(whole, nn.Parameter):
        return dtensor
    parameter: Any = nn.Parameter(dtensor, requires_grad=whole.requires_grad)
    if whole.grad is not None:
        parameter.grad = placed_like(dtensor, whole.grad)
    # The same tables, of which handles take hooks away.
    for table in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if getattr(whole, table):
            setattr(parameter, table, getattr(whole, table))
    return parameter
