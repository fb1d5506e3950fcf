"""Splits the backward function of a program in two: what leaves gradients unreduced, and what reduces them.

What reduces them are the collectives of sums whose results only gradients need, and the linear calls after those. Sums of several
backward passes may stand between the two parts, because both are linear.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_REDUCTIONS = {"all_reduce", "all_reduce_coalesced", "reduce_scatter", "reduce_scatter_coalesced"}
#: Helpers and ATen calls that are linear where every tensor they read is a reduced one.
_LINEAR = {
    *("wait", "all_gather", "all_gather_coalesced", "all_to_all", "permute", "reordered", "part"),
    *("_to_copy", "add", "alias", "cat", "clone", "contiguous", "detach", "expand", "flatten", "narrow", "neg", "permute", "reshape"),
    *("select", "slice", "split", "split_with_sizes", "squeeze", "sub", "t", "transpose", "unsqueeze", "view"),
}
#: Linear with a number as their other operand.
_SCALED = {"mul.Scalar", "div.Scalar"}
_HEAD = ("here", "saved", "tangents")


@dataclass(frozen=True)
class Unreduced:
    """The two parts. Parts of gradients are local tensors, which may be added up."""

    #: Of here, saved and tangents: the gradients that need no reduction, None for others; and the parts.
    backward: Callable[..., tuple[list[Any], list[Any]]]
    #: Of here and parts: the gradients that `backward` left out, None for others.
    reduce: Callable[..., list[Any]]
    #: Positions of those among the primals.
    deferred: tuple[int, ...]


@dataclass
class _Line:
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
        """Whether it is a collective whose result is linear in what it reads."""
        value = getattr(self.node, "value", None)
        words = [a.value for a in getattr(value, "args", []) if isinstance(a, ast.Constant)]
        return self.called in _REDUCTIONS and ("sum" in words or "avg" in words)

    def linear(self) -> bool:
        """Whether it is linear in all tensors that it reads together."""
        name = self.called
        return name is not None and (name == "[]" or name in _SCALED or (name.partition(".")[0] in _LINEAR and ".Scalar" not in name))


def split_backward(program: ModuleType, states: set[int]) -> Unreduced | None:
    """The two parts of a program's backward function; None where no gradient of its states, which are primals, is reduced last."""
    function = ast.parse(inspect.getsource(program.backward)).body[0]
    assert isinstance(function, ast.FunctionDef)
    lines, returned = _single_assignment(function)
    constants = {name for line in lines if line.called == "constant" for name in line.writes}
    outside = {name for k, name in enumerate(returned) if k not in states}
    last = _deferred(lines, {*returned}, outside, constants)
    if not last:
        return None
    made = {name for k in last for name in lines[k].writes}
    parts = sorted({name for k in last for name in lines[k].reads} - made - constants)
    held = {name for line in lines if line.called == "constant" for name in line.reads}
    before = [line for k, line in enumerate(lines) if k not in last]
    after = [line for k, line in enumerate(lines) if k in last or line.called == "constant"]
    own = ["None" if name is None or name in made else name for name in returned]
    rest = [name if name in made else "None" for name in map(str, returned)]
    text = "\n".join(
        [
            f"def backward({', '.join(_HEAD)}):",
            *_body(before, {*own, *parts, *held}),
            f"    return [{', '.join(own)}], [{', '.join(parts)}]",
            "def reduce(here, parts):",
            f"    {', '.join(parts)}, = parts",
            "    parts.clear()",
            *_body(after, set(rest)),
            f"    return [{', '.join(rest)}]",
        ]
    )
    space = dict(vars(program))
    exec(compile(text, f"{program.__file__} (unreduced)", "exec"), space)
    deferred = tuple(k for k, name in enumerate(rest) if name != "None")
    return Unreduced(space["backward"], space["reduce"], deferred)


def _single_assignment(function: ast.FunctionDef) -> tuple[list[_Line], list[str | None]]:
    """Statements without `del`, each name written once, and the names that are returned."""
    version: dict[str, str] = {}
    lines: list[_Line] = []
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
        lines.append(_Line(statement, writes, reads))
    return lines, returned


def _deferred(lines: list[_Line], given: set[str | None], outside: set[str | None], constants: set[str]) -> set[int]:
    """The statements that reduce gradients: nothing but gradients needs them, and they need nothing but one another's results."""
    readers: dict[str, set[int]] = {}
    for k, line in enumerate(lines):
        for name in line.reads:
            readers.setdefault(name, set()).add(k)
    found = {k for k, line in enumerate(lines) if line.writes and (line.sums() or line.linear())}
    while True:
        made = {name for k in found for name in lines[k].writes} | constants

        def stays(k: int, made: set[str] = made) -> bool:
            line = lines[k]
            needed = all((readers.get(name) or name in given) and readers.get(name, set()) <= found for name in line.writes)
            needed = needed and outside.isdisjoint(line.writes)
            return needed and (line.sums() or (bool(line.reads - constants) and line.reads <= made))

        kept = {k for k in found if stays(k)}
        if kept == found:
            return found
        found = kept


def _body(lines: list[_Line], kept: set[str]) -> list[str]:
    """Statements, each value dropped after its last use."""
    last = {name: k for k, line in enumerate(lines) for name in (*line.reads, *line.writes)}
    out = []
    for k, line in enumerate(lines):
        out += [f"    {row}" for row in ast.unparse(line.node).splitlines()]
        dead = sorted(name for name, at in last.items() if at == k and name not in kept)
        if dead:
            out.append(f"    del {', '.join(dead)}")
    return out
