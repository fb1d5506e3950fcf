"""Parameters and buffers that a model shares with one that was taken over before: both have the same DTensors, and both plans their places.

Two towers share an embedding, an actor and a critic their trunk: what one program writes is what the other one reads, and gradients of both
add up in one parameter.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .errors import MismatchError
from .former import FormerParameter, present_of
from .loading import replace_states
from .module import ParallelModule
from .placements import word_of


def put_present(model: nn.Module) -> None:
    """Gives a model the parameters that another one has in the places of those it was made with (a tied weight).

    Raises:
        MismatchError: for a model that was taken over itself.
    """
    if isinstance(model, ParallelModule):
        raise MismatchError("E_MODEL", "the model is parallel already", hint="make another model for another plan.")
    states = [*model.parameters(), *model.buffers()]
    replace_states(model, {id(state): present_of(state) for state in states if isinstance(state, FormerParameter)})


def shared_pins(model: nn.Module, mesh: DeviceMesh) -> list[str]:
    """States that are placed already, as pins of `plan`: `trunk.weight=S(0)R`.

    Raises:
        MismatchError: for one on another device mesh.
    """
    found: dict[int, tuple[str, Any]] = {}
    for name, state in (*model.named_parameters(), *model.named_buffers()):
        if isinstance(state, DTensor):
            found.setdefault(id(state), (name, state))
    for name, state in found.values():
        _refuse_other_mesh(name, state, mesh)
    return [f"{name}={''.join(word_of(p) for p in state.placements)}" for name, state in found.values()]


def kept_where_planned(state: DTensor, name: str, wanted: tuple[Any, ...], mesh: DeviceMesh) -> torch.Tensor:
    """A state that another parallel model has too, which stays.

    Raises:
        MismatchError: where the plan has it elsewhere, with both placements.
    """
    _refuse_other_mesh(name, state, mesh)
    if tuple(state.placements) != wanted:
        own, planned = ("".join(word_of(p) for p in at) for at in (state.placements, wanted))
        raise MismatchError(
            "E_MODEL",
            f"another parallel model has it as {own}, planned is {planned}",
            place=name,
            hint=f'plan it where it is: pin=["{name}={own}"], as auto_parallelize does.',
        )
    return state


def _refuse_other_mesh(name: str, state: DTensor, mesh: DeviceMesh) -> None:
    if state.device_mesh != mesh:
        raise MismatchError(
            "E_MESH",
            f"another parallel model has it on {state.device_mesh}, asked is {mesh}",
            place=name,
            hint="models that share parameters share a mesh: give both the same device_mesh.",
        )
