"""Result types and schemas of operators as PyTorch has them.

Request {"calls": [call], "targets": [name]}, with "tensors": [{"dtype", "shape"}] in a call. A call with "run" true is small and
runs for real on ones, because fake tensors also type calls that no kernel takes; the others run on fake tensors. Answer:
  types    for each call the results, `f32[2,3]` or null for what is not a tensor, or {"error": TEXT} where PyTorch refuses it
  schemas  by target: [[name, type, kwarg only, default as text or null when required]], null where PyTorch has no such operator
"""

from contextlib import nullcontext
from typing import Any

import torch
import wire
from torch._subclasses.fake_tensor import FakeTensorMode


def text(result: Any) -> str | None:
    if not isinstance(result, torch.Tensor):  # None, or a plain number such as a length
        return None
    return f"{wire.NAMES[result.dtype]}[{','.join(str(int(n)) for n in result.shape)}]"


def typed(call: dict[str, Any]) -> Any:
    try:
        op = wire.implementation(call["target"])
        with nullcontext() if call["run"] else FakeTensorMode():
            tensors = [torch.ones(t["shape"], dtype=wire.DTYPES[t["dtype"]]) for t in call["tensors"]]
            return [text(result) for result in wire.invoke(op, call, tensors)]
    except Exception as error:  # whatever PyTorch raises is its answer, and the test reports it
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def schema(target: str) -> Any:
    try:
        found = wire.operator(target)._schema
    except LookupError:
        return None
    return [
        [a.name, str(a.type), a.kwarg_only, repr(a.default_value) if a.has_default_value() else None]
        for a in found.arguments
    ]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with torch.no_grad():
        types = [typed(call) for call in request["calls"]]
    return {"types": types, "schemas": {target: schema(target) for target in request["targets"]}}


if __name__ == "__main__":
    wire.serve(answer)
