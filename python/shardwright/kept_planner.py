"""Keeps one process of the planner, so that a run starts Node once: its second plan is several times faster than the first.

The process is `shardwright batch`, which takes a command line in each line of stdin and says in lines of JSON what it prints. A command
that has no `batch` is called once for each command line. A process that nobody asks for a while ends, and gives its memory back.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .errors import CommandError

_VERSION = 1
#: Seconds without a question after which the process ends.
_IDLE_SECONDS = 20.0

#: Takes a text of stdout or stderr; the exit code is the answer.
Listener = Callable[[str], None]


class _Kept:
    """One process of `shardwright batch`."""

    def __init__(self, call: Sequence[str]) -> None:
        self.owner = os.getpid()
        self.timer: threading.Timer | None = None
        # Node itself writes here where it ends early.
        self.last_words = tempfile.TemporaryFile("w+", errors="replace")
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.last_words}
        self.process = subprocess.Popen([*call, "batch"], text=True, errors="replace", **pipes)
        assert self.process.stdout is not None
        self.has_batch = _said(self.process.stdout.readline()) == {"version": _VERSION}

    def ask(self, argv: Sequence[str], out: Listener, err: Listener) -> int:
        """Runs one command; see `ask` below."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.wait_no_more()
        try:
            self.process.stdin.write(json.dumps({"argv": list(argv), "cwd": str(Path.cwd())}) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                said = _said(line)
                if "code" in said:
                    self.end_later()
                    return int(said["code"])
                out(said.get("stdout", ""))
                # Text that the program of a model prints is not an answer.
                err(said.get("stderr", "" if said else line))
        except OSError:
            pass
        except BaseException:
            # The rest of an answer that nobody heard would be that of the next question.
            self.end()
            raise
        code = self.process.wait()
        self.last_words.seek(0)
        said_last = "".join(self.last_words.readlines()[-5:]).strip() or "it said nothing"
        raise CommandError("E_COMMAND", f"shardwright {argv[0]} ended with exit code {code} before it answered: {said_last}")

    def end_later(self) -> None:
        """Ends the process after a while without a question."""
        self.timer = threading.Timer(_IDLE_SECONDS, _end_if, (self,))
        self.timer.daemon = True
        self.timer.start()

    def wait_no_more(self) -> None:
        """Lets the process live on."""
        if self.timer is not None:
            self.timer.cancel()

    def end(self) -> None:
        """Ends the process, unless it is that of a process from which this one was forked."""
        self.wait_no_more()
        if self.owner == os.getpid() and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _said(line: str) -> dict[str, Any]:
    """The parsed line, or {} for a line that is not of the protocol."""
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) and said.keys() & {"version", "stdout", "stderr", "code"} else {}


_LOCK = threading.RLock()
_kept: dict[tuple[str, ...], _Kept] = {}
#: Commands without `batch`.
_without: set[tuple[str, ...]] = set()


def ask(call: Sequence[str], argv: Sequence[str], out: Listener, err: Listener) -> int:
    """Runs a command line of the planner, and gives its exit code; what it prints goes to the listeners.

    Raises:
        OSError: where the command cannot be called.
        CommandError: where its process ends without an answer.
    """
    key = tuple(call)
    with _LOCK:
        found = None if key in _without else _of(key)
        if found is not None:
            return found.ask(argv, out, err)
    return once(call, argv, out, err)


def _of(key: tuple[str, ...]) -> _Kept | None:
    kept = _kept.get(key)
    # A forked process has its parent's, which answers the parent.
    if kept is None or kept.owner != os.getpid() or kept.process.poll() is not None:
        kept = _kept[key] = _Kept(key)
        if not kept.has_batch:
            kept.end()
            del _kept[key]
            _without.add(key)
            return None
    return kept


def _end_if(kept: _Kept) -> None:
    """Ends a process whose time is over, unless it is asked at this moment."""
    with _LOCK:
        if kept.timer is threading.current_thread():
            kept.end()


def end_all() -> None:
    """Ends the processes that are kept."""
    with _LOCK:
        for kept in _kept.values():
            kept.end()
        _kept.clear()


atexit.register(end_all)


def once(call: Sequence[str], argv: Sequence[str], out: Listener, err: Listener) -> int:
    """A process for this command line alone."""
    process = subprocess.Popen([*call, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")

    def relay() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            err(line)

    reader = threading.Thread(target=relay, daemon=True)
    reader.start()
    assert process.stdout is not None
    out(process.stdout.read())
    code = process.wait()
    reader.join()
    return code
