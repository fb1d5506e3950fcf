"""Plans from Python: a captured model and flags become a plan folder that is ready to run.

Progress goes to this process's stderr, line by line; a refusal of the command becomes an exception with its place and hint.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .command_line import run_command, words_of
from .folder import Plan, load
from .kept_plan import answers, forget, note, question
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
    keep: bool = False,
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
        keep: take the plan that `out` holds where this planner made it for the same question; only then is nothing written.
        flags: options of `shardwright plan`, `memory="60GiB"`, `pin=["fc1.weight=S(0)R"]`, `no_recipes=True`.

    Raises:
        CommandError: what the command refused, with its code, place and hint.
    """
    source = getattr(model, "path", model)
    record = getattr(model, "record", None)
    argv = ["plan", str(source), "--mesh", mesh, "--cluster", str(cluster), "-o", str(out), "--json"]
    folder = Path(out)
    for name, placement in record.get("pins", {}).items() if record else ():
        argv += ["--pin", f"{name}={placement}"]
    for group in record["ties"] if record else []:
        for other in group[1:]:
            argv += ["--tie", f"{group[0]}={other}"]
    argv += words_of(flags)
    call = list(command) if command is not None else find_command()
    asked = question(call, argv, str(source), record, (order, recipes))
    if keep and answers(folder, asked):
        if not quiet:
            sys.stderr.write(f"{folder} holds the plan for this model, mesh and cluster: it is taken\n")
        return load(folder)
    forget(folder)
    answer = run_command(call, argv, quiet, allowed=(0, 4))
    if recipes:
        (folder / "recipes.json").write_text(json.dumps(json.loads(answer).get("recipes", []), indent=1) + "\n")
    export = ["export", str(folder), "--target", "torch", "-o", str(folder / "torch"), "--json"]
    run_command(call, export if order is None else [*export, "--order", order], quiet)
    record_file = folder / "capture.json"
    if record is not None:
        record_file.write_text(json.dumps(record, indent=1) + "\n")
    elif record_file.exists():
        record_file.unlink()
    note(folder, asked)
    return load(folder)
