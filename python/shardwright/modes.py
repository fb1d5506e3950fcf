"""Reads everything, apart from its inputs, that decides what a call of a model computes."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

#: Python values that a graph holds as constants.
PLAIN = (int, float, bool, str, type(None))


#: Attributes that PyTorch and transformers set on modules for themselves.
_NOTES = {"training", "_is_full_backward_hook", "_compiled_call_impl", "_output_capturing_hooks_installed"}
#: Tables of modules, and longer lists than these (vocabularies), are not looked into.
_TABLES, _MOST_MEMBERS = {"_parameters", "_buffers", "_modules"}, 64


def values_of(model: nn.Module) -> tuple[Any, ...]:
    """Plain values of all modules and of their `config`, and short lists of such, which `forward` may read; without modes."""
    found: list[Any] = []
    configs: dict[int, Any] = {}
    for module in model.modules():
        for key, value in module.__dict__.items():
            kind = value.__class__
            if kind in PLAIN:
                if key[0] != "_":
                    if key != "training":
                        found.append(value)
                # The value of the class is not a change: libraries set such switches on and off.
                elif key not in _NOTES and getattr(module.__class__, key, module) != value:
                    found.append((key, value))
            elif kind in (list, tuple, dict):
                if len(value) <= _MOST_MEMBERS and key not in _TABLES and _all_plain(value):
                    found.append((key, repr(value)))
            elif key == "config":
                configs[id(value)] = value
    for config in configs.values():
        found.extend((key, value) for key, value in getattr(config, "__dict__", {}).items() if value.__class__ in PLAIN)
    return tuple(found)


def _all_plain(values: Any) -> bool:
    members = values.values() if isinstance(values, dict) else values
    return all(one.__class__ in PLAIN or (one.__class__ in (list, tuple, dict) and _all_plain(one)) for one in members)


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
