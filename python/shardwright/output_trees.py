"""Outputs of a model as flat tensors, and back in the classes that the model returns: dicts, named tuples, dataclasses, `ModelOutput`s."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import torch

from .errors import CaptureError, MismatchError


def flatten_outputs(value: Any) -> tuple[Any, list[Any]]:
    """The tensors of an output, each once, and how they are nested: what `rebuild_tree` takes."""
    leaves: list[Any] = []

    def walk(member: Any, name: str, optional: bool = False) -> Any:
        if isinstance(member, torch.Tensor):
            place = next((k for k, leaf in enumerate(leaves) if leaf is member), len(leaves))
            if place == len(leaves):
                leaves.append(member)
            return place
        if member is None:
            return None
        own = _members(member)
        if own is not None:
            plain = type(member) is dict
            # A member that is not a tensor is refused where the caller asks for it, if the class says what is in it.
            inner = {str(key): walk(one, f"{name}.{key}", not plain) for key, one in own.items()}
            return {"dict": inner} if plain else {"dict": inner, "class": _path(type(member))}
        if isinstance(member, list):
            return {"list": [walk(one, f"{name}.{k}") for k, one in enumerate(member)]}
        if isinstance(member, tuple):
            inner_list = [walk(one, f"{name}.{k}") for k, one in enumerate(member)]
            return {"tuple": inner_list} if type(member) is tuple else {"tuple": inner_list, "class": _path(type(member))}
        if isinstance(member, (bool, int, str)):
            # A graph computes no such value: it is that of this kind of call, as sizes are.
            return {"plain": member}
        if optional:
            return {"absent": name, "class": type(member).__name__}
        raise CaptureError(
            "E_OUTPUT",
            f"it is a {type(member).__name__}, not a tensor",
            place=name,
            hint="give loss=, so that the loss alone is returned, or make the model return tensors (of a language model: use_cache=False).",
        )

    spec = walk(value, "output")
    if not leaves:
        raise CaptureError("E_OUTPUT", "the model returns no tensor", place="output")
    return spec, leaves


def _members(value: Any) -> Mapping[str, Any] | None:
    """Returns the members of a dict, a dataclass or a distribution by name; None for other values."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, torch.distributions.Distribution):
        # probs and logits say the same: the one that was given is taken, because the other is computed on demand.
        return {name: vars(value)[name] for name in value.arg_constraints if name in vars(value)} or None
    return None


def rebuild_tree(spec: Any, leaves: Sequence[Any]) -> Any:
    """The output of the model from its tensors."""
    if isinstance(spec, int):
        return leaves[spec]
    if spec is None:
        return None
    if "plain" in spec:
        return spec["plain"]
    if "absent" in spec:
        return NotReturned(spec["absent"], spec["class"])
    if "list" in spec:
        return [rebuild_tree(member, leaves) for member in spec["list"]]
    if "tuple" in spec:
        members = [rebuild_tree(member, leaves) for member in spec["tuple"]]
        if "class" not in spec:
            return tuple(members)
        cls = _class(spec["class"])
        # What `torch.sort` returns (`torch.return_types`) takes one sequence, as such types of C do.
        return cls(members) if hasattr(cls, "n_sequence_fields") else cls(*members)
    named = {key: rebuild_tree(member, leaves) for key, member in spec["dict"].items()}
    return _class(spec["class"])(**named) if "class" in spec else named


class NotReturned:
    """Stands for a member of an output that is not a tensor, such as a cache: a program returns tensors."""

    def __init__(self, name: str, kind: str) -> None:
        self.__dict__["of"] = (name, kind)

    def _refuse(self, *_: Any) -> NoReturn:
        name, kind = self.__dict__["of"]
        raise MismatchError(
            "E_OUTPUT", f"it is a {kind}, and a program returns tensors", place=name, hint="use_cache=False, or call it under no_grad."
        )

    __getattr__ = __getitem__ = __iter__ = __len__ = __call__ = _refuse

    def __repr__(self) -> str:
        """Says what it stands for."""
        return f"NotReturned{self.__dict__['of']}"


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _class(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
    except ImportError as error:
        hint = "run it where the model's own package is installed."
        raise MismatchError("E_OUTPUT", f"the model returns a {name} of {module}, which cannot be imported: {error}", hint=hint) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    # The path stands in a file: it may name a function, which is not to be called.
    if not isinstance(found, type):
        raise MismatchError("E_OUTPUT", f"the model returns a {name}, which {module} does not hold", hint="define it in a module.")
    return found
