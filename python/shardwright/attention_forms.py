"""Records `flex_attention`, which only accelerators have a kernel for, as one call with bodies.

Source: `torch/_higher_order_ops/flex_attention.py` of PyTorch 2.13.
"""

from __future__ import annotations

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
