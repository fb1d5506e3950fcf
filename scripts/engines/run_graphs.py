"""Runs traced graphs, as PyTorch printed them, in float64.

Request {"graphs": [{"text", "inputs": [{"dtype", "shape"}]}]}; the inputs are drawn by `drawn` in their order. Answer: for each graph
and output null or three numbers that a wrong value would change: the sum, the sum of squares, and the sum weighted by the cosine of
the position.
"""

import re
from typing import Any

import torch
import wire


def drawn(spec: dict[str, Any], index: int) -> torch.Tensor:
    """Values by position: waves for floats (vectors are positive), small remainders for integers."""
    shape = spec["shape"]
    dtype = wire.DTYPES[spec["dtype"]]
    count = 1
    for size in shape:
        count *= size
    i = torch.arange(count, dtype=torch.float64)
    if not dtype.is_floating_point:
        return ((7 * i + 3 * index) % 10).to(dtype).reshape(shape)
    wave = torch.sin(0.7 * i + 1.3 * index + 0.3)
    value = wave / shape[-1] ** 0.5 if len(shape) >= 2 else 0.4 * wave + 0.6
    return value.reshape(shape)


def cond(predicate: Any, true: Any, false: Any, operands: Any) -> Any:
    return (true if predicate else false)(*operands)


def while_loop(condition: Any, body: Any, carried: Any, captured: Any = ()) -> Any:
    carried = tuple(carried)
    while condition(*carried, *captured):
        carried = tuple(body(*carried, *captured))
    return carried


def scan(body: Any, init: Any, xs: Any, captured: Any = ()) -> Any:
    carried, rows = list(init), []
    for row in zip(*xs, strict=True):
        results = list(body(*carried, *row, *captured))
        carried = results[: len(carried)]
        rows.append(results[len(carried) :])
    return [*carried, *(torch.stack(list(column)) for column in zip(*rows, strict=True))]


def mapped(body: Any, xs: Any, captured: Any = ()) -> Any:
    return scan(body, [], xs, captured)


HIGHER_ORDER = {"cond": cond, "while_loop": while_loop, "scan": scan, "map_impl": mapped}


BODIES = r"(?:true|false|body|scan_combine|while_loop_cond|while_loop_body)_graph_\d+"


def module(text: str) -> Any:
    """The printed class as an object with float64 for every float; bodies of control flow are made where they are named."""
    text = re.sub(r"torch\.(float32|bfloat16|float16)\b", "torch.float64", text)
    text = re.sub(r"torch\.ops\.higher_order\.(\w+)\(", r"higher_order['\1'](", text)
    text = re.sub(r"= fx_pytree\.tree_flatten_spec\(.*", "= *primals, *tangents", text)
    text = re.sub(r"return pytree\.tree_unflatten\((\[.*\]), self\._out_spec\)", r"return \1", text)
    text = re.sub(rf"self\.({BODIES})\b", r"self.\1()", text)
    scope: dict[str, Any] = {
        "torch": torch,
        "device": torch.device,
        "inf": float("inf"),
        "nan": float("nan"),
        "higher_order": HIGHER_ORDER,
    }
    exec(text, scope)
    name = re.search(r"class (\w+)\(", text)
    if name is None:
        raise ValueError("no class in the text")
    return scope[name[1]]()


def numbers(result: Any) -> list[float] | None:
    if not isinstance(result, torch.Tensor):
        return None
    x = result.detach().to(torch.float64).flatten()
    weights = torch.cos(torch.arange(x.numel(), dtype=torch.float64))
    return [x.sum().item(), (x * x).sum().item(), (x * weights).sum().item()]


def run(graph: dict[str, Any]) -> list[list[float] | None]:
    inputs = [drawn(spec, i) for i, spec in enumerate(graph["inputs"])]
    made = module(graph["text"])
    joint = "def forward(self, primals, tangents)" in graph["text"]
    results = made.forward(inputs, []) if joint else made.forward(*inputs)
    return [numbers(r) for r in results]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with torch.no_grad():
        return {"graphs": [run(graph) for graph in request["graphs"]]}


if __name__ == "__main__":
    wire.serve(answer)
