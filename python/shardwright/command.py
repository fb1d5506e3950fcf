"""Calls the `shardwright` command from Python: it turns a captured model and flags into a plan folder that is ready to run.

Progress goes to this process's stderr, line by line; a refusal of the command becomes an exception with its place and hint.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import CommandError
from .folder import Plan, load
from .kept_planner import ask, once
from .planner import find_command


def plan(
    model: Any,
    *,
    mesh: str,
    cluster: str,
    out: str | os.PathLike[str] = "plan",
    command: Sequence[str] | None = None,
    quiet: bool = False,
    order: str | None = None,
    recipes: bool = False,
    **flags: Any,
) -> Plan:
    """Plans a captured model and writes the program of each device.

    Args:
        model: what `capture` gave, or a file that the command reads.
        mesh: mesh dims, outermost first: `dp=2,tp=2`.
        cluster: name of a node design (`dgx-h100`), or a JSON file.
        out: the plan folder.
        command: how to call Shardwright; default what `find_command` finds.
        quiet: no progress on stderr.
        order: how the program of each device calls: `program`, as the plan lists the calls, or `simulated`, as the simulated step has
            them, with its buckets. Default: the faster one by that simulation.
        recipes: write `recipes.json` into the folder: recipes of the mesh that the model admits, with their seconds and peak bytes.
        flags: options of `shardwright plan`, `memory="60GiB"`, `pin=["fc1.weight=S(0)R"]`, `no_recipes=True`.

    Raises:
        CommandError: what the command refused, with its code, place and hint.
    """
    source = getattr(model, "path", model)
    record = getattr(model, "record", None)
    argv = ["plan", str(source), "--mesh", mesh, "--cluster", str(cluster), "-o", str(out), "--json"]
    for name, placement in record.get("pins", {}).items() if record else ():
        argv += ["--pin", f"{name}={placement}"]
    for group in record["ties"] if record else []:
        for other in group[1:]:
            argv += ["--tie", f"{group[0]}={other}"]
    argv += words_of(flags)
    call = list(command) if command is not None else find_command()
    answer = run_command(call, argv, quiet, allowed=(0, 4))
    folder = Path(out)
    if recipes:
        (folder / "recipes.json").write_text(json.dumps(json.loads(answer).get("recipes", []), indent=1) + "\n")
    export = ["export", str(folder), "--target", "torch", "-o", str(folder / "torch"), "--json"]
    run_command(call, export if order is None else [*export, "--order", order], quiet)
    record_file = folder / "capture.json"
    if record is not None:
        record_file.write_text(json.dumps(record, indent=1) + "\n")
    elif record_file.exists():
        record_file.unlink()
    return load(folder)


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
    """What a call prints on stdout; its progress goes to stderr unless it is quiet.

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
