"""Parts of a model that a script calls by itself where ranks have rows of their own (`inputs="local"`).

`model.encode(x)` and `model.body(x)` run no program: their calls meet parameters, which are DTensors, and DTensor reads a plain tensor as the
same on every rank. Rows of this rank are not. Such a call is computed here, with whole weights; one whose gradients would be needed is
refused, since no reduction over ranks is part of it. A plain tensor in the sizes of a parameter (a mask, an average) stays one of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .dtensor_rules import without_handler
from .errors import MismatchError
from .loading import whole_of

_MESHES: list[DeviceMesh] = []
_ELEMENTWISE = ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor")
#: Operators in which modules meet their parameters.
_OPERATORS = (
    *_ELEMENTWISE,
    *("mm.default", "addmm.default", "bmm.default", "baddbmm.default", "mv.default", "addmv.default", "convolution.default"),
    *("embedding.default", "native_layer_norm.default", "native_group_norm.default", "native_batch_norm.default"),
    *("_fused_rms_norm.default", "_prelu_kernel.default"),
)
_BEFORE: dict[Any, Any] = {}


def adopt_rows(mesh: DeviceMesh) -> None:
    """Holds for DTensors of this mesh from now on."""
    dispatcher: Any = DTensor._op_dispatcher
    handlers = dispatcher._custom_op_handlers
    if not _MESHES:
        for name in _OPERATORS:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload)
            _BEFORE[op] = handlers.get(op)
            handlers[op] = _met
    if mesh not in _MESHES:
        _MESHES.append(mesh)


def _met(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = [*args, *kwargs.values()]
    placed: list[Any] = [arg for arg in given if isinstance(arg, DTensor)]
    rows = [arg for arg in given if isinstance(arg, torch.Tensor) and not isinstance(arg, DTensor) and arg.ndim > 0]
    # A backward pass is placed as its forward pass was.
    is_own = bool(rows) and placed[0].device_mesh in _MESHES and torch._C._current_graph_task_id() == -1
    if not is_own or _is_of_a_parameter(op, placed, rows):
        return _as_before(op, args, kwargs)
    # Statistics of a batch norm in training would be those of one rank, too.
    counts = op is torch.ops.aten.native_batch_norm.default and bool(args[5])
    if counts or (torch.is_grad_enabled() and any(arg.requires_grad for arg in (*placed, *rows))):
        raise MismatchError(
            "E_GRADIENT",
            f"{op} meets a parameter and rows of this rank outside of forward, and no reduction over ranks is planned for it",
            place='inputs="local"',
            hint='let forward return what the script needs, call it under no_grad() and eval(), or give the whole batch (inputs="whole").',
        )
    return op(*(_whole(arg) for arg in args), **{name: _whole(arg) for name, arg in kwargs.items()})


def _is_of_a_parameter(op: Any, placed: list[Any], rows: list[torch.Tensor]) -> bool:
    """Tells whether the result has the sizes of a parameter: the plain tensor is a mask or an average of it."""
    if str(op).removeprefix("aten.") not in _ELEMENTWISE:
        return False
    return torch.broadcast_shapes(placed[0].shape, rows[0].shape) == placed[0].shape


def _whole(value: Any) -> Any:
    return whole_of(value.detach()) if isinstance(value, DTensor) else value


def _as_before(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls an operator as if it were not asked here."""
    before = _BEFORE[op]
    return before(op, args, kwargs) if before is not None else without_handler(op, args, kwargs)
