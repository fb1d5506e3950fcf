"""What decides, apart from its inputs, what a call of a model computes."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

#: Python values that a graph holds as constants.
PLAIN = (int, float, bool, str, type(None))


def values_of(model: nn.Module) -> tuple[Any, ...]:
    """Plain values of all modules, which `forward` may read, but their modes."""
    return tuple(v for m in model.modules() for k, v in m.__dict__.items() if v.__class__ in PLAIN and k[0] != "_" and k != "training")


def values_hash(model: nn.Module) -> str:
    """Tells whether plain values of modules are those of another time."""
    return hashlib.sha256(repr(values_of(model)).encode()).hexdigest()[:16]


def other_modes(model: nn.Module) -> list[str]:
    """Modules that are not in the mode of the whole model."""
    return [name for name, module in model.named_modules() if module.training != model.training]


def frozen(model: nn.Module) -> list[str]:
    """Parameters that want no gradient."""
    return [name for name, p in model.named_parameters() if not p.requires_grad]


def autocast_of(device: str) -> str | None:
    """The dtype of an autocast that is on."""
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.") if torch.is_autocast_enabled(device) else None
