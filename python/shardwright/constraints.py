"""Placements that a model or a call states: `constrain` in `forward`, placements of inputs and outputs. A plan has them as pins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from .errors import CaptureError

_CAPTURING = [False]
#: Placements by number of inputs or outputs, or by name of inputs; a sequence has one for each, or None.
Stated = Mapping[Any, str] | Sequence[str | None]


@torch.library.custom_op("shardwright::constrain", mutates_args=())
def _constrained(x: torch.Tensor, placement: str) -> torch.Tensor:
    return x.clone()


@_constrained.register_fake
def _(x: torch.Tensor, placement: str) -> torch.Tensor:
    return torch.empty_like(x)


def _backward(ctx: Any, gradient: torch.Tensor) -> Any:
    return gradient, None


_constrained.register_autograd(_backward)


def constrain(x: torch.Tensor, placement: str) -> torch.Tensor:
    """States where a value of a model is placed; outside of a capture it is the value itself.

    Args:
        x: a tensor in `forward`.
        placement: one for each mesh dim, such as `S(0)R`, or a `PartitionSpec`, `P("dp", None)`.
    """
    return _constrained(x, placement) if _CAPTURING[0] else x


@contextmanager
def stating() -> Iterator[None]:
    """`constrain` is written into the graph inside."""
    _CAPTURING[0] = True
    try:
        yield
    finally:
        _CAPTURING[0] = False


def by_number(stated: Stated | None, names: Sequence[str], what: str) -> dict[int, str]:
    """Placements of inputs or outputs by their number.

    Raises:
        CaptureError: for one that there is not.
    """
    items = stated.items() if isinstance(stated, Mapping) else enumerate(stated or ())
    found: dict[int, str] = {}
    for key, placement in items:
        number = names.index(key) if key in names else key
        if not (isinstance(number, int) and 0 <= number < len(names)):
            raise CaptureError("E_INPUT", f"there is no {key!r}; there are {', '.join(names)}", place=what)
        if placement is not None:
            found[number] = placement
    return found


def placed_inputs(tensors: Sequence[torch.Tensor]) -> dict[int, str]:
    """Placements of example inputs that are DTensors, by number.

    Raises:
        CaptureError: for one that no pin states.
    """
    found: dict[int, str] = {}
    for number, tensor in enumerate(tensors):
        if isinstance(tensor, DTensor):
            words = ["R" if isinstance(p, Replicate) else f"S({p.dim})" if type(p) is Shard else None for p in tensor.placements]
            if None in words:
                raise CaptureError("E_INPUT", f"it is placed {tensor.placements}", place=f"input {number}", hint="Shard and Replicate.")
            found[number] = "".join(map(str, words))
    return found


def read_constraints(graph: Any) -> dict[str, str]:
    """Makes the calls of `constrain` in a graph copies, and gives the placements by name of node."""
    found: dict[str, str] = {}
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.shardwright.constrain.default):
        value, placement = node.args
        node.target, node.args = torch.ops.aten.clone.default, (value,)
        found[node.name] = placement
    return found
