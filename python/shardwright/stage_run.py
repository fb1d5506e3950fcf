"""The program of one stage of a pipeline, and the module that `PipelineStage` calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from .folder import Plan
from .inputs_first import InputsFirst, split_inputs
from .placements import part_of, placements
from .precision import dtype_of
from .run import STATES, Run


class StageRun(Run):
    """The program of one stage. Messages are local parts; the gradient of the loss is known before: a share of each microbatch."""

    def __init__(self, plan: Plan, mesh: DeviceMesh, here: Any, compile: bool, table: dict[str, Any], share: float) -> None:
        super().__init__(plan, mesh, here, compile)
        self.table, self.share = table, share
        self.sent = [row["index"] for row in table["sends"]]
        self.received = [row["input"] for row in table["receives"]]
        self.outputs_at = {row["index"]: k for k, row in enumerate(self.user_outputs)}
        #: For schedules that run gradients of weights later: values of the microbatch that has just sent back those of its inputs.
        self.later: list[Any] | None = None

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
        """Returns gradients of messages row by row, as they are sent."""
        return [value.contiguous() if isinstance(value, torch.Tensor) else None for value in super().placed_gradients(found)]

    @cached_property
    def inputs_first(self) -> InputsFirst:
        """The backward program in the part that the stage in front waits for, and the part for the weights."""
        found = split_inputs(self.plan.program, {k for k, entry in enumerate(self.primals) if entry["role"] in STATES})
        if not self.compile:
            return found
        return InputsFirst(*(torch.compile(getattr(found, name), fullgraph=True, dynamic=False) for name in ("inputs", "weights")))

    def local_gradients(self, scale: torch.Tensor | None, here: Any, saved: list[Any], tangents: list[Any]) -> list[Any]:
        """Local gradients of the primals; of states none where they come later."""
        if self.later is None:
            return super().local_gradients(scale, here, saved, tangents)
        found, self.later = self.inputs_first.inputs(here, saved, tangents)
        return found

    def weights_of(self, owner: nn.Module) -> Callable[[], None]:
        """Returns a function that adds the gradients of weights of the microbatch that has just sent back those of its inputs."""
        carried, self.later = self.later or [], []

        def add() -> None:
            found, parts = self.guarded("backward", self.inputs_first.weights, carried)
            kept = self.accumulation
            assert kept is not None
            kept.count()
            rest = kept.taken(self, parts) if self.unreduced is not None else None
            found = found if rest is None else [b if a is None else a for a, b in zip(found, rest, strict=True)]
            with torch.no_grad():
                for entry, gradient in zip(self.primals, self.placed_gradients(found), strict=True):
                    if gradient is not None:
                        parameter = owner.get_parameter(entry["of"])
                        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

        return add

    def example(self, entry: dict[str, Any], has_gradient: bool) -> torch.Tensor:
        """A tensor without values of the sizes that this device sends or receives."""
        whole = torch.empty(entry["shape"], dtype=dtype_of(entry["dtype"], "placements.json"), device="meta")
        return torch.empty(self.part(whole, entry).shape, dtype=whole.dtype, device="meta", requires_grad=has_gradient)


class Stage(nn.Module):
    """The module that `PipelineStage` calls: received parts by position, and a microbatch of the model's inputs by number."""

    def __init__(self, owner: nn.Module, run: StageRun, inputs: Mapping[str, str], is_last: bool) -> None:
        super().__init__()
        self.__dict__.update(owner=owner, run=run, inputs=inputs, is_last=is_last, whole={})

    def forward(self, *received: torch.Tensor, **given: torch.Tensor) -> Any:
        """Runs the program of the stage on a microbatch."""
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
