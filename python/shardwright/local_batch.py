"""`inputs="local"`: every rank gives its own rows of the batch, as scripts for DDP and FSDP2 do with a DistributedSampler.

The rows of all ranks make the whole batch; outputs come back as the rows of this rank, and a loss that is one number is that of the whole
batch. What a script computes from its rows is the mean over the ranks, so that gradients are divided by their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from .errors import MismatchError
from .loading import whole_of


class LocalBatch:
    """Rows of ranks along some mesh dims; ranks that differ in others only have the same."""

    def __init__(self, mesh: DeviceMesh, dims: tuple[str, ...] | None) -> None:
        names = mesh.mesh_dim_names or ()
        unknown = [name for name in dims or () if name not in names]
        if unknown:
            raise MismatchError(
                "E_MESH", f"inputs= names {unknown[0]}, the mesh has {', '.join(names)}", hint='inputs="local" is all of them.'
            )
        self.mesh = mesh
        self.dims = [d for d in range(mesh.ndim) if dims is None or names[d] in dims]
        self.parts = 1
        for d in self.dims:
            self.parts *= mesh.size(d)
        #: The divisor of gradients: a script computes the mean over ranks, or for 1 the sum.
        self.divisor = self.parts
        self.own: int | None = None

    def gather(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The whole batch; all ranks call this together."""
        rows: list[int] = []
        made: dict[int, torch.Tensor] = {}

        def put(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and not isinstance(value, DTensor) and value.ndim > 0:
                if id(value) not in made:
                    rows.append(value.shape[0])
                    made[id(value)] = _Rows.apply(value, self)
                return made[id(value)]
            if isinstance(value, Mapping):
                return {key: put(member) for key, member in value.items()}
            if isinstance(value, (list, tuple)):
                return type(value)(put(member) for member in value)
            return value

        whole = tuple(put(value) for value in args), {key: put(value) for key, value in kwargs.items()}
        self.own = rows[0] if rows else None
        return whole

    def own_rows(self, output: Any) -> Any:
        """Outputs as this rank has its inputs."""
        if isinstance(output, torch.Tensor):
            if self.own is None or output.ndim == 0 or output.shape[0] != self.own * self.parts:
                return output
            value = output if isinstance(output, DTensor) else DTensor.from_local(output, self.mesh, [Replicate()] * self.mesh.ndim)
            at = [Shard(0) if d in self.dims else Replicate() for d in range(self.mesh.ndim)]
            local = value.redistribute(placements=at).to_local()
            return _Mean.apply(local, self.divisor) if local.requires_grad else local
        if isinstance(output, Mapping):
            members = {key: self.own_rows(member) for key, member in output.items()}
            return members if type(output) is dict else type(output)(**members)
        if isinstance(output, (list, tuple)):
            return type(output)(self.own_rows(member) for member in output)
        return output

    def whole_of(self, value: torch.Tensor) -> torch.Tensor:
        """The rows of all ranks.

        Raises:
            MismatchError: for ranks that have other numbers of rows.
        """
        sizes: list[Any] = [None] * self.parts
        whole = value
        for d in reversed(self.dims):
            group = self.mesh.get_group(d)
            count = self.mesh.size(d)
            sizes = [None] * count
            dist.all_gather_object(sizes, tuple(whole.shape), group=group)
            if any(size != sizes[0] for size in sizes):
                raise MismatchError(
                    "E_INPUT",
                    f"ranks give parts of other sizes: {', '.join(str(list(size)) for size in sizes)}",
                    hint="DistributedSampler and drop_last=True give equal parts.",
                )
            parts = [torch.empty_like(whole, memory_format=torch.contiguous_format) for _ in range(count)]
            dist.all_gather(parts, whole.detach().contiguous(), group=group)
            whole = torch.cat(parts)
        return whole

    def rows_of(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's rows of the whole."""
        place = 0
        for d in self.dims:
            place = place * self.mesh.size(d) + self.mesh.get_local_rank(d)
        rows = whole.shape[0] // self.parts
        return whole.narrow(0, place * rows, rows)


class _Rows(torch.autograd.Function):
    """The rows of all ranks. The gradient of own rows is that of what this rank computes, of which the whole is the mean."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, batch: LocalBatch) -> torch.Tensor:
        ctx.batch = batch
        whole = batch.whole_of(value)
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.batch.rows_of(gradient) * ctx.batch.divisor, None


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, parts: int) -> torch.Tensor:
        ctx.parts = parts
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        # Of a loss that a penalty on parameters was added to it is a DTensor.
        return whole_of(gradient) / ctx.parts, None
