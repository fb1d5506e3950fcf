"""Gradients of operator calls on given values, as PyTorch's autograd computes them in float64.

Request {"calls": [call]}: a call as in wire.py with "tensors": [{"dtype", "shape", "data"}] (little-endian float64 values in base64
whatever the dtype), "wanted": positions of the tensors to differentiate, "results": positions of the results where gradients start, and
"tangents": a tensor for each of them. Answer: for each call {"refused": TEXT} where PyTorch does not run or differentiate it, else
{"gradients": [{"dtype", "shape", "data"} or null]}, null where a result does not depend on the tensor.
"""

import base64
from typing import Any

import numpy
import torch
import wire


def tensor(spec: dict[str, Any]) -> torch.Tensor:
    values = numpy.frombuffer(base64.b64decode(spec["data"]), dtype="<f8").reshape(spec["shape"])
    return torch.from_numpy(values.copy()).to(wire.DTYPES[spec["dtype"]])


def text(gradient: torch.Tensor | None) -> dict[str, Any] | None:
    if gradient is None:
        return None
    data = gradient.detach().to(torch.float64).contiguous().numpy().astype("<f8").tobytes()
    return {"dtype": wire.NAMES[gradient.dtype], "shape": list(gradient.shape), "data": base64.b64encode(data).decode()}


def run(call: dict[str, Any]) -> dict[str, Any]:
    leaves = [tensor(spec) for spec in call["tensors"]]
    for position in call["wanted"]:
        leaves[position].requires_grad_()
    # In-place operators change a copy: a leaf that requires a gradient may not change.
    inputs = [leaf.clone() for leaf in leaves]
    try:
        results = wire.invoke(wire.operator(call["target"]), call, inputs)
        pairs = [(results[i], tensor(spec)) for i, spec in zip(call["results"], call["tangents"], strict=True)]
        pairs = [(result, tangent) for result, tangent in pairs if result.requires_grad]
        wanted = [leaves[position] for position in call["wanted"]]
        if not pairs:
            return {"gradients": [None for _ in wanted]}
        gradients = torch.autograd.grad([r for r, _ in pairs], wanted, [t for _, t in pairs], allow_unused=True)
        return {"gradients": [text(g) for g in gradients]}
    except Exception as error:  # whatever PyTorch raises is its answer, and the test reports it
        return {"refused": str(error).splitlines()[0][:120] if str(error) else type(error).__name__}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    return {"calls": [run(call) for call in request["calls"]]}


if __name__ == "__main__":
    wire.serve(answer)
