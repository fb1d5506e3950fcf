"""Tells whether a plan folder answers a question already, so that a run that starts again does not plan again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Written last.
_NAME = "asked.json"


def question(call: Sequence[str], argv: Sequence[str], source: str, record: Any, more: Sequence[Any]) -> str:
    """A hash of everything that an answer depends on: the planner, the words, the model, and the files that words name."""
    from . import __version__

    planner = [(word, Path(word).stat().st_size, Path(word).stat().st_mtime_ns) for word in call if Path(word).is_file()]
    files = {word: _hash(Path(word)) for word in (source, *argv) if len(word) < 1000 and Path(word).is_file()}
    asked = json.dumps([__version__, list(call), planner, list(argv), files, record, list(more)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _written(folder: Path) -> dict[str, str]:
    """Hashes of what a plan folder holds; a plan that was made into it later is another one."""
    return {name: _hash(folder / name) for name in ("plan.json", "torch/program.py", "torch/placements.json") if (folder / name).is_file()}


def answers(folder: Path, asked: str) -> bool:
    """Tells whether the folder is the whole answer to a question."""
    try:
        noted = json.loads((folder / _NAME).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(noted, dict) and noted.get("question") == asked and noted.get("files") == _written(folder)


def forget(folder: Path) -> None:
    """Before another answer is written."""
    (folder / _NAME).unlink(missing_ok=True)


def note(folder: Path, asked: str) -> None:
    """After an answer was written."""
    (folder / _NAME).write_text(json.dumps({"question": asked, "files": _written(folder)}, indent=1) + "\n")
