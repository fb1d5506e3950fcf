"""The measurement of a machine, by two processes in seconds, and plans with the file that it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from models import mlp
from test_launch import environment, free_port

import shardwright
from shardwright.measuring.collectives import KINDS
from shardwright.measuring.file import cluster_file
from shardwright.measuring.timing import Point, Ranks, timed, told


def launched(folder: Path, *more: str, ranks: int = 2, text: str | None = None) -> list[tuple[int, str]]:
    """Exit codes and stderr of ranks that measure together."""
    port = str(free_port())
    running = []
    for rank in range(ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
        where = {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
        program = ["-c", text] if text is not None else ["-m", "shardwright.measure"]
        call = [sys.executable, *program, "-o", str(folder / "cluster.json"), *more]
        running.append(subprocess.Popen(call, env=environment() | own | where, stderr=subprocess.PIPE, text=True))
    return [(process.wait(), process.stderr.read() if process.stderr else "") for process in running]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("measured")
    ends = launched(folder, "--mesh", "dp=2", "--quick", "--seconds", "4")
    assert [code for code, _ in ends] == [0, 0], ends
    return folder / "cluster.json", ends[0][1]


def test_the_file_has_what_was_measured_and_on_what(measured: tuple[Path, str]) -> None:
    path, said = measured
    file = json.loads(path.read_text())
    calibration = file["calibration"]
    assert calibration["software"].startswith(f"torch {torch.__version__}")
    assert (calibration["processes"], calibration["mesh"], calibration["backend"]) == (2, "dp=2", "gloo")
    assert {row["collective"] for row in file["collectiveTable"]} <= set(KINDS)
    assert len(file["collectiveTable"]) >= 1
    assert all(len(row["bytes"]) == len(row["seconds"]) == len(row["spread"]) for row in file["collectiveTable"])
    # Total time first, then the parts.
    assert "in about 4 s" in said.splitlines()[0]
    assert "collectives: " in said


def test_plans_take_the_file_and_say_where_their_figures_come_from(measured: tuple[Path, str], tmp_path: Path) -> None:
    model, x, y = mlp()
    captured = shardwright.capture(model, (x,), loss=torch.nn.functional.mse_loss, targets=(y,), path=tmp_path / "m.fx.txt")
    shardwright.plan(captured, mesh="dp=2", cluster=str(measured[0]), out=tmp_path / "plan", quiet=True)
    made = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert any(text.startswith("kernels were measured on ") for text in made["assumptions"])


def test_a_rank_that_fails_is_named_and_what_was_measured_before_is_kept(tmp_path: Path) -> None:
    # The second rank ends before collectives are timed.
    text = (
        "import os, sys\nfrom shardwright import measure\nfrom shardwright.measure import Measurement, main\n"
        "def ends(self): os._exit(3)\n"
        "if os.environ['RANK'] == '1': Measurement.copies = ends\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    ends = launched(tmp_path, "--mesh", "dp=2", "--quick", "--seconds", "3", "--stall", "5", text=text)
    assert [code for code, _ in ends] == [1, 3]
    calibration: dict[str, Any] = json.loads((tmp_path / "cluster.json").read_text())["calibration"]
    assert calibration["launchSeconds"] > 0
    assert calibration["calls"]
    # On a busy machine there may be too few products for a curve, which is said.
    assert calibration["matmul"] or any(note.startswith("products in ") for note in calibration["notes"])
    assert any(note.startswith("copies: ended early") for note in calibration["notes"])
    assert any("not measured after that: attention, collectives, beside" in note for note in calibration["notes"])


def test_a_call_that_does_not_fit_is_left_out_by_name() -> None:
    def fails(_: int) -> object:
        raise RuntimeError("out of memory: 1 TiB\nmore")

    points = [Point("small", lambda _: torch.ones(4).sum(), {"bytes": 1}), Point("large", fails, {"bytes": 2})]
    notes: list[str] = []
    kept = timed(points, Ranks(5), torch.device("cpu"), 0.2, notes)
    assert [point.name for point in kept] == ["small"]
    assert notes == ["large: not measured, RuntimeError: out of memory: 1 TiB"]
    (row,) = told(kept, notes)
    assert row["seconds"] > 0
    assert len(kept[0].samples) >= 5


def test_medians_stand_against_outliers_which_are_named() -> None:
    point = Point("call", lambda _: None, {}, samples=[1.0, 1.0, 1.01, 1.0, 9.0, 0.99, 1.0])
    notes: list[str] = []
    assert told([point], notes)[0]["seconds"] == 1.0
    assert notes == ["1 of 1 points have samples of more than 3 medians: call (1 of 7 samples, 9 medians at most)"]
    assert not Point("call", lambda _: None, {}, samples=[1.0, 2.0, 3.0, 4.0, 5.0]).is_known


def test_a_file_on_a_base_has_what_was_measured_alone() -> None:
    calibration = {"version": 1, "device": "x", "date": "2026-01-01T00:00:00Z"}
    made = cluster_file(calibration, [], base="dgx-h100", memory_bytes=1, reserved_bytes=0, devices_per_host=8)
    assert made == {"base": "dgx-h100", "calibration": calibration}


def test_a_file_has_no_unit_with_fewer_products_than_a_curve_takes() -> None:
    # What a busy machine leaves: two products in fp32, of which the faster one is the peak, and none in bf16.
    products = [{"m": 1000, "k": 1000, "n": 1000, "itemBytes": 4, "seconds": seconds} for seconds in (1e-3, 2e-3)]
    calibration = {"version": 1, "device": "x", "date": "2026-01-01T00:00:00Z", "matmul": {"bf16": [], "fp32": products}, "notes": ["slow"]}
    made = cluster_file(calibration, [], base=None, memory_bytes=10**9, reserved_bytes=0, devices_per_host=1)
    assert made["peakFlopsPerSecond"] == {"fp32": 2e12}
    assert made["calibration"]["matmul"] == {}
    said = made["calibration"]["notes"]
    assert said[0] == "slow"
    assert said[1].startswith("products in bf16: 0 measured")
    assert said[2] == "products in fp32: 2 measured, a curve takes 3; its best rate is the peak"
    assert calibration["matmul"] == {"bf16": [], "fp32": products}
    three = {**calibration, "matmul": {"fp32": [*products, products[0]]}}
    assert cluster_file(three, [], base="dgx-h100", memory_bytes=1, reserved_bytes=0, devices_per_host=1)["calibration"] == three


def test_no_call_of_a_measured_file_is_faster_than_its_peak() -> None:
    # The products were slowed by something else, attention was not: 4 TFLOP/s, where the products say 2.
    product = {"m": 1000, "k": 1000, "n": 1000, "seconds": 1e-3}
    attention = {"unit": "fp32", "batch": 1, "heads": 10, "rows": 1000, "channels": 100, "seconds": 1e-3}
    calibration = {
        "version": 1,
        "device": "x",
        "date": "2026-01-01T00:00:00Z",
        "matmul": {"fp32": [product], "bf16": [product]},
        "attention": [attention | {"backward": False}, attention | {"backward": True, "seconds": 4e-3}],
    }
    made = cluster_file(calibration, [], base=None, memory_bytes=1, reserved_bytes=0, devices_per_host=1)
    assert made["peakFlopsPerSecond"] == {"fp32": 4e12, "bf16": 2e12}
