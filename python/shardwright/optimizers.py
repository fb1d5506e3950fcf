"""Optimizers that were made before a model was taken over, as scripts for DDP make them: they step its parameters of before.

Their groups and states get the parallel parameters in the places of those. One that is made later, of a list of parameters that is
older, is refused at its first step.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .errors import MismatchError
from .loading import placed

#: Parameters of before that something still holds, by identity.
_BEFORE: dict[int, weakref.ref[torch.Tensor]] = {}


def hand_over(before: Sequence[torch.Tensor], made: Mapping[int, Any]) -> None:
    """Gives optimizers the parameters that stand for those of before.

    Args:
        before: parameters and buffers as the model had them.
        made: what stands for each, by identity.
    """
    for one in gc.get_objects():
        if issubclass(type(one), Optimizer):
            _hand_over(one, before, made)
    for key in [key for key, ref in _BEFORE.items() if ref() is None]:
        del _BEFORE[key]
    _BEFORE.update({id(tensor): weakref.ref(tensor) for tensor in before if isinstance(tensor, torch.nn.Parameter)})


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


def _refuse_before(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not _BEFORE:
        return
    for group in optimizer.param_groups:
        for p in group["params"]:
            known = _BEFORE.get(id(p))
            held = known() if known is not None else None
            if held is not None and held is p:
                raise MismatchError(
                    "E_MODEL",
                    f"a parameter of sizes {list(held.shape)} is not the model's any more, since the model was taken over",
                    place="optimizer.step()",
                    hint="make the optimizer of model.parameters() as they are now.",
                )


register_optimizer_step_pre_hook(_refuse_before)
