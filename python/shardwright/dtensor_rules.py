"""What DTensor does not do by itself with the parameters of a model that was taken over.

A plain tensor next to a DTensor is read as the whole on every rank, so that losses, and writing whole tensors into parameters, need no
words for it. A number that is read (`item()`) is that of all ranks. Random initialisation draws the whole tensor on every rank and keeps
this one's part: the numbers of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate

from .placements import part_of

_MESHES: list[DeviceMesh] = []


def adopt(mesh: DeviceMesh) -> None:
    """Holds for DTensors of this mesh from now on."""
    dispatcher: Any = DTensor._op_dispatcher
    dispatcher._allow_implicit_replication = True
    if not _MESHES:
        aten = torch.ops.aten
        for op in (aten.normal_.default, aten.uniform_.default, aten.bernoulli_.float, aten.exponential_.default, aten.random_.default):
            dispatcher._custom_op_handlers[op] = _drawn
        dispatcher._custom_op_handlers[aten._local_scalar_dense.default] = _read
    if mesh not in _MESHES:
        _MESHES.append(mesh)


def _drawn(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    into: DTensor = args[0]
    mesh = into.device_mesh
    if mesh not in _MESHES or any(isinstance(p, Partial) for p in into.placements):
        return _without_handler(op, args, kwargs)
    local = into._local_tensor
    if not local.is_meta:
        whole = torch.empty(into.shape, dtype=into.dtype, device=local.device)
        op(whole, *args[1:], **kwargs)
        local.copy_(part_of(whole, into.placements, tuple(mesh.mesh.shape), mesh.get_coordinate() or ()))
    return into


def _read(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value: DTensor = args[0]
    whole = all(isinstance(p, Replicate) for p in value.placements)
    return op(value._local_tensor if whole else value.full_tensor())


def _without_handler(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    handlers: Any = DTensor._op_dispatcher._custom_op_handlers
    own = handlers.pop(op)
    try:
        return op(*args, **kwargs)
    finally:
        handlers[op] = own
