"""Parameters that a script took from a model before the model was taken over: a list for clipping, a group, a name in a closure.

The model has other parameters since. What a script reads of a former one, writes into it, or computes with it goes to the one that stands
in its place, so that `clip_grad_norm_(params, 1.0)` with a list of before clips the gradients that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn


class FormerParameter(nn.Parameter):
    """A parameter of before; every call takes the parameter that the model has in its place."""

    present: nn.Parameter

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """Prints as the present one does."""
        return repr(self.__dict__["present"])

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Puts present parameters in the places of former ones."""
        return func(*present_of(args), **present_of(kwargs or {}))


def leave_behind(before: Sequence[torch.Tensor], made: Mapping[int, Any]) -> None:
    """Makes parameters that were replaced stand for those in their places, and frees their values.

    Args:
        before: parameters and buffers as the model had them.
        made: what stands for each, by identity.
    """
    for tensor in before:
        # A subclass of somebody else has calls of its own.
        if type(tensor) is nn.Parameter:
            # Nothing reads them any more: the whole would stay in memory as long as the script's list.
            torch._C.TensorBase.data.__set__(tensor, torch.empty(0, dtype=tensor.dtype, device=tensor.device))  # type: ignore[attr-defined]
            tensor.grad = None
            tensor.__class__ = FormerParameter
            tensor.__dict__["present"] = made[id(tensor)]


def present_of(value: Any) -> Any:
    """A value with present parameters in the places of former ones; lists, tuples and dicts alike."""
    if isinstance(value, FormerParameter):
        # It may have been left behind itself, by a model that was taken over again.
        return present_of(value.__dict__["present"])
    if type(value) in (tuple, list):
        return type(value)(present_of(member) for member in value)
    if type(value) is dict:
        return {key: present_of(member) for key, member in value.items()}
    return value
