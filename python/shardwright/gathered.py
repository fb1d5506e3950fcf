"""Computes a call with whole weights on every rank, as one process does; for calls that no program is made for.

Every rank computes everything, so outputs are whole. Gradients go back into the parameters as the plan places them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.distributed.tensor import DTensor

from .accumulating import Accumulation
from .agreement import fingerprint
from .flat_model import chosen
from .loading import placed, replace_states, whole_of
from .precision import MixedPrecision


class Gathered:
    """Whole weights of a model, kept between calls without gradients until a weight changes."""

    def __init__(self, accumulation: Accumulation) -> None:
        self.accumulation = accumulation
        #: True while a call is under way: the model's own forward runs then.
        self.inside = False
        self.kept: dict[str, torch.Tensor] = {}
        #: The parts that they were gathered from, and a key of their values.
        self.parts: list[torch.Tensor] = []
        self.values: list[int] = []

    def forget(self) -> None:
        """Frees what is kept."""
        self.kept, self.parts, self.values = {}, [], []

    def call(self, model: nn.Module, forward: Any, call: Any, settings: Any, wholes: Mapping[str, torch.Tensor] | None = None) -> Any:
        """Returns what the model, or its loss function, gives for a call; on its own weights, or on others by name."""
        count = settings.targets if call.with_loss else 0
        args, kwargs = _whole_inputs((call.args, dict(call.kwargs)))
        split = len(args) - count
        precision = settings.precision or MixedPrecision()
        with self.whole(model) if wholes is None else self._given(model, wholes), precision.parameters(model):
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
        entered = self._enter(model)
        try:
            replace_states(model, {id(state): wholes[name] for name, state in placed_states.items()})
            yield
        finally:
            _leave(entered)
            current = {**dict(model.named_parameters()), **dict(model.named_buffers())}
            # A parameter may have been replaced by another one.
            wholes = {**wholes, **{name: current[name] for name in wholes if name in current}}
            replace_states(model, {id(wholes[name]): state for name, state in placed_states.items()})
        # Inference mode does not detach a DTensor.
        with temporarily_clear_interpreter_stack(), torch.inference_mode(False), torch.no_grad():
            for name, version in before.items():
                state: Any = placed_states[name]
                own = _innermost(state)._local_tensor
                if written or (wholes[name]._version != version and wholes[name].data_ptr() != own.data_ptr()):
                    own.copy_(placed(wholes[name], state).to_local())

    @contextmanager
    def _given(self, model: nn.Module, wholes: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """The model with these tensors in the places of its states; nothing is written back."""
        named = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
        states = {id(state): state for _, state in named}
        given = {id(state): wholes[name] for name, state in named if name in wholes}
        rest = {key: whole_of(state.detach()) for key, state in states.items() if key not in given and isinstance(state, DTensor)}
        given |= rest
        entered = self._enter(model)
        try:
            replace_states(model, given)
            yield
        finally:
            _leave(entered)
            replace_states(model, {id(whole): states[key] for key, whole in given.items()})

    def _enter(self, model: nn.Module) -> list[Gathered]:
        """A call is under way, of parallel models inside of this one, too; those of which none was."""
        inner = (module.__dict__.get("shardwright") for module in model.modules())
        found = [self, *(programs.gathered for programs in inner if programs is not None)]
        entered = [one for one in dict.fromkeys(found) if not one.inside]
        for one in entered:
            one.inside = True
        return entered

    def _wholes(self, states: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        if is_transformed():
            self.forget()
            return {name: _WholeOfAny.apply(state) for name, state in states.items()}
        if torch.is_grad_enabled():
            self.forget()
            return {name: Whole.apply(state, self.accumulation) for name, state in states.items()}
        # Tensors of inference mode could not be used outside of it, and it does not detach a DTensor.
        with torch.inference_mode(False), torch.no_grad():
            parts = [state._local_tensor for state in states.values()]
            # DTensor counts no version of its parts, and not every write of its own.
            values = [fingerprint(part) for part in parts]
            same = self.kept.keys() == states.keys() and all(old is own for old, own in zip(self.parts, parts, strict=True))
            if not _all_say(same and values == self.values, states):
                self.kept = {name: whole_of(state.detach()) for name, state in states.items()}
                self.parts, self.values = parts, values
        return self.kept


def _leave(entered: list[Gathered]) -> None:
    for one in entered:
        one.inside = False


def _all_say(own: bool, states: Mapping[str, Any]) -> bool:
    """Tells whether all ranks say so; all ranks call this together."""
    first = next(iter(states.values()), None)
    if first is None:
        return own
    mesh = first.device_mesh
    told = torch.tensor(int(own), device=first._local_tensor.device)
    for d in range(mesh.ndim):
        dist.all_reduce(told, op=dist.ReduceOp.MIN, group=mesh.get_group(d))
    return bool(told)


def _parameters(states: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Whole copies that may be written, parameters as parameters."""
    wholes = {name: whole_of(state.detach()).clone() for name, state in states.items()}
    kinds = {name: isinstance(state, nn.Parameter) for name, state in states.items()}
    return {name: nn.Parameter(whole, states[name].requires_grad) if kinds[name] else whole for name, whole in wholes.items()}


class Whole(torch.autograd.Function):
    """The whole of a DTensor; its gradient, of any order, is placed as the DTensor is."""

    @staticmethod
    def forward(ctx: Any, state: DTensor, accumulation: Accumulation | None) -> torch.Tensor:
        """Gathers it."""
        ctx.state, ctx.accumulation = state, accumulation
        whole = whole_of(state.detach())
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """Takes this device's part."""
        if ctx.accumulation is not None:
            ctx.accumulation.begin()
        return Placed.apply(gradient, ctx.state), None


class Placed(torch.autograd.Function):
    """A whole tensor that every rank has, placed as a DTensor is; the gradient of it is whole again."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, wanted: DTensor) -> torch.Tensor:
        """Takes this device's part."""
        return placed(whole, wanted)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """Gathers it."""
        return Whole.apply(gradient, None) if isinstance(gradient, DTensor) else gradient, None


def is_transformed() -> bool:
    """Tells whether a transform of `torch.func` is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def _innermost(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor that transforms of `torch.func` have wrapped."""
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
