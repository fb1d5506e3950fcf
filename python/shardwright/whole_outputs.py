"""Outputs that other devices have parts of, gathered when a script first uses them.

A script may compute anything from an output. DTensor's own rules for that are not all right: `mse_loss` of PyTorch 2.13 gives gradients
that are as many times too large as devices cut its input. An output that nothing uses, logits next to a loss, is never gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

_T = torch.Tensor
#: Attributes of a tensor that are known without its values.
_OF_TYPE: set[Any] = {
    *(getattr(_T, name).__get__ for name in ("shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout")),
    *(_T.size, _T.dim, _T.numel, _T.is_floating_point, _T.is_complex, _T.nelement, _T.element_size, _T.__len__, _T.__hash__),
}


class WholeOutput(torch.Tensor):
    """A whole tensor; all ranks use it together, as they do everything."""

    placed: DTensor
    gathered: torch.Tensor | None

    @staticmethod
    def of(placed: DTensor) -> WholeOutput:
        """The whole of a DTensor."""
        made: Any = torch.Tensor._make_wrapper_subclass(
            WholeOutput, placed.shape, dtype=placed.dtype, device=placed.device, requires_grad=placed.requires_grad
        )
        made.placed, made.gathered = placed, None
        return made

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Puts whole tensors in the places of these, but for what asks for sizes and dtypes alone."""
        if func in _OF_TYPE:
            return super().__torch_function__(func, types, args, kwargs or {})
        return func(*_gathered(args), **_gathered(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Does the same as `__torch_function__`, for calls that come from below it."""
        return func(*_gathered(args), **_gathered(kwargs or {}))

    def whole(self) -> torch.Tensor:
        """The plain tensor, which is gathered once."""
        if self.__dict__["gathered"] is None:
            self.__dict__["gathered"] = _Gathered.apply(self.__dict__["placed"])
        return self.__dict__["gathered"]


class _Gathered(torch.autograd.Function):
    """The whole of an output. Its gradient goes on as it comes, whole, so that it may have a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, placed: DTensor) -> torch.Tensor:
        whole: Any = placed.detach()
        whole = whole.full_tensor()
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def added_up(loss: DTensor) -> torch.Tensor:
    """One number of which devices have parts, as a plain tensor; all ranks call this together."""
    return _Gathered.apply(loss)


def placed_of(value: Any) -> Any:
    """The DTensor of an output of another program, which need not be gathered for this one; nested values alike."""
    return _mapped(value, lambda output: output.__dict__["placed"])


def _gathered(value: Any) -> Any:
    return _mapped(value, WholeOutput.whole)


def _mapped(value: Any, into: Callable[[WholeOutput], torch.Tensor]) -> Any:
    if isinstance(value, WholeOutput):
        return into(value)
    if type(value) in (tuple, list):
        return type(value)(_mapped(member, into) for member in value)
    if type(value) is dict:
        return {key: _mapped(member, into) for key, member in value.items()}
    return value
