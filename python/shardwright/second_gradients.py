"""Gradients that have gradients of their own (`create_graph=True`): the call is computed again with whole weights, as one process does.

A program has a backward function and no derivative of it. Where a script asks for one (penalties on gradients, second derivatives of
a network by its input, steps that are differentiated), every rank computes the call again from what its program was given, whole. What is
computed from it, gradients of gradients of any order, is whole, too, and goes back into parameters as the plan places them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .errors import MismatchError
from .finite import random_state_of
from .gathered import Placed, Whole
from .output_trees import flatten_outputs
from .placements import as_dtensor, part_of, placements

if TYPE_CHECKING:
    from .run import Run


@dataclass
class Again:
    """The state from which a call is computed again, as it was when its program ran."""

    model: nn.Module
    call: Any
    #: Computes the call on whole weights; of the model, the states by name, and the call.
    compute: Callable[[Any, dict[str, torch.Tensor], Any], Any]
    warn: Callable[[Any, str], None]
    #: DTensors that the program was given, by the names of parameters and buffers.
    states: dict[str, torch.Tensor]
    #: Tensors of the call, by the names of rows of the program.
    inputs: dict[str, torch.Tensor]
    random: torch.Tensor | None
    versions: list[int]

    @classmethod
    def of(cls, run: Run, model: nn.Module, call: Any, primals: Sequence[torch.Tensor], compute: Any, warn: Any) -> Again:
        """Notes a call that is about to run."""
        states = {row["of"]: p for row, p in zip(run.primals, primals, strict=True) if row["role"] != "input"}
        given = [(name, leaf) for name, leaf in call.leaves if isinstance(leaf, torch.Tensor)]
        inputs = {row.get("of", row["name"]): leaf for row, leaf in run.named_inputs(given)}
        made = cls(model, call, compute, warn, states, inputs, run.state_of_draws(), [])
        made.versions = made._versions(run)
        return made

    def gradients(self, run: Run, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Gradients of the primals, with a graph, from those of the outputs; all ranks call this together.

        Raises:
            MismatchError: E_GRADIENT where the call cannot be computed again as it was.
        """
        self._refuse_changed(run)
        self.warn(self.call, "gradients with create_graph=True are asked for")
        wholes = {name: Whole.apply(state, None) for name, state in self.states.items()}
        with random_state_of(run.here.device, self.random):
            output = self.compute(self.model, {name: _own(state) for name, state in wholes.items()}, self.call)
        leaves = flatten_outputs(output)[1]
        ends = [(leaves[k], _whole_gradient(gradients[k])) for k in sorted(run.differentiable) if leaves[k].requires_grad]
        sources = {**wholes, **self.inputs}
        rows = [(row, sources[row.get("of", row["name"])]) for row in run.primals]
        wanted = [k for k, (row, source) in enumerate(rows) if row.get("of", row["name"]) in run.gradients and source.requires_grad]
        outputs, tangents = [end for end, _ in ends], [gradient for _, gradient in ends]
        found = torch.autograd.grad(outputs, [rows[k][1] for k in wanted], tangents, create_graph=True, allow_unused=True)
        out: list[torch.Tensor | None] = [None] * len(rows)
        for k, gradient in zip(wanted, found, strict=True):
            row = rows[k][0]
            if gradient is None:
                continue
            if row["role"] == "input":
                out[k] = _Part.apply(gradient, run, run.gradients[row.get("of", row["name"])])
            else:
                out[k] = Placed.apply(gradient, self.states[row["of"]])
        return out

    def _versions(self, run: Run) -> list[int]:
        states = [value for row, value in zip(run.primals, self._tensors(run), strict=True) if row["role"] != "buffer"]
        return [value._version for value in states]

    def _tensors(self, run: Run) -> Iterator[torch.Tensor]:
        sources = {**self.states, **self.inputs}
        return (sources[row.get("of", row["name"])] for row in run.primals)

    def _refuse_changed(self, run: Run) -> None:
        """Refuses what would be computed otherwise than the program has computed it."""
        if self._versions(run) != self.versions:
            raise MismatchError(
                "E_GRADIENT",
                "a parameter or an input was changed after the call whose gradient with create_graph=True is asked for",
                place="backward",
                hint="ask for that gradient before the optimizer's step, or call the model again.",
            )
        for row in run.outputs:
            if row["role"] == "output" or _is_of_norm(self.model, row["of"]):
                continue
            raise MismatchError(
                "E_GRADIENT",
                "forward changes it, and a gradient with create_graph=True computes the call again",
                place=f"buffer {row['of']}",
                hint="take the inner gradient in forward (torch.autograd.grad there is captured), and return what the loss needs.",
            )


def _is_of_norm(model: nn.Module, buffer: str) -> bool:
    """Tells whether it counts or averages for a normalisation, which in training reads the batch alone."""
    owner = model.get_submodule(buffer.rpartition(".")[0])
    return isinstance(owner, nn.modules.batchnorm._NormBase) and owner.training


def _own(state: torch.Tensor) -> torch.Tensor:
    """A buffer of its own, in which a call may write."""
    return state if state.requires_grad else state.detach().clone()


def _whole_gradient(gradient: torch.Tensor) -> torch.Tensor:
    if isinstance(gradient, DTensor):
        if gradient.requires_grad:
            raise MismatchError(
                "E_GRADIENT",
                "a gradient with create_graph=True goes through operations on DTensors, whose own gradients end there",
                place="backward",
                hint='outputs="whole" and inputs="whole", of which every output is a plain tensor.',
            )
        return gradient.full_tensor()
    return gradient


class _Part(torch.autograd.Function):
    """This device's part of the gradient of an input, which every rank has whole."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, run: Run, row: dict[str, Any]) -> torch.Tensor:
        ctx.run, ctx.row = run, row
        return part_of(whole, placements(row), run.plan.mesh_shape, run.here.coordinate).clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return JoinedParts.apply(gradient, ctx.run, ctx.row), None, None


class JoinedParts(torch.autograd.Function):
    """The whole gradient of an input of which every device has a part."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, run: Run, row: dict[str, Any]) -> torch.Tensor:
        """Gathers it."""
        ctx.run, ctx.row = run, row
        whole = as_dtensor(part.detach().contiguous(), row, run.mesh).full_tensor()
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """Takes this device's part."""
        return _Part.apply(gradient, ctx.run, ctx.row), None, None
