"""Attention that only accelerators have a kernel for, as the calls it means: `flex_attention`, and rows of several lengths.

A plan then cuts it on batch and heads, with its score function and its mask. It is priced as what is written: the scores of all pairs,
also those that a block mask leaves out.

Source: `math_attention` of PyTorch 2.13 for `flex_attention`; FlashAttention (Dao et al., 2022, appendix B) for the gradients of the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

#: What `flex_attention` is called among the decomposed operators of a capture.
FLEX = "flex_attention"


@contextmanager
def writing_flex_attention(found: list[str]) -> Iterator[None]:
    """`flex_attention` runs as plain calls inside, with gradients, and is added to `found`.

    PyTorch compiles the call, and refuses gradients of it on a CPU. The function is known to models by its name, so that what it calls is
    replaced.
    """
    try:
        from torch._higher_order_ops.flex_attention import math_attention
        from torch.nn.attention import flex_attention as module
    except ImportError:
        yield
        return

    def written(*args: Any, **kwargs: Any) -> Any:
        if FLEX not in found:
            found.append(FLEX)
        return math_attention(*args, **kwargs)

    stands: dict[str, Any] = {
        "flex_attention_hop": written,
        "_validate_device": lambda *_: None,
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,
    }
    with ExitStack() as stack:
        for name, value in stands.items():
            if hasattr(module, name):
                stack.enter_context(patch.object(module, name, value))
        yield


def _places(rows: int, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each row: the number of its sequence, its place in it, and the length of that."""
    row = torch.arange(rows, device=starts.device)
    number = (row.unsqueeze(1) >= starts[1:].unsqueeze(0)).sum(1)
    ends = torch.cat([starts[1:], starts[-1:]])
    # Rows behind the last sequence belong to none.
    first, last = starts[number], ends[number]
    return number, row - first, last - first


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    starts: tuple[torch.Tensor, torch.Tensor],
    is_causal: bool,
    scale: float | None,
    window: Any,
) -> tuple[torch.Tensor, float]:
    """Scores of all pairs of each head, minus infinity where a row does not read another."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.einsum("qhd,khd->hqk", query.float(), key.float()) * factor
    (own, place, length), (other, at, count) = _places(query.shape[0], starts[0]), _places(key.shape[0], starts[1])
    reads = own.unsqueeze(1) == other.unsqueeze(0)
    # Both sequences end together.
    ahead = at.unsqueeze(0) - place.unsqueeze(1) - (count.unsqueeze(0) - length.unsqueeze(1))
    left, right = (-1, -1) if window is None else window
    if is_causal:
        right = 0 if right < 0 else min(right, 0)
    if left >= 0:
        reads = reads & (ahead >= -left)
    if right >= 0:
        reads = reads & (ahead <= right)
    return torch.where(reads, scores, -math.inf), factor


def _per_head(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: Any = None,
    enable_gqa: bool = False,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if seqused_k is not None or block_table is not None:
        raise NotImplementedError("varlen_attn with seqused_k or block_table, which serving alone has")
    heads = query.shape[1]
    starts = (cu_seq_q, cu_seq_q if cu_seq_k is None else cu_seq_k)
    scores, _ = _scores(query, _per_head(key, heads), starts, is_causal, scale, window_size)
    lse = scores.logsumexp(-1)
    # A row that reads nothing has zeros.
    shares = torch.exp(scores - torch.where(lse == -math.inf, 0.0, lse).unsqueeze(-1))
    out = torch.einsum("hqk,khd->qhd", shares, _per_head(value, heads).float())
    return out.to(query.dtype), lse, torch.zeros(2, dtype=torch.uint64, device=query.device)


def _varlen_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool,
    rng_state: torch.Tensor,
    scale: float | None = None,
    window_size: Any = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    heads, groups = query.shape[1], key.shape[1]
    keys, values = _per_head(key, heads), _per_head(value, heads).float()
    scores, factor = _scores(query, keys, (cu_seq_q, cu_seq_k), is_causal, scale, window_size)
    shares = torch.exp(scores - torch.where(lse == -math.inf, 0.0, lse).unsqueeze(-1))
    gradient = grad_out.float()
    of_shares = torch.einsum("qhd,khd->hqk", gradient, values)
    rows = (gradient * out.float()).sum(-1).t().unsqueeze(-1)
    of_scores = shares * (of_shares - rows) * factor

    def summed(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], groups, heads // groups, x.shape[-1]).sum(2).to(like.dtype)

    of_query = torch.einsum("hqk,khd->qhd", of_scores, keys.float()).to(query.dtype)
    of_key = summed(torch.einsum("hqk,qhd->khd", of_scores, query.float()), key)
    of_value = summed(torch.einsum("hqk,qhd->khd", shares, gradient), value)
    return of_query, of_key, of_value


def varlen_forms() -> dict[Any, Callable[..., Any]]:
    """The operators of `torch.nn.attention.varlen` with what they mean; none where PyTorch has them not."""
    try:
        import torch.nn.attention.varlen
    except ImportError:
        return {}
    ops: Any = torch.ops.torch_attn
    return {ops._varlen_attn.default: _varlen, ops._varlen_attn_backward.default: _varlen_backward}
