"""Collectives of each kind over each mesh dim and each union of dims: alone, and beside compute.

They are called as the exported program calls them, by PyTorch's functional collectives. All groups over the same dims run at the same
time. Beside compute means: what a collective adds to products that are called between its start and its end.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .timing import Point

c10d = torch.ops._c10d_functional
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "collective_permute")


class Group:
    """The ranks along some mesh dims, one of which is this one."""

    def __init__(self, mesh: DeviceMesh, dims: Sequence[int], stall: float) -> None:
        names = mesh.mesh_dim_names or ()
        self.name = ",".join(names[d] for d in dims)
        others = [d for d in range(mesh.ndim) if d not in dims]
        self.devices = math.prod(mesh.mesh.shape[d] for d in dims)
        table = mesh.mesh.permute(*others, *dims).reshape(-1, self.devices)
        own, _ = dist.new_subgroups_by_enumeration(table.tolist(), timeout=timedelta(seconds=stall))
        self.group = own.group_name
        self.place = dist.get_process_group_ranks(own).index(dist.get_rank())
        #: Groups of consecutive ranks that fill no more than a host lie inside it.
        here = int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
        self.level = "intra" if all(len({rank // here for rank in row}) == 1 for row in table.tolist()) else "inter"


def groups(mesh: DeviceMesh, stall: float) -> list[Group]:
    """Of each mesh dim of two devices or more, and of each union of such."""
    dims = [d for d in range(mesh.ndim) if mesh.mesh.shape[d] > 1]
    unions = itertools.chain.from_iterable(itertools.combinations(dims, n) for n in range(1, len(dims) + 1))
    return [Group(mesh, union, stall) for union in unions]


def sizes(quick: bool, limit: int) -> list[int]:
    """Bytes of the whole of a collective, from 1 KiB to 256 MiB."""
    powers = [10, 15, 20, 24] if quick else [10, 12, 14, 16, 18, 20, 22, 24, 26, 28]
    return [2**k for k in powers if 2**k <= limit]


def begin(kind: str, x: torch.Tensor, group: Group) -> torch.Tensor:
    """Starts a collective of the whole `x`; of an all_gather this rank has its part."""
    n, name = group.devices, group.group
    if kind == "all_reduce":
        return c10d.all_reduce.default(x, "sum", name)
    if kind == "all_gather":
        return c10d.all_gather_into_tensor.default(x[: x.numel() // n], n, name)
    if kind == "reduce_scatter":
        return c10d.reduce_scatter_tensor.default(x, "sum", n, name)
    if kind == "all_to_all":
        return c10d.all_to_all_single.default(x, [x.numel() // n] * n, [x.numel() // n] * n, name)
    sent, received = [0] * n, [0] * n
    sent[(group.place + 1) % n] = received[(group.place - 1) % n] = x.numel()
    return c10d.all_to_all_single.default(x, received, sent, name)


class Collectives:
    """Points of the collectives of a mesh."""

    def __init__(self, device: torch.device, own: Sequence[Group], backend: str) -> None:
        self.device, self.groups = device, own
        #: On gloo the program waits for every collective at once.
        self.waits = backend == "gloo"
        side = 256 if device.type == "cpu" else 2048
        self.left, self.right = (torch.randn(side, side, device=device) for _ in range(2))

    def compute(self, products: int) -> None:
        """Products that run beside a collective."""
        for _ in range(products):
            torch.ops.aten.mm.default(self.left, self.right)

    def points(self, quick: bool, limit: int) -> Iterator[Point]:
        """Each kind alone, by group and size."""
        for group in self.groups:
            for size in sizes(quick, limit):
                for kind in KINDS:
                    yield self.point(kind, group, size)

    def point(self, kind: str, group: Group, size: int) -> Point:
        """One collective, whose bytes in the record are the input of a rank."""
        whole = size // (4 * group.devices) * group.devices
        made: list[torch.Tensor] = []

        def run(_: int) -> object:
            if not made:
                made.append(torch.ones(whole, device=self.device))
            return c10d.wait_tensor.default(begin(kind, made[0], group))

        given = 4 * whole // group.devices if kind == "all_gather" else 4 * whole
        record = {"group": group, "collective": kind, "bytes": given}
        return Point(f"{kind} of {size} bytes over {group.name}", run, record)

    def beside(self, alone: Sequence[Point], product_seconds: float) -> Iterator[Point]:
        """The same beside products of as many seconds, which are timed in the same rounds and taken off."""
        computes: dict[int, Point] = {}
        for point in alone:
            kind, group = point.record["collective"], point.record["group"]
            products = max(1, min(200, round(point.seconds / product_seconds)))
            # A power of two: few kinds of compute are enough for all collectives.
            products = 2 ** round(math.log2(products))
            if products not in computes:
                computes[products] = Point(f"{products} products", self.of(products), {})
                yield computes[products]
            x = torch.ones(self.elements(point), device=self.device)
            run = self.besides(kind, group, x, products)
            yield Point(f"{point.name} beside compute", run, point.record, minus=computes[products])

    def elements(self, point: Point) -> int:
        """Of the whole of a collective."""
        group: Group = point.record["group"]
        given = point.record["bytes"] // 4
        return given * group.devices if point.record["collective"] == "all_gather" else given

    def of(self, products: int) -> Callable[[int], object]:
        """A call of so many products."""
        return lambda _: self.compute(products)

    def besides(self, kind: str, group: Group, x: torch.Tensor, products: int) -> Callable[[int], object]:
        """A collective and products, as the program calls them."""

        def run(_: int) -> object:
            begun = begin(kind, x, group)
            if self.waits:
                begun = c10d.wait_tensor.default(begun)
                self.compute(products)
                return begun
            self.compute(products)
            return c10d.wait_tensor.default(begun)

        return run


def rows(alone: Sequence[Point], beside: Sequence[Point]) -> list[dict[str, Any]]:
    """The table of a cluster file: a row for each group and kind, its sizes rising, with spread and what it adds to compute."""
    added = {id(point.record): point.seconds for point in beside if point.minus is not None and point.samples}
    table: dict[tuple[str, str], list[Point]] = {}
    for point in alone:
        if point.seconds > 0:
            table.setdefault((point.record["group"].name, point.record["collective"]), []).append(point)
    made = []
    for (name, kind), points in table.items():
        points.sort(key=lambda point: point.record["bytes"])
        group: Group = points[0].record["group"]
        row: dict[str, Any] = {"group": name, "level": group.level, "devices": group.devices, "collective": kind}
        row["bytes"] = [point.record["bytes"] for point in points]
        row["seconds"] = [float(f"{point.seconds:.4g}") for point in points]
        row["spread"] = [float(f"{min(point.spread, 1000):.3g}") for point in points]
        if all(id(point.record) in added for point in points):
            row["besideSeconds"] = [float(f"{max(0.0, added[id(point.record)]):.4g}") for point in points]
        made.append(row)
    return made
