"""Splits the backward function of a program in two: the first part leaves gradients unreduced, the second part reduces them.

The second part consists of the collectives whose results only gradients need, and of the linear calls after them. These collectives add up,
or they move values, such as the gather of a gradient whose weight is whole. Several backward passes may be added up between the two parts,
because the second part is linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .program_text import Line, statements, written

_HEAD = ("here", "saved", "tangents")


@dataclass(frozen=True)
class Unreduced:
    """The two parts. Parts of gradients are local tensors, which may be added up."""

    #: Takes here, saved and tangents; gives the gradients that need no reduction, None for others, and the parts.
    backward: Callable[..., tuple[list[Any], list[Any]]]
    #: Takes here and the parts; gives the gradients that `backward` left out, None for others.
    reduce: Callable[..., list[Any]]
    #: Positions of the gradients that `reduce` gives among the primals.
    deferred: tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """The statements of a backward function: those before the last reductions of gradients, and the reductions."""

    before: list[Line]
    #: With constants that `before` has too.
    after: list[Line]
    #: Names that `after` reads.
    parts: list[str]
    #: Names of the gradients of the primals that each part returns; None for the others.
    own: list[str | None]
    rest: list[str | None]


def cut_of(program: ModuleType, states: set[int]) -> Cut:
    """Cuts a program's backward function; `states` are primals that may wait for their reduction."""
    lines, returned = statements(program.backward)
    constants = {name for line in lines if line.called == "constant" for name in line.writes}
    outside = {name for k, name in enumerate(returned) if k not in states}
    last = _deferred(lines, {*returned}, outside, constants)
    made = {name for k in last for name in lines[k].writes}
    return Cut(
        before=[line for k, line in enumerate(lines) if k not in last],
        after=[line for k, line in enumerate(lines) if k in last or line.called == "constant"],
        parts=sorted({name for k in last for name in lines[k].reads} - made - constants),
        own=[None if name in made else name for name in returned],
        rest=[name if name in made else None for name in returned],
    )


def split_backward(program: ModuleType, states: set[int]) -> Unreduced | None:
    """The two parts of a program's backward function; None where no gradient of its states, which are primals, is reduced last."""
    cut = cut_of(program, states)
    if not any(cut.rest):
        return None
    held = {name for line in cut.before if line.called == "constant" for name in line.reads}
    own, rest, parts = list(map(str, cut.own)), list(map(str, cut.rest)), cut.parts
    text = "\n".join(
        [
            f"def backward({', '.join(_HEAD)}):",
            *written(cut.before, {*own, *parts, *held}),
            f"    return [{', '.join(own)}], [{', '.join(parts)}]",
            "def reduce(here, parts):",
            f"    {', '.join(parts)}, = parts",
            "    parts.clear()",
            *written(cut.after, rest),
            f"    return [{', '.join(rest)}]",
        ]
    )
    space = dict(vars(program))
    exec(compile(text, f"{program.__file__} (unreduced)", "exec"), space)
    deferred = tuple(k for k, name in enumerate(rest) if name != "None")
    return Unreduced(space["backward"], space["reduce"], deferred)


def _deferred(lines: list[Line], given: set[str | None], outside: set[str | None], constants: set[str]) -> set[int]:
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
            return needed and (line.sums() or line.moves() or (bool(line.reads - constants) and line.reads <= made))

        kept = {k for k in found if stays(k)}
        if kept == found:
            return found
        found = kept
