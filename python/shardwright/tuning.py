"""Runs the best few plans of a model for some steps in the processes at hand, and keeps the fastest that fits.

The planner ranks plans by prices; what a step takes in the end is known where it runs. Plans are run in the order of their predicted
steps, on copies of the model, and the copies go away before training begins.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .command import plan as make_plan
from .errors import CommandError
from .folder import Plan, load
from .making import mesh_text, on_first

#: Steps before the first that is timed, and those that are.
WARM, STEPS = 2, 5
VERSION = 1
#: A plan is skipped only if the ratio of its measured to its predicted step would have to be off by more than this factor.
DOUBT = 1.5


@dataclass(frozen=True)
class Candidate:
    """A plan that may be run: its folder, its name, and its predicted step in seconds."""

    folder: str
    name: str
    seconds: float


def make_candidates(captured: Any, first: Path, count: int, **how: Any) -> list[Candidate]:
    """The plan in `first`, and the best recipes of its mesh whose programs differ: `count` in all, by their predicted steps.

    Called on the rank that plans. Recipes that the model does not admit, or that do not fit the memory, are left out.
    """
    answer = json.loads((first / "recipes.json").read_text()) if (first / "recipes.json").exists() else []
    found = [candidate_of(first, "optimum")]
    programs = {program_hash(first)}
    for recipe in sorted(answer, key=lambda recipe: recipe["seconds"]):
        if len(found) == count:
            break
        folder = first / "tune" / str(len(found))
        try:
            make_plan(captured, **{**how, "out": folder, "recipe": recipe["name"], "quiet": True})
        except CommandError:
            continue
        # A recipe may be the optimum, or another recipe under a second name.
        program = program_hash(folder)
        if program in programs:
            continue
        programs.add(program)
        found.append(candidate_of(folder, recipe["name"]))
    return [found[0], *sorted(found[1:], key=lambda one: one.seconds)]


def candidate_of(folder: Path, name: str) -> Candidate:
    """A written plan, with the step that it predicts."""
    plan = json.loads((folder / "plan.json").read_text())
    return Candidate(str(folder), name, plan.get("step", {}).get("stepSeconds") or plan["objective"]["seconds"])


def program_hash(folder: Path) -> str:
    """Hashes what runs and where its parameters lie, whatever it is called."""
    tables = json.loads((folder / "torch" / "placements.json").read_text())
    rows = [(row["of"], row.get("placement")) for row in tables["primals"]]
    return hashlib.sha256(repr(((folder / "torch" / "program.py").read_text(), rows)).encode()).hexdigest()


class Tuning:
    """The trials of one call of `auto_parallelize`."""

    def __init__(self, mesh: DeviceMesh, budget: float, quiet: bool) -> None:
        self.mesh, self.budget, self.quiet = mesh, budget, quiet
        self.start = time.perf_counter()
        self.rows: list[dict[str, Any]] = []
        self.device = torch.device(mesh.device_type) if mesh.device_type == "cpu" else torch.accelerator.current_accelerator()

    def most(self, values: Sequence[float]) -> list[float]:
        """The largest of all ranks, value by value."""
        told = torch.tensor(values, dtype=torch.float64 if self.mesh.device_type == "cpu" else torch.float32, device=self.device)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return [float(value) for value in told]

    def say(self, text: str) -> None:
        """A line of the first rank."""
        if not self.quiet and dist.get_rank() == int(self.mesh.mesh.flatten()[0]):
            print(text, file=sys.stderr, flush=True)

    def fastest(self, candidates: Sequence[Candidate], trial: Callable[[Plan], Callable[[], None]]) -> Candidate:
        """Runs candidates one after another, and gives the fastest; the first one where none could be run.

        Ends where the seconds are over, or where none that is left wins, even if its prediction is off as far as predictions were.
        """
        best: tuple[float, Candidate] | None = None
        ratios: list[float] = []
        for at, candidate in enumerate(candidates):
            spent = self.most([time.perf_counter() - self.start])[0]
            if at > 0 and spent > self.budget:
                self.leave(candidates[at:], f"{spent:.0f} s of {self.budget:.0f} s are over")
                break
            # The next one has the least predicted step of those that are left.
            if best is not None and len(ratios) > 1 and candidate.seconds * min(ratios) > best[0] * max(DOUBT, max(ratios) / min(ratios)):
                self.leave(candidates[at:], "their predicted steps are too long to win")
                break
            seconds, fault = self.run(candidate, trial)
            row: dict[str, Any] = {"name": candidate.name, "folder": candidate.folder, "predictedSeconds": candidate.seconds}
            if fault is not None:
                self.rows.append({**row, "fault": fault})
                self.say(f"tune  {candidate.name}: predicted {_text(candidate.seconds)}, {fault}")
                continue
            step = statistics.median(seconds)
            spread = max(seconds) - min(seconds)
            ratios.append(step / max(candidate.seconds, 1e-12))
            measured = {"seconds": step, "fastestSeconds": min(seconds), "spreadSeconds": spread, "steps": len(seconds)}
            self.rows.append({**row, **measured})
            self.say(f"tune  {candidate.name}: predicted {_text(candidate.seconds)}, measured {_text(step)} (range {_text(spread)})")
            if best is None or step < best[0]:
                best = step, candidate
        if best is None:
            self.say("tune  no plan could be run: the planned one is taken")
            return candidates[0]
        self.say(f"tune  {best[1].name} is taken")
        return best[1]

    def leave(self, rest: Sequence[Candidate], why: str) -> None:
        """Says what is not run."""
        self.rows += [{"name": one.name, "folder": one.folder, "predictedSeconds": one.seconds, "left": why} for one in rest]
        self.say(f"tune  {', '.join(one.name for one in rest)}: not run, {why}")

    def run(self, candidate: Candidate, trial: Callable[[Plan], Callable[[], None]]) -> tuple[list[float], str | None]:
        """Seconds of some steps of a plan, of the slowest rank; or why it cannot be run."""
        seconds: list[float] = []
        fault: str | None = None
        try:
            step = trial(load(candidate.folder))
            for _ in range(WARM):
                step()
            self.wait()
            for _ in range(STEPS):
                begin = time.perf_counter()
                step()
                self.wait()
                seconds.append(time.perf_counter() - begin)
        except (torch.OutOfMemoryError, MemoryError) as error:
            fault = f"out of memory: {str(error).splitlines()[0][:120]}"
        except RuntimeError as error:
            fault = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
        finally:
            if self.mesh.device_type == "cuda":
                torch.cuda.empty_cache()
        # One rank's fault is all ranks'.
        [failed] = self.most([0.0 if fault is None else 1.0])
        if failed:
            return [], fault or "another rank could not run it"
        return self.most(seconds), None

    def wait(self) -> None:
        """Until the device has done what it was told."""
        if self.mesh.device_type != "cpu":
            torch.accelerator.synchronize()


def _text(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def report_of(rows: Sequence[dict[str, Any]], best: str, folder: str) -> str:
    """Predicted beside measured steps, fastest first; plans that were not measured come last, with the reason."""
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'plan':{width}}  predicted   measured  range"]
    for row in sorted(rows, key=lambda row: row.get("seconds", float("inf"))):
        said = f"{row['name']:{width}}  {_text(row['predictedSeconds']):>9}"
        if "seconds" in row:
            lines.append(f"{said}  {_text(row['seconds']):>9}  {_text(row['spreadSeconds'])}")
        else:
            lines.append(f"{said}  {row.get('fault') or 'not run, ' + row['left']}")
    known = [row for row in rows if "seconds" in row]
    won = next((row for row in known if row["name"] == best), None)
    near = [row["name"] for row in known if won is not None and row is not won and _overlap(won, row)]
    if near:
        lines.append(f"ranges overlap: these steps do not tell {best} from {', '.join(near)}; run again when the machine does nothing else")
    return "\n".join([*lines, f"{best} is in {folder}"])


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the measured steps of two plans have common values."""
    return max(one["fastestSeconds"], other["fastestSeconds"]) <= min(
        row["fastestSeconds"] + row["spreadSeconds"] for row in (one, other)
    )


def tuned(
    model: nn.Module,
    planned: Plan,
    question: str,
    candidates_of: Callable[[], list[Candidate]],
    mesh: DeviceMesh,
    take_over: Callable[[nn.Module, Plan, timedelta], Any],
    step_inputs: tuple[Sequence[Any], dict[str, Any]],
    *,
    budget: float,
    quiet: bool,
) -> Plan:
    """The plan of the fastest candidate. What was measured is in `folder / tuned.json`, and answers the same question again.

    Args:
        model: stays as it is.
        planned: the best plan, into whose folder the answer is written.
        question: mesh, cluster and flags; with the program it says what was asked.
        candidates_of: makes the candidates, on the first rank.
        mesh: of the plans.
        take_over: a copy of the model by a plan; a collective that no rank answers ends within the time.
        step_inputs: of one call, whose floating outputs are summed for the backward pass.
        budget: seconds after which no further plan is run.
        quiet: print nothing.
    """
    folder = planned.folder.parent
    asked = f"{VERSION} {torch.__version__} {(planned.folder / 'program.py').read_text()} {question}"
    key = hashlib.sha256(asked.encode()).hexdigest()
    record = folder / "tuned.json"
    table = folder / "tune" / "candidates.json"

    def make() -> Path:
        # An answer to another question is not an answer.
        known = json.loads(record.read_text()) if record.exists() else {}
        rows = [] if known.get("key") == key else [vars(one) for one in candidates_of()]
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(json.dumps({"key": key, "candidates": rows}))
        return folder

    on_first(mesh, make)
    listed = json.loads(table.read_text())["candidates"]
    if not listed:
        return load(json.loads(record.read_text())["folder"])
    trials = Tuning(mesh, budget, quiet)

    def trial(plan: Plan) -> Callable[[], None]:
        # The model stays as it is: every trial has its own copy, which ends with it.
        module = take_over(copy.deepcopy(model), plan, timedelta(seconds=max(30.0, budget)))
        args, kwargs = step_inputs

        def step() -> None:
            module.zero_grad(set_to_none=True)
            total = _total(module(*args, **kwargs))
            if total is not None:
                total.backward()

        return step

    with torch.random.fork_rng():
        best = trials.fastest([Candidate(**row) for row in listed], trial)
    if dist.get_rank() == int(mesh.mesh.flatten()[0]):
        beside = record.with_name(f".{record.name}.new")
        beside.write_text(json.dumps({"key": key, "mesh": mesh_text(mesh), **vars(best), "plans": trials.rows}, indent=1) + "\n")
        os.replace(beside, record)
    dist.barrier()
    return load(best.folder)


def _total(value: Any) -> torch.Tensor | None:
    """The sum of all floating tensors that want a gradient; None where there are none."""
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    sums = [
        (leaf.full_tensor() if isinstance(leaf, DTensor) else leaf).sum()
        for leaf in leaves
        if leaf.requires_grad and leaf.is_floating_point()
    ]
    return torch.stack(sums).sum() if sums else None
