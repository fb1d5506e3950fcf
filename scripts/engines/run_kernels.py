"""Results of operator calls on given values, as PyTorch computes them in float64.

Request {"calls": [call]}, a call as in wire.py with "tensors": [{"dtype", "shape", "data"}], "data" being little-endian float64
values in base64 whatever the dtype, of complex numbers the real parts first. Answer: for each call {"refused": TEXT} where PyTorch does not run it, else
{"results": [{"dtype", "shape", "data"} or null]}.
"""

import base64
from typing import Any

import numpy
import torch
import wire


def tensor(spec: dict[str, Any]) -> torch.Tensor:
    values = numpy.frombuffer(base64.b64decode(spec["data"]), dtype="<f8")
    if spec["dtype"] in ("c64", "c128"):
        values = values[: len(values) // 2] + 1j * values[len(values) // 2 :]
    values = values.reshape(spec["shape"])
    return torch.from_numpy(values.copy()).to(wire.DTYPES[spec["dtype"]])


def text(result: Any) -> dict[str, Any] | None:
    if not isinstance(result, torch.Tensor):
        return None
    parts = (result.real, result.imag) if result.is_complex() else (result,)
    data = b"".join(p.detach().to(torch.float64).contiguous().numpy().astype("<f8").tobytes() for p in parts)
    return {
        "dtype": wire.NAMES[result.dtype],
        "shape": list(result.shape),
        "data": base64.b64encode(data).decode(),
    }


def run(call: dict[str, Any]) -> dict[str, Any]:
    try:
        op = wire.implementation(call["target"])
        return {"results": [text(r) for r in wire.invoke(op, call, [tensor(t) for t in call["tensors"]])]}
    except Exception as error:  # whatever PyTorch raises is its answer, and the test reports it
        return {"refused": str(error).splitlines()[0][:120] if str(error) else type(error).__name__}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with torch.no_grad():
        return {"calls": [run(call) for call in request["calls"]]}


if __name__ == "__main__":
    wire.serve(answer)
