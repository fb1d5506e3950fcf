"""Finds operators of a captured graph that the planner has no record of, and PyTorch's own decompositions of them.

The planner then reads operators that it knows, and places each of them. Source: `torch._decomp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch._decomp.decompositions
from torch._decomp import decomposition_table

from .command_line import run_command
from .errors import CommandError
from .planner import find_command

#: A call that only raises an error where values are singular.
CHECKS: dict[Any, Callable[..., Any]] = {torch.ops.aten._linalg_check_errors.default: lambda info, api_name, *, is_matrix: None}


def _slopes(
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`rrelu`: the slope of every element is drawn. The CPU's kernel draws only where it is needed, so one seed gives other slopes."""
    if not training:
        return torch.ops.aten.leaky_relu.default(self, (lower + upper) / 2), noise
    drawn = torch.ops.aten.uniform.default(torch.empty_like(self), lower, upper, generator=generator)
    slopes = torch.where(self > 0, torch.ones_like(drawn), drawn)
    return self * slopes, slopes


#: Operators that PyTorch has no decomposition of that holds for all of their modes.
OWN: dict[Any, Callable[..., Any]] = {torch.ops.aten.rrelu_with_noise_functional.default: _slopes}


@contextmanager
def checks_without_effects() -> Iterator[None]:
    """Checks of values count as calls without effects: a token would order them, and a plan has nothing to place for them."""
    holder = torch._library.simple_registry.singleton.find("aten::_linalg_check_errors").effect
    before = holder.effect
    holder.register(None)
    try:
        yield
    finally:
        holder.register(before)


@contextmanager
def layers_of_steps() -> Iterator[None]:
    """Recurrent layers become their steps, with the dropout between the layers that eager PyTorch draws.

    The CPU's one kernel for an LSTM has no rule. PyTorch's decompositions lose the dropout (`_rnn_helper` of 2.8 to 2.13 compares the
    layers with `num_layers < i - 1`): layer by layer they have none to lose.
    """
    rnn: Any = torch._decomp.decompositions
    original = rnn._rnn_helper

    def layer_by_layer(
        input: Any,
        hidden: Sequence[Any],
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        layer_fn: Callable[..., Any],
    ) -> tuple[Any, list[Any]]:
        directions = 2 if bidirectional else 1
        input = input.transpose(0, 1) if batch_first else input
        states: list[Any] = []
        for layer in range(num_layers):
            if layer > 0 and train and dropout != 0:
                input = torch.dropout(input, dropout, train=True)
            own = slice(layer * directions, (layer + 1) * directions)
            input, last = original(input, hidden[own], params[own], has_biases, 1, 0.0, train, bidirectional, False, layer_fn)
            states += last
        return (input.transpose(0, 1) if batch_first else input), states

    # `torch.backends.mkldnn.flags` would set the precision of products too, with a warning.
    kernels = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    rnn._rnn_helper = layer_by_layer
    try:
        yield
    finally:
        rnn._rnn_helper = original
        torch._C._set_mkldnn_enabled(kernels)


def known_operators(command: Sequence[str] | None = None) -> frozenset[str]:
    """Names with overload of the operators that the planner has records of; none where the planner is not installed.

    Args:
        command: how to call the planner; default what `find_command` finds.

    Raises:
        CommandError: where the planner is there and does not answer.
    """
    if command is None:
        try:
            command = find_command()
        except CommandError:
            return frozenset()
    return _known_to(tuple(command))


@cache
def _known_to(command: tuple[str, ...]) -> frozenset[str]:
    return frozenset(run_command(command, ["rules", "--names"], quiet=True).split())


def unknown_operators(graph: Any, command: Sequence[str] | None = None) -> set[str]:
    """Operators of a graph that the planner does not know."""
    known = known_operators(command)
    targets = {str(node.target) for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    return targets - known if known else set()


def decomposable(graph: Any, command: Sequence[str] | None = None) -> dict[Any, Callable[..., Any]]:
    """Decompositions of the operators of a graph that the planner does not know, where PyTorch has one."""
    table = {**decomposition_table, **OWN}
    wanted = dict.fromkeys(node.target for node in graph.graph.nodes if node.target in table)
    known = known_operators(command) if wanted else frozenset()
    return {op: table[op] for op in wanted if known and str(op) not in known}
