"""Turns whole batches into DTensors in the plan's placements, and outputs into whole tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .graph_capture import bind_inputs, flatten_named
from .module import ParallelModule, run_of
from .placements import as_dtensor
from .whole_outputs import WholeOutput


def shard_inputs(module: ParallelModule, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs of a call as DTensors in the plan's placements; every rank passes the same whole tensors, nothing is sent.

    Returns:
        `args, kwargs` for the module.
    """
    run = run_of(module)
    record = run.plan.capture
    if record is None:
        leaves = flatten_named((args, kwargs))
    else:
        split = max(0, len(args) - record["targets"])
        leaves = flatten_named(bind_inputs(module, args[:split], kwargs, args[split:]))
    tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
    made = {id(value): as_dtensor(run.local_input(entry, value), entry, run.mesh) for entry, value in run.named_inputs(tensors)}

    def put(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return made.get(id(value), value)
        if isinstance(value, Mapping):
            return {key: put(member) for key, member in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(put(member) for member in value)
        return value

    return tuple(put(value) for value in args), {key: put(value) for key, value in kwargs.items()}


def gather_outputs(outputs: Any) -> Any:
    """The same nested outputs with whole tensors; all ranks call it together."""
    if isinstance(outputs, WholeOutput):
        return outputs.whole()
    if isinstance(outputs, DTensor):
        return outputs.full_tensor()
    if isinstance(outputs, Mapping):
        return {key: gather_outputs(member) for key, member in outputs.items()}
    if isinstance(outputs, (list, tuple)):
        return type(outputs)(gather_outputs(member) for member in outputs)
    return outputs
