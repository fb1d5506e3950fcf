"""The functions of `program.py` as statements in single assignment form, of which parts can be written as functions of their own."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

#: Collectives that add up.
_REDUCTIONS = {"all_reduce", "all_reduce_coalesced", "reduce_scatter", "reduce_scatter_coalesced"}
#: Collectives that bring values elsewhere as they are.
_MOVES = {"all_gather", "all_gather_coalesced", "all_to_all", "permute"}
#: Helpers and ATen calls that are linear where every tensor they read is a reduced one.
_LINEAR = {
    *_MOVES,
    *("wait", "reordered", "part"),
    *("_to_copy", "add", "alias", "cat", "clone", "contiguous", "detach", "expand", "flatten", "narrow", "neg", "permute", "reshape"),
    *("select", "slice", "split", "split_with_sizes", "squeeze", "sub", "t", "transpose", "unsqueeze", "view"),
}
#: Linear with a number as their other operand.
_SCALED = {"mul.Scalar", "div.Scalar"}


@dataclass
class Line:
    """A statement in single assignment form."""

    node: ast.stmt
    writes: list[str]
    reads: set[str]

    @property
    def called(self) -> str | None:
        """`reduce_scatter`, `mul.Scalar` or `[]` of an assignment; None of other statements."""
        if not isinstance(self.node, ast.Assign):
            return None
        value = self.node.value
        if isinstance(value, ast.Subscript):
            return "[]" if isinstance(value.value, ast.Name) else "constant"
        return ast.unparse(value.func).removeprefix("aten.") if isinstance(value, ast.Call) else None

    def sums(self) -> bool:
        """Tells whether it is a collective whose result is linear in what it reads."""
        value = getattr(self.node, "value", None)
        words = [a.value for a in getattr(value, "args", []) if isinstance(a, ast.Constant)]
        return self.called in _REDUCTIONS and ("sum" in words or "avg" in words)

    def moves(self) -> bool:
        """Whether it is a collective that brings values elsewhere as they are."""
        return self.called in _MOVES

    def linear(self) -> bool:
        """Tells whether it is linear in all tensors that it reads together."""
        name = self.called
        return name is not None and (name == "[]" or name in _SCALED or (name.partition(".")[0] in _LINEAR and ".Scalar" not in name))


def statements(function: Callable[..., Any]) -> tuple[list[Line], list[str | None]]:
    """The statements of a function, each name written once, and the names that it returns."""
    parsed = ast.parse(inspect.getsource(function)).body[0]
    assert isinstance(parsed, ast.FunctionDef)
    return _single_assignment(parsed)


def _single_assignment(function: ast.FunctionDef) -> tuple[list[Line], list[str | None]]:
    """Statements without `del`, each name written once, and the names that are returned."""
    version: dict[str, str] = {}
    lines: list[Line] = []
    returned: list[str | None] = []
    for statement in function.body:
        if isinstance(statement, ast.Delete):
            continue
        reads: set[str] = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in version:
                node.id = version[node.id]
                reads.add(node.id)
        if isinstance(statement, ast.Return):
            assert isinstance(statement.value, ast.List)
            returned = [value.id if isinstance(value, ast.Name) else None for value in statement.value.elts]
            continue
        writes = []
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                again = f"{node.id}_again" if node.id in version else node.id
                while again in version.values():
                    again += "_"
                version[node.id] = node.id = again
                writes.append(again)
        lines.append(Line(statement, writes, reads))
    return lines, returned


def written(lines: list[Line], kept: Iterable[str]) -> list[str]:
    """Statements, each value dropped after its last use."""
    kept = set(kept)
    last = {name: k for k, line in enumerate(lines) for name in (*line.reads, *line.writes)}
    out = []
    for k, line in enumerate(lines):
        out += [f"    {row}" for row in ast.unparse(line.node).splitlines()]
        dead = sorted(name for name, at in last.items() if at == k and name not in kept)
        if dead:
            out.append(f"    del {', '.join(dead)}")
    return out
