"""Compares the rounding of a step in less than float64, by a plan and in one process: the distance of both from the same weights in
float64. A plan rounds elsewhere than one process does (parts of sums are rounded before they are added up), so the two are not
equal; the rounding of the dtype is the measure.
"""

from __future__ import annotations

import copy
from typing import Any

import torch


def distance(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Norm of the difference over the norm of the truth; NaN counts as infinite."""
    error = ((found.double() - truth).norm() / truth.norm()).item()
    return error if error == error else float("inf")


def rounded(it: Any, module: Any, loss: torch.Tensor, reference: Any, expected: torch.Tensor) -> dict[str, Any]:
    """Errors of the plan and of one process, and the largest ratio of the two over all gradients."""
    exact = copy.deepcopy(it)
    exact.model = copy.deepcopy(reference).double()
    exact.model.zero_grad()
    truth = exact.reference(exact.model)
    truth.backward()
    triples = zip(module.named_parameters(), reference.parameters(), exact.model.parameters(), strict=True)
    pairs = {
        key: (distance(own.grad.full_tensor(), wide.grad), distance(one.grad, wide.grad)) for (key, own), one, wide in triples
    }
    worst = max(pairs, key=lambda key: pairs[key][0] / pairs[key][1])
    return {
        "dtype": str(loss.dtype).removeprefix("torch."),
        "loss": distance(loss, truth.detach()),
        "lossOfOne": distance(expected, truth.detach()),
        "gradients": len(pairs),
        "gradient": max(plan for plan, _ in pairs.values()),
        "gradientOfOne": max(one for _, one in pairs.values()),
        "worst": worst,
        "ratio": pairs[worst][0] / pairs[worst][1],
    }
