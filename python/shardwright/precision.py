"""Mixed precision: weights stay as they are, and are cast where they are used.

Source: `MixedPrecisionPolicy` of FSDP2, whose fields have the same names and meaning. The casts are calls of the captured program, so that
a plan may gather weights after them, in the narrower dtype, and is priced so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.nn.utils import stateless

from .errors import MismatchError

_AGAIN = "capture and plan the model again with this package."


@dataclass(frozen=True)
class MixedPrecision:
    """Dtypes of a step; None: as they are.

    Args:
        param_dtype: of parameters where they are used, and of inputs with `cast_forward_inputs`.
        reduce_dtype: float32: gradients are summed over ranks in it; None: in the dtype that the plan finds cheapest.
        output_dtype: of the model's outputs.
        cast_forward_inputs: cast inputs of the model to `param_dtype`; those of a loss function are not.
        buffer_dtype: of buffers, which are converted when the model is captured by `auto_parallelize`.
    """

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    output_dtype: torch.dtype | None = None
    cast_forward_inputs: bool = True
    buffer_dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        """Refuses sums that no plan has."""
        if self.reduce_dtype not in (None, torch.float32, self.param_dtype):
            raise MismatchError(
                "E_DTYPE", f"gradients are summed in float32 or in param_dtype, not in {self.reduce_dtype}", place="reduce_dtype"
            )

    def record(self) -> dict[str, Any]:
        """Returns the settings as `capture.json` holds them."""
        words = {name: str(value).removeprefix("torch.") for name, value in asdict(self).items() if isinstance(value, torch.dtype)}
        return {**asdict(self), **words}

    def flags(self) -> dict[str, str]:
        """Returns the flags that the planner needs for it."""
        return {"gradients": "fp32"} if self.reduce_dtype is torch.float32 and self.param_dtype in (torch.bfloat16, torch.float16) else {}

    @contextmanager
    def parameters(self, model: nn.Module) -> Iterator[None]:
        """Casts the parameters of a model that is called inside."""
        if self.param_dtype is None:
            yield
            return
        cast = {name: p.to(self.param_dtype) for name, p in model.named_parameters() if p.is_floating_point()}
        with stateless._reparametrize_module(model, cast, tie_weights=True):  # type: ignore[attr-defined]
            yield

    def inputs(self, value: Any) -> Any:
        """Inputs as the model gets them."""
        return _cast(value, self.param_dtype) if self.cast_forward_inputs else value

    def outputs(self, value: Any) -> Any:
        """Outputs as the model returns them."""
        return _cast(value, self.output_dtype)

    def buffers(self, model: nn.Module) -> None:
        """Converts the buffers of a model."""
        if self.buffer_dtype is not None:
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.data.to(self.buffer_dtype)


def precision_of(record: Mapping[str, Any] | None) -> MixedPrecision | None:
    """Returns the mixed precision of a captured model; None without it."""
    noted = (record or {}).get("mixedPrecision")
    if noted is None:
        return None
    place = "capture.json: mixedPrecision"
    if not isinstance(noted, Mapping):
        raise MismatchError("E_SYNTAX", f"it is {noted!r}, not an object", place=place, hint=_AGAIN)
    kinds = {field.name: field.type for field in fields(MixedPrecision)}
    read: dict[str, Any] = {}
    for name, value in noted.items():
        if name not in kinds:
            raise MismatchError("E_SYNTAX", f"there is no '{name}'; there are {', '.join(kinds)}", place=place, hint=_AGAIN)
        if kinds[name] == "bool":
            if not isinstance(value, bool):
                raise MismatchError("E_SYNTAX", f"{value!r} is neither true nor false", place=f"{place}.{name}", hint=_AGAIN)
            read[name] = value
        else:
            read[name] = None if value is None else dtype_of(value, f"{place}.{name}")
    return MixedPrecision(**read)


def dtype_of(word: Any, place: str) -> torch.dtype:
    """The dtype that a file of a plan names, `bfloat16`.

    Raises:
        MismatchError: for what is not a dtype of this PyTorch; the file may be anybody's.
    """
    found = getattr(torch, word, None) if isinstance(word, str) else None
    if not isinstance(found, torch.dtype):
        raise MismatchError("E_DTYPE", f"{word!r} is not a dtype of PyTorch {torch.__version__}", place=place, hint=_AGAIN)
    return found


def _cast(value: Any, dtype: torch.dtype | None) -> Any:
    if dtype is None:
        return value
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        # Outputs of Hugging Face are dicts with attributes: another of the same class is made from the members.
        members = {key: _cast(member, dtype) for key, member in value.items()}
        return members if type(value) is dict else type(value)(**members)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cast(member, dtype) for member in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(member, dtype) for member in value)
    return value
