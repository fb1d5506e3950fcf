"""Runs one step of a plan on one device: from local parts of parameters, buffers and inputs to outputs and gradients, as the plan
places them.

The two functions of `program.py` are called through `torch.autograd`: local ATen calls and the plan's collectives.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate

from .accumulating import Accumulation
from .agreement import Steps
from .errors import MismatchError
from .finite import Named, check_finite, random_state_of
from .folder import Plan
from .hooks import hooks_of
from .modes import autocast_of, frozen, other_modes, values_hash
from .placements import as_dtensor, part_of, placements
from .second_gradients import Again, JoinedParts
from .unreduced import Unreduced, split_backward

STATES = ("parameter", "buffer")


class Run:
    """The program of one device, with the tables that say what goes in and comes out."""

    def __init__(self, plan: Plan, mesh: DeviceMesh, here: Any, compile: bool) -> None:
        self.plan, self.mesh, self.here = plan, mesh, here
        tables = plan.placements
        self.primals: list[dict[str, Any]] = tables["primals"]
        self.tangents: list[dict[str, Any]] = tables["tangents"]
        self.outputs: list[dict[str, Any]] = tables["outputs"]
        self.gradients = {row["of"]: row for row in tables["gradients"]}
        self.user_outputs = [row for row in self.outputs if row["role"] == "output"]
        #: Numbers of the outputs that have a gradient: those that the program takes one of; a traced step has that of its loss.
        self.differentiable = {entry.get("index", 0) for entry in self.tangents} or ({0} if self.gradients else set())
        #: True if the random states of the ranks are known to be the same.
        self.has_drawn = False
        #: True if every step looks for values that are not finite.
        self.check_finite = False
        #: Where this rank is, for messages; of the model that runs the program.
        self.steps: Steps | None = None
        #: Parts of gradients that wait for their reduction; of the model that runs the program.
        self.accumulation: Accumulation | None = None
        #: The state from which the next call would be computed again, where its gradients may be asked for with create_graph=True.
        self.again: Again | None = None
        self.forward, self.backward = plan.program.forward, plan.program.backward
        self.compile = compile
        if compile:
            self.forward = torch.compile(self.forward, fullgraph=True, dynamic=False)
            self.backward = torch.compile(self.backward, fullgraph=True, dynamic=False)
        #: Outputs of a step from its primals; `compile_joint` puts another in its place.
        self.call: Callable[..., tuple[torch.Tensor, ...]] = partial(Step.apply, self)

    def of_copy(self, accumulation: Accumulation) -> Run:
        """The same program for a copy of the model, whose gradients are its own."""
        made = copy.copy(self)
        made.accumulation = accumulation
        if isinstance(self.call, partial):
            made.call = partial(Step.apply, made)
        return made

    @cached_property
    def unreduced(self) -> Unreduced | None:
        """The backward program in two parts; None where it reduces no gradient last."""
        states = {k for k, entry in enumerate(self.primals) if entry["role"] in STATES}
        found = split_backward(self.plan.program, states)
        if found is None or not self.compile:
            return found
        parts = {name: torch.compile(getattr(found, name), fullgraph=True, dynamic=False) for name in ("backward", "reduce")}
        return replace(found, **parts)

    def state(self, model: nn.Module, entry: dict[str, Any]) -> torch.Tensor:
        """The parameter or buffer of a row, as the model has it now, in the placement of the program."""
        path, _, last = entry["of"].rpartition(".")
        value = getattr(model.get_submodule(path), last)
        if not isinstance(value, DTensor):
            raise MismatchError(
                "E_MODEL",
                "it was replaced by a plain tensor after the model was taken over",
                place=entry["of"],
                hint="write into it under torch.no_grad() (copy_), or replace it before.",
            )
        if str(value.dtype) != f"torch.{entry['dtype']}":
            found = f"it is {str(value.dtype).removeprefix('torch.')} now, planned is {entry['dtype']}"
            raise MismatchError("E_MODEL", found, place=entry["of"], hint="convert the model before it is taken over.")
        return value if value.placements == placements(entry) else value.redistribute(placements=placements(entry))

    def guarded(self, phase: str, program: Callable[..., Any], *given: Any) -> Any:
        """Calls a part of the program; a collective that no rank answers is told with the rank and the step."""
        if self.steps is None:
            return program(self.here, *given)
        if phase != "forward":
            self.steps.tell(phase)
        try:
            return program(self.here, *given)
        except RuntimeError as error:
            raise self.steps.explained(error, phase) from error

    def state_of_draws(self) -> torch.Tensor | None:
        """The random state before a program that draws."""
        if not getattr(self.plan.program, "DRAWS", ()):
            return None
        device = self.here.device
        module: Any = torch if device.type == "cpu" else torch.get_device_module(device)
        return module.get_rng_state()

    def refuse_not_finite(self, phase: str, given: Named, made: Named, again: Callable[[], Any], state: torch.Tensor | None = None) -> None:
        """Refuses values that are not finite; all ranks call this together."""

        def called() -> None:
            with random_state_of(self.here.device, state):
                again()

        check_finite(self, phase, given, made, called)

    def is_of(self, model: nn.Module, call: Any) -> bool:
        """Tells whether the captured call is of this kind."""
        record = self.plan.capture
        if record is None:
            return True
        tensors = {name: leaf for name, leaf in call.leaves if isinstance(leaf, torch.Tensor)}
        plain = {name: leaf for name, leaf in call.leaves if not isinstance(leaf, torch.Tensor)}
        kinds = {name: [str(leaf.dtype).removeprefix("torch."), list(leaf.shape)] for name, leaf in tensors.items()}
        records = torch.is_grad_enabled()
        return (
            bool(record["training"]) == model.training
            and record.get("otherModes") in (None, other_modes(model))
            and record.get("values") in (None, values_hash(model))
            and not hooks_of(model)
            and kinds == {row["name"]: [row["dtype"], row["shape"]] for row in record["inputs"]}
            and {name: record["constants"].get(name) for name in plain} == plain
            and bool(record["targets"]) == call.with_loss
            and record.get("autocast") == autocast_of(self.here.device.type)
            and not (records and any(leaf.requires_grad and name not in self.gradients for name, leaf in tensors.items()))
            and (not records or record.get("frozen", []) == frozen(model))
        )

    def refuse(self, model: nn.Module, call: Any) -> None:
        """Says how a call differs from the captured one, where its loss function is not known.

        Raises:
            MismatchError: always.
        """
        record = self.plan.capture or {}
        hint = "give loss= to parallelize, so that other calls are planned too, or capture this one."
        if bool(record["training"]) != model.training:
            mode = {True: "training", False: "evaluation"}
            said = f"the model was captured in {mode[record['training']]} mode and is in {mode[model.training]} mode"
            raise MismatchError("E_MODE", said, hint=hint)
        rows = {row["name"]: row for row in record["inputs"]}
        for name, leaf in call.leaves:
            place = f"input {name}"
            if not isinstance(leaf, torch.Tensor):
                if record["constants"].get(name) != leaf:
                    raise MismatchError(
                        "E_INPUT", f"it is {leaf!r}, captured was {record['constants'].get(name)!r}", place=place, hint=hint
                    )
                continue
            if name not in rows:
                raise MismatchError("E_INPUT", f"the captured call has none; it has {', '.join(rows)}", place=place, hint=hint)
            found = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
            planned = f"{rows[name]['dtype']}{rows[name]['shape']}"
            if found != planned:
                raise MismatchError("E_INPUT", f"it is {found}, planned is {planned}", place=place, hint=hint)
            if leaf.requires_grad and torch.is_grad_enabled() and name not in self.gradients:
                said = "it wants a gradient, and the program has none: it was captured without requires_grad"
                raise MismatchError("E_INPUT", said, place=place, hint=hint)
        raise MismatchError("E_MODE", "modes, attributes or frozen parameters of the model are not those that were captured", hint=hint)

    def named_inputs(self, tensors: Sequence[tuple[str, torch.Tensor]]) -> list[tuple[dict[str, Any], torch.Tensor]]:
        """Inputs of a call with their rows of `placements.json`, in the order of the program.

        Raises:
            MismatchError: for inputs that are not those of the captured model, with both.
        """
        record = self.plan.capture
        entries = [entry for entry in self.primals if entry["role"] not in STATES]
        if record is None:
            if len(tensors) != len(entries):
                raise MismatchError("E_INPUT", f"the program takes {len(entries)} tensors, got {len(tensors)}")
            return list(zip(entries, (leaf for _, leaf in tensors), strict=True))
        by_name = dict(tensors)
        wanted = [row["name"] for row in record["inputs"]]
        if len(entries) != len(wanted):
            raise MismatchError("E_PLAN", f"the program takes {len(entries)} inputs, the captured model {len(wanted)}")
        return [(entry, by_name[name]) for entry, name in zip(entries, wanted, strict=True)]

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
        return _Part.apply(self, entry, value)

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

    def tangents_of(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """This device's parts of the gradients of outputs that the program wants."""
        return [self.tangent(entry, gradients[entry.get("index", 0)]).contiguous() for entry in self.tangents]

    def local_gradients(self, scale: torch.Tensor | None, here: Any, saved: list[Any], tangents: list[Any]) -> list[Any]:
        """Local gradients of the primals; of a pass that reduces nothing, those that need no reduction."""
        kept = self.accumulation
        if kept is not None:
            kept.begin()
        if kept is None or (kept.reduces and self not in kept.parts) or self.unreduced is None:
            return _scaled(self.backward(here, saved, tangents), scale)
        found, parts = self.unreduced.backward(here, saved, tangents)
        rest = kept.taken(self, _scaled(parts, scale))
        found = _scaled(found, scale)
        return found if rest is None else [b if a is None else a for a, b in zip(found, rest, strict=True)]

    def placed_gradients(self, found: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Gradients of the primals: of states as DTensors in the placements of the plan, of inputs as local parts (`_Part`)."""
        out: list[torch.Tensor | None] = []
        for entry, gradient in zip(self.primals, found, strict=True):
            row = self.gradients.get(entry.get("of", entry["name"]))
            if gradient is None or row is None:
                out.append(None)
            elif entry["role"] in STATES:
                # Autograd gives a gradient the layout of its parameter, but does not look into a DTensor. Fused optimizers rely on it.
                out.append(as_dtensor(gradient.contiguous(), row, self.mesh))
            else:
                out.append(gradient)
        return out


class _Part(torch.autograd.Function):
    """This device's part of an input; its gradient comes back as the caller has the input."""

    @staticmethod
    def forward(ctx: Any, run: Run, entry: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
        ctx.run, ctx.entry = run, entry
        ctx.at = value.placements if isinstance(value, DTensor) else None
        at = placements(entry)
        if not isinstance(value, DTensor):
            return part_of(value, at, run.plan.mesh_shape, run.here.coordinate).to(run.here.device).contiguous()
        if value.placements == at and value.device_mesh == run.mesh:
            local = value._local_tensor
        else:
            local = part_of(value.full_tensor(), at, run.plan.mesh_shape, run.here.coordinate).contiguous()
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        run: Run = ctx.run
        row = run.gradients[ctx.entry.get("of", ctx.entry["name"])]
        if torch.is_grad_enabled():
            return None, None, JoinedParts.apply(gradient, run, row)
        found = as_dtensor(gradient.contiguous(), row, run.mesh)
        if ctx.at is None:
            return None, None, found.full_tensor()
        whole = [Replicate() if isinstance(p, Partial) else p for p in ctx.at]
        return None, None, found.redistribute(placements=whole)


class Step(torch.autograd.Function):
    """One forward call of the program, and its backward call."""

    @staticmethod
    def forward(ctx: Any, run: Run, *primals: torch.Tensor) -> Any:
        """Outputs in the order of the program; new values of buffers are written into them."""
        parts = [p._local_tensor if isinstance(p, DTensor) else p for p in primals]
        # Row by row; the program lays what was captured otherwise itself.
        given = [part.contiguous() for part in parts]
        state = run.state_of_draws() if run.check_finite else None
        returned, saved = run.guarded("forward", run.forward, list(given))
        if run.check_finite:
            run.refuse_not_finite(
                "forward",
                [(f"{row['role']} {row.get('of', row['name'])}", part) for row, part in zip(run.primals, parts, strict=True)],
                [(f"output {row.get('of', row.get('index', 0))}", value) for row, value in zip(run.outputs, returned, strict=True)],
                lambda: run.plan.program.forward(run.here, list(given)),
                state,
            )
        ctx.again, run.again = run.again, None
        ctx.run, ctx.kept = run, [None if isinstance(value, torch.Tensor) else value for value in saved]
        ctx.save_for_backward(*(value for value in saved if isinstance(value, torch.Tensor)))
        results: list[torch.Tensor] = []
        for row, value in zip(run.outputs, returned, strict=True):
            if row["role"] == "output":
                results.append(run.wrap(value, row))
            else:
                parts[next(k for k, entry in enumerate(run.primals) if entry["of"] == row["of"])].copy_(value)
        ctx.mark_non_differentiable(*(value for k, value in enumerate(results) if k not in run.differentiable))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Gradients of the primals as DTensors in their own placements."""
        run: Run = ctx.run
        if torch.is_grad_enabled():
            return (None, *_again(ctx).gradients(run, gradients))
        tensors = iter(ctx.saved_tensors)
        saved = [next(tensors) if value is None else value for value in ctx.kept]
        del tensors
        # The program lets go of what it has used; what retain_graph keeps is kept by autograd.
        ctx.maybe_clear_saved_tensors()
        tangents = run.tangents_of(gradients)
        # A traced step has the gradient 1 of its loss written in.
        scale = None if run.tangents else gradients[0]
        kept = list(saved) if run.check_finite else []
        found = run.guarded("backward", partial(run.local_gradients, scale), saved, tangents)
        if run.check_finite:
            run.refuse_not_finite(
                "backward",
                [(f"the gradient of output {k}, which comes from the script,", value) for k, value in enumerate((*tangents, scale))],
                [(f"the gradient of {row.get('of', row['name'])}", value) for row, value in zip(run.primals, found, strict=True)],
                lambda: run.plan.program.backward(run.here, kept, tangents),
            )
        return (None, *run.placed_gradients(found))


def _again(ctx: Any) -> Again:
    """Returns the state from which a call is computed again, for gradients that have gradients of their own.

    Raises:
        MismatchError: E_GRADIENT for calls that are not.
    """
    if ctx.again is None:
        raise MismatchError(
            "E_GRADIENT",
            "a gradient with create_graph=True is asked for, and this call is not computed again with whole weights",
            place="backward",
            hint='that takes inputs="whole", outputs="whole", no accumulate= and no no_sync(). Or take the inner gradient in forward '
            "(torch.autograd.grad there is captured), and return what the loss needs.",
        )
    return ctx.again


def _scaled(values: list[Any], scale: torch.Tensor | None) -> list[Any]:
    return values if scale is None else [value if value is None else value * scale for value in values]
