"""The norm of the gradients of all stages, by which a rank scales those of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor


def clip_over_stages(
    parameters: Sequence[nn.Parameter], counted: Sequence[nn.Parameter], group: Any, device: str, max_norm: float, norm_type: float
) -> torch.Tensor:
    """Scales the gradients of a rank's parameters so that the norm over all stages is at most `max_norm`; returns that norm before.

    Args:
        parameters: of this rank.
        counted: those of them that no earlier stage counts.
        group: of the ranks in a row of stages.
        device: where messages of the group lie.
        max_norm: as of `torch.nn.utils.clip_grad_norm_`.
        norm_type: as there.
    """
    gradients = [p.grad for p in counted if p.grad is not None]
    own: Any = torch.nn.utils.get_total_norm(gradients, norm_type) if gradients else torch.zeros(())
    value = (own.full_tensor() if isinstance(own, DTensor) else own).to(device, torch.float64)
    if math.isinf(norm_type):
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=group)
    else:
        value = value**norm_type
        dist.all_reduce(value, group=group)
        value = value ** (1 / norm_type)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, value)
    return value
