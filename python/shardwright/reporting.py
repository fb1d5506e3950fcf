"""Reports of plans and comparisons, as `shardwright report` writes them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from .command_line import run_command
from .planner import find_command


@dataclass(frozen=True, repr=False)
class Report:
    """A report; a notebook shows one in HTML in a frame of its own, or the link to its file."""

    text: str
    format: str
    #: The file that has it.
    path: Path | None

    def __repr__(self) -> str:
        """One line: the text itself may have a million characters."""
        return f"Report({self.format}{'' if self.path is None else f', {self.path}'})"

    def _repr_html_(self) -> str | None:
        if self.format != "html":
            return None
        if self.path is not None:
            return f'<a href="{escape(str(self.path))}">{escape(str(self.path))}</a>'
        # The page has its own styles and scripts, which are not to meet those of the notebook.
        return f'<iframe srcdoc="{escape(self.text)}" sandbox="allow-scripts" style="width:100%;height:640px;border:0"></iframe>'


def write_report(
    source: Path | str,
    path: str | os.PathLike[str] | None,
    format: str | None,
    command: Sequence[str] | None,
) -> Report:
    """Writes the report of a plan folder, or of the JSON text of a comparison."""
    ending = {".html": "html", ".md": "md", ".txt": "text", ".json": "json", ".csv": "csv"}
    kind = format or (ending.get(Path(path).suffix, "html") if path is not None else "html")
    call = list(command) if command is not None else find_command()
    with tempfile.TemporaryDirectory(prefix="shardwright-report-") as at:
        file = source
        if isinstance(source, str):
            file = Path(at, "comparison.json")
            file.write_text(source)
        text = run_command(call, ["report", str(file), "--format", kind], quiet=True)
    if path is not None:
        Path(path).write_text(text)
    return Report(text, kind, None if path is None else Path(path))
