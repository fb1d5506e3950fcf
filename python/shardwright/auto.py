"""The whole road in one call: capture, plan on the first rank, and run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from .command import plan as make_plan
from .errors import MismatchError, ShardwrightError
from .folder import load
from .graph_capture import capture
from .module import ParallelModule, parallelize


def auto_parallelize(
    model: nn.Module,
    example_inputs: Sequence[Any],
    device_mesh: DeviceMesh,
    *,
    cluster: str,
    example_kwargs: Mapping[str, Any] | None = None,
    loss: Any = None,
    targets: Sequence[Any] = (),
    folder: str | os.PathLike[str] = "plan",
    compile: bool = False,
    **flags: Any,
) -> ParallelModule:
    """Captures a model, plans it for the mesh and takes it over.

    The first rank of the mesh captures and plans, the others wait; `folder` must be on a disk that all of them see.

    Args:
        model: as for `capture` and `parallelize`.
        example_inputs: of the global batch.
        device_mesh: with names.
        cluster: as for `plan`.
        example_kwargs: inputs by name.
        loss: as for `capture`.
        targets: as for `capture`.
        folder: where plan and program are written.
        compile: as for `parallelize`.
        flags: of `plan`.

    Raises:
        ShardwrightError: on every rank, with the message of the first.
    """
    names = device_mesh.mesh_dim_names
    if names is None:
        raise MismatchError("E_MESH", "the device mesh has no names", hint='give mesh_dim_names=("dp", "tp").')
    mesh = ",".join(f"{name}={size}" for name, size in zip(names, device_mesh.mesh.shape, strict=True))
    fault: list[Any] = [None]
    if dist.get_rank() == int(device_mesh.mesh.flatten()[0]):
        try:
            captured = capture(model, example_inputs, example_kwargs, loss=loss, targets=targets, path=Path(folder) / "model.fx.txt")
            make_plan(captured, mesh=mesh, cluster=cluster, out=folder, **flags)
        except ShardwrightError as error:
            fault = [(error.code, str(error))]
    dist.broadcast_object_list(fault, src=int(device_mesh.mesh.flatten()[0]))
    if fault[0] is not None:
        raise ShardwrightError(*fault[0])
    return parallelize(model, load(folder), device_mesh, compile=compile)
