"""Splits the backward function of a program in two: gradients of inputs, which the stage in front waits for, and those of weights.

Schedules without bubbles run the second part where a device would wait (Zero Bubble, arXiv:2401.10241). What both need is computed in
the first part and handed on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .program_text import Line, written
from .unreduced import cut_of


@dataclass(frozen=True)
class InputsFirst:
    """The two parts."""

    #: Takes here, saved and tangents; gives the gradients of inputs, None for other primals, and the values that the second part reads.
    inputs: Callable[..., tuple[list[Any], list[Any]]]
    #: Takes here and those values; gives the gradients of states that need no reduction, and parts of the others, as `Unreduced`.
    weights: Callable[..., tuple[list[Any], list[Any]]]


def split_inputs(program: ModuleType, states: set[int]) -> InputsFirst:
    """The two parts of a program's backward function; `states` are primals that are no inputs."""
    cut = cut_of(program, states)
    sent = [None if k in states else name for k, name in enumerate(cut.own)]
    own = [name if k in states else None for k, name in enumerate(cut.own)]
    first = _needed(cut.before, {name for name in sent if name is not None})
    then = [line for line in cut.before if line not in first]
    made = {name for line in first for name in line.writes}
    read = {name for line in then for name in line.reads} | {name for name in (*own, *cut.parts) if name is not None}
    carried = sorted(made & read)
    text = "\n".join(
        [
            "def inputs(here, saved, tangents):",
            *written(first, {*map(str, sent), *carried}),
            f"    return [{', '.join(map(str, sent))}], [{', '.join(carried)}]",
            "def weights(here, carried):",
            *([f"    {', '.join(carried)}, = carried", "    carried.clear()"] if carried else []),
            *written(then, {*map(str, own), *cut.parts}),
            f"    return [{', '.join(map(str, own))}], [{', '.join(cut.parts)}]",
        ]
    )
    space = dict(vars(program))
    exec(compile(text, f"{program.__file__} (inputs first)", "exec"), space)
    return InputsFirst(space["inputs"], space["weights"])


def _needed(lines: list[Line], wanted: set[str]) -> list[Line]:
    """The statements that some names need, and those that open what the function is given."""
    names, found = set(wanted), set()
    for k in range(len(lines) - 1, -1, -1):
        line = lines[k]
        opens = not line.reads and line.called is None
        if opens or not names.isdisjoint(line.writes):
            found.add(k)
            names |= line.reads
    return [line for k, line in enumerate(lines) if k in found]
