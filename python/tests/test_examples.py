"""Scripts of `examples/`: what they print without the package is what they print on one, two and four processes under two plans."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from run_scripts import as_written

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
NEEDS = {"bert": "transformers", "trained": "transformers", "accelerated": "accelerate"}
EVERYWHERE = ("bert", "gan", "nanogpt")
FULL = bool(os.environ.get("SHARDWRIGHT_FULL"))
#: Processes and recipe of each launch; 0 processes: without a launcher.
LAUNCHES = {"alone": (0, None), "two": (2, "fsdp"), "four": (4, None)}
CASES = [(name, launch) for launch in LAUNCHES for name in NAMES if FULL or launch == "two" or name in EVERYWHERE]


def launch(folder: Path, kind: str, names: list[str], processes: int = 0, recipe: str | None = None, **more: str) -> Path:
    """Runs scripts in one launch; the folder of their answers."""
    folder.mkdir()
    starts = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes else []
    outer = {key: value for key, value in os.environ.items() if key not in ("RECIPE", "WORLD_SIZE", "RANK")}
    env = {**outer, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1", **({"RECIPE": recipe} if recipe else {}), **more}
    scripts = [str(EXAMPLES / f"{name}.py") for name in names if name not in NEEDS or find_spec(NEEDS[name])]
    call = [sys.executable, *starts, str(Path(__file__).with_name("run_scripts.py")), str(folder), kind, *scripts]
    run = subprocess.run(call, env=env, capture_output=True, text=True, timeout=1500, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
    return folder


def answer(folder: Path, name: str) -> list[float]:
    """The numbers that a script wrote."""
    fault = folder / name / "fault"
    assert not fault.exists(), fault.read_text()
    return [float(word) for word in (folder / name / "answer").read_text().split()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return launch(tmp_path_factory.mktemp("scripts") / "plain", "plain", NAMES)


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a launch, which is made once."""

    @functools.cache
    def made(kind: str) -> Path:
        names = [name for name, launched in CASES if launched == kind]
        return launch(tmp_path_factory.mktemp("scripts") / kind, "taken", names, *LAUNCHES[kind])

    return made


@pytest.mark.parametrize("name", NAMES)
def test_a_script_without_the_package_has_no_word_of_it(name: str) -> None:
    text = as_written((EXAMPLES / f"{name}.py").read_text())
    assert "shardwright" not in text.partition('"""\n\n')[2]


@pytest.mark.parametrize(("name", "launched"), CASES)
def test_a_script_with_its_model_taken_over_prints_what_it_prints_without(plain: Path, taken: Any, name: str, launched: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    expected = answer(plain, name)
    assert len(expected) > 10
    assert answer(taken(launched), name) == pytest.approx(expected, rel=1e-7, abs=1e-8)


def test_a_run_goes_on_with_other_processes_under_another_plan(plain: Path, taken: Any, tmp_path: Path) -> None:
    checkpoint = str(taken("two") / "resume" / "checkpoint")
    found = launch(tmp_path / "four", "taken", ["resume"], 4, None, CHECKPOINT=checkpoint)
    assert answer(found, "resume") == pytest.approx(answer(plain, "resume"), rel=1e-7, abs=1e-8)
