"""Ends a process that ran collectives only after the threads of its process groups have ended."""

from __future__ import annotations

import atexit
import functools
import time

import torch.distributed as dist

#: Threads need less than a millisecond for what they still hold; on a busy machine they wait for their turn.
_PAUSE_SECONDS = 0.2


def let_threads_end_first() -> None:
    """Makes the interpreter wait a moment for gloo's threads before it ends; called before a first collective on gloo.

    A thread of gloo lets go of the tensors of a collective after the collective has returned, and needs the interpreter for that. One
    that asks while the interpreter ends is ended too, inside C++ that allows no such thing: the process aborts
    (`terminate called without an active exception`, exit code -6), whatever it had reached. Seen with PyTorch 2.13 on Python 3.11.
    """
    if "gloo" in dist.get_backend_config():
        _pause_at_exit()


@functools.cache
def _pause_at_exit() -> None:
    atexit.register(time.sleep, _PAUSE_SECONDS)
