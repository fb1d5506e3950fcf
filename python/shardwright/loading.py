"""Turns what a state dict holds into DTensors of the plan: whole tensors, DTensors of other placements, parts of other ranks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from .errors import MismatchError
from .placements import part_of


def as_planned(model: nn.Module, state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same state dict with DTensors in the placements of the model; all ranks call this together.

    Raises:
        MismatchError: for other sizes, with the names and both sizes; for a DTensor that was saved by another rank.
    """
    own = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    shared = [name for name in state_dict if isinstance(own.get(name), DTensor) and isinstance(state_dict[name], torch.Tensor)]
    other = [name for name in shared if state_dict[name].shape != own[name].shape]
    if other:
        said = ", ".join(f"{name} is {list(state_dict[name].shape)}, planned is {list(own[name].shape)}" for name in other[:3])
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        raise MismatchError("E_MODEL", f"{said}{more}", place="load_state_dict", hint="nothing was loaded: give the weights of this model.")
    for name in shared:
        _refuse_foreign(name, state_dict[name])
    made: Any = OrderedDict()
    for name, value in state_dict.items():
        made[name] = placed_like(own[name], value) if name in shared else value
    if hasattr(state_dict, "_metadata"):
        made._metadata = state_dict._metadata
    return made


def placed_like(wanted: DTensor, value: torch.Tensor) -> torch.Tensor:
    """A value, whole or placed otherwise, in the placement, dtype and device of a DTensor."""
    value = value.detach()
    if isinstance(value, DTensor):
        if value.device_mesh == wanted.device_mesh and value.placements == wanted.placements:
            return value
        value = value.full_tensor()
    return placed(value, wanted)


def placed(whole: torch.Tensor, wanted: DTensor) -> DTensor:
    """This rank's part of a whole tensor, as a DTensor placed like another one; nothing is sent."""
    mesh = wanted.device_mesh
    part = part_of(whole.detach(), wanted.placements, tuple(mesh.mesh.shape), mesh.get_coordinate() or ())
    device = wanted.to_local().device
    local = part.to(part.device if device.type == "meta" else device, copy=True).contiguous()
    return DTensor.from_local(local, mesh, wanted.placements, run_check=False, shape=wanted.shape, stride=wanted.stride())


def replace_states(model: nn.Module, made: Mapping[int, torch.Tensor]) -> None:
    """Puts other tensors in the places of parameters and buffers, wherever modules hold them; keys are identities."""
    for module in model.modules():
        tables: list[dict[str, Any]] = [module._parameters, module._buffers]
        for table in tables:
            for name, state in table.items():
                table[name] = made.get(id(state), state)
        # Recurrent modules keep a list of their own.
        flat = module.__dict__.get("_flat_weights")
        if isinstance(flat, list):
            module.__dict__["_flat_weights"] = [made.get(id(state), state) for state in flat]


def whole_of(value: torch.Tensor) -> torch.Tensor:
    """The whole of a DTensor as a plain tensor, without a copy where this rank has it."""
    if not isinstance(value, DTensor):
        return value
    if all(isinstance(p, Replicate) for p in value.placements):
        return value.to_local()
    return value.full_tensor()


def _refuse_foreign(name: str, value: torch.Tensor) -> None:
    if not isinstance(value, DTensor) or dist.get_backend() == "fake":
        return
    saved = getattr(value.device_mesh, "_rank", None)
    if saved is None or saved == dist.get_rank() or all(isinstance(p, Replicate) for p in value.placements):
        return
    raise MismatchError(
        "E_MODEL",
        f"it is the part that rank {saved} saved, {list(value.to_local().shape)} of {list(value.shape)}; this is rank {dist.get_rank()}",
        place=name,
        hint="save whole weights (get_model_state_dict with full_state_dict=True, on rank 0), a file for each rank, or "
        "torch.distributed.checkpoint.",
    )
