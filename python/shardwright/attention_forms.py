"""Attention that only accelerators have a kernel for: `flex_attention` as one call with bodies, and rows of several lengths as the calls
that they mean.

Source: `torch/_higher_order_ops/flex_attention.py` of PyTorch 2.13; FlashAttention (Dao et al., 2022, appendix B) for the gradients of rows
of several lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

#: Names the share of pairs that a block mask keeps among the options of a captured call; the planner reads it.
KEPT = "SHARDWRIGHT_KEPT"
#: The numbers that a function of the user gets: score, batch, head, row and column; a mask function gets no score.
_NUMBERS = 5


class _Reading(TorchFunctionMode):
    """Finds the tensors that a function reads besides its arguments, or puts others in their place."""

    def __init__(self, own: Sequence[torch.Tensor], instead: Mapping[int, torch.Tensor] | None = None) -> None:
        super().__init__()
        self.made: dict[int, torch.Tensor] = {id(x): x for x in own}
        self.found: dict[int, torch.Tensor] = {}
        self.instead = instead

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.instead is not None:
            instead = self.instead

            def put(x: Any) -> Any:
                return instead.get(id(x), x) if isinstance(x, torch.Tensor) else x

            return func(*pytree.tree_map(put, args), **pytree.tree_map(put, kwargs))
        result = func(*args, **kwargs)
        results = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
        # A shape or a dtype is no value.
        if results or getattr(func, "__name__", "") != "__get__":
            for x in pytree.tree_leaves((args, kwargs)):
                if isinstance(x, torch.Tensor) and id(x) not in self.made:
                    self.found[id(x)] = x
        self.made.update({id(x): x for x in results})
        return result


def _lifted(function: Callable[..., Any], query: torch.Tensor, numbers: int) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """A function of the user that takes the tensors that it reads as arguments behind its numbers, and these tensors."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    examples = [query.new_zeros((), dtype=torch.int) for _ in range(4)]
    if numbers == _NUMBERS:
        examples.insert(0, query.new_zeros(()))
    reading = _Reading(examples)
    with TransformGetItemToIndex(), reading:
        function(*examples)
    read = tuple(reading.found.values())

    def lifted(*args: Any) -> Any:
        with _Reading((), {id(x): given for x, given in zip(read, args[numbers:], strict=True)}):
            return function(*args[:numbers])

    return lifted, read


def _is_made(x: Any) -> bool:
    """Tells whether a tensor of a block mask was made before the program: it has values, or will have them, outside of it."""
    return type(x) is torch.Tensor and not torch._is_functional_tensor(x)


def _kept(block_mask: Sequence[Any]) -> float | None:
    """The share of blocks that a mask keeps; None where its tensors have no values yet."""
    partly, indices, whole = block_mask[2], block_mask[3], block_mask[4]
    if not _is_made(partly) or partly.device.type == "meta":
        return None
    with _disable_current_modes():
        counted = int(partly.sum()) + (0 if whole is None else int(whole.sum()))
    return counted / (partly.numel() * indices.shape[-1])


@contextmanager
def writing_flex_attention() -> Iterator[None]:
    """`flex_attention` is recorded as one call inside, with its functions as bodies and with gradients.

    PyTorch compiles the call, and refuses gradients of it on a CPU. The function is known to models by its name, so that what it calls is
    replaced. Tensors that the functions of the user read become arguments of the call, as Dynamo makes them. Blocks of a mask that was
    made before are not recorded: they follow from its function.
    """
    try:
        from torch._higher_order_ops.flex_attention import flex_attention as operator
        from torch.nn.attention import flex_attention as module
    except ImportError:
        yield
        return

    def written(query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, scale: Any, options: Any, *_: Any, **__: Any) -> Any:
        score, read = _lifted(score_mod, query, _NUMBERS)
        mask, asked = _lifted(block_mask[-1], query, _NUMBERS - 1)
        kept = _kept(block_mask)
        named = dict(options) if kept is None else {**options, KEPT: kept}
        # A number takes the place of a tensor: PyTorch believes that None has no gradients.
        blocks = [0 if _is_made(x) else x for x in block_mask[:-1]]
        return operator(query, key, value, score, (*blocks, mask), scale, named, read, asked)

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
    """Returns for each row the number of its sequence, its place in the sequence, and the length of the sequence."""
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
