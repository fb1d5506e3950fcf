"""Runs the stages of a plan by the schedules of `torch.distributed.pipelining`.

A rank holds the parameters of its own stages, as DTensors on the mesh of a stage. The forward and the backward of a stage are those of its
plan; what stages send one another are local parts, which both ends place alike. The gradients of a weight that several stages hold are
added up once a step.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining.microbatch import TensorChunkSpec

from .accumulating import Accumulation
from .agreement import Steps, check_batch, check_ranks, check_seeds, check_weights
from .distribute import placed_state
from .dtensor_rules import adopt
from .ending import let_threads_end_first
from .errors import MismatchError
from .folder import Plan
from .graph_capture import bind_named, flatten_named
from .loading import as_planned, whole_of
from .making import mesh_text, open_mesh
from .module import forward_of, original_class, uncompiled
from .placements import as_dtensor, part_of, placements
from .precision import dtype_of
from .run import STATES, Run
from .staged import StagedPlan, load_stages, rows

#: Schedules that run, by their names in the plan.
SCHEDULES: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}
#: The one name of ours in a pipeline: any other could be one of the model's.
NAME = "shardwright"


def pipeline(
    model: nn.Module,
    stages: StagedPlan | str | os.PathLike[str],
    device_mesh: DeviceMesh | str,
    *,
    schedule: str | None = None,
    microbatches: int | None = None,
    compile: bool = False,
    check_hosts: bool = True,
    check_batches: bool = True,
) -> Pipeline:
    """Makes the stages of this rank, with its parts of the model's weights.

    Every rank must hold the same weights, say by the same seed, or the model must be on the meta device; then call
    `to_empty(device=...)` and load a checkpoint. The model stays as it is: drop it, and make the optimizer of the pipeline.

    Args:
        model: the model that was captured.
        stages: from `plan_stages` or `load_stages`, or the folder.
        device_mesh: of the plan's sizes, `pp` outermost; or its text, "pp=2,dp=2", of one over all ranks.
        schedule: "gpipe", "1f1b" or "interleaved"; default that of the plan.
        microbatches: of a step; default those of the plan. The batch of a step has so many times the rows that were captured.
        compile: run the programs of the stages through `torch.compile`.
        check_hosts: as of `parallelize`.
        check_batches: as of `parallelize`.

    Raises:
        MismatchError: where model, mesh, schedule or number of microbatches do not go with the stages, with what would.
    """
    staged = stages if isinstance(stages, StagedPlan) else load_stages(stages)
    mesh = _mesh_of(staged, device_mesh)
    count = staged.microbatches if microbatches is None else microbatches
    name = _schedule_of(staged, schedule, count)
    model = uncompiled(model)
    _check_loss(staged)
    _check_model(model, staged)
    let_threads_end_first()
    check_weights(model, mesh)
    return Pipeline(model, Setup(staged, mesh, name, count, compile, check_hosts, check_batches))


@dataclass(frozen=True)
class Setup:
    """The plan of a pipeline, where it runs, and how."""

    staged: StagedPlan
    mesh: DeviceMesh
    schedule: str
    microbatches: int
    compile: bool
    check_hosts: bool
    check_batches: bool


class Pipeline(nn.Module):
    """The stages of this rank: their parameters and buffers as DTensors, under the names of the model.

    A tensor of the model that no stage reads is whole and plain on every rank.
    """

    def __init__(self, model: nn.Module, setup: Setup) -> None:
        super().__init__()
        self.training = model.training
        self.__dict__[NAME] = _Parts(self, model, setup)

    def step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Forward and backward of a whole batch, microbatch by microbatch; all ranks call this together.

        Gradients are added to `.grad` of this rank's parameters, as `loss.backward()` adds them.

        Args:
            args: inputs of the model, then those of the loss: whole tensors, the same on every rank.
            kwargs: inputs by name.

        Returns:
            The mean of the losses of the microbatches, on every rank.
        """
        parts: _Parts = self.__dict__[NAME]
        return parts.step(self, args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Refuses: a pipeline runs forward and backward together.

        Raises:
            MismatchError: always.
        """
        raise MismatchError("E_PIPELINE", "a pipeline runs whole steps", place="forward", hint="loss = pipeline.step(x, y); no backward().")

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As of every module; of a state dict of the whole model it takes what this rank's stages have.

        Raises:
            MismatchError: before anything changes, for other sizes, and for the part of another rank.
        """
        parts: _Parts = self.__dict__[NAME]
        own = self.state_dict()
        kept = {name: value for name, value in state_dict.items() if name in own or name not in parts.names}
        return super().load_state_dict(as_planned(self, kept), strict, assign)


class StageRun(Run):
    """The program of one stage. Messages are local parts; the gradient of the loss is known before: a share of each microbatch."""

    def __init__(self, plan: Plan, mesh: DeviceMesh, here: Any, compile: bool, table: dict[str, Any], share: float) -> None:
        super().__init__(plan, mesh, here, compile)
        self.table, self.share = table, share
        self.sent = [row["index"] for row in table["sends"]]
        self.received = [row["input"] for row in table["receives"]]
        self.outputs_at = {row["index"]: k for k, row in enumerate(self.user_outputs)}

    def wrap(self, local: torch.Tensor, entry: dict[str, Any]) -> torch.Tensor:
        """A local result as it is."""
        return local.contiguous()

    def tangents_of(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Gradients that came from the stage behind, and the share of the loss."""
        given = {index: gradients[self.outputs_at[index]] for index in self.sent}
        return [given[entry["index"]].contiguous() if entry.get("index") in given else self._seed(entry) for entry in self.tangents]

    def _seed(self, entry: dict[str, Any]) -> torch.Tensor:
        whole = torch.full(entry["shape"], self.share, dtype=dtype_of(entry["dtype"], "placements.json"), device=self.here.device)
        return self.part(whole, entry).contiguous()

    def part(self, whole: torch.Tensor, entry: dict[str, Any]) -> torch.Tensor:
        """This device's part of a whole tensor."""
        return part_of(whole, placements(entry), self.plan.mesh_shape, self.here.coordinate)

    def placed_gradients(self, found: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Those of messages row by row, as they are sent."""
        return [value.contiguous() if isinstance(value, torch.Tensor) else None for value in super().placed_gradients(found)]

    def example(self, entry: dict[str, Any], has_gradient: bool) -> torch.Tensor:
        """A tensor without values of the sizes that this device sends or receives."""
        whole = torch.empty(entry["shape"], dtype=dtype_of(entry["dtype"], "placements.json"), device="meta")
        return torch.empty(self.part(whole, entry).shape, dtype=whole.dtype, device="meta", requires_grad=has_gradient)


class _Stage(nn.Module):
    """What `PipelineStage` calls: received parts by position, and a microbatch of the model's inputs by number."""

    def __init__(self, owner: Pipeline, run: StageRun, inputs: Mapping[str, str], is_last: bool) -> None:
        super().__init__()
        self.__dict__.update(owner=owner, run=run, inputs=inputs, is_last=is_last, whole={})

    def forward(self, *received: torch.Tensor, **given: torch.Tensor) -> Any:
        run: StageRun = self.__dict__["run"]
        parts = dict(zip(run.received, received, strict=True))
        given = {**self.__dict__["whole"], **given}
        primals = []
        for entry in run.primals:
            if entry["role"] in STATES:
                primals.append(run.state(self.__dict__["owner"], entry))
            elif entry["of"] in parts:
                primals.append(parts[entry["of"]])
            else:
                primals.append(run.part(given[self.__dict__["inputs"][entry["of"]]], entry).to(run.here.device).contiguous())
        results = run.call(*primals)
        if self.__dict__["is_last"]:
            return results[0]
        return tuple(results[run.outputs_at[index]] for index in run.sent)


class _Parts:
    """What a pipeline is made of, apart from its weights."""

    def __init__(self, owner: Pipeline, model: nn.Module, setup: Setup) -> None:
        self.setup = setup
        staged, mesh = setup.staged, setup.mesh
        self.staged, self.mesh, self.schedule, self.microbatches = staged, mesh, setup.schedule, setup.microbatches
        self.signature = inspect.signature(forward_of(model))
        self.model_name = original_class(type(model)).__name__
        self.names = {row["name"] for kind in ("parameters", "buffers") for row in _record(staged)[kind]}
        self.group = mesh.get_group("pp")
        self.inner = mesh[staged.stages[0].mesh_dim_names]
        self.record = _record(staged)
        #: What the whole program calls the inputs, and under which word a schedule hands them on.
        self.inputs = {called: f"input_{k}" for k, called in enumerate(staged.table["inputs"])}
        self.groups = _groups(staged, mesh)
        self.runs = {s: self._run(s) for s in range(mesh.get_local_rank("pp"), len(staged.stages), staged.devices)}
        self._hold(owner, model)
        self.shared = self._shared(owner)
        self.steps = Steps(mesh, staged.folder)
        for run in self.runs.values():
            run.steps = self.steps
        self.has_drawn = False
        #: The schedule with its stages, for inputs that are split in this way.
        self.made: tuple[dict[str, int], Any, list[_Stage]] | None = None
        adopt(self.inner)

    def _run(self, s: int) -> StageRun:
        plan = self.staged.stages[s]
        check_ranks(plan, self.inner, self.setup.check_hosts)
        run = StageRun(plan, self.inner, self._here(s), self.setup.compile, self.staged.table["stages"][s], 1 / self.microbatches)
        run.accumulation = Accumulation(self.microbatches)
        return run

    def _here(self, s: int) -> Any:
        groups = {dims: group for (device, dims), group in self.groups.items() if device == s % self.staged.devices}
        return _here_of(self.staged.stages[s], groups)(self.inner)

    def _hold(self, owner: Pipeline, model: nn.Module) -> None:
        """Puts parameters and buffers under their names: those of its stages as DTensors, those that no stage reads as they are."""
        own = {entry["of"]: (entry, run) for run in self.runs.values() for entry in run.primals if entry["role"] in STATES}
        read = {entry["of"] for plan in self.staged.stages for entry in plan.placements["primals"] if entry["role"] in STATES}
        tied = {name: group for group in self.record["ties"] for name in group}
        made: dict[int, torch.Tensor] = {}
        for name, whole in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
            names = tied.get(name, [name])
            held = next((own[one] for one in names if one in own), None)
            if held is not None and id(whole) not in made:
                entry, run = held
                made[id(whole)] = placed_state(whole, entry, run.plan, self.inner, run.here)
            elif held is None and read.isdisjoint(names) and id(whole) not in made:
                made[id(whole)] = _plain(whole, self.inner.device_type)
            if id(whole) in made:
                _put(owner, model, name, made[id(whole)])

    def _shared(self, owner: Pipeline) -> list[tuple[nn.Parameter, Any]]:
        """Parameters that other ranks hold too, each with the group of those."""
        found = []
        own = dict(owner.named_parameters(remove_duplicate=False))
        for row in self.staged.table["shared"]:
            devices = sorted({s % self.staged.devices for s in row["stages"]})
            if len(devices) < 2:
                continue
            # All ranks make the groups of all places in a stage.
            group = dist.new_subgroups_by_enumeration(self.mesh.mesh[devices].reshape(len(devices), -1).T.tolist())[0]
            parameter = next((own[name] for name in row["names"] if name in own), None)
            if parameter is not None and parameter.requires_grad:
                found.append((parameter, group))
        return found

    def step(self, owner: Pipeline, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
        """Runs the schedule once."""
        tensors = self._read(args, kwargs)
        self.steps.begin(", ".join(f"{name} {_kind(value)}" for name, value in tensors.items()))
        split = self._split(tensors)
        if self.setup.check_batches:
            check_batch(self.steps, list(tensors.items()))
        if not self.has_drawn:
            self.has_drawn = True
            for run in self.runs.values():
                check_seeds(run.plan, self.inner, run.here.device)
        schedule, stages = self._schedule(owner, split)
        words = dict(zip((row["name"] for row in self.record["inputs"]), self.inputs.values(), strict=True))
        for stage in stages:
            stage.__dict__["whole"] = {words[name]: value for name, value in tensors.items() if name not in split}
            accumulation = stage.__dict__["run"].accumulation
            accumulation.of(owner)
            accumulation.passes = 0
            accumulation.parts.clear()
        before = [(parameter, parameter.grad) for parameter, _ in self.shared]
        for parameter, _ in before:
            parameter.grad = None
        losses: list[torch.Tensor] = []
        given = {words[name]: tensors[name] for name in split}
        schedule.step(target=torch.zeros(self.microbatches), losses=losses, return_outputs=False, **given)
        self._add_shared(before)
        return self._loss(losses)

    def _add_shared(self, before: Sequence[tuple[nn.Parameter, Any]]) -> None:
        """Adds up the gradients of parameters that several stages hold, and then those of earlier steps."""
        for (parameter, group), (_, earlier) in zip(self.shared, before, strict=True):
            with torch.no_grad():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad._local_tensor, group=group)  # type: ignore[attr-defined]
                if earlier is not None:
                    parameter.grad += earlier

    def _loss(self, losses: Sequence[torch.Tensor]) -> torch.Tensor:
        """The mean of the losses, which the last stage has, on every rank."""
        last = len(self.staged.stages) - 1
        row = rows(self.staged.stages[last], "outputs", role="output", index=0)
        assert row is not None
        device = self.inner.device_type
        value = torch.empty(row["shape"], dtype=dtype_of(row["dtype"], "placements.json"), device=device)
        if last in self.runs:
            local = torch.stack([loss.detach() for loss in losses]).sum(0) / self.microbatches
            value.copy_(whole_of(as_dtensor(local, row, self.inner)))
        dist.broadcast(value, src=dist.get_global_rank(self.group, last % self.staged.devices), group=self.group)
        return value

    def _schedule(self, owner: Pipeline, split: dict[str, int]) -> tuple[Any, list[_Stage]]:
        if self.made is None or self.made[0] != split:
            last = len(self.staged.stages) - 1
            modules = [_Stage(owner, run, self.inputs, s == last) for s, run in self.runs.items()]
            ends = [self._stage(s, module) for s, module in zip(self.runs, modules, strict=True)]
            words = dict(zip((row["name"] for row in self.record["inputs"]), self.inputs.values(), strict=True))
            schedule = SCHEDULES[self.schedule](
                ends if self.schedule == "interleaved" else ends[0],
                self.microbatches,
                loss_fn=lambda output, _: output,
                kwargs_chunk_spec={words[name]: TensorChunkSpec(dim) for name, dim in split.items()},
                scale_grads=False,
            )
            self.made = split, schedule, modules
        return self.made[1:]

    def _stage(self, s: int, module: _Stage) -> PipelineStage:
        run = self.runs[s]
        received = [(row, row["of"] in run.gradients) for name in run.received if (row := rows(run.plan, "primals", of=name)) is not None]
        returned = [(row, row["index"] in run.differentiable) for row in run.user_outputs if row["index"] in (run.sent or [0])]
        return PipelineStage(
            module,
            s,
            len(self.staged.stages),
            run.here.device,
            input_args=tuple(run.example(row, has) for row, has in received),
            output_args=tuple(run.example(row, has) for row, has in returned),
            group=self.group,
        )

    def _read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Tensors of a call by name, in the order of the captured call.

        Raises:
            MismatchError: for Python values that are not the captured ones.
        """
        count = self.record["targets"]
        end = len(args) - count
        if count and end < 0:
            raise MismatchError("E_INPUT", f"the loss takes {count} targets, which come last by position", place="step")
        leaves = dict(flatten_named(bind_named(self.signature, self.model_name, args[:end], kwargs, args[end:])))
        for name, leaf in leaves.items():
            if not isinstance(leaf, torch.Tensor) and self.record["constants"].get(name) != leaf:
                captured = self.record["constants"].get(name)
                raise MismatchError(
                    "E_INPUT", f"it is {leaf!r}, captured was {captured!r}", place=f"input {name}", hint="capture this call."
                )
        wanted = [row["name"] for row in self.record["inputs"]]
        tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor)}
        if sorted(wanted) != sorted(tensors):
            raise MismatchError("E_INPUT", f"the call has {', '.join(tensors)}; captured were {', '.join(wanted)}", place="step")
        return {name: tensors[name] for name in wanted}

    def _split(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
        """The dim of each input that has so many times the captured rows; inputs of the captured sizes go to every microbatch.

        Raises:
            MismatchError: for sizes that are not those of a batch of so many microbatches, with those that would be.
        """
        count = self.microbatches
        split: dict[str, int] = {}
        for row in self.record["inputs"]:
            value, shape = tensors[row["name"]], row["shape"]
            alike = value.ndim == len(shape) and str(value.dtype) == f"torch.{row['dtype']}"
            dims = [d for d in range(len(shape)) if alike and value.shape[d] != shape[d]]
            if alike and len(dims) == 1 and value.shape[dims[0]] == count * shape[dims[0]]:
                split[row["name"]] = dims[0]
            elif not alike or dims:
                raise MismatchError(
                    "E_INPUT",
                    f"it is {_kind(value)}, a microbatch is {row['dtype']}{shape}, and a step has {count} of them",
                    place=f"input {row['name']}",
                    hint=_batch_hint(value, shape, count) if alike and len(dims) == 1 else "give the inputs that were captured.",
                )
        if count > 1 and not split:
            first = self.record["inputs"][0]
            rows_of = [count * first["shape"][0], *first["shape"][1:]] if first["shape"] else []
            raise MismatchError(
                "E_INPUT",
                f"it has the sizes of one microbatch, {_kind(tensors[first['name']])}, and a step has {count} of them",
                place=f"input {first['name']}",
                hint=f"give the whole batch, {rows_of}, or microbatches=1.",
            )
        return split


def _batch_hint(value: torch.Tensor, shape: Sequence[int], count: int) -> str:
    """What would go with the rows of a batch that microbatches do not divide."""
    d = next(d for d in range(len(shape)) if value.shape[d] != shape[d])
    found, one = value.shape[d], shape[d]
    words = [f"give {count * one} in dim {d}"]
    if found % one == 0:
        words.append(f"microbatches={found // one}")
    elif found > one:
        words.append(f"{found // one * one} with microbatches={found // one}")
    if found % count == 0:
        words.append(f"capture a microbatch of {found // count}")
    return f"{', or '.join(words)}."


def _kind(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _record(staged: StagedPlan) -> dict[str, Any]:
    if staged.capture is None:
        raise MismatchError(
            "E_PLAN",
            "capture.json is not there, which names inputs and parameters",
            place=str(staged.folder),
            hint="plan_stages writes it.",
        )
    return staged.capture


def _mesh_of(staged: StagedPlan, asked: DeviceMesh | str) -> DeviceMesh:
    """The device mesh with `pp` outermost.

    Raises:
        MismatchError: for other sizes than those of the stages, with the mesh that goes with them.
    """
    planned = ",".join(f"{name}={size}" for name, size in zip(staged.mesh_dim_names, staged.mesh_shape, strict=True))
    hint = f'"{planned}", or init_device_mesh(device, {staged.mesh_shape}, mesh_dim_names={staged.mesh_dim_names}).'
    text = asked if isinstance(asked, str) else mesh_text(asked)
    sizes = [part.partition("=") for part in text.split(",")]
    # A stage on one device has a mesh of one device.
    own = [part for part, size in zip(staged.mesh_dim_names, staged.mesh_shape, strict=True) if size > 1 or part == "pp"]
    wanted = {name: size for name, size in zip(staged.mesh_dim_names, staged.mesh_shape, strict=True)}
    found = {name: int(size) for name, _, size in sizes if size.lstrip("-").isdigit()}
    if any(found.get(name, 1) != wanted[name] for name in own) or any(wanted.get(name, 1) != size for name, size in found.items()):
        raise MismatchError("E_MESH", f"the stages are planned for {planned}, the device mesh is {text}", place="device_mesh", hint=hint)
    if isinstance(asked, str) or tuple(asked.mesh_dim_names or ()) != staged.mesh_dim_names:
        if not isinstance(asked, str) and asked.mesh.numel() != dist.get_world_size():
            raise MismatchError("E_MESH", f"the device mesh has not the dims {planned}", place="device_mesh", hint=hint)
        return open_mesh(planned)
    return asked


def _schedule_of(staged: StagedPlan, asked: str | None, microbatches: int) -> str:
    """The name of the schedule.

    Raises:
        MismatchError: for one that does not run these stages, with those that do.
    """
    name = staged.schedule if asked is None else asked.lower().removeprefix("schedule")
    name = "interleaved" if name == "interleaved1f1b" else name
    fits = ["interleaved"] if staged.virtual > 1 else ["1f1b", "gpipe"]
    if name not in fits:
        held = f"each device has {staged.virtual} stages" if staged.virtual > 1 else "each device has one stage"
        known = "" if name in SCHEDULES else f"; runs: {', '.join(SCHEDULES)}"
        raise MismatchError(
            "E_SCHEDULE",
            f"schedule {name} does not run these stages: {held}{known}",
            place="schedule",
            hint=" or ".join(f'schedule="{one}"' for one in fits) + ", or plan the stages for it (schedule=, virtual=).",
        )
    least = staged.devices if name == "1f1b" else 1
    rounds = max(1, microbatches // staged.devices)
    if microbatches < least or (name == "interleaved" and microbatches % rounds != 0):
        near = max(1, round(microbatches / staged.devices)) * staged.devices
        raise MismatchError(
            "E_SCHEDULE",
            f"schedule {name} on {staged.devices} devices in a row does not run {microbatches} microbatches",
            place="microbatches",
            hint=f"microbatches={near}" + (', or schedule="gpipe".' if name == "1f1b" else "."),
        )
    return name


def _check_loss(staged: StagedPlan) -> None:
    """Refuses programs that do not return their loss alone: gradients begin at it."""
    last = len(staged.stages) - 1
    returned = [(s, row) for s, stage in enumerate(staged.table["stages"]) for row in stage["results"] if row["role"] == "output"]
    row = rows(staged.stages[last], "outputs", role="output", index=0)
    if len(returned) == 1 and returned[0][0] == last and row is not None and row["shape"] == []:
        return
    said = ", ".join(f"output {row['index']} of stage {s}" for s, row in returned)
    raise MismatchError(
        "E_PIPELINE",
        f"the program returns {said or 'nothing'}, and a pipeline trains one loss, a number that the last stage returns",
        place=str(staged.folder),
        hint="capture the model with loss=, and plan the stages again.",
    )


def _check_model(model: nn.Module, staged: StagedPlan) -> None:
    """Refuses a model that is not the captured one, with what differs."""
    record = _record(staged)
    rows_of = [row for kind in ("parameters", "buffers") for row in record[kind]]
    wanted = {row["name"]: f"{row['dtype']}{row['shape']}" for row in rows_of}
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    found = {name: _kind(tensor) for name, tensor in tensors}
    faults = [
        *(f"{name} is missing" for name in wanted if name not in found),
        *(f"{name} was not captured" for name in found if name not in wanted),
        *(f"{name} is {found[name]}, captured was {wanted[name]}" for name in wanted if found.get(name, wanted[name]) != wanted[name]),
    ]
    if faults:
        more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise MismatchError(
            "E_MODEL",
            f"{original_class(type(model)).__name__} is not the model that was captured ({record['model']}): {'; '.join(faults[:3])}{more}",
            hint="capture this model, and plan its stages.",
        )
    if bool(record["training"]) != model.training:
        mode = {True: "training", False: "evaluation"}
        said = f"the model was captured in {mode[record['training']]} mode and is in {mode[model.training]} mode"
        raise MismatchError("E_MODE", said, hint="call train(), or capture this mode.")


def _groups(staged: StagedPlan, mesh: DeviceMesh) -> dict[tuple[int, tuple[int, ...]], Any]:
    """The groups over several mesh dims that programs of stages want, by device in the row and dims.

    Every rank makes all of them in one order, as `new_group` demands; a rank has those that it is in.
    """
    made: dict[tuple[int, tuple[int, ...]], Any] = {}
    for s, plan in enumerate(staged.stages):
        device = s % staged.devices
        for names in plan.program.GROUPS:
            dims = tuple(plan.mesh_dim_names.index(name) for name in names.split(","))
            if len(dims) > 1 and (device, dims) not in made:
                others = [d for d in range(len(plan.mesh_shape)) if d not in dims]
                size = math.prod(plan.mesh_shape[d] for d in dims)
                ranks = mesh.mesh[device].permute(*others, *dims).reshape(-1, size).tolist()
                made[device, dims] = dist.new_subgroups_by_enumeration(ranks)[0]
    return made


def _here_of(plan: Plan, groups: Mapping[tuple[int, ...], Any]) -> Any:
    """The device of a stage: groups over several mesh dims are made by the ranks of all stages together."""

    class Here(plan.program.Here):  # type: ignore[name-defined]
        def _group_over(self, dims: list[int]) -> Any:
            return groups[tuple(dims)]

    return Here


def _plain(state: torch.Tensor, device: str) -> torch.Tensor:
    own = state.detach().clone() if state.is_meta else state.detach().to(device, copy=True)
    return nn.Parameter(own, state.requires_grad) if isinstance(state, nn.Parameter) else own


def _put(owner: nn.Module, model: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Puts a parameter or buffer under its name, in modules that hold nothing else."""
    path, _, last = name.rpartition(".")
    for part in path.split(".") if path else []:
        if part not in owner._modules:
            owner.add_module(part, nn.Module())
        owner = owner._modules[part]  # type: ignore[assignment]
    if isinstance(tensor, nn.Parameter):
        owner.register_parameter(last, tensor)
    else:
        persistent = last not in model.get_submodule(path)._non_persistent_buffers_set
        owner.register_buffer(last, tensor, persistent=persistent)
