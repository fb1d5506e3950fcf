"""Compares the layouts of a model on a cluster, as `shardwright compare` does: rows with figures, for scripts and notebooks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .command_line import run_command, words_of
from .planner import find_command
from .reporting import Report, write_report
from .showing import bytes_text, seconds_text, table_html

#: Rows that a notebook shows.
_SHOWN = 12


@dataclass(frozen=True)
class Row:
    """One layout of a comparison. Seconds and bytes are those of one training step, of one device."""

    name: str
    #: Mesh dims, outermost first: `dp=4,tp=2`.
    mesh: str
    step_seconds: float
    #: The range of eight of ten comparable measured runs; None where there are too few.
    step_band: tuple[float, float] | None
    peak_bytes: int
    #: The peak is within the budget.
    fits: bool
    #: How often measured peaks are within the budget where the model says this peak; None where there are too few.
    fit_probability: float | None


@dataclass(frozen=True, repr=False)
class Comparison:
    """The answer of `compare`. `rows` are in the order of their time, those that do not fit last; `answer` is all that the command says."""

    rows: Sequence[Row]
    best: Row | None
    answer: Mapping[str, Any]

    def report(
        self, path: str | os.PathLike[str] | None = None, *, format: str | None = None, command: Sequence[str] | None = None
    ) -> Report:
        """The report of `shardwright report`; a notebook shows it.

        Args:
            path: the file to write; default: none.
            format: html, md, text, json or csv; default: by the ending of the file, else html.
            command: how to call Shardwright; default as `compare` calls it.

        Raises:
            CommandError: what the command refused.
        """
        return write_report(json.dumps(self.answer), path, format, command)

    def __repr__(self) -> str:
        """Three lines: the question, the best layout, the next one."""
        question = self.answer.get("question", {})
        devices = f"{self.answer['devices']} devices of {self.answer['cluster']}"
        head = f"Comparison of {len(self.rows)} layouts of {question.get('model', 'a graph')} on {devices}"
        if self.best is None:
            return f"{head}\n  none fits"
        others = [row for row in self.rows if row.fits and row is not self.best][:1]
        then = "".join(f"\n  then  {_line(row)}" for row in others)
        return f"{head}\n  best  {_line(self.best)}{then}"

    def _repr_html_(self) -> str:
        head = ("", "plan", "mesh", "step", "eight of ten runs", "memory", "fits")
        rows = [
            (
                "best" if row is self.best else "",
                row.name,
                row.mesh,
                seconds_text(row.step_seconds),
                "" if row.step_band is None else " to ".join(map(seconds_text, row.step_band)),
                bytes_text(row.peak_bytes),
                _fit(row),
            )
            for row in self.rows[:_SHOWN]
        ]
        left = len(self.rows) - len(rows)
        more = f"<p>{left} more in <code>rows</code>.</p>" if left > 0 else ""
        advice = "no layout fits" if self.best is None else f"Run {self.best.name} on {self.best.mesh}"
        return f"<p><b>{escape(advice)}</b></p>{table_html(head, rows, (3, 5))}{more}"


def _line(row: Row) -> str:
    return f"{row.name} on {row.mesh}: {seconds_text(row.step_seconds)} a step, {bytes_text(row.peak_bytes)} a device, {_fit(row)}"


def _fit(row: Row) -> str:
    if not row.fits:
        return "does not fit"
    return "fits" if row.fit_probability is None else f"fits, {100 * row.fit_probability:.0f} %"


def compare(
    model: Any,
    *,
    devices: int | str,
    cluster: str | None = None,
    command: Sequence[str] | None = None,
    quiet: bool = False,
    **flags: Any,
) -> Comparison:
    """Prices the layouts of a model on the meshes of some devices, and says which is best.

    Args:
        model: the name of a model, a file that the command reads, or what `capture` gave.
        devices: how many, or with their kind: `"16xH100"`.
        cluster: name of a node design (`dgx-h100`) or an accelerator, or a JSON file; not needed where `devices` says the kind.
        command: how to call Shardwright; default what `find_command` finds.
        quiet: no progress on stderr.
        flags: options of `shardwright compare`: `seq=8192`, `global_batch=512`, `plans="fsdp,fsdp+tp"`, `layout="tp=8,dp=2"`.

    Raises:
        CommandError: what the command refused, with its code, place and hint.
    """
    argv = ["compare", str(getattr(model, "path", model)), "--devices", str(devices), "--json"]
    if cluster is not None:
        argv += ["--cluster", str(cluster)]
    argv += words_of(flags)
    call = list(command) if command is not None else find_command()
    # Where nothing fits, the command says so with a code of its own, and its answer all the same.
    answer = json.loads(run_command(call, argv, quiet, allowed=(0, 3, 4)))
    rows = sorted((_row(entry) for entry in answer["plans"]), key=lambda row: (not row.fits, row.step_seconds))
    best = next((row for row in rows if row.name == answer["best"]), None)
    return Comparison(tuple(rows), best, answer)


def _row(entry: Mapping[str, Any]) -> Row:
    band = entry.get("stepBand")
    return Row(
        name=entry["name"],
        mesh=entry["mesh"],
        step_seconds=entry["stepSeconds"],
        step_band=None if band is None else (band[0], band[1]),
        peak_bytes=entry["peakBytes"],
        fits=entry["fits"],
        fit_probability=entry.get("fitProbability"),
    )
