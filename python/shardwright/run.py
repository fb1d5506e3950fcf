"""Runs one step of a plan on one device: from local parts of parameters, buffers and inputs to outputs and gradients, as the plan
places them.

The two functions of `program.py` are called through `torch.autograd`: local ATen calls and the plan's collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate

from .errors import MismatchError
from .folder import Plan
from .graph_capture import bind_inputs, flatten_named
from .placements import as_dtensor, part_of, placements

STATES = ("parameter", "buffer")


class Run:
    """The program of one device, with the tables that say what goes in and comes out."""

    def __init__(self, model: nn.Module, plan: Plan, mesh: DeviceMesh, here: Any, compile: bool) -> None:
        self.model, self.plan, self.mesh, self.here = model, plan, mesh, here
        tables = plan.placements
        self.primals: list[dict[str, Any]] = tables["primals"]
        self.tangents: list[dict[str, Any]] = tables["tangents"]
        self.outputs: list[dict[str, Any]] = tables["outputs"]
        self.gradients = {row["of"]: row for row in tables["gradients"]}
        self.user_outputs = [row for row in self.outputs if row["role"] == "output"]
        #: Whether the random states of the ranks are known to be one.
        self.has_drawn = False
        self.forward, self.backward = plan.program.forward, plan.program.backward
        if compile:
            self.forward = torch.compile(self.forward, fullgraph=True, dynamic=False)
            self.backward = torch.compile(self.backward, fullgraph=True, dynamic=False)
        #: Outputs of a step from its primals; `compile_joint` puts another in its place.
        self.call: Callable[..., tuple[torch.Tensor, ...]] = partial(Step.apply, self)

    def state(self, entry: dict[str, Any]) -> torch.Tensor:
        """The parameter or buffer of a row, as the model has it now."""
        path, _, last = entry["of"].rpartition(".")
        return getattr(self.model.get_submodule(path), last)

    def named_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[dict[str, Any], torch.Tensor]]:
        """Inputs of a call with their rows of `placements.json`, in the order of the program.

        Raises:
            MismatchError: for inputs that are not those of the captured model, with both.
        """
        record = self.plan.capture
        entries = [entry for entry in self.primals if entry["role"] not in STATES]
        if record is None:
            leaves = [leaf for _, leaf in flatten_named((tuple(args), dict(kwargs))) if isinstance(leaf, torch.Tensor)]
            if len(leaves) != len(entries):
                raise MismatchError("E_INPUT", f"the program takes {len(entries)} tensors, got {len(leaves)}")
            return list(zip(entries, leaves, strict=True))
        count = record["targets"]
        split = max(0, len(args) - count)
        named = flatten_named(bind_inputs(self.model, args[:split], kwargs, args[split:]))
        tensors = {name: value for name, value in named if isinstance(value, torch.Tensor)}
        wanted = [row["name"] for row in record["inputs"]]
        if set(tensors) != set(wanted):
            found = ", ".join(tensors) or "none"
            raise MismatchError("E_INPUT", f"the tensors given are {found}; captured were {', '.join(wanted) or 'none'}")
        for name, value in named:
            if isinstance(value, torch.Tensor):
                continue
            before = record["constants"].get(name)
            if before != value:
                raise MismatchError(
                    "E_INPUT",
                    f"it is {value!r}, captured was {before!r}",
                    place=f"input {name}",
                    hint="capture the model with this value.",
                )
        if len(entries) != len(wanted):
            raise MismatchError("E_PLAN", f"the program takes {len(entries)} inputs, the captured model {len(wanted)}")
        return [(entry, tensors[name]) for entry, name in zip(entries, wanted, strict=True)]

    def local_input(self, entry: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
        """This device's part of an input: of a whole tensor its slice, of a DTensor what it holds.

        Raises:
            MismatchError: for another dtype, size or placement than the plan's, and for a gradient that the program does not give.
        """
        shape = list(value.shape)
        place = f"input {entry.get('of', entry['name'])}"
        if shape != entry["shape"] or str(value.dtype) != f"torch.{entry['dtype']}":
            found = f"{str(value.dtype).removeprefix('torch.')}{shape}"
            raise MismatchError(
                "E_INPUT",
                f"it is {found}, planned is {entry['dtype']}{entry['shape']}",
                place=place,
                hint="the program has the sizes that were captured: give the global batch, or capture again.",
            )
        if value.requires_grad and torch.is_grad_enabled() and entry.get("of", entry["name"]) not in self.gradients:
            raise MismatchError(
                "E_INPUT",
                "it wants a gradient, and the program has none: it was captured without requires_grad",
                place=place,
                hint="capture the model with an example input that requires_grad, or give a detached one.",
            )
        at = placements(entry)
        if not isinstance(value, DTensor):
            return part_of(value, at, self.plan.mesh_shape, self.here.coordinate).to(self.here.device).contiguous()
        if tuple(value.placements) != at:
            raise MismatchError(
                "E_INPUT",
                f"it is placed {tuple(value.placements)}, planned is {at}",
                place=place,
                hint="make it with shard_inputs, or redistribute it.",
            )
        return value.to_local()

    def wrap(self, local: torch.Tensor, entry: dict[str, Any]) -> torch.Tensor:
        """A local result as the caller gets it: plain where every device has the whole."""
        return local if all(p.is_replicate() for p in placements(entry)) else as_dtensor(local, entry, self.mesh)

    def tangent(self, entry: dict[str, Any], gradient: torch.Tensor) -> torch.Tensor:
        """This device's part of the gradient of an output, where the program wants it.

        The caller's own operations on outputs are outside the plan, and so is what DTensor moves for them.
        """
        at = placements(entry)
        if isinstance(gradient, DTensor):
            if tuple(gradient.placements) == at:
                return gradient._local_tensor
            if any(isinstance(p, Partial) for p in at):
                whole = [Replicate() if isinstance(p, Partial) else p for p in at]
                local = gradient.redistribute(placements=whole)._local_tensor
                pending = [p if isinstance(p, Partial) else Replicate() for p in at]
                return part_of(local, pending, self.plan.mesh_shape, self.here.coordinate)
            return gradient.redistribute(placements=at)._local_tensor
        return part_of(gradient, at, self.plan.mesh_shape, self.here.coordinate).contiguous()

    def placed_gradients(self, found: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Local gradients of the primals as the caller gets them: of states as DTensors in the placements of the plan."""
        out: list[torch.Tensor | None] = []
        for entry, gradient in zip(self.primals, found, strict=True):
            row = self.gradients.get(entry.get("of", entry["name"]))
            if gradient is None or row is None:
                out.append(None)
            elif entry["role"] in STATES:
                # Autograd gives a gradient the layout of its parameter, but does not look into a DTensor. Fused optimizers rely on it.
                out.append(as_dtensor(gradient.contiguous(), row, self.mesh))
            else:
                out.append(self.wrap(gradient, row))
        return out


class Step(torch.autograd.Function):
    """One forward call of the program, and its backward call."""

    @staticmethod
    def forward(ctx: Any, run: Run, *primals: torch.Tensor) -> Any:
        """Outputs in the order of the program; new values of buffers are written into them."""
        parts = [p._local_tensor if isinstance(p, DTensor) else p for p in primals]
        returned, saved = run.forward(run.here, list(parts))
        ctx.run, ctx.saved = run, saved
        results: list[torch.Tensor] = []
        for row, value in zip(run.outputs, returned, strict=True):
            if row["role"] == "output":
                results.append(run.wrap(value, row))
            else:
                parts[next(k for k, entry in enumerate(run.primals) if entry["of"] == row["of"])].copy_(value)
        ctx.mark_non_differentiable(*(value for value in results if not value.is_floating_point()))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Gradients of the primals as DTensors in their own placements."""
        run: Run = ctx.run
        saved, ctx.saved = ctx.saved, None
        if saved is None:
            raise MismatchError(
                "E_BACKWARD", "what forward saved is freed by the first backward call", hint="call the module again before."
            )
        tangents = [run.tangent(entry, gradients[entry.get("index", 0)]) for entry in run.tangents]
        found = run.backward(run.here, saved, tangents)
        if not run.tangents:
            # A traced step has the gradient 1 of its loss written in.
            found = [gradient if gradient is None else gradient * gradients[0] for gradient in found]
        return (None, *run.placed_gradients(found))
