"""Adds what DTensor does not do by itself with the parameters of a model that was taken over.

A plain tensor next to a DTensor is read as the whole on every rank, so that losses, and writing whole tensors into parameters, need no
words for it. What is read (`item()`, `tolist()`, `numpy()`) is that of all ranks. Whatever draws random numbers (initialisation, noise in
the sizes of a parameter, dropout of one) draws for the whole tensor on every rank and keeps this one's part: the numbers of one process.
What is put in the place of `.data` is put in the place of this rank's part,
too, which DTensor leaves as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate

from .errors import MismatchError
from .loading import placed, placed_like, whole_of
from .placements import part_of

_MESHES: list[DeviceMesh] = []
#: Calls of ATen that draw, for tensors that a script computes with; their in-place forms write into their first operand.
_DRAWING = (
    *("normal_.default", "uniform_.default", "bernoulli_.float", "bernoulli_.Tensor", "exponential_.default", "cauchy_.default"),
    *("log_normal_.default", "geometric_.default", "random_.default", "random_.from", "random_.to"),
    *("rand_like.default", "randn_like.default", "randint_like.default", "randint_like.low_dtype"),
    *("bernoulli.default", "bernoulli.p", "normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor", "poisson.default"),
    *("multinomial.default", "native_dropout.default"),
)


def adopt(mesh: DeviceMesh) -> None:
    """Holds for DTensors of this mesh from now on."""
    dispatcher: Any = DTensor._op_dispatcher
    dispatcher._allow_implicit_replication = True
    if not _MESHES:
        aten = torch.ops.aten
        for name in _DRAWING:
            packet, _, overload = name.partition(".")
            dispatcher._custom_op_handlers[getattr(getattr(aten, packet), overload)] = _drawn
        dispatcher._custom_op_handlers[aten.index_put_.default] = _put_where
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
    """Draws for whole tensors, the same on every rank, and keeps this one's parts."""
    into: DTensor = next(arg for arg in args if isinstance(arg, DTensor))
    mesh = into.device_mesh
    if mesh not in _MESHES:
        return without_handler(op, args, kwargs)
    if into._local_tensor.is_meta:
        return into if op._schema.is_mutable else op(*(_meta_of(arg) for arg in args), **kwargs)
    # A tensor that is overwritten, or that only lends its sizes, is not gathered.
    written = op._schema.is_mutable or op._schema.name.endswith("_like")
    whole = [_whole_for(arg, k > 0 or not written) for k, arg in enumerate(args)]
    found = op(*whole, **kwargs)
    if op._schema.is_mutable:
        place = mesh.get_coordinate() or ()
        into._local_tensor.copy_(part_of(whole[0], into.placements, tuple(mesh.mesh.shape), place))
        return into
    return tuple(_kept(one, into) for one in found) if isinstance(found, tuple) else _kept(found, into)


def _whole_for(value: Any, reads: bool) -> Any:
    """The whole of a DTensor; where the call does not read it, any tensor of its sizes."""
    if not isinstance(value, DTensor):
        return value
    return value.full_tensor() if reads else torch.empty(value.shape, dtype=value.dtype, device=value._local_tensor.device)


def _meta_of(value: Any) -> Any:
    return torch.empty(value.shape, dtype=value.dtype, device="meta") if isinstance(value, DTensor) else value


def _kept(drawn: torch.Tensor, like: DTensor) -> DTensor:
    """Places drawn values as the tensor in whose sizes they were drawn; values of other sizes stay whole."""
    mesh = like.device_mesh
    if drawn.shape == like.shape and not any(isinstance(p, Partial) for p in like.placements):
        return placed(drawn, like)
    return DTensor.from_local(drawn, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _put_where(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Writes a number where a mask is true (`grad[grad.abs() < 1e-3] = 0`), for which DTensor has no rule: each rank in its part."""
    into, indices, values = args[:3]
    mask = indices[0] if len(indices) == 1 else None
    is_mask = isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and mask.shape == into.shape
    if not is_mask or not isinstance(into, DTensor) or into.device_mesh not in _MESHES or values.numel() != 1:
        return without_handler(op, args, kwargs)
    part = placed_like(into, mask).to_local()
    op(into._local_tensor, [part], whole_of(values).to(into._local_tensor.device), *args[3:], **kwargs)
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
    """Reduces gradients, weights and losses as a script for DDP by hand asks: here all ranks have one value, so that a mean is that value.

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


def without_handler(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls an operator as DTensor does where nothing of ours is asked."""
    handlers: Any = DTensor._op_dispatcher._custom_op_handlers
    own = handlers.pop(op)
    try:
        return op(*args, **kwargs)
    finally:
        handlers[op] = own
