"""How plans and comparisons look in a terminal and in a notebook: figures as text, a table, the curve of memory over a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

_NUMBERED = "*"


def seconds_text(seconds: float) -> str:
    """`35.2 ms`: three digits, in the unit that suits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds / 1e-9)} ns"


def bytes_text(count: float) -> str:
    """`7.45 GiB`: three digits, in the binary unit that suits."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{_digits(count / size)} {unit}"
    return f"{count:.0f} B"


def _digits(value: float) -> str:
    whole = len(f"{int(value)}") if value >= 1 else 0
    return f"{value:.{max(0, 3 - whole)}f}"


def table_html(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table. Columns of numbers stand at the right."""

    def row(cells: Sequence[str], tag: str) -> str:
        styled = (f'<{tag} style="text-align:{"right" if i in numbers else "left"}">{escape(cell)}</{tag}>' for i, cell in enumerate(cells))
        return f"<tr>{''.join(styled)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<table><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table>"


def memory_svg(curve: Sequence[tuple[int, float]], peak_text: str) -> str:
    """The bytes of a device over the calls of a step, as a line with its peak. The curve has the most of each stretch of calls."""
    if not curve:
        return ""
    width, height, left, top = 520, 140, 70, 14
    last, most = max(call for call, _ in curve) or 1, max(size for _, size in curve) or 1
    points = [(left + call / last * width, top + height - size / most * height) for call, size in curve]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    at_x, at_y = min(points, key=lambda point: point[1])
    area = f"{left:.1f},{top + height} {line} {points[-1][0]:.1f},{top + height}"
    return (
        f'<svg viewBox="0 0 {left + width + 10} {top + height + 30}" style="max-width:600px" role="img" '
        f'aria-label="memory of a device over a step, peak {escape(peak_text)}" font-family="sans-serif" font-size="11">'
        f'<polygon points="{area}" fill="#4c78a8" fill-opacity="0.25"/>'
        f'<polyline points="{line}" fill="none" stroke="#4c78a8" stroke-width="1.5"/>'
        f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="3" fill="#4c78a8"/>'
        f'<text x="{left - 6}" y="{top + 4}" text-anchor="end" fill="currentColor">{escape(peak_text)}</text>'
        f'<text x="{left - 6}" y="{top + height}" text-anchor="end" fill="currentColor">0</text>'
        f'<text x="{left + width / 2}" y="{top + height + 18}" text-anchor="middle" fill="currentColor">'
        f"calls of the exported step: forward, then backward</text></svg>"
    )


def folded(parameters: Iterable[tuple[str, Sequence[int], str]]) -> list[tuple[str, int, Sequence[int], str]]:
    """Parameters of numbered layers that have one shape and placement as one line, with their count, in the order of the first."""
    lines: dict[tuple[str, tuple[int, ...], str], int] = {}
    for name, shape, placement in parameters:
        key = (".".join(_NUMBERED if part.isdigit() else part for part in name.split(".")), tuple(shape), placement)
        lines[key] = lines.get(key, 0) + 1
    return [(name, count, shape, placement) for (name, shape, placement), count in lines.items()]


def in_words(placement: str, mesh: Sequence[str]) -> str:
    """A placement in words: `S(0)R` on dp, tp is `dim 0 cut over dp`; of a notation that is not a list of kinds, the notation itself."""
    kinds = _kinds(placement)
    if len(kinds) != len(mesh):
        return placement
    cuts: list[tuple[str, str]] = [
        (f"dim {kind[2:-1]} cut over", dim) if kind.startswith("S(") else ("a pending sum over", dim)
        for kind, dim in zip(kinds, mesh, strict=True)
        if kind != "R"
    ]
    if not cuts:
        return "whole on every device"
    return ", ".join(f"{what} {' and '.join(dim for _, dim in dims)}" for what, dims in groupby(cuts, key=lambda cut: cut[0]))


def _kinds(placement: str) -> list[str]:
    """The kinds of a placement that is nothing but `R`, `S(d)` and `P(op)`, else nothing."""
    kinds: list[str] = []
    rest = placement
    while rest:
        end = 1 if rest[0] == "R" else rest.find(")") + 1
        kind = rest[:end]
        if not (kind == "R" or (kind[:2] in ("S(", "P(") and end > 0)) or (kind[0] == "S" and not kind[2:-1].isdigit()):
            return []
        kinds.append(kind)
        rest = rest[end:]
    return kinds
