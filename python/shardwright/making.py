"""Makes programs on all ranks: the first one captures and plans, the others hear how that ended and read what it wrote."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from . import errors
from .command import plan as make_plan
from .ending import let_threads_end_first
from .errors import MismatchError, ShardwrightError
from .folder import Plan, load
from .graph_capture import capture
from .run import STATES, Run

#: Flags that the plan of a later program takes over from the first one's.
_KEPT_FLAGS = ("calibration", "command", "compiled", "cost", "memory", "quiet", "solver", "time_limit")


def open_mesh(asked: DeviceMesh | str) -> DeviceMesh:
    """A device mesh; of `dp=2,tp=2` one over all ranks, for which the process group is initialised where it is not.

    A size of -1 is what the others leave. Without a launcher it is one process.
    """
    if not isinstance(asked, str):
        return asked
    kind = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
    if not dist.is_initialized():
        alone = {} if "WORLD_SIZE" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
        if kind != "cpu" and "LOCAL_RANK" in os.environ:
            torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("gloo" if kind == "cpu" else None, **alone)
    try:
        sizes = {name: int(size) for name, size in (part.split("=") for part in asked.split(","))}
    except ValueError as error:
        raise MismatchError("E_MESH", f"'{asked}' is not a mesh", place="device_mesh", hint='"dp=2,tp=2", or "dp=-1".') from error
    known = math.prod(size for size in sizes.values() if size > 0)
    sizes = {name: size if size > 0 else dist.get_world_size() // known for name, size in sizes.items()}
    if math.prod(sizes.values()) != dist.get_world_size():
        raise MismatchError("E_MESH", f"'{asked}' is not a mesh of {dist.get_world_size()} ranks", place="device_mesh")
    return init_device_mesh(kind, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def mesh_text(mesh: DeviceMesh) -> str:
    """A device mesh as the command takes it: `dp=2,tp=2`."""
    names = mesh.mesh_dim_names
    if names is None:
        raise MismatchError("E_MESH", "the device mesh has no names", hint='give mesh_dim_names=("dp", "tp").')
    return ",".join(f"{name}={size}" for name, size in zip(names, mesh.mesh.shape, strict=True))


def on_first(mesh: DeviceMesh, make: Callable[[], Path]) -> Path:
    """The folder that `make` writes on the first rank of a mesh; all ranks call this together.

    Raises:
        ShardwrightError: on every rank, with the class and the message of the first; where that fails by another exception, which
            it raises itself, E_RANK on the others.
    """
    first = int(mesh.mesh.flatten()[0])
    told: list[Any] = [None]
    failed: Exception | None = None
    if dist.get_rank() == first:
        try:
            told = [(None, str(make()))]
        except ShardwrightError as error:
            failed, told = error, [((type(error).__name__, error.code, error.message, error.hint, error.place), None)]
        except Exception as error:
            # The others wait for this rank: they hear of it before it ends.
            failed = error
            told = [(("ShardwrightError", "E_RANK", f"rank {first} failed: {type(error).__name__}: {error}", None, None), None)]
    let_threads_end_first()
    dist.broadcast_object_list(told, src=first)
    if failed is not None:
        raise failed
    fault, folder = told[0]
    if fault is not None:
        kind, code, message, hint, place = fault
        raise getattr(errors, kind)(code, message, hint=hint, place=place)
    if not (Path(folder) / "torch" / "program.py").exists():
        raise MismatchError(
            "E_PLAN",
            f"rank {first} wrote the plan, rank {dist.get_rank()} does not see it",
            place=str(Path(folder).resolve()),
            hint="give folder= on a disk that all hosts share.",
        )
    return Path(folder)


def make_run(model: nn.Module, programs: Any, call: Any) -> Run:
    """The program of a call, with parameters and buffers where they are."""
    settings, main = programs.settings, programs.main
    if settings.folder is None or settings.cluster is None:
        raise errors.CommandError("E_PLAN", "the folder of the first program has no plan.json, which says for what cluster it is")
    records = bool(call.key[1])
    count = settings.targets if call.with_loss else 0
    split = len(call.args) - count
    loss = settings.loss if call.with_loss or not callable(settings.loss) else False

    def make() -> Path:
        below = settings.folder / "programs"
        with torch.inference_mode(False), torch.enable_grad():
            captured = capture(
                model,
                call.args[:split],
                call.kwargs,
                loss=loss,
                targets=call.args[split:],
                path=below / "model.fx.txt",
                device=main.here.device.type,
                gradients=records,
                mixed_precision=settings.precision,
                command=settings.flags.get("command"),
            )
        if settings.folder is not None and _is_same_graph(captured.record, main.plan.capture):
            # The change decides nothing.
            return settings.folder
        pins = [f"{entry['of']}={entry['placement']}" for entry in main.primals if entry["role"] in STATES]
        own: dict[str, Any] = settings.precision.flags() if settings.precision is not None and records else {}
        if settings.accumulate is not None and settings.accumulate > 1 and records and any(p.requires_grad for p in model.parameters()):
            own["accumulate"] = settings.accumulate
        flags = {**own, **{key: value for key, value in settings.flags.items() if key in _KEPT_FLAGS}}
        asked = repr((captured.record, captured.path.read_text(), pins, mesh_text(programs.mesh), settings.cluster, sorted(flags.items())))
        folder = below / hashlib.sha256(asked.encode()).hexdigest()[:16]
        # The record is what is written last.
        if not (folder / "capture.json").exists():
            make_plan(
                captured,
                mesh=mesh_text(programs.mesh),
                cluster=settings.cluster,
                out=folder,
                pin=pins,
                no_recipes=True,
                **{"quiet": True, **flags},
            )
        return folder

    return run_of_plan(load(on_first(programs.mesh, make)), programs)


def _is_same_graph(record: dict[str, Any], other: dict[str, Any] | None) -> bool:
    """Tells whether two captured calls differ in values of attributes alone, which the graph does not show."""
    return other is not None and {**record, "values": None} == {**other, "values": None}


def run_of_plan(plan: Plan, programs: Any) -> Run:
    """A plan as another program of the same weights."""
    run = Run(plan, programs.mesh, plan.program.Here(programs.mesh), programs.settings.compile)
    run.steps, run.accumulation = programs.steps, programs.accumulation
    run.check_finite = programs.settings.check_finite
    return run
