"""Scripts of `examples/`: what they print without the package is what they print on one, two and four processes under two plans."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from processes import start_ranks
from run_scripts import as_written

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
NEEDS = {
    "bert": "transformers",
    "trained": "transformers",
    "accelerated": "accelerate",
    "lightning_fit": "lightning",
    "titan": "torchtitan",
}
#: Scripts whose kind another one stands for where not all are asked.
LONG = {
    *("codebook", "diffusion", "distill", "dpo", "dqn", "grpo", "lstm", "mae", "packed", "penalties", "ppo", "seq2seq", "simclr", "vae"),
}
FULL = bool(os.environ.get("SHARDWRIGHT_FULL"))
#: Scripts that are also run alone and on four processes.
EVERYWHERE = ("gan", "nanogpt") if FULL else ("nanogpt",)
#: Processes and recipe of each launch; 0 processes: without a launcher.
LAUNCHES = {"alone": (0, None), "two": (2, "fsdp"), "four": (4, None)}
ASKED = [name for name in NAMES if FULL or name not in LONG]
CASES = [(name, launch) for launch in LAUNCHES for name in ASKED if FULL or launch == "two" or name in EVERYWHERE]


class Launch:
    """Scripts in the processes of one launch, which runs while others do."""

    def __init__(self, folder: Path, kind: str, names: list[str], processes: int = 0, recipe: str | None = None, **more: str) -> None:
        self.folder = folder
        scripts = [str(EXAMPLES / f"{name}.py") for name in names if name not in NEEDS or find_spec(NEEDS[name])]
        env = {**({"RECIPE": recipe} if recipe else {}), **more}
        self.started = start_ranks(Path(__file__).with_name("run_scripts.py"), [str(folder), kind, *scripts], processes, folder, env)

    def done(self) -> Path:
        """The folder of the answers, when all scripts have run."""
        until = time.monotonic() + 1500
        ended = [one.ended(until) for one in self.started]
        assert [code for code, _ in ended] == [0] * len(ended), "".join(text[-4000:] for _, text in ended)
        return self.folder


def answer(folder: Path, name: str) -> list[float]:
    """The numbers that a script wrote."""
    fault = folder / name / "fault"
    assert not fault.exists(), fault.read_text()
    return [float(word) for word in (folder / name / "answer").read_text().split()]


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Launch]]:
    """All launches, begun together."""
    place = tmp_path_factory.mktemp("scripts")
    begun = {"plain": Launch(place / "plain", "plain", ASKED)}
    for kind, how in LAUNCHES.items():
        begun[kind] = Launch(place / kind, "taken", [name for name, launched in CASES if launched == kind], *how)
    yield begun
    for launch in begun.values():
        for one in launch.started:
            one.kill()


@pytest.mark.parametrize("name", NAMES)
def test_a_script_without_the_package_has_no_word_of_it(name: str) -> None:
    text = as_written((EXAMPLES / f"{name}.py").read_text())
    assert "shardwright" not in text.partition('"""\n\n')[2]


@pytest.mark.parametrize(("name", "launched"), CASES)
def test_a_script_with_its_model_taken_over_prints_what_it_prints_without(launches: dict[str, Launch], name: str, launched: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    expected = answer(launches["plain"].done(), name)
    assert len(expected) > 10
    assert answer(launches[launched].done(), name) == pytest.approx(expected, rel=1e-7, abs=1e-8)


def test_a_run_goes_on_in_fresh_scripts_with_other_numbers_of_processes(tmp_path: Path) -> None:
    def epochs(*ranks: tuple[int, str | None]) -> list[float]:
        told: list[float] = []
        before, place = "-", tmp_path / "-".join(str(count) for count, _ in ranks)
        for epoch, (count, recipe) in enumerate(ranks):
            folder, following = place / str(epoch), str(place / f"checkpoint{epoch}")
            argv = [before, following, str(place / f"answer{epoch}")]
            script = Path(__file__).with_name("resumed_run.py")
            started = start_ranks(script, argv, count, folder, {"RECIPE": recipe} if recipe else {})
            ended = [one.ended(time.monotonic() + 300) for one in started]
            assert [code for code, _ in ended] == [0] * len(ended), "".join(text[-4000:] for _, text in ended)
            told += [float(word) for word in (place / f"answer{epoch}").read_text().split()]
            before = following
        return told

    one = epochs((0, None), (0, None), (0, None))
    assert len(one) == 15
    assert epochs((4, "fsdp"), (2, None), (3, None)) == pytest.approx(one, rel=1e-7, abs=1e-8)


def test_a_run_goes_on_with_other_processes_under_another_plan(launches: dict[str, Launch], tmp_path: Path) -> None:
    checkpoint = str(launches["two"].done() / "resume" / "checkpoint")
    found = Launch(tmp_path / "four", "taken", ["resume"], 4, None, CHECKPOINT=checkpoint).done()
    assert answer(found, "resume") == pytest.approx(answer(launches["plain"].done(), "resume"), rel=1e-7, abs=1e-8)
