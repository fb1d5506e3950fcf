from __future__ import annotations

from itertools import permutations, product

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry
from torch.distributed.tensor.placement_types import _StridedShard

from shardwright import MismatchError
from shardwright.placements import cut_order, part_of, placement


def test_words_are_those_of_dtensor() -> None:
    assert placement("R") == Replicate()
    assert placement("S(3)") == Shard(3)
    assert placement("_S(0, 2)") == _StridedShard(0, split_factor=2)
    assert placement("P(max)") == Partial("max")
    with pytest.raises(MismatchError, match="not a placement"):
        placement("Ragged(0)")


@pytest.mark.parametrize("rows", [8, 7, 3])
def test_parts_are_the_chunks_that_dtensor_cuts(rows: int) -> None:
    whole = torch.arange(rows * 2).view(rows, 2)
    for k in range(4):
        chunks, _ = Shard(0)._split_tensor(whole, 4, with_padding=False)
        assert torch.equal(part_of(whole, [Shard(0)], [4], [k]), chunks[k])


def test_strided_parts_are_those_of_dtensor() -> None:
    whole = torch.arange(16)
    strided = _StridedShard(0, split_factor=2)
    chunks, _ = strided._split_tensor(whole, 2, with_padding=False)
    for k in range(2):
        assert torch.equal(part_of(whole, [strided], [2], [k]), chunks[k])


def test_an_order_of_cuts_is_read_as_dtensor_reads_it() -> None:
    mesh = DeviceMesh("cpu", torch.arange(12).view(2, 3, 2), _init_backend=False, _rank=0)
    sizes = (2, 3, 2)
    for order in permutations(range(3)):
        shards = (Shard(0), Shard(0), Shard(0))
        words = DTensorSpec._convert_shard_order_to_StridedShard((ShardOrderEntry(0, order),), shards, mesh)
        factors = {d: int(getattr(p, "split_factor", 1)) for d, p in enumerate(words)}
        assert cut_order(factors, sizes) == list(order)
        own = torch.arange(17)
        for d in order:
            own = part_of(own, [Shard(0)], [sizes[d]], [1])
        assert part_of(torch.arange(17), words, sizes, (1, 1, 1)).tolist() == own.tolist()
    assert cut_order({0: 5, 1: 1}, sizes) is None


def test_pending_sums_add_up_to_the_whole() -> None:
    whole = torch.randn(4, 3)
    at = [Partial("sum"), Shard(1)]
    parts = {c: part_of(whole, at, [2, 3], c) for c in product(range(2), range(3))}
    columns = [parts[0, k] + parts[1, k] for k in range(3)]
    assert torch.equal(torch.cat(columns, 1), whole)
