"""Scripts of `examples/`: what they print without the package is what they print on one, two and four processes under two plans."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
#: The changed lines: the import, and the call of each model.
CHANGED = re.compile(r"^(?:import shardwright|\w+ = shardwright\.auto_parallelize\((?:.*\)$|\n.*\n\)$))\n?", re.MULTILINE)


def printed(script: Path, folder: Path, processes: int, recipe: str | None = None) -> list[float]:
    """The numbers that a script writes."""
    folder.mkdir()
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes else []
    outer = {key: value for key, value in os.environ.items() if key not in ("RECIPE", "WORLD_SIZE", "RANK")}
    env = {**outer, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1", **({"RECIPE": recipe} if recipe else {})}
    call = [sys.executable, *launch, str(script), "answer"]
    run = subprocess.run(call, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
    return [float(word) for word in (folder / "answer").read_text().split()]


@pytest.mark.parametrize("name", ["nanogpt", "gan", "bert"])
def test_a_script_with_its_model_taken_over_prints_what_it_prints_without(tmp_path: Path, name: str) -> None:
    if name == "bert":
        pytest.importorskip("transformers")
    text = (EXAMPLES / f"{name}.py").read_text()
    plain = tmp_path / "plain.py"
    plain.write_text(CHANGED.sub("", text))
    assert "shardwright" not in CHANGED.sub("", text).partition('"""\n\n')[2]
    expected = printed(plain, tmp_path / "plain", 0)
    assert len(expected) > 10
    for processes, recipe in ((0, None), (2, "fsdp"), (4, None)):
        found = printed(EXAMPLES / f"{name}.py", tmp_path / f"{processes}-{recipe}", processes, recipe)
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-8)
