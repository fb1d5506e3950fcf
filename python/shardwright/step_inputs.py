"""The inputs of a step of a pipeline: by name, and by which dim microbatches are parts of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .errors import MismatchError
from .graph_capture import bind_named, flatten_named


def tensors_of(
    record: Mapping[str, Any], model: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Tensors of a step by name, in the order of the captured call.

    Raises:
        MismatchError: for Python values that are not the captured ones.
    """
    count = record["targets"]
    end = len(args) - count
    if count and end < 0:
        raise MismatchError("E_INPUT", f"the loss takes {count} targets, which come last by position", place="step")
    leaves = dict(flatten_named(bind_named(signature, model, args[:end], kwargs, args[end:])))
    for name, leaf in leaves.items():
        if not isinstance(leaf, torch.Tensor) and record["constants"].get(name) != leaf:
            captured = record["constants"].get(name)
            raise MismatchError("E_INPUT", f"it is {leaf!r}, captured was {captured!r}", place=f"input {name}", hint="capture this call.")
    wanted = [row["name"] for row in record["inputs"]]
    tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor)}
    if sorted(wanted) != sorted(tensors):
        raise MismatchError("E_INPUT", f"the call has {', '.join(tensors)}; captured were {', '.join(wanted)}", place="step")
    return {name: tensors[name] for name in wanted}


def split_dims(record: Mapping[str, Any], count: int, tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """The dim of each input that has so many times the captured rows; inputs of the captured sizes go to every microbatch.

    Raises:
        MismatchError: for sizes that are not those of a batch of so many microbatches, with those that would be.
    """
    split: dict[str, int] = {}
    for row in record["inputs"]:
        value, shape = tensors[row["name"]], row["shape"]
        alike = value.ndim == len(shape) and str(value.dtype) == f"torch.{row['dtype']}"
        dims = [d for d in range(len(shape)) if alike and value.shape[d] != shape[d]]
        if alike and len(dims) == 1 and value.shape[dims[0]] == count * shape[dims[0]]:
            split[row["name"]] = dims[0]
        elif not alike or dims:
            raise MismatchError(
                "E_INPUT",
                f"it is {kind(value)}, a microbatch is {row['dtype']}{shape}, and a step has {count} of them",
                place=f"input {row['name']}",
                hint=_batch_hint(value, shape, count) if alike and len(dims) == 1 else "give the inputs that were captured.",
            )
    if count > 1 and not split:
        first = record["inputs"][0]
        rows_of = [count * first["shape"][0], *first["shape"][1:]] if first["shape"] else []
        raise MismatchError(
            "E_INPUT",
            f"it has the sizes of one microbatch, {kind(tensors[first['name']])}, and a step has {count} of them",
            place=f"input {first['name']}",
            hint=f"give the whole batch, {rows_of}, or microbatches=1.",
        )
    return split


def _batch_hint(value: torch.Tensor, shape: Sequence[int], count: int) -> str:
    """Says which sizes would go with a batch that microbatches do not divide."""
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


def kind(value: torch.Tensor) -> str:
    """Dtype and sizes of a tensor."""
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
