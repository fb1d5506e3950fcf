"""Runs the stages of a plan by the schedules of `torch.distributed.pipelining`.

A rank holds the parameters of its own stages, as DTensors on the mesh of a stage. The forward and the backward of a stage are those of its
plan; what stages send one another are local parts, which both ends place alike. The gradients of a weight that several stages hold are
added up once a step.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.microbatch import TensorChunkSpec

from .accumulating import Accumulation
from .agreement import Steps, check_batch, check_ranks, check_seeds, check_weights
from .distribute import placed_state
from .dtensor_rules import adopt
from .ending import let_threads_end_first
from .errors import MismatchError
from .folder import Plan
from .loading import as_planned, whole_of
from .making import mesh_text, open_mesh
from .module import forward_of, original_class, uncompiled
from .pipeline_schedules import SCHEDULES, device_of, forward_only, schedule_of
from .placements import as_dtensor
from .precision import dtype_of
from .run import STATES
from .stage_norms import clip_over_stages
from .stage_run import Stage, StageRun
from .staged import StagedPlan, load_stages, rows
from .step_inputs import kind, split_dims, tensors_of

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
        schedule: "gpipe", "1f1b" or "zb-h1" (zero bubble), for stages with virtual=2 or more "interleaved" or "zb-h1", with 2 also "zbv" or
            "dualpipev", which lay the second half of the stages backwards over the devices; default that of the plan.
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
    name = schedule_of(staged, schedule, count)
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

    def evaluate(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Forward of a whole batch, microbatch by microbatch, without gradients; all ranks call this together.

        Args:
            args: as of `step`.
            kwargs: as of `step`.

        Returns:
            The mean of the losses of the microbatches, on every rank.

        Raises:
            MismatchError: where training and evaluation compute different losses, since stages are those of the captured mode.
        """
        parts: _Parts = self.__dict__[NAME]
        parts.refuse_of_training()
        return parts.step(self, args, kwargs, trains=False)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """As `torch.nn.utils.clip_grad_norm_` of the whole model: by the norm over all stages; all ranks call this together.

        Returns:
            The norm before, on every rank; a weight that several stages hold counts once.
        """
        parts: _Parts = self.__dict__[NAME]
        own = list(self.parameters())
        counted = [p for p in own if id(p) not in parts.elsewhere]
        return clip_over_stages(own, counted, parts.group, parts.inner.device_type, max_norm, norm_type)

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
        #: The device in the row that has a stage.
        self.device_of = partial(device_of, staged, setup.schedule)
        self.groups = _groups(staged, mesh, self.device_of)
        own = mesh.get_local_rank("pp")
        self.runs = {s: self._run(s) for s in range(len(staged.stages)) if self.device_of(s) == own}
        self._hold(owner, model)
        self.shared = self._shared(owner)
        self.steps = Steps(mesh, staged.folder)
        for run in self.runs.values():
            run.steps = self.steps
        self.has_drawn = False
        #: The schedule with its stages, for inputs that are split in this way.
        self.made: tuple[dict[str, int], Any, list[Stage]] | None = None
        adopt(self.inner)

    def _run(self, s: int) -> StageRun:
        plan = self.staged.stages[s]
        check_ranks(plan, self.inner, self.setup.check_hosts)
        run = StageRun(plan, self.inner, self._here(s), self.setup.compile, self.staged.table["stages"][s], 1 / self.microbatches)
        run.accumulation = Accumulation(self.microbatches)
        run.later = [] if SCHEDULES[self.schedule].splits else None
        return run

    def _here(self, s: int) -> Any:
        groups = {dims: group for (device, dims), group in self.groups.items() if device == self.device_of(s)}
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
        #: Of own parameters those that another rank counts in a norm.
        self.elsewhere: set[int] = set()
        own = dict(owner.named_parameters(remove_duplicate=False))
        for row in self.staged.table["shared"]:
            devices = sorted({self.device_of(s) for s in row["stages"]})
            if len(devices) < 2:
                continue
            # All ranks make the groups of all places in a stage.
            group = dist.new_subgroups_by_enumeration(self.mesh.mesh[devices].reshape(len(devices), -1).T.tolist())[0]
            parameter = next((own[name] for name in row["names"] if name in own), None)
            if parameter is not None and self.device_of(min(row["stages"])) != self.mesh.get_local_rank("pp"):
                self.elsewhere.add(id(parameter))
            if parameter is not None and parameter.requires_grad:
                found.append((parameter, group))
        return found

    def refuse_of_training(self) -> None:
        """Refuses programs whose loss is another one in training than in evaluation."""
        for s, plan in enumerate(self.staged.stages):
            draws = list(getattr(plan.program, "DRAWS", ()))
            written = [row["of"] for row in plan.placements["outputs"] if row["role"] != "output"]
            if self.record["training"] and (draws or written):
                does = "draws in" if draws else "writes"
                raise MismatchError(
                    "E_MODE",
                    f"stage {s} was captured in training mode and {does} {', '.join((draws or written)[:3])}",
                    place="evaluate",
                    hint="load a checkpoint of the pipeline into the model (torch.distributed.checkpoint), and evaluate that.",
                )

    def step(self, owner: Pipeline, args: tuple[Any, ...], kwargs: Mapping[str, Any], trains: bool = True) -> torch.Tensor:
        """Runs the schedule once; without training its forward passes."""
        tensors = tensors_of(self.record, self.model_name, self.signature, args, kwargs)
        self.steps.begin(", ".join(f"{name} {kind(value)}" for name, value in tensors.items()))
        split = split_dims(self.record, self.microbatches, tensors)
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
        before = self._begin(owner) if trains else []
        losses: list[torch.Tensor] = []
        given = {words[name]: tensors[name] for name in split}
        targets = torch.zeros(self.microbatches)
        if trains:
            schedule.step(target=targets, losses=losses, return_outputs=False, **given)
            self._add_shared(before)
        else:
            with torch.no_grad(), forward_only(schedule):
                schedule.eval(target=targets, losses=losses, return_outputs=False, **given)
        return self._loss(losses)

    def _begin(self, owner: Pipeline) -> list[tuple[nn.Parameter, Any]]:
        """Before a training step: nothing waits for its reduction; and the gradients of earlier steps of parameters that ranks share."""
        for run in self.runs.values():
            accumulation = run.accumulation
            assert accumulation is not None
            accumulation.of(owner)
            accumulation.passes = 0
            accumulation.parts.clear()
        before = [(parameter, parameter.grad) for parameter, _ in self.shared]
        for parameter, _ in before:
            parameter.grad = None
        return before

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
        dist.broadcast(value, src=dist.get_global_rank(self.group, self.device_of(last)), group=self.group)
        return value

    def _schedule(self, owner: Pipeline, split: dict[str, int]) -> tuple[Any, list[Stage]]:
        if self.made is None or self.made[0] != split:
            last = len(self.staged.stages) - 1
            modules = [Stage(owner, run, self.inputs, s == last) for s, run in self.runs.items()]
            ends = [self._stage(owner, s, module) for s, module in zip(self.runs, modules, strict=True)]
            kind_of = SCHEDULES[self.schedule]
            words = dict(zip((row["name"] for row in self.record["inputs"]), self.inputs.values(), strict=True))
            schedule = kind_of.made(
                ends if kind_of.takes_list else ends[0],
                self.microbatches,
                loss_fn=lambda output, _: output,
                kwargs_chunk_spec={words[name]: TensorChunkSpec(dim) for name, dim in split.items()},
                scale_grads=False,
            )
            self.made = split, schedule, modules
        return self.made[1:]

    def _stage(self, owner: Pipeline, s: int, module: Stage) -> PipelineStage:
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
            dw_builder=partial(run.weights_of, owner) if SCHEDULES[self.schedule].splits else None,
        )


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
    found = {name: kind(tensor) for name, tensor in tensors}
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


def _groups(staged: StagedPlan, mesh: DeviceMesh, device_of: Callable[[int], int]) -> dict[tuple[int, tuple[int, ...]], Any]:
    """The groups over several mesh dims that programs of stages want, by device in the row and dims.

    Every rank makes all of them in one order, as `new_group` demands; a rank has those that it is in.
    """
    made: dict[tuple[int, tuple[int, ...]], Any] = {}
    for s, plan in enumerate(staged.stages):
        device = device_of(s)
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
