"""Placements of a plan in DTensor's words, and the part of a whole tensor that a device has under them.

Source: `torch.distributed.tensor.placement_types`; ceil chunks as `Shard` cuts them, strides as `_StridedShard` does, and the order that strides
stand for as `DTensorSpec` decodes it.
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
        raise MismatchError("E_PLACEMENT", f"'{word}' is not a placement of DTensor")
    shard, strided, factor, partial = found.groups()
    if shard is not None:
        return Shard(int(shard))
    if strided is not None:
        return _StridedShard(int(strided), split_factor=int(factor))
    return Partial(partial) if partial is not None else Replicate()


def word_of(at: Placement) -> str:
    """`S(0)` of `Shard(0)`, as plans and pins have it."""
    if isinstance(at, _StridedShard):
        return f"_S({at.dim}, {int(at.split_factor)})"
    if isinstance(at, Shard):
        return f"S({at.dim})"
    return f"P({at.reduce_op})" if isinstance(at, Partial) else "R"


def placements(entry: dict[str, Any]) -> tuple[Placement, ...]:
    """Of a row of `placements.json`."""
    return tuple(placement(word) for word in entry["dtensor"])


def part_of(whole: torch.Tensor, at: Sequence[Placement], sizes: Sequence[int], coordinate: Sequence[int]) -> torch.Tensor:
    """What the device at a coordinate has of a whole tensor: a view or a copy, nothing is communicated.

    Of a pending sum the first device has the value and the others zeros; of other pending reductions all have the value.
    """
    own = whole
    for d, placement_ in _in_order(at, sizes):
        size, place = sizes[d], coordinate[d]
        if isinstance(placement_, Partial):
            if placement_.reduce_op == "sum" and place > 0:
                own = torch.zeros_like(own)
        elif isinstance(placement_, _StridedShard):
            pieces = [_chunk(piece, placement_.dim, size, place) for piece in _pieces(own, placement_.dim, int(placement_.split_factor))]
            own = torch.cat(pieces, placement_.dim)
        elif isinstance(placement_, Shard):
            own = _chunk(own, placement_.dim, size, place)
    return own


def _in_order(at: Sequence[Placement], sizes: Sequence[int]) -> list[tuple[int, Placement]]:
    """Mesh dims in the order in which they cut. Strides that are an order of mesh dims are plain cuts in it, as DTensor reads them."""
    cuts: dict[int, list[int]] = {}
    for d, p in enumerate(at):
        if isinstance(p, (Shard, _StridedShard)):
            cuts.setdefault(p.dim, []).append(d)
    out = [(d, p) for d, p in enumerate(at) if not isinstance(p, (Shard, _StridedShard))]
    for dim, dims in cuts.items():
        order = cut_order({d: int(getattr(at[d], "split_factor", 1)) for d in dims}, sizes)
        out += [(d, at[d]) for d in dims] if order is None else [(d, Shard(dim)) for d in order]
    return out


def cut_order(factors: dict[int, int], sizes: Sequence[int]) -> list[int] | None:
    """The order of the mesh dims that cut a tensor dim, by their stride factors; None where strides are not an order of mesh dims.

    The factor of a mesh dim is the product of the sizes of those that cut before it and stand after it in the mesh.
    """
    order: list[int] = []
    for d in sorted(factors, reverse=True):
        blocks, at = 1, 0
        while blocks != factors[d] and at < len(order):
            blocks *= sizes[order[at]]
            at += 1
        if blocks != factors[d]:
            return None
        order.insert(at, d)
    return order


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
