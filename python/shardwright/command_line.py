"""Calls the command line of the planner: words in, what it prints out, and a refusal as an exception with its place and hint."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import CommandError
from .kept_planner import ask, once


def words_of(flags: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as the words of a command line: `no_recipes=True` is `--no-recipes`; of a list, the flag once for each item."""
    argv: list[str] = []
    for key, value in flags.items():
        name = f"--{key.replace('_', '-')}"
        if value is True:
            argv.append(name)
        elif value is not None and value is not False:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                argv += [name, str(one)]
    return argv


def run_command(call: Sequence[str], argv: Sequence[str], quiet: bool, allowed: Sequence[int] = (0,), kept: bool = True) -> str:
    """Returns what a call prints on stdout; its progress goes to stderr unless it is quiet.

    Args:
        kept: in the process that is kept for this call; otherwise in one of its own, which ends with it.

    Raises:
        CommandError: for exit codes that are not allowed.
    """
    answer: list[str] = []
    progress: list[str] = []

    def relay(text: str) -> None:
        progress.append(text)
        if not quiet:
            sys.stderr.write(text)

    try:
        code = (ask if kept else once)(call, argv, answer.append, relay)
    except OSError as error:
        raise CommandError("E_COMMAND", f"{call[0]} cannot be called: {error}") from error
    if code in allowed:
        return "".join(answer)
    raise _refusal("".join(answer), "".join(progress).splitlines(), argv, code)


def _refusal(answer: str, lines: Sequence[str], argv: Sequence[str], code: int) -> CommandError:
    try:
        error = json.loads(answer)["error"]
        where = {key: value for key, value in (error.get("where") or {}).items() if value is not None}
        place = ":".join(str(where[key]) for key in ("file", "line", "column") if key in where)
        node = where.get("node") or where.get("path")
        return CommandError(error["code"], error["message"], hint=error.get("hint"), place=" ".join(filter(None, [place, node])) or None)
    except (ValueError, KeyError, TypeError):
        last = "\n".join(lines[-5:]) or f"exit code {code}"
        return CommandError("E_COMMAND", f"shardwright {argv[0]} failed: {last}")
