"""Placements of a plan in DTensor's words, and the part of a whole tensor that a device has under them.

Source: `torch.distributed.tensor.placement_types`; ceil chunks as `Shard` cuts them, strides as `_StridedShard` does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement, _StridedShard

from .errors import MismatchError

_WORD = re.compile(r"^(?:R|S\((\d+)\)|_S\((\d+), (\d+)\)|P\((\w+)\))$")


def placement(word: str) -> Placement:
    """`Shard(0)` of `S(0)`, `_StridedShard(0, split_factor=2)` of `_S(0, 2)`, `Partial("sum")` of `P(sum)`."""
    found = _WORD.match(word)
    if found is None:
        raise MismatchError("E_PLACEMENT", f"'{word}' is no placement of DTensor")
    shard, strided, factor, partial = found.groups()
    if shard is not None:
        return Shard(int(shard))
    if strided is not None:
        return _StridedShard(int(strided), split_factor=int(factor))
    return Partial(partial) if partial is not None else Replicate()


def placements(entry: dict[str, Any]) -> tuple[Placement, ...]:
    """Of a row of `placements.json`.

    Raises:
        MismatchError: where DTensor has no words for it (an order of cuts of an uneven dim).
    """
    words = entry["dtensor"]
    if words is None:
        raise MismatchError(
            "E_PLACEMENT",
            f"DTensor has no words for {entry['placement']} of {entry['shape']}",
            place=entry.get("of", entry["name"]),
            hint="pin it to another placement and plan again.",
        )
    return tuple(placement(word) for word in words)


def part_of(whole: torch.Tensor, at: Sequence[Placement], sizes: Sequence[int], coordinate: Sequence[int]) -> torch.Tensor:
    """What the device at a coordinate has of a whole tensor: a view or a copy, nothing is communicated.

    Of a pending sum the first device has the value and the others zeros; of other pending reductions all have the value.
    """
    own = whole
    for placement_, size, place in zip(at, sizes, coordinate, strict=True):
        if isinstance(placement_, Partial):
            if placement_.reduce_op == "sum" and place > 0:
                own = torch.zeros_like(own)
        elif isinstance(placement_, _StridedShard):
            pieces = [_chunk(piece, placement_.dim, size, place) for piece in _pieces(own, placement_.dim, int(placement_.split_factor))]
            own = torch.cat(pieces, placement_.dim)
        elif isinstance(placement_, Shard):
            own = _chunk(own, placement_.dim, size, place)
    return own


def _pieces(tensor: torch.Tensor, dim: int, factor: int) -> list[torch.Tensor]:
    return [_chunk(tensor, dim, factor, k) for k in range(factor)]


def _chunk(tensor: torch.Tensor, dim: int, n: int, k: int) -> torch.Tensor:
    rows = tensor.shape[dim]
    chunk = -(-rows // n)
    start = min(chunk * k, rows)
    return tensor.narrow(dim, start, min(chunk, rows - start))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a row-major tensor, in elements."""
    steps = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        steps[d] = steps[d + 1] * max(shape[d + 1], 1)
    return tuple(steps)


def as_dtensor(local: torch.Tensor, entry: dict[str, Any], mesh: Any) -> DTensor:
    """The distributed tensor of a local part; nothing is communicated or checked."""
    shape = torch.Size(entry["shape"])
    return DTensor.from_local(local, mesh, placements(entry), run_check=False, shape=shape, stride=row_major(entry["shape"]))
