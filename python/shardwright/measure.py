"""Measures the machine that runs it, and writes a cluster file for the planner.

    torchrun --nproc-per-node 4 -m shardwright.measure --mesh dp=2,tp=2 -o cluster.json

Collectives of each kind over each mesh dim and each union of them, from 1 KiB to 256 MiB, alone and beside compute; products by shape
and dtype, attention, calls that read and write, copies, and the start of a call. `shardwright plan`, `compare`, `tune` and `simulate`
take the file as `--cluster`. With `--base dgx-h100` it changes what was measured in that design, and the rest stays published.

On a processor it runs with gloo, on a GPU with NCCL; without a launcher it is one process, and has no collectives. The file is written
after each part, so that what is measured is kept where a later part fails or a rank does not answer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .errors import ShardwrightError
from .measuring import collectives, kernels, machine
from .measuring.file import cluster_file
from .measuring.timing import Point, Ranks, timed_in_parts, told

#: Seconds in all, and the part of them that each part of the measurement may take.
FULL, QUICK = 300.0, 30.0
PARTS = {"starts": 0.04, "products": 0.2, "calls": 0.26, "copies": 0.06, "attention": 0.06, "collectives": 0.26, "beside": 0.12}


class Measurement:
    """Measures part by part, and makes a file of it."""

    def __init__(self, args: argparse.Namespace, ranks: Ranks, mesh: Any) -> None:
        self.args, self.ranks, self.mesh = args, ranks, mesh
        kind = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"  # type: ignore[union-attr]
        self.device = torch.device("cpu") if kind == "cpu" else torch.device(kind, torch.accelerator.current_device_index())
        self.backend = dist.get_backend() if dist.is_initialized() else ""
        if self.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = True
        self.bytes, self.taken = machine.memory(self.device, ranks)
        self.work = kernels.Work(self.device, self.bytes, args.quick)
        self.notes: list[str] = []
        self.calibration: dict[str, Any] = {"version": 1, **machine.about(self.device, ranks, args.mesh, self.backend)}
        self.table: list[dict[str, Any]] = []
        self.alone: list[Point] = []
        self.groups: list[collectives.Group] = []
        self.start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds for the whole measurement."""
        return self.args.seconds or (QUICK if self.args.quick else FULL)

    def say(self, text: str) -> None:
        """A line of progress, of the first rank."""
        if self.ranks.rank == 0 and not self.args.quiet:
            print(f"{time.perf_counter() - self.start:6.1f} s  {text}", file=sys.stderr, flush=True)

    def timed(self, part: str, points: Sequence[Point], together: int = 12) -> list[Point]:
        """Points of a part within its seconds; the first sample of each is a warm-up."""
        self.say(f"{part}: {len(points)} points, at most {PARTS[part] * self.seconds:.0f} s")
        return timed_in_parts(points, self.ranks, self.device, PARTS[part] * self.seconds, self.notes, together)

    def starts(self) -> None:
        """The smallest calls."""
        for point in self.timed("starts", list(self.work.starts())):
            self.calibration[point.record["key"]] = float(f"{point.seconds:.4g}")

    def products(self) -> None:
        """Products by unit."""
        found = told(self.timed("products", list(self.work.products())), self.notes)
        self.calibration["matmul"] = {unit: [] for unit in sorted({row["unit"] for row in found})}
        for row in found:
            self.calibration["matmul"][row.pop("unit")].append(row)

    def calls(self) -> None:
        """Operators by bytes and operations."""
        self.calibration["calls"] = told(self.timed("calls", list(self.work.calls()), 25), self.notes)

    def copies(self) -> None:
        """Copies by bytes."""
        self.calibration["memory"] = told(self.timed("copies", list(self.work.copies())), self.notes)

    def attention(self) -> None:
        """Fused attention."""
        self.calibration["attention"] = told(self.timed("attention", list(self.work.attention())), self.notes)

    def collectives(self) -> None:
        """Each kind alone."""
        if self.mesh is None:
            return
        limit = self.bytes // 32
        self.groups = collectives.groups(self.mesh, self.args.stall)
        own = collectives.Collectives(self.device, self.groups, self.backend)
        self.alone = self.timed("collectives", list(own.points(self.args.quick, limit)), 10)
        told(self.alone, self.notes)
        self.table = collectives.rows(self.alone, [])

    def beside(self) -> None:
        """Each kind beside compute, at every second size and the largest."""
        if not self.alone:
            return
        own = collectives.Collectives(self.device, self.groups, self.backend)
        begin = time.perf_counter()
        for _ in range(20):
            own.compute(1)
        torch.accelerator.synchronize() if self.device.type != "cpu" else None
        product = self.ranks.most([(time.perf_counter() - begin) / 20])[0]
        points = list(own.beside(self.alone, product))
        found = self.timed("beside", points, len(points))
        self.table = collectives.rows(self.alone, found)

    def parts(self) -> dict[str, Callable[[], None]]:
        """The parts by name, in their order."""
        return {name: getattr(self, name) for name in PARTS}

    def write(self, missing: Sequence[str]) -> None:
        """The file as it is now; parts that were not measured are among its notes."""
        if self.ranks.rank != 0:
            return
        notes = [*self.notes, *(f"{part}: not measured" for part in missing)]
        whole = cluster_file(
            self.calibration | {"notes": [note[:400] for note in notes[:200]]},
            self.table,
            base=self.args.base,
            memory_bytes=self.bytes,
            reserved_bytes=self.taken,
            devices_per_host=machine.local_ranks(self.ranks),
        )
        path = Path(self.args.out)
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(json.dumps(whole, indent=1) + "\n")
        beside.replace(path)


def measure(args: argparse.Namespace, mesh: Any = None) -> Measurement:
    """Measures part by part and writes the file after each; a part that fails on a rank is left out, and said."""
    ranks = Ranks(args.stall)
    run = Measurement(args, ranks, mesh)
    run.say(f"measures {run.calibration['device']}, {ranks.world} processes, in about {run.seconds:.0f} s")
    quiet = machine.Quiet(run.device, ranks, min(1.0, run.seconds / 60))
    quiet.look()
    left = run.parts()
    while left:
        name, part = next(iter(left.items()))
        fault: str | None = None
        try:
            ranks.all_here()
            part()
        except (RuntimeError, ValueError) as error:
            fault = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
            run.notes.append(f"{name}: ended early, {fault}")
            run.say(f"{name}: ended early, {fault}")
        del left[name]
        run.write(list(left))
        if fault is not None:
            # A rank that failed or did not answer leaves groups behind in which no call ends.
            run.notes.append(f"not measured after that: {', '.join(left) or 'nothing'}")
            run.write(())
            break
    else:
        share = kernels.allocator_share(run.device)
        if share is not None:
            run.calibration["allocatorShare"] = share
        quiet.look()
    for said in quiet.told():
        run.notes.append(said)
        run.say(said)
    run.write(list(left))
    run.say(f"wrote {args.out}" + (f", {len(run.notes)} notes in it" if run.notes else ""))
    return run


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m shardwright.measure", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mesh", default="", help="mesh dims, outermost first: dp=2,tp=2; default one dim of all ranks")
    parser.add_argument("-o", "--out", default="cluster.json", help="the cluster file (default cluster.json)")
    parser.add_argument("--base", help="a node design whose other figures stay: dgx-h100")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, in about half a minute")
    parser.add_argument("--seconds", type=float, help=f"seconds in all (default {FULL:.0f}, quick {QUICK:.0f})")
    parser.add_argument("--stall", type=float, default=60, help="seconds after which a collective that no rank answers ends (default 60)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the measurement on this rank."""
    parser = options()
    args = parser.parse_args(argv)
    if args.seconds is not None and not args.seconds > 0:
        parser.error("--seconds takes a positive number")
    mesh = None
    try:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            from .making import open_mesh

            on_gpu = torch.accelerator.is_available()
            if on_gpu:
                torch.accelerator.set_device_index(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group(None if on_gpu else "gloo", timeout=timedelta(seconds=args.stall))
            args.mesh = args.mesh or f"dp={dist.get_world_size()}"
            mesh = open_mesh(args.mesh)
        elif args.mesh:
            parser.error("--mesh needs a launcher: torchrun --nproc-per-node 4 -m shardwright.measure --mesh ...")
        run = measure(args, mesh)
    except ShardwrightError as error:
        print(error, file=sys.stderr)
        return 2
    ended_early = any("ended early" in note for note in run.notes)
    if dist.is_initialized() and not ended_early:
        dist.destroy_process_group()
    return 1 if ended_early else 0


if __name__ == "__main__":
    sys.exit(main())
