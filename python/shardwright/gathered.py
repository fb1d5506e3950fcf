"""Computes a call with whole weights on every rank, as one process does; for calls that no program is made for.

Every rank computes everything, so outputs are whole. Gradients go back into the parameters as the plan places them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.distributed.tensor import DTensor

from .accumulating import Accumulation
from .flat_model import chosen
from .loading import placed, replace_states, whole_of
from .precision import MixedPrecision


class Gathered:
    """Whole weights of a model, kept between calls without gradients until a weight changes."""

    def __init__(self, accumulation: Accumulation) -> None:
        self.accumulation = accumulation
        #: Whether a call is under way: the model's own forward is what runs then.
        self.inside = False
        self.kept: dict[str, torch.Tensor] = {}
        #: Of which parts of which versions they are.
        self.parts: list[tuple[torch.Tensor, int]] = []

    def forget(self) -> None:
        """Frees what is kept."""
        self.kept, self.parts = {}, []

    def call(self, model: nn.Module, forward: Any, call: Any, settings: Any) -> Any:
        """What the model returns for a call, or its loss function."""
        count = settings.targets if call.with_loss else 0
        args, kwargs = _whole_inputs((call.args, dict(call.kwargs)))
        split = len(args) - count
        precision = settings.precision or MixedPrecision()
        with self.whole(model), precision.parameters(model):
            output = precision.outputs(forward(*precision.inputs(args[:split]), **precision.inputs(kwargs)))
            if callable(settings.loss) and not call.with_loss:
                return output
            return chosen(output, settings.loss, args[split:])

    @contextmanager
    def whole(self, model: nn.Module, written: bool = False) -> Iterator[None]:
        """The model with whole weights; new values of buffers are kept, and of parameters where they are `written`."""
        states = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        placed_states = {name: state for name, state in states.items() if isinstance(_innermost(state), DTensor)}
        wholes = _parameters(placed_states) if written else self._wholes(placed_states)
        buffers = dict(model.named_buffers())
        before = {name: wholes[name]._version for name in wholes if written or name in buffers}
        self.inside = True
        try:
            replace_states(model, {id(state): wholes[name] for name, state in placed_states.items()})
            yield
        finally:
            self.inside = False
            current = {**dict(model.named_parameters()), **dict(model.named_buffers())}
            # A parameter may have been replaced by another one.
            wholes = {**wholes, **{name: current[name] for name in wholes if name in current}}
            replace_states(model, {id(wholes[name]): state for name, state in placed_states.items()})
        with temporarily_clear_interpreter_stack():
            for name, version in before.items():
                state: Any = placed_states[name]
                own = state.detach().to_local()
                if written or (wholes[name]._version != version and wholes[name].data_ptr() != own.data_ptr()):
                    own.copy_(placed(wholes[name], state).to_local())

    def _wholes(self, states: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        if is_transformed():
            self.forget()
            return {name: _WholeOfAny.apply(state) for name, state in states.items()}
        if torch.is_grad_enabled():
            self.forget()
            return {name: _Whole.apply(state, self.accumulation) for name, state in states.items()}
        parts = [state._local_tensor for state in states.values()]
        same = self.kept.keys() == states.keys()
        if not (same and all(old is own and version == own._version for (old, version), own in zip(self.parts, parts, strict=True))):
            self.kept = {name: whole_of(state.detach()) for name, state in states.items()}
            self.parts = [(own, own._version) for own in parts]
        return self.kept


def _parameters(states: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Whole copies that may be written, parameters as parameters."""
    wholes = {name: whole_of(state.detach()).clone() for name, state in states.items()}
    kinds = {name: isinstance(state, nn.Parameter) for name, state in states.items()}
    return {name: nn.Parameter(whole, states[name].requires_grad) if kinds[name] else whole for name, whole in wholes.items()}


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, state: DTensor, accumulation: Accumulation) -> torch.Tensor:
        ctx.state, ctx.accumulation = state, accumulation
        whole = whole_of(state.detach())
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.accumulation.begin()
        return placed(gradient, ctx.state), None


def is_transformed() -> bool:
    """Whether a transform of `torch.func` is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def _innermost(tensor: torch.Tensor) -> torch.Tensor:
    """What transforms of `torch.func` have wrapped."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


class _WholeOfAny(torch.autograd.Function):
    """The whole of a DTensor that transforms may have wrapped; its gradient is whole, too, and for the tape of autograd itself placed."""

    generate_vmap_rule = True

    @staticmethod
    def forward(state: torch.Tensor) -> torch.Tensor:
        # Collectives are no part of what is transformed.
        with temporarily_clear_interpreter_stack():
            whole = whole_of(state.detach())
            return whole.view_as(whole)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.state = inputs[0] if isinstance(inputs[0], DTensor) else None

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient if ctx.state is None or is_transformed() else placed(gradient, ctx.state)


def _whole_inputs(value: Any) -> Any:
    if isinstance(value, DTensor):
        return value.full_tensor()
    if type(value) is dict:
        return {key: _whole_inputs(member) for key, member in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_whole_inputs(member) for member in value)
    return value
