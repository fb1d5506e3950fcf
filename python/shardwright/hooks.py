"""Hooks that a script sets on modules inside of a model, which a program does not call: such calls run with whole weights.

Hooks of the whole model run outside of its `forward`, and those of PyTorch (pruning, normed weights) and of trainers leave what they do in
the graph. What another one does, notes features or norms of gradients, is not to be found by tracing it: it would note traced tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from .errors import CaptureError

_KINDS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
_PACKAGES = ("torch", "transformers", "peft", "accelerate")


@dataclass(frozen=True)
class Hook:
    """One hook. Ranks compare the text; another function of the same name is another hook."""

    text: str
    function: Any

    def __repr__(self) -> str:
        """The same on every rank."""
        return self.text


def _written(function: Any) -> Any:
    """Returns the written part of a hook: the function of a partial one, the class of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if hasattr(function, "__qualname__") else type(function)


def _tables(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, dict[int, Any]]]:
    for name, module in model.named_modules():
        if name:
            for table in _KINDS:
                hooks = module.__dict__.get(table)
                if hooks:
                    yield name, module, table, hooks


def _is_own(function: Any) -> bool:
    """Tells whether a script set it, not a package."""
    return str(_written(function).__module__).partition(".")[0] not in _PACKAGES


def hooks_of(model: nn.Module) -> tuple[Hook, ...]:
    """Hooks of the modules inside of a model that a script set."""
    return tuple(
        Hook(f"{_KINDS[table]} {_written(hook).__qualname__} of {name}", hook)
        for name, _, table, hooks in _tables(model)
        for hook in hooks.values()
        if _is_own(hook)
    )


def refuse_hooks(model: nn.Module) -> None:
    """Refuses a model that a script set hooks in.

    Raises:
        CaptureError: E_HOOK, with its name and the line where it is written.
    """
    hooks = hooks_of(model)
    if not hooks:
        return
    code = getattr(_written(hooks[0].function), "__code__", None)
    raise CaptureError(
        "E_HOOK",
        f"no program calls the {hooks[0].text}",
        place=f"{code.co_filename}:{code.co_firstlineno}" if code else None,
        hint="return what it sees or changes as an output of forward, or remove it (handle.remove()) for steps that do not need it.",
    )


def remove_hooks(copied: nn.Module) -> None:
    """Takes a script's hooks from a copy of a model."""
    for _, module, table, hooks in _tables(copied):
        module.__dict__[table] = type(hooks)({number: hook for number, hook in hooks.items() if not _is_own(hook)})
