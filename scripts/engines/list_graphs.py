"""Graphs with operators over lists of tensors, as make_fx of PyTorch 2.13 prints them: test/fixtures/lists.

Run from the repository: python3 scripts/engines/list_graphs.py
"""

import json
from pathlib import Path
from typing import Any, Callable

import torch
from torch.fx.experimental.proxy_tensor import make_fx

FOLDER = Path(__file__).resolve().parents[2] / "test" / "fixtures" / "lists"
SIZES = ((8, 4), (4,))

# The functions below have no annotation of their result: make_fx would print it.


def pair() -> list[torch.Tensor]:
    return [torch.rand(size) for size in SIZES]


def functional(w0: Any, w1: Any, g0: Any, g1: Any, m0: Any, m1: Any):
    means = torch._foreach_lerp([m0, m1], [g0, g1], 0.1)
    updates = torch._foreach_mul(means, -0.5)
    return (*torch._foreach_add([w0, w1], updates, alpha=2), *means)


def in_place(w0: Any, w1: Any, g0: Any, g1: Any):
    torch._foreach_mul_([w0, w1], 0.9)
    torch._foreach_addcmul_([w0, w1], [g0, g1], [g0, g1], 0.5)
    torch._foreach_maximum_([w0, w1], [g0, g1])
    return w0.sum() + w1.sum()


NUMBERS = {"lr": 0.125, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.01, "eps": 1e-8}
FLAGS = {"amsgrad": False, "maximize": False}


def fused(w0: Any, w1: Any, g0: Any, g1: Any, m0: Any, m1: Any, v0: Any, v1: Any, s0: Any, s1: Any):
    torch._fused_adamw_([w0, w1], [g0, g1], [m0, m1], [v0, v1], [], [s0, s1], **NUMBERS, **FLAGS)
    return w0, w1, m0, v0


def fused_functional(w0: Any, w1: Any, g0: Any, g1: Any, m0: Any, m1: Any, v0: Any, v1: Any, s0: Any, s1: Any):
    lists = ([w0, w1], [g0, g1], [m0, m1], [v0, v1], [], [s0, s1])
    new = torch.ops.aten._fused_adam.default(*lists, **NUMBERS, **FLAGS)
    return (*new[0], *new[2], new[3][1])


def write(name: str, function: Callable[..., Any], inputs: list[torch.Tensor]) -> dict[str, Any]:
    """The graph as a file; values of inputs and results as numbers, row-major."""
    module = make_fx(function, tracing_mode="fake")(*inputs)
    lines = [line.rstrip() for line in module.print_readable(False).strip().splitlines()]
    (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n")
    given = [t.flatten().tolist() for t in inputs]
    results = function(*[t.clone() for t in inputs])
    listed = results if isinstance(results, tuple) else (results,)
    return {"inputs": given, "results": [t.flatten().tolist() for t in listed]}


if __name__ == "__main__":
    torch.manual_seed(3)
    step = [torch.tensor(3.0), torch.tensor(5.0)]
    values = {
        "foreach": write("foreach", functional, pair() + pair() + pair()),
        "foreach-in-place": write("foreach-in-place", in_place, pair() + pair()),
        "fused-adamw": write("fused-adamw", fused, pair() + pair() + pair() + pair() + step),
        "fused-adam-functional": write("fused-adam-functional", fused_functional, pair() + pair() + pair() + pair() + step),
    }
    (FOLDER / "values.json").write_text(json.dumps({"torch": torch.__version__.split("+")[0], "graphs": values}) + "\n")
