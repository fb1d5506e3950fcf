"""Reads a folder of pipeline stages: `stages.json`, and the plan of each stage in a folder below it.

`plan_stages`, or `shardwright plan ... --mesh pp=2,dp=2 -o` and an export of each stage, write such folders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import MismatchError
from .folder import RECORD_VERSION, Plan, load

STAGES = "stages.json"
STAGES_VERSION = 1


@dataclass(frozen=True, repr=False)
class StagedPlan:
    """The plans of the stages of one model. `table` is the contents of `stages.json`; seconds and bytes are those of one training step."""

    folder: Path
    table: dict[str, Any]
    #: Plans by chunk * devices + device, each on the mesh of a stage.
    stages: tuple[Plan, ...]
    #: Record of the captured model, of one microbatch; None of stages that the command made alone.
    capture: dict[str, Any] | None

    @property
    def schedule(self) -> str:
        """gpipe, 1f1b, interleaved, or another that the planner knows."""
        return self.table["pipeline"]["schedule"]

    @property
    def microbatches(self) -> int:
        """Microbatches of a step."""
        return self.table["pipeline"]["microbatches"]

    @property
    def virtual(self) -> int:
        """Stages of one device."""
        return self.table["pipeline"]["virtual"]

    @property
    def devices(self) -> int:
        """Devices, or groups of them, in a row: the size of the mesh dim `pp`."""
        return len(self.stages) // self.virtual

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Devices by mesh dim, outermost first, which is `pp`."""
        return (self.devices, *self.stages[0].mesh_shape)

    @property
    def mesh_dim_names(self) -> tuple[str, ...]:
        """Names of the mesh dims."""
        return ("pp", *self.stages[0].mesh_dim_names)

    @property
    def step_seconds(self) -> float:
        """All microbatches by the schedule, and the sums of gradients after them."""
        return self.table["pipeline"]["seconds"]

    @property
    def peak_bytes(self) -> int:
        """Most bytes of the fullest device."""
        return max(stage["peakBytes"] for stage in self.table["pipeline"]["stages"])

    def __repr__(self) -> str:
        """Says what is planned, and where it lies."""
        mesh = ",".join(f"{name}={size}" for name, size in zip(self.mesh_dim_names, self.mesh_shape, strict=True))
        return (
            f"StagedPlan of {self.table['model']} on {mesh}: {len(self.stages)} stages, {self.schedule}, "
            f"{self.microbatches} microbatches\n  in {self.folder}"
        )


def is_staged(folder: str | os.PathLike[str]) -> bool:
    """Tells whether a folder is that of pipeline stages."""
    return (Path(folder) / STAGES).exists()


def load_stages(folder: str | os.PathLike[str]) -> StagedPlan:
    """Reads a folder of pipeline stages.

    Raises:
        MismatchError: where a file is missing, of another version, or of another plan than the rest; and where the plans of two
            stages place what they send one another differently.
    """
    root = Path(folder)
    if not is_staged(root):
        raise MismatchError(
            "E_PLAN",
            f"{STAGES} is not there",
            place=str(root),
            hint=f"shardwright plan MODEL --mesh pp=2,dp=2 --cluster NAME -o {root}, or plan_stages.",
        )
    table = json.loads((root / STAGES).read_text())
    if table.get("version") != STAGES_VERSION:
        raise MismatchError(
            "E_VERSION",
            f"it has version {table.get('version')}, this package reads {STAGES_VERSION}",
            place=str(root / STAGES),
            hint="plan the stages again with the shardwright of this package.",
        )
    stages = tuple(load(root / stage["folder"]) for stage in table["stages"])
    for stage, plan in zip(table["stages"], stages, strict=True):
        if plan.placements.get("plan") != f"sha256:{stage['plan']}":
            raise MismatchError(
                "E_PLAN",
                f"it is of plan {plan.placements.get('plan')}, {STAGES} has plan sha256:{stage['plan']}",
                place=str(plan.folder),
                hint="plan the stages again, or export each of them anew.",
            )
    record = root / "capture.json"
    captured = json.loads(record.read_text()) if record.exists() else None
    if captured is not None and captured.get("version") != RECORD_VERSION:
        raise MismatchError(
            "E_VERSION", f"it has version {captured.get('version')}, this package reads {RECORD_VERSION}", place=str(record)
        )
    made = StagedPlan(root, table, stages, captured)
    _check_ends(made)
    return made


def rows(plan: Plan, table: str, **wanted: Any) -> dict[str, Any] | None:
    """The row of a table of `placements.json` with these values; None where it has none."""
    found = (row for row in plan.placements[table] if row is not None and all(row.get(key) == value for key, value in wanted.items()))
    return next(found, None)


def _check_ends(staged: StagedPlan) -> None:
    """Refuses stages that place what one sends otherwise than the other receives it."""
    for s, (here, behind) in enumerate(zip(staged.table["stages"], staged.table["stages"][1:], strict=False)):
        one, other = staged.stages[s], staged.stages[s + 1]
        for sent, received in zip(here["sends"], behind["receives"], strict=True):
            leaves, comes = rows(one, "outputs", role="output", index=sent["index"]), rows(other, "primals", of=received["input"])
            _same(sent["value"], s, leaves, s + 1, comes)
        for sent, received in zip(behind["sendsBack"], here["receivesBack"], strict=True):
            if "of" not in sent:
                raise MismatchError(
                    "E_PIPELINE",
                    f"stage {s + 1} sends it back to stage {s}, and it is the gradient of nothing that came from there",
                    place=sent["value"],
                    hint="plan other stages: fewer, or of a model without such a value.",
                )
            _same(sent["value"], s + 1, rows(other, "gradients", of=sent["of"]), s, rows(one, "tangents", index=received["index"]))
    for shared in staged.table["shared"]:
        held = [(s, _state(staged.stages[s], shared["names"])) for s in shared["stages"]]
        for s, row in held[1:]:
            _same(shared["names"][0], held[0][0], held[0][1], s, row)


def _state(plan: Plan, names: Sequence[str]) -> dict[str, Any] | None:
    return next((row for row in plan.placements["primals"] if row["role"] == "parameter" and row["of"] in names), None)


def _same(value: str, s: int, one: dict[str, Any] | None, t: int, other: dict[str, Any] | None) -> None:
    if one is not None and other is not None and one["placement"] == other["placement"]:
        return
    said = [f"stage {k} has it {'not at all' if row is None else row['placement']}" for k, row in ((s, one), (t, other))]
    raise MismatchError("E_PLAN", ", ".join(said), place=value, hint="plan the stages again, all at once.")
