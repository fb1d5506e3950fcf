"""Traces a step: `trace.py WORLD NAME=FOLDER FILE` runs the plan in several processes and writes what the profiler of rank 0 saw.

With `{rank}` in FILE every rank writes its own. A fourth argument RANK=SECONDS lets a rank sleep before each step. Events keep what
`shardwright doctor` reads: name, category, thread, start and duration.
"""

import gzip
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from models import sample
from torch.profiler import ProfilerActivity, profile

import shardwright


def work(rank: int, world: int, store: str, name: str, folder: str, file: str, late: dict[int, float]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    it = sample(name)
    plan = shardwright.load(folder)
    module = shardwright.parallelize(it.model, plan, plan.init_device_mesh("cpu"))

    def step() -> None:
        time.sleep(late.get(rank, 0))
        module(*it.args, *it.targets, **it.kwargs).backward()

    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
        step()
    if rank == 0 or "{rank}" in file:
        with tempfile.TemporaryDirectory() as place:
            profiler.export_chrome_trace(f"{place}/trace.json")
            events = json.loads(Path(f"{place}/trace.json").read_text())["traceEvents"]
        kept = [{key: event[key] for key in ("ph", "name", "cat", "tid", "ts", "dur")} for event in events if event.get("ph") == "X"]
        text = json.dumps({"traceEvents": kept})
        Path(file.format(rank=rank)).write_bytes(gzip.compress(text.encode(), mtime=0))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1])
    name, folder = sys.argv[2].split("=", 1)
    late: dict[int, float] = {}
    if len(sys.argv) > 4:
        slow, seconds = sys.argv[4].split("=")
        late[int(slow)] = float(seconds)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        mp.start_processes(work, (world, f"{place}/store", name, folder, sys.argv[3], late), nprocs=world, start_method="fork")
