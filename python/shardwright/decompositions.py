"""Finds operators of a captured graph that the planner has no record of, and PyTorch's own decompositions of them.

The planner then reads operators that it knows, and places each of them. Source: `torch._decomp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table

from .command import run_command
from .errors import CommandError
from .planner import find_command

#: A call that only raises an error where values are singular.
CHECKS: dict[Any, Callable[..., Any]] = {torch.ops.aten._linalg_check_errors.default: lambda info, api_name, *, is_matrix: None}


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
    wanted = dict.fromkeys(node.target for node in graph.graph.nodes if node.target in decomposition_table)
    known = known_operators(command) if wanted else frozenset()
    return {op: decomposition_table[op] for op in wanted if known and str(op) not in known}
