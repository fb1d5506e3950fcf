"""Processes as launchers start them: on two hosts, in the right and in a wrong order; and processes that die or stall."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from plans import ENCODERS
from processes import Started, free_port, start_ranks

pytestmark = pytest.mark.usefixtures("plans")

HEAD = """
import dataclasses, os, signal, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
sys.path.insert(0, os.environ["TESTS"])
import shardwright
from models import mlp
from plans import PLANS
from test_run import ready
torch.set_num_threads(1)
"""


def environment() -> dict[str, str]:
    outer = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    return {
        **outer,
        "TESTS": str(Path(__file__).parent),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def script(place: Path, text: str) -> str:
    file = place / "program.py"
    file.write_text(HEAD + text)
    return str(file)


def ended(processes: Sequence[subprocess.Popen[str]], seconds: float) -> list[tuple[int, str]]:
    """Exit codes and what was written, of processes that must end by themselves within a time."""
    until = time.monotonic() + seconds
    try:
        return [(p.wait(until - time.monotonic()), p.stdout.read() if p.stdout else "") for p in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()


# How a launcher tells that native code ended a process.
CRASHED = re.compile(r"Signal \d+ \(SIG(?:ABRT|SEGV)\) received")


def again_if_crashed(run: Callable[[], list[tuple[int, str]]]) -> list[tuple[int, str]]:
    """The outcomes of a run; one of whose processes native code ended (a thread of gloo while the interpreter ends, see `ending.py`)
    is told and done once more. Wrong answers and exceptions are not."""
    outcomes = run()
    if any(code in (-signal.SIGABRT, -signal.SIGSEGV) or CRASHED.search(text) for code, text in outcomes):
        warnings.warn(f"native code ended a process; its run is done again: {outcomes}", stacklevel=2)
        outcomes = run()
    return outcomes


# Two launchers of two processes, which meet as on two hosts.

TWO_HOSTS = """
dist.init_process_group("gloo")
plan = shardwright.load(PLANS / "mlp-2x2-columns")
plan = dataclasses.replace(plan, placements={**plan.placements, "devicesPerHost": 2})
for order in ([[0, 1], [2, 3]], [[0, 2], [1, 3]]):
    mesh = dist.device_mesh.DeviceMesh("cpu", torch.tensor(order), mesh_dim_names=("dp", "tp"))
    model, x, y = mlp()
    try:
        module = shardwright.parallelize(model, plan, mesh)
        loss = module(x, y)
        loss.backward()
        said = f"loss {loss.item():.6f}"
    except shardwright.MismatchError as error:
        said = str(error).splitlines()[0]
    print(f"rank {dist.get_rank()} of host {os.environ['GROUP_RANK']}: {said}", flush=True)
dist.destroy_process_group()
"""


def on_two_hosts(place: Path) -> list[tuple[int, str]]:
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}", "--rdzv-id", "7", "--local-addr", "localhost"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--log-dir", str(place), *meeting]
    call = [*launch, script(place, TWO_HOSTS)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return ended([subprocess.Popen(call, env=environment(), text=True, **pipes) for _ in range(2)], 300)  # type: ignore[call-overload]


def test_ranks_train_on_two_hosts_in_the_order_of_the_plan_alone(tmp_path: Path) -> None:
    outcomes = again_if_crashed(lambda: on_two_hosts(tmp_path))
    text = "".join(out for _, out in outcomes)
    assert [code for code, _ in outcomes] == [0, 0], text
    found = sorted(re.findall(r"rank (\d) of host (\d): loss (\S+)", text))
    assert [(rank, host) for rank, host, _ in found] == [("0", "0"), ("1", "0"), ("2", "1"), ("3", "1")]
    assert len({loss for _, _, loss in found}) == 1
    refused = "E_HOSTS the plan has ranks [0, 2]; [1, 3] on one host each, the launcher has host 0: ranks [0, 1]; host 1: ranks [2, 3]"
    assert sorted(re.findall(r"rank (\d) of host \d: (E_HOSTS .*)", text)) == [(str(rank), refused) for rank in range(4)]


# Four processes whose allocator fills what is freed and checks what it hands out.

CHECKED = {"MALLOC_PERTURB_": "85", "MALLOC_CHECK_": "3"}

STEPS = """
import copy
from models import encoder
dist.init_process_group("gloo")
model, x, y = encoder()
reference = copy.deepcopy(model)
for name in sys.argv[2:]:
    plan = shardwright.load(PLANS / name)
    module = shardwright.parallelize(copy.deepcopy(reference), plan, plan.init_device_mesh("cpu"))
    for step in range(int(sys.argv[1])):
        loss = module(x, y)
        loss.backward()
    expected = torch.nn.functional.mse_loss(reference(x), y)
    kinds = sorted({row["kind"] for row in plan.collectives})
    if dist.get_rank() == 0:
        print(name, *kinds, abs(float(shardwright.gather_outputs(loss.detach())) / float(expected.detach()) - 1) < 1e-9, flush=True)
dist.destroy_process_group()
"""


def test_many_steps_on_gloo_leave_the_heap_whole(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "--log-dir", str(tmp_path)]
    call = [*launch, script(tmp_path, STEPS), "100" if os.environ.get("SHARDWRIGHT_FULL") else "40", *ENCODERS]
    run = subprocess.run(call, env={**environment(), **CHECKED}, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    assert run.stdout.splitlines() == [f"{name} all_gather True" for name in ENCODERS]


# Two processes that nobody watches: what ends one must end the other.

ALONE = """
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
plan = shardwright.load(PLANS / "mlp-2-fsdp")
model, x, y = mlp()
module = shardwright.parallelize(model, plan, plan.init_device_mesh("cpu"), timeout=timedelta(seconds=float(sys.argv[2])))
loss = module(x, y)
print("ready", flush=True)
if dist.get_rank() == int(sys.argv[3]):
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    time.sleep(600)
loss.backward()
print("it went on")
"""


def unwatched(place: Path, text: str, *argv: str) -> list[Started]:
    return start_ranks(Path(script(place, text)), argv, 2, place / "ranks", {"TESTS": str(Path(__file__).parent)})


def test_a_killed_rank_ends_the_other(tmp_path: Path) -> None:
    """Their collectives may wait for ten minutes; the connection that breaks ends it at once."""
    until = time.monotonic() + 120
    (code, text), (killed, _) = [one.ended(until) for one in unwatched(tmp_path, ALONE, "SIGKILL", "600", "1")]
    assert killed == -signal.SIGKILL
    assert code not in (0, None) and "it went on" not in text
    assert "Connection closed by peer" in text or "Connection reset" in text, text


def test_a_killed_rank_that_holds_the_store_is_named(tmp_path: Path) -> None:
    until = time.monotonic() + 120
    (killed, _), (code, text) = [one.ended(until) for one in unwatched(tmp_path, ALONE, "SIGKILL", "600", "0")]
    assert killed == -signal.SIGKILL
    assert code == 1 and "it went on" not in text
    assert "E_RANK rank 1 waited in the backward of step 1" in text, text
    assert "rank 0, which holds the store of the process group, is out of reach: it was killed" in text


def test_a_rank_that_stalls_ends_the_other_after_the_timeout(tmp_path: Path) -> None:
    first, stalled = unwatched(tmp_path, ALONE, "SIGSTOP", "3", "1")
    code, text = first.ended(time.monotonic() + 120)
    stalled.kill()
    assert code not in (0, None) and "it went on" not in text
    assert re.search(r"[Tt]imed out", text), text


# A rank that leaves out a step, and does other work than calling the model.

BEHIND = """
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
plan = shardwright.load(PLANS / "mlp-2-fsdp")
model, x, y = mlp()
module = shardwright.parallelize(model, plan, plan.init_device_mesh("cpu"), timeout=timedelta(seconds=3))
for step in range(7):
    if step == 5 and dist.get_rank() == 1:
        time.sleep(60)
        break
    module(x, y).backward()
"""


def test_the_rank_that_leaves_out_a_step_is_named_within_the_timeout(tmp_path: Path) -> None:
    first, other = unwatched(tmp_path, BEHIND)
    code, text = first.ended(time.monotonic() + 120)
    other.kill()
    assert code not in (0, None)
    assert "E_RANK rank 0 waited in the forward of step 6" in text, text
    assert "rank 1 is in the backward of step 5" in text


# A rank whose own code raises, and one that gives another shape between two comparisons of batches.

RAISES = """
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
plan = shardwright.load(PLANS / "mlp-2-fsdp")
model, x, y = mlp()
module = shardwright.parallelize(model, plan, plan.init_device_mesh("cpu"), timeout=timedelta(seconds=60))
for step in range(8):
    if step == 5 and dist.get_rank() == int(sys.argv[1]):
        raise ValueError("sample 17 is broken")
    module(x, y).backward()
"""

RESHAPED = """
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
model, x, y = mlp()
flags = {"recipe": "fsdp", "quiet": True, "folder": os.environ["TESTS"] + "/.plans/reshaped"}
module = shardwright.auto_parallelize(model, (x,), mesh, cluster="dgx-h100", timeout=timedelta(seconds=10), **flags)
for step in range(8):
    rows = 7 if step == 5 and dist.get_rank() == 1 else 8
    torch.nn.functional.mse_loss(module(x[:rows]), y[:rows]).backward()
"""


@pytest.mark.parametrize("ends", [0, 1])
def test_a_rank_says_what_ended_another_one(tmp_path: Path, ends: int) -> None:
    """Also where it held the store, which ends with it."""
    until = time.monotonic() + 120
    outcomes = [one.ended(until) for one in unwatched(tmp_path, RAISES, str(ends))]
    (code, text), (other, raised) = outcomes[1 - ends], outcomes[ends]
    assert (code, other) == (1, 1) and "ValueError: sample 17 is broken" in raised
    line = 1 + (tmp_path / "program.py").read_text().splitlines().index('        raise ValueError("sample 17 is broken")')
    assert f"E_RANK rank {1 - ends} waited in the forward of step 6" in text, text
    assert f"rank {ends} ended in step 5 with ValueError: sample 17 is broken ({tmp_path}/program.py:{line})" in text, text


def test_ranks_that_give_other_shapes_end_with_both(tmp_path: Path) -> None:
    """Gloo itself may abort one of them; what one says has both shapes."""
    until = time.monotonic() + 120
    outcomes = [one.ended(until) for one in unwatched(tmp_path, RESHAPED)]
    assert all(code not in (0, None) for code, _ in outcomes), outcomes
    told = [line for _, text in outcomes for line in text.splitlines() if "E_RANK" in line]
    assert any("x float64[7, 16]" in line and "x float64[8, 16]" in line for line in told), outcomes


# What ends the first rank while it captures or plans is what the others hear.

AUTO = """
dist.init_process_group("gloo")
if sys.argv[1] == "broken":
    import shardwright.auto
    def broken(*_, **__):
        raise OSError("the disk is full")
    shardwright.auto.capture = broken
model, x, y = mlp()
mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
command = [sys.executable, sys.argv[2]]
try:
    shardwright.auto_parallelize(model, (x,), mesh, cluster="c", loss=torch.nn.functional.mse_loss, targets=(y,), command=command)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""

REFUSES = """
import json, sys
print(json.dumps({"error": {"code": "E_CLUSTER", "message": "there is no cluster c", "where": {"file": "c"}, "hint": "dgx-h100"}}))
sys.exit(2)
"""


@pytest.mark.parametrize(
    ("what", "first", "other"),
    [
        ("refused", *["CommandError: c: E_CLUSTER there is no cluster c\n  hint: dgx-h100\n"] * 2),
        ("broken", "OSError: the disk is full\n", "ShardwrightError: E_RANK rank 0 failed: OSError: the disk is full\n"),
    ],
)
def test_all_ranks_say_why_the_first_one_failed(tmp_path: Path, what: str, first: str, other: str) -> None:
    command = tmp_path / "command.py"
    command.write_text(REFUSES)
    until = time.monotonic() + 200
    outcomes = [one.ended(until) for one in unwatched(tmp_path, AUTO, what, str(command))]
    assert [(code, text[-len(said) :]) for (code, text), said in zip(outcomes, (first, other), strict=True)] == [(0, first), (0, other)]


PAUSES = """
import atexit
dist.init_process_group("gloo")
registered = []
atexit.register = lambda call, *given: registered.append((call, given))
from shardwright.ending import let_threads_end_first
let_threads_end_first()
let_threads_end_first()
print([(call.__name__, seconds > 0) for call, (seconds,) in registered])
"""


def test_a_process_of_gloo_waits_for_its_threads_once(tmp_path: Path) -> None:
    shared = {**environment(), "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "1", "RANK": "0"}
    process = subprocess.Popen([sys.executable, script(tmp_path, PAUSES)], env=shared, text=True, stdout=subprocess.PIPE)
    assert ended([process], 100) == [(0, "[('sleep', True)]\n")]
