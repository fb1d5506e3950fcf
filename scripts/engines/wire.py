"""The wire between the TypeScript tests and PyTorch: one JSON request on stdin, one JSON answer on stdout.

A call is {"target", "args", "kwargs", "tensors"}; in the arguments a tensor is {"x": INDEX}, a floating-point literal
{"f": TEXT}, an integer beyond 2^53 {"int": TEXT}, a dtype {"dtype": NAME}, a device or layout {"word": TEXT}; the rest is
plain JSON. Tensors are listed in the order in which the TypeScript side counts the inputs.
"""

import json
import sys
from typing import Any, Callable

import torch

DTYPES: dict[str, torch.dtype] = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "f8e8m0fnu": torch.float8_e8m0fnu,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u64": torch.uint64,
    "u32": torch.uint32,
    "u16": torch.uint16,
    "u8": torch.uint8,
    "b8": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}

VERSION = torch.__version__.split("+")[0]
# Operators of which PyTorch has a GPU kernel and a decomposition only.
WITHOUT_CPU_KERNEL = {"aten._fused_rms_norm_backward.default"}

# Words of a device or layout argument that a call may carry; results are judged by dtype and shape only.
LAYOUTS = {"torch.strided": torch.strided}
MEMORY_FORMATS = {
    "torch.preserve_format": torch.preserve_format,
    "torch.contiguous_format": torch.contiguous_format,
    "torch.channels_last": torch.channels_last,
}


def operator(target: str) -> Any:
    """The overload of an `aten.name.overload` target; LookupError if this PyTorch has none."""
    namespace, name, overload = target.split(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    found = getattr(packet, overload, None)
    if found is None:
        raise LookupError(f"PyTorch {VERSION} has no {target}")
    return found


def implementation(target: str) -> Any:
    """The operator, or its registered decomposition where it has no CPU kernel."""
    found = operator(target)
    if target in WITHOUT_CPU_KERNEL:
        return torch._decomp.get_decompositions([found])[found]
    return found


def literal(arg: Any, tensors: list[Any]) -> Any:
    """An argument from the wire with the given tensors put in."""
    if isinstance(arg, list):
        return [literal(member, tensors) for member in arg]
    if not isinstance(arg, dict):
        return arg
    ((kind, value),) = arg.items()
    if kind == "x":
        return tensors[value]
    if kind == "f":
        return float(value)
    if kind == "int":
        return int(value)
    if kind == "dtype":
        return DTYPES[value]
    if kind == "word":
        if value in LAYOUTS:
            return LAYOUTS[value]
        if value in MEMORY_FORMATS:
            return MEMORY_FORMATS[value]
        return torch.device("cpu")
    raise ValueError(f"unknown argument on the wire: {arg}")


def invoke(op: Any, call: dict[str, Any], tensors: list[Any]) -> list[Any]:
    """Runs an operator; its results as a flat list, one item for each result (None for an absent one, a tensor for a bool)."""
    args = [literal(arg, tensors) for arg in call["args"]]
    kwargs = {name: literal(arg, tensors) for name, arg in call["kwargs"].items()}
    result = op(*args, **kwargs)
    if isinstance(result, bool):
        return [torch.tensor(result)]
    if not isinstance(result, (tuple, list)):
        return [result]
    # Optimizer steps return several lists: one after the other.
    return [member for item in result for member in (item if isinstance(item, (tuple, list)) else [item])]


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Reads the request, answers it. Torch's own chatter must not reach stdout, which is the answer."""
    out = sys.stdout
    sys.stdout = sys.stderr
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    response = answer(request)
    response["torch"] = VERSION
    json.dump(response, out)
