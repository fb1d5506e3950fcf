"""Runs scripts one after another in the processes of one launch, since starting Python and its packages takes longer than most of them.

    run_scripts.py FOLDER plain|taken SCRIPT...

Each runs in FOLDER/NAME, writes its numbers to `answer` there, and `fault` is the traceback of one that failed.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
import traceback
from pathlib import Path

import torch

#: The changed lines: imports, and the call of each model.
CHANGED = re.compile(r"^ *(?:import shardwright[\w.]*|\w+ = shardwright\.[\w.]+\((?:.*\)$|\n.*\n\)$))\n?", re.MULTILINE)
INTEGRATION = re.compile(r"^from shardwright\.integrations\.", re.MULTILINE)


def as_written(text: str) -> str:
    """The script without the package."""
    return INTEGRATION.sub("from ", CHANGED.sub("", text))


def forget_trainers() -> None:
    """accelerate has one state for a process."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)


def run(script: Path, folder: Path, plain: bool, rank: int) -> None:
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    own = folder / f"script{rank}.py"
    own.write_text(as_written(script.read_text()) if plain else script.read_text())
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    forget_trainers()
    sys.argv = [str(own), "answer" if rank == 0 else f"answer{rank}"]
    before = dict(os.environ)
    try:
        runpy.run_path(str(own), run_name="__main__")
    except Exception:
        (folder / ("fault" if rank == 0 else f"fault{rank}")).write_text(traceback.format_exc())
    # Lightning takes WORLD_SIZE away when it ends.
    os.environ.clear()
    os.environ.update(before)


if __name__ == "__main__":
    root, kind, *scripts = sys.argv[1:]
    torch.set_num_threads(1)
    for one in scripts:
        run(Path(one), Path(root) / Path(one).stem, kind == "plain", int(os.environ.get("RANK", "0")))
