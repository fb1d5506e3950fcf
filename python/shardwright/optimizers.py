"""Optimizers that were made before a model was taken over, as scripts for DDP make them: they step its parameters of before.

Their groups and states get the parallel parameters in the places of those. One that is made later, of a list of parameters that is
older, gets them before its first step.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .former import FormerParameter, leave_behind, present_of
from .loading import placed


def hand_over(before: Sequence[torch.Tensor], made: Mapping[int, Any]) -> None:
    """Gives optimizers the parameters that stand for those of before.

    Args:
        before: parameters and buffers as the model had them.
        made: what stands for each, by identity.
    """
    for one in gc.get_objects():
        if issubclass(type(one), Optimizer):
            _hand_over(one, before, made)
    leave_behind(before, made)


def _hand_over(optimizer: Optimizer, before: Sequence[torch.Tensor], made: Mapping[int, Any]) -> None:
    for group in optimizer.param_groups:
        group["params"] = [made.get(id(p), p) for p in group["params"]]
    for tensor in before:
        if tensor in optimizer.state:
            own = made[id(tensor)]
            optimizer.state[own] = {key: _like(value, tensor, own) for key, value in optimizer.state.pop(tensor).items()}


def _like(value: Any, before: torch.Tensor, own: Any) -> Any:
    """A state of an optimizer, placed as its parameter where it has the sizes of it."""
    return placed(value, own) if isinstance(value, torch.Tensor) and value.shape == before.shape and isinstance(own, DTensor) else value


def _with_present(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Gives an optimizer that was made of former parameters the present ones; states that it has of them are theirs."""
    for group in optimizer.param_groups:
        if any(isinstance(p, FormerParameter) for p in group["params"]):
            group["params"] = present_of(group["params"])
    for p in [p for p in optimizer.state if isinstance(p, FormerParameter)]:
        optimizer.state[present_of(p)] = optimizer.state.pop(p)


register_optimizer_step_pre_hook(_with_present)
