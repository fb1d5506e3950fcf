"""Reads a plan folder: `plan.json`, the program of each device below `torch/`, and the record of the captured model.

`plan`, or `shardwright plan ... -o` and `shardwright export --target torch`, write such folders.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import MismatchError
from .reporting import Report, write_report
from .showing import bytes_text, folded, in_words, memory_svg, seconds_text, table_html

TABLE_VERSION = 1
#: The version of `capture.json`.
RECORD_VERSION = 1


@dataclass(frozen=True, repr=False)
class Plan:
    """A plan that can run. `placements` and `collectives` are the contents of the files of that name.

    Seconds and bytes are those of `plan.json`: of one training step, of one device.
    """

    folder: Path
    placements: dict[str, Any]
    collectives: list[dict[str, Any]]
    #: Record of the captured model; None of a plan that was made by the command alone.
    capture: dict[str, Any] | None
    _module: list[ModuleType] = field(default_factory=list, repr=False)
    _answer: list[dict[str, Any]] = field(default_factory=list, repr=False, compare=False)

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Devices by mesh dim, outermost first."""
        return tuple(self.placements["mesh"]["sizes"])

    @property
    def mesh_dim_names(self) -> tuple[str, ...]:
        """Names of the mesh dims."""
        return tuple(self.placements["mesh"]["names"])

    @property
    def program(self) -> ModuleType:
        """`program.py`, imported once."""
        if not self._module:
            path = self.folder / "program.py"
            spec = importlib.util.spec_from_file_location(f"shardwright_program_{abs(hash(path.resolve()))}", path)
            if spec is None or spec.loader is None:
                raise MismatchError("E_IO", "it cannot be imported", place=str(path))
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._module.append(module)
        return self._module[0]

    @property
    def _root(self) -> Path:
        return self.folder.parent if self.folder.name == "torch" else self.folder

    @property
    def answer(self) -> dict[str, Any]:
        """`plan.json`, read once.

        Raises:
            MismatchError: where only the export of the plan is here.
        """
        if not self._answer:
            file = self._root / "plan.json"
            if not file.exists():
                raise MismatchError("E_PLAN", "plan.json is not there", place=str(file.parent), hint="load the plan folder itself.")
            self._answer.append(_json(file))
        return self._answer[0]

    @property
    def step_seconds(self) -> float | None:
        """The whole training step as its trainer runs it; None of a plan that has none, such as that of a graph."""
        step = self.answer.get("step")
        return None if step is None else step["stepSeconds"]

    @property
    def serial_seconds(self) -> float:
        """Compute and communication one after another: what is proven."""
        return self.answer["objective"]["seconds"]

    @property
    def bound_seconds(self) -> float:
        """No plan of the mesh has fewer serial seconds."""
        return self.answer["proof"]["bound"]

    @property
    def peak_bytes(self) -> int:
        """Most bytes of a device during a step; as the trainer runs it where the plan has a whole step."""
        return self.answer.get("step", self.answer["memory"])["peakBytes"]

    def report(
        self, path: str | os.PathLike[str] | None = None, *, format: str | None = None, command: Sequence[str] | None = None
    ) -> Report:
        """The report of `shardwright report`; a notebook shows it.

        Args:
            path: the file to write; default: none.
            format: html, md, text, json or csv; default: by the ending of the file, else html.
            command: how to call Shardwright; default as `plan` calls it.

        Raises:
            CommandError: what the command refused.
        """
        self.answer  # noqa: B018  an export alone has no report, which is said here
        return write_report(self._root, path, format, command)

    def __repr__(self) -> str:
        """Three lines: what is planned, its figures, where it lies."""
        mesh = ",".join(f"{name}={size}" for name, size in zip(self.mesh_dim_names, self.mesh_shape, strict=True))
        head = f"Plan of {self.placements['model']} on {mesh}"
        try:
            answer = self.answer
        except MismatchError:
            return f"{head}\n  exported to {self.folder}"
        return f"{head} of {answer['cluster']}\n  {_figures(self)}\n  in {self._root}"

    def _repr_html_(self) -> str:
        lines = [f"<p><b>{escape(line)}</b></p>" if i == 0 else f"<p>{escape(line)}</p>" for i, line in enumerate(repr(self).splitlines())]
        memory = self.answer["memory"] if len(lines) > 2 else {}
        curve = [(point["node"], point["bytes"]) for point in memory.get("timeline", {}).get("curve", [])]
        entries = [] if not memory else self.answer["parameters"]
        groups = folded((entry["name"], entry["shape"], entry["placement"]) for entry in entries)
        rows = [
            (name, f"{count}", " x ".join(map(str, shape)), placement, in_words(placement, self.mesh_dim_names))
            for name, count, shape, placement in groups
        ]
        table = table_html(("parameter", "count", "shape", "placement", "in words"), rows, (1,)) if rows else ""
        return "".join(lines) + memory_svg(curve, bytes_text(memory.get("peakBytes", 0))) + table

    def init_device_mesh(self, device_type: str) -> Any:
        """The device mesh of the plan over all ranks, as PyTorch's `init_device_mesh` makes it."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(device_type, self.mesh_shape, mesh_dim_names=self.mesh_dim_names)


def _figures(plan: Plan) -> str:
    step = plan.step_seconds
    memory = f"{bytes_text(plan.peak_bytes)} a device"
    serial = f"{seconds_text(plan.serial_seconds)} one after another, proven no less than {seconds_text(plan.bound_seconds)}"
    return f"{memory}; {serial}" if step is None else f"{seconds_text(step)} a step, {memory}; {serial}"


def load(folder: str | os.PathLike[str]) -> Plan:
    """Reads a plan folder, or the folder of its export.

    Raises:
        MismatchError: where a file is missing, of another version, or of another plan or model than the rest, with both values
            and the command that writes it.
    """
    root = Path(folder)
    below = root / "torch" if (root / "torch" / "program.py").exists() else root
    if (root / "stages.json").exists():
        raise MismatchError(
            "E_PLAN",
            "it holds the stages of a pipeline, each a plan of its own",
            place=str(root),
            hint=f'shardwright.load_stages("{root}"), which shardwright.pipeline runs.',
        )
    for name in ("program.py", "placements.json", "collectives.json"):
        if not (below / name).exists():
            raise MismatchError(
                "E_PLAN",
                f"{name} is not there",
                place=str(below),
                hint=f"shardwright export {root} --target torch -o {root / 'torch'}",
            )
    tables = _json(below / "placements.json")
    listed = _json(below / "collectives.json")
    for name, table in (("placements.json", tables), ("collectives.json", listed)):
        if table.get("version") != TABLE_VERSION:
            raise MismatchError(
                "E_VERSION",
                f"it has version {table.get('version')}, this package reads {TABLE_VERSION}",
                place=str(below / name),
                hint="export the plan again with the shardwright of this package.",
            )
    if tables.get("plan") != listed.get("plan"):
        raise MismatchError(
            "E_PLAN",
            f"placements.json is of plan {tables.get('plan')}, collectives.json of plan {listed.get('plan')}",
            place=str(below),
            hint="export the plan again.",
        )
    _check_exported(root, below, tables)
    record = root / "capture.json"
    captured = _json(record) if record.exists() else None
    if captured is not None:
        _check_captured(record, captured, tables)
    return Plan(below, tables, listed["collectives"], captured)


def _check_exported(root: Path, below: Path, tables: dict[str, Any]) -> None:
    """Refuses a program that was exported from another plan than the one that lies above it."""
    file = root / "plan.json"
    if below == root or not file.exists():
        return
    hashes = _json(file).get("hashes")
    written = f"sha256:{hashes['plan']}" if isinstance(hashes, dict) and "plan" in hashes else None
    if written is not None and written != tables.get("plan"):
        raise MismatchError(
            "E_PLAN",
            f"it is of plan {tables.get('plan')}, plan.json is plan {written}",
            place=str(below / "program.py"),
            hint=f"shardwright export {root} --target torch -o {below}",
        )


def _check_captured(file: Path, record: dict[str, Any], tables: dict[str, Any]) -> None:
    """Refuses the record of another version, or of another model than the program's."""
    if record.get("version") != RECORD_VERSION:
        raise MismatchError(
            "E_VERSION",
            f"it has version {record.get('version')}, this package reads {RECORD_VERSION}",
            place=str(file),
            hint="capture and plan the model again.",
        )
    known = {entry["name"] for kind in ("parameters", "buffers") for entry in record[kind]}
    planned = [entry["of"] for entry in tables["primals"] if entry["role"] in ("parameter", "buffer")]
    other = next((name for name in planned if name not in known), None)
    if other is not None:
        raise MismatchError(
            "E_PLAN",
            f"it is of {record['model']}, which has no {other}, which the program of {tables['model']} has",
            place=str(file),
            hint="plan the captured model again, or remove the record of the other one.",
        )


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise MismatchError("E_SYNTAX", f"it cannot be read: {error}", place=str(path)) from error
    if not isinstance(value, dict):
        raise MismatchError("E_SYNTAX", "it is not a JSON object", place=str(path))
    return value
