"""Plans from Python: a captured model and flags become a plan folder that is ready to run.

Progress goes to this process's stderr, line by line; a refusal of the command becomes an exception with its place and hint.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .command_line import run_command, words_of
from .errors import CommandError
from .folder import Plan, load
from .kept_plan import answers, forget, note, question
from .planner import find_command
from .staged import StagedPlan, load_stages


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
    call = list(command) if command is not None else find_command()
    argv, source, record = _words(model, mesh, cluster, out, flags)
    folder = Path(out)
    if any(part.partition("=")[0] == "pp" for part in mesh.split(",")) or flags.get("pp") is not None:
        raise CommandError("E_MESH", f"the mesh {mesh} has pipeline stages, each with a plan of its own", place="mesh", hint="plan_stages.")
    asked = question(call, argv, source, record, (order, recipes))
    if keep and answers(folder, asked):
        if not quiet:
            sys.stderr.write(f"{folder} holds the plan for this model, mesh and cluster: it is taken\n")
        return load(folder)
    forget(folder)
    answer = run_command(call, argv, quiet, allowed=(0, 4))
    if recipes:
        (folder / "recipes.json").write_text(json.dumps(json.loads(answer).get("recipes", []), indent=1) + "\n")
    _export(call, folder, order, quiet)
    _write_record(folder, record)
    note(folder, asked)
    return load(folder)


def plan_stages(
    model: Any,
    *,
    mesh: str,
    cluster: str,
    microbatches: int | None = None,
    out: str | os.PathLike[str] = "stages",
    command: Sequence[str] | None = None,
    quiet: bool = False,
    order: str | None = None,
    **flags: Any,
) -> StagedPlan:
    """Cuts a captured model into pipeline stages, plans each, and writes the programs of their devices.

    Args:
        model: what `capture` gave of one microbatch, with its loss.
        mesh: mesh dims, outermost first, which is `pp`: `pp=2,dp=2`.
        cluster: as of `plan`.
        microbatches: of a step; default 4 a stage.
        out: the folder, with a plan folder for each stage.
        command, quiet, order: as of `plan`.
        flags: options of `shardwright plan`, `schedule="interleaved"`, `virtual=2`.

    Raises:
        CommandError: what the command refused, with its code, place and hint.
    """
    call = list(command) if command is not None else find_command()
    if mesh.split(",")[0].partition("=")[0] != "pp":
        raise CommandError("E_MESH", f"the mesh {mesh} has no stages", place="mesh", hint=f'mesh="pp=2,{mesh}", or plan.')
    argv, _, record = _words(model, mesh, cluster, out, {"microbatches": microbatches, **flags})
    folder = Path(out)
    run_command(call, argv, quiet, allowed=(0, 4))
    for stage in json.loads((folder / "stages.json").read_text())["stages"]:
        _export(call, folder / stage["folder"], order, quiet)
    _write_record(folder, record)
    return load_stages(folder)


def _words(
    model: Any, mesh: str, cluster: str, out: str | os.PathLike[str], flags: Mapping[str, Any]
) -> tuple[list[str], str, dict[str, Any] | None]:
    """The words of the command, the model file, and the record of the captured model."""
    source = str(getattr(model, "path", model))
    record = getattr(model, "record", None)
    argv = ["plan", source, "--mesh", mesh, "--cluster", str(cluster), "-o", str(out), "--json"]
    for name, placement in record.get("pins", {}).items() if record else ():
        argv += ["--pin", f"{name}={placement}"]
    for group in record["ties"] if record else []:
        for other in group[1:]:
            argv += ["--tie", f"{group[0]}={other}"]
    return argv + words_of(flags), source, record


def _export(call: Sequence[str], folder: Path, order: str | None, quiet: bool) -> None:
    export = ["export", str(folder), "--target", "torch", "-o", str(folder / "torch"), "--json"]
    run_command(call, export if order is None else [*export, "--order", order], quiet)


def _write_record(folder: Path, record: dict[str, Any] | None) -> None:
    file = folder / "capture.json"
    if record is not None:
        file.write_text(json.dumps(record, indent=1) + "\n")
    elif file.exists():
        file.unlink()
