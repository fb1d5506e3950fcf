"""Starts the processes of tests as forks of one server that has imported PyTorch, since importing it takes longer than most of them run."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.multiprocessing as mp

# Every rank that compiles would start processes for it, each of which imports PyTorch.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

#: The server imports modules and computes nothing: it has neither threads nor groups, which a fork would not have.
_IMPORTED = (
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.tensor",
    "shardwright.auto",
    "accelerate",
    "transformers",
)
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(list(_IMPORTED))


def run_ranks(work: Callable[..., None], args: tuple[Any, ...], count: int) -> None:
    """Calls `work(rank, *args)` in as many processes, as `torch.multiprocessing.spawn` does."""
    mp.start_processes(work, args, nprocs=count, start_method="forkserver")


@dataclass
class Started:
    """A script in a process of its own, and where what it prints is written."""

    process: Any
    output: Path

    def ended(self, until: float) -> tuple[int | None, str]:
        """The exit code and what was printed; a process that has not ended by then is killed, and has no code."""
        self.process.join(max(0.0, until - time.monotonic()))
        code: int | None = self.process.exitcode
        self.kill()
        return code, self.output.read_text(errors="replace")

    def kill(self) -> None:
        """Ends it, stopped or not."""
        if self.process.exitcode is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.join()

    def wait_for(self, text: str, seconds: float) -> None:
        """Waits until a text was printed."""
        until = time.monotonic() + seconds
        while text not in self.output.read_text():
            assert time.monotonic() < until and self.process.exitcode is None, self.output.read_text()
            time.sleep(0.05)


def start_ranks(script: Path, argv: Sequence[str], count: int, folder: Path, env: Mapping[str, str] | None = None) -> list[Started]:
    """Starts a script in as many processes, with the environment in which a launcher starts it; none where `count` is 0."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = {"OMP_NUM_THREADS": "1", **(env or {})}
    if count:
        shared |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    started = []
    for rank in range(max(count, 1)):
        own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} if count else shared
        output = folder / f"output{rank}"
        output.touch()
        process = _FORKS.Process(target=_run, args=(script, list(argv), own, folder, output))
        process.start()
        started.append(Started(process, output))
    return started


def _run(script: Path, argv: Sequence[str], env: Mapping[str, str], folder: Path, output: Path) -> None:
    written = os.open(output, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(written, stream)
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = [str(script), *argv]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Exception as error:
        # As the interpreter does, which a fork ends without.
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return int(server.getsockname()[1])
