"""The whole road in one call: capture, plan on the first rank, and run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from . import errors
from .command import plan as make_plan
from .distribute import parallelize
from .ending import let_threads_end_first
from .errors import MismatchError, ShardwrightError
from .folder import load
from .graph_capture import capture
from .module import ParallelModule


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
    compile: bool | Literal["joint"] = False,
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
        compile: as for `parallelize`; the plan is then priced so, unless `compiled=False`.
        flags: of `plan`.

    Raises:
        MismatchError: as of `parallelize`; on a rank that does not see the folder.
        ShardwrightError: on every rank, with the class and the message of the first; where that fails by another exception, which
            it raises itself, E_RANK on the others.
    """
    names = device_mesh.mesh_dim_names
    if names is None:
        raise MismatchError("E_MESH", "the device mesh has no names", hint='give mesh_dim_names=("dp", "tp").')
    mesh = ",".join(f"{name}={size}" for name, size in zip(names, device_mesh.mesh.shape, strict=True))
    first = int(device_mesh.mesh.flatten()[0])
    fault: list[Any] = [None]
    failed: Exception | None = None
    if dist.get_rank() == first:
        try:
            captured = capture(model, example_inputs, example_kwargs, loss=loss, targets=targets, path=Path(folder) / "model.fx.txt")
            # Literal prices of other planners know calls one by one only.
            compiled = {"compiled": True} if compile and flags.get("cost") != "autoparallel" else {}
            make_plan(captured, mesh=mesh, cluster=cluster, out=folder, **{**compiled, **flags})
        except ShardwrightError as error:
            failed, fault = error, [(type(error).__name__, error.code, error.message, error.hint, error.place)]
        except Exception as error:
            # The others wait for this rank: they hear of it before it ends.
            failed, fault = error, [("ShardwrightError", "E_RANK", f"rank {first} failed: {type(error).__name__}: {error}", None, None)]
    let_threads_end_first()
    dist.broadcast_object_list(fault, src=first)
    if failed is not None:
        raise failed
    if fault[0] is not None:
        kind, code, message, hint, place = fault[0]
        raise getattr(errors, kind)(code, message, hint=hint, place=place)
    if not (Path(folder) / "torch" / "program.py").exists():
        raise MismatchError(
            "E_PLAN",
            f"rank {first} wrote the plan, rank {dist.get_rank()} does not see it",
            place=str(Path(folder).resolve()),
            hint="give folder= on a disk that all hosts share.",
        )
    return parallelize(model, load(folder), device_mesh, compile=compile)
