"""Trials of plans: which are run, what is kept, and what is said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import mlp
from processes import start_ranks
from torch.nn import functional as F

import shardwright
from shardwright import tuning
from shardwright.making import open_mesh
from shardwright.tuning import Candidate, Tuning, report_of


@pytest.fixture
def mesh() -> Iterator[Any]:
    yield open_mesh("dp=1")
    dist.destroy_process_group()


def trials(mesh: Any, monkeypatch: pytest.MonkeyPatch, steps: dict[str, Any], predicted: dict[str, float], budget: float = 60) -> Any:
    """What becomes of plans whose steps take so many seconds, or fail so."""
    monkeypatch.setattr(tuning, "load", lambda folder: folder)

    def trial(folder: Any) -> Callable[[], None]:
        def step() -> None:
            if isinstance(steps[folder], Exception):
                raise steps[folder]
            time.sleep(steps[folder])

        return step

    run = Tuning(mesh, budget, quiet=True)
    return run.fastest([Candidate(name, name, seconds) for name, seconds in predicted.items()], trial), run.rows


def test_the_fastest_that_was_run_is_taken_not_the_one_that_was_predicted(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    best, rows = trials(mesh, monkeypatch, {"a": 0.03, "b": 0.01, "c": 0.02}, {"a": 0.01, "b": 0.012, "c": 0.013})
    assert best.name == "b"
    assert [row["name"] for row in rows if "seconds" in row] == ["a", "b", "c"]
    assert rows[1]["predictedSeconds"] == 0.012
    assert rows[1]["seconds"] == pytest.approx(0.01, rel=0.5)


def test_a_plan_that_runs_out_of_memory_is_left_out_with_what_it_said(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    full = torch.OutOfMemoryError("tried to allocate 2 GiB\nmore")
    best, rows = trials(mesh, monkeypatch, {"a": full, "b": 0.01}, {"a": 0.01, "b": 0.02})
    assert best.name == "b"
    assert rows[0]["fault"] == "out of memory: tried to allocate 2 GiB"
    best, _ = trials(mesh, monkeypatch, {"a": full, "b": full}, {"a": 0.01, "b": 0.02})
    assert best.name == "a"


def test_what_cannot_win_is_not_run_and_neither_is_what_comes_after_the_budget(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = dict.fromkeys("abc", 0.01)
    best, rows = trials(mesh, monkeypatch, steps, {"a": 0.01, "b": 0.011, "c": 0.1})
    assert best.name in "ab"
    assert rows[2] == {"name": "c", "folder": "c", "predictedSeconds": 0.1, "left": "their predicted steps are too long to win"}
    # One run says nothing of how far predictions are off.
    _, rows = trials(mesh, monkeypatch, {"a": 0.05, "b": 0.01}, {"a": 0.01, "b": 0.1})
    assert [row.get("left") for row in rows] == [None, None]
    _, rows = trials(mesh, monkeypatch, steps, {"a": 0.01, "b": 0.011}, budget=0.01)
    assert "are over" in rows[1]["left"]


def test_the_best_plans_of_a_text_run_on_two_processes_and_the_fastest_is_kept(tmp_path: Path) -> None:
    model, x, y = mlp()
    text = shardwright.capture(model, (x,), loss=F.mse_loss, targets=(y,), path=tmp_path / "model.fx.txt").path
    argv = [str(text), "--cluster", "dgx-h100", "--plans", "3", "-o", str(tmp_path / "plan")]
    started = start_ranks(Path(__file__).with_name("tuned_run.py"), argv, 2, tmp_path / "ranks")
    ended = [one.ended(time.monotonic() + 200) for one in started]
    assert [code for code, _ in ended] == [0, 0], "".join(said[-3000:] for _, said in ended)
    kept = json.loads((tmp_path / "plan" / "tuned.json").read_text())
    ran = [row for row in kept["plans"] if "seconds" in row]
    assert len(ran) >= 2
    assert kept["name"] == min(ran, key=lambda row: row["seconds"])["name"]
    predicted = [row["predictedSeconds"] for row in kept["plans"]]
    assert predicted == sorted(predicted)
    programs = [(Path(row["folder"]) / "torch" / "program.py").read_text() for row in kept["plans"]]
    assert len({*programs}) == len(programs)
    assert shardwright.load(tmp_path / "plan").program.MESH_SIZES == shardwright.load(kept["folder"]).program.MESH_SIZES
    said = ended[0][1].splitlines()
    assert [line for line in said if line.startswith("plan ")] == [next(line for line in said if "predicted   measured" in line)]
    assert any(f"{kept['name']} is in " in line for line in said)


def test_steps_whose_ranges_overlap_are_said_to_be_alike() -> None:
    def row(name: str, fastest: float, spread: float) -> dict[str, Any]:
        return {"name": name, "predictedSeconds": 0.01, "seconds": fastest + spread / 2, "fastestSeconds": fastest, "spreadSeconds": spread}

    near = report_of([row("a", 0.01, 0.002), row("b", 0.011, 0.002), row("c", 0.02, 0.001)], "a", "plan")
    assert "do not tell a from b; run again" in near
    assert "do not tell" not in report_of([row("a", 0.01, 0.001), row("c", 0.02, 0.001)], "a", "plan")


def test_a_model_is_tuned_once_and_the_answer_kept(tmp_path: Path) -> None:
    model, x, y = mlp()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folder = tmp_path / "plan"
    options: dict[str, Any] = {"cluster": "dgx-h100", "loss": F.mse_loss, "targets": (y,), "folder": folder, "quiet": True}
    try:
        tuned = shardwright.auto_parallelize(model, (x,), "dp=1", tune=3, **options)
        kept = json.loads((folder / "tuned.json").read_text())
        ran = [row for row in kept["plans"] if "seconds" in row]
        assert ran[0]["name"] == "optimum"
        assert kept["name"] == min(ran, key=lambda row: row["seconds"])["name"]
        # Trials leave the model as it was.
        for name, value in tuned.state_dict().items():
            torch.testing.assert_close(value.full_tensor() if hasattr(value, "full_tensor") else value, before[name])
        stamp = (folder / "tuned.json").stat().st_mtime_ns
        again, *_ = mlp()
        shardwright.auto_parallelize(again, (x,), "dp=1", tune=3, **options)
        assert (folder / "tuned.json").stat().st_mtime_ns == stamp
    finally:
        dist.destroy_process_group()
