"""Makes a model a function of flat tensors, from which graphs are captured.

The result is a module of the same parameters whose inputs and outputs are tensors only, with a record of how its output was nested.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .constraints import Stated, by_number, constrain
from .errors import CaptureError
from .output_trees import flatten_outputs
from .precision import MixedPrecision


@dataclass
class FlatCall:
    """The parts of a captured call, and how its output was nested."""

    model: nn.Module
    bound: Mapping[str, Any]
    loss: Any
    targets: int
    precision: MixedPrecision = MixedPrecision()
    out_placements: Stated | None = None
    spec: Any = None
    count: int = 0


class FlatModel(nn.Module):
    """The model as a function of its flat tensors that returns flat tensors, under the model's own names."""

    def __init__(self, model: nn.Module, bound: Mapping[str, Any], loss: Any, targets: int, precision: MixedPrecision) -> None:
        super().__init__()
        # Shared, not registered again: names stay those of the model, and what is swapped here is swapped there.
        self.__dict__["_modules"] = model._modules
        self.__dict__["_parameters"] = model._parameters
        self.__dict__["_buffers"] = model._buffers
        self.training = model.training
        # One name of ours: any other could be one of the model's.
        self.__dict__["_shardwright"] = FlatCall(model, bound, loss, targets, precision)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Calls the model on the inputs' tensors, in their order."""
        call: FlatCall = self.__dict__["_shardwright"]
        inputs = iter(tensors)

        def put(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return next(inputs)
            if isinstance(value, Mapping):
                return {key: put(member) for key, member in value.items()}
            if isinstance(value, (list, tuple)):
                return type(value)(put(member) for member in value)
            return value

        named = {name: put(value) for name, value in call.bound.items()}
        extra = [named.pop(f"target {k}") for k in range(call.targets)]
        with _states_in_place(call.model), call.precision.parameters(call.model):
            output = call.precision.outputs(_call(call.model, call.precision.inputs(named)))
        call.spec, leaves = flatten_outputs(chosen(output, call.loss, extra))
        call.count = len(leaves)
        for number, placement in by_number(call.out_placements, [str(k) for k in range(len(leaves))], "out_placements").items():
            leaves[number] = constrain(leaves[number], placement)
        leaves = _apart(leaves, [*tensors, *self.parameters(), *self.buffers()])
        return tuple(leaves) if len(leaves) != 1 else leaves[0]


@contextmanager
def _states_in_place(model: nn.Module) -> Iterator[None]:
    """Writes values that `forward` puts in the place of a buffer into the buffer: the graph then returns its new value.

    Raises:
        CaptureError: E_MUTATION of a parameter that is replaced, and of a buffer that changes its size or dtype.
    """
    held = [(name, module, dict(module._parameters), dict(module._buffers)) for name, module in model.named_modules()]
    yield
    for name, module, parameters, buffers in held:
        prefix = f"{name}." if name else ""
        for key, parameter in parameters.items():
            if module._parameters.get(key) is not parameter:
                raise CaptureError(
                    "E_MUTATION",
                    "forward puts another tensor in the place of this parameter",
                    place=prefix + key,
                    hint="change it after the step under torch.no_grad(), or make it a buffer (register_buffer).",
                )
        for key, buffer in buffers.items():
            found = module._buffers.get(key)
            if found is buffer:
                continue
            if buffer is None or found is None or (found.shape, found.dtype) != (buffer.shape, buffer.dtype):
                raise CaptureError(
                    "E_MUTATION",
                    f"forward puts {_kind(found)} in the place of this buffer, which is {_kind(buffer)}",
                    place=prefix + key,
                    hint="give the buffer the size and dtype from the start that it has later.",
                )
            module._buffers[key] = buffer
            with torch.no_grad():
                buffer.copy_(found)


def _kind(tensor: torch.Tensor | None) -> str:
    return "None" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _call(model: nn.Module, named: dict[str, Any]) -> Any:
    """Calls a model with inputs by name, those of `*args` by position."""
    parameters = inspect.signature(model.forward).parameters
    rest = next((n for n, p in parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    if rest is None:
        positional = [named.pop(n) for n, p in parameters.items() if p.kind is inspect.Parameter.POSITIONAL_ONLY and n in named]
        return model(*positional, **named)
    before = list(parameters)[: list(parameters).index(rest)]
    positional = [named.pop(n) for n in before if n in named]
    spread = [key for key in named if key.startswith(f"{rest}.")]
    positional += [named.pop(key) for key in spread]
    return model(*positional, **named)


def chosen(output: Any, loss: Any, targets: Sequence[Any]) -> Any:
    """Returns the part of an output that is trained: see `capture`."""
    if callable(loss):
        return loss(output, *targets)
    if loss is None:
        own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if own is not None:
            return own
    return output


def _apart(leaves: Sequence[torch.Tensor], held: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs that share no memory with each other, an input, a parameter or a buffer: those that would are copied.

    Of outputs that share memory AOTAutograd returns the base and makes the views outside the graph, where a device has only its part.
    """
    seen = {tensor.untyped_storage()._cdata for tensor in held}
    apart = []
    for leaf in leaves:
        storage = leaf.untyped_storage()._cdata
        apart.append(leaf.clone() if storage in seen else leaf)
        seen.add(storage)
    return apart
