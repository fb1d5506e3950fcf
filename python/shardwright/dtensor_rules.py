"""What DTensor does not do by itself with the parameters of a model that was taken over.

A plain tensor next to a DTensor is read as the whole on every rank, so that losses, and writing whole tensors into parameters, need no
words for it. What is read (`item()`, `tolist()`, `numpy()`) is that of all ranks. Random initialisation draws the whole tensor on every
rank and keeps this one's part: the numbers of one process. What is put in the place of `.data` is put in the place of this rank's part,
too, which DTensor leaves as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate

from .errors import MismatchError
from .loading import placed_like, whole_of
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
        for op in (torch.ops.c10d.allreduce_.default, torch.ops.c10d.broadcast_.default):
            dispatcher._custom_op_handlers[op] = _reduced_by_script
        if hasattr(dispatcher, "_dispatch_fast_path_python_tail"):
            dispatcher._dispatch_fast_path_python_tail = _written_plain(dispatcher._dispatch_fast_path_python_tail)
        kind: Any = DTensor
        kind.data = property(_DATA.__get__, _put)
        for name in ("numpy", "tolist"):
            setattr(kind, name, _read_whole(getattr(torch.Tensor, name)))
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


_DATA: Any = torch._C.TensorBase.data


def _put(tensor: DTensor, value: torch.Tensor) -> None:
    """Sets `.data`: to a whole tensor, or to a DTensor in any placement."""
    if tensor.device_mesh not in _MESHES:
        _DATA.__set__(tensor, value)
        return
    if tensor.shape != value.shape:
        raise MismatchError("E_MODEL", f"it is set to {list(value.shape)}, planned is {list(tensor.shape)}", place=".data of a parameter")
    own: Any = placed_like(tensor, value)
    _DATA.__set__(tensor, own)
    tensor._local_tensor, tensor._spec = own._local_tensor, own._spec


def _read_whole(read: Callable[..., Any]) -> Callable[..., Any]:
    def call(tensor: DTensor, *args: Any, **kwargs: Any) -> Any:
        return read(whole_of(tensor) if tensor.device_mesh in _MESHES else tensor, *args, **kwargs)

    return call


def _reduced_by_script(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a script for DDP by hand does with gradients, weights and losses: here all ranks have one value, so that a mean is that value.

    Two plain numbers are sent in its place, which also says what kind of reduction it is.
    """
    values: list[DTensor] = args[0]
    told = torch.tensor([2.0, 3.0], device=values[0]._local_tensor.device)
    _, work = op([told], *args[1:], **kwargs)
    work.wait()
    factors = told / torch.tensor([2.0, 3.0], device=told.device)
    if factors[0] != factors[1]:
        raise MismatchError("E_RANK", "a product over ranks is taken of a tensor that ranks hold parts of", place="torch.distributed")
    for value in values:
        if factors[0] != 1:
            value._local_tensor.mul_(factors[0].to(value.dtype))
    return list(values), work


def _written_plain(tail: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a plain tensor be written from DTensors (`ema.lerp_(p)`), which DTensor computes and then does not return."""

    def call(op: Any, args: tuple[Any, ...], kwargs: Any, mesh: Any, sharding: Any, result: Any, here: bool, *is_inplace: bool) -> Any:
        is_plain = isinstance(args[0], torch.Tensor) and not isinstance(args[0], DTensor)
        if not (is_inplace[0] and is_plain and sharding.output_spec is not None):
            return tail(op, args, kwargs, mesh, sharding, result, here, *is_inplace)
        if all(isinstance(p, Replicate) for p in sharding.output_spec.placements):
            return args[0]
        raise MismatchError("E_MODEL", f"{op} writes a plain tensor in parts", hint="write it from p.full_tensor().")

    return call


def _without_handler(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    handlers: Any = DTensor._op_dispatcher._custom_op_handlers
    own = handlers.pop(op)
    try:
        return op(*args, **kwargs)
    finally:
        handlers[op] = own
