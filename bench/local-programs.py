"""Times the program of one device of plans on one GPU, its collectives replaced by copies, eager and under torch.compile.

    python bench/local-programs.py PLAN_FOLDER ... > measured.json

A folder is what `shardwright export PLAN --target torch -o FOLDER` writes. Needs PyTorch and a CUDA or ROCm device; `--device cpu`
runs the same on the processor. A copy reads and writes what the collective would give on this device; the copies are timed alone
too, so that what is left is the compute that the plan prices. Parameters and inputs are random numbers.
"""

import argparse
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Callable

import torch

# Rows of the smallest embedding table that tokens are drawn from.
TOKENS = 1000
# Seconds of steps before the first that is timed: clocks fall under load.
WARM_SECONDS = 1.5
STEPS = 15

moves = torch.library.Library("shardwright_bench", "DEF")
# Operators of their own, which no compiler joins with their neighbours; a trace has them under the names of the collectives.
COLLECTIVES = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")


def move(x: torch.Tensor, rows: int) -> torch.Tensor:
    """A copy of `x` with `rows` along dim 0: repeated where it grows, cut where it shrinks."""
    have = x.shape[0]
    if rows <= have:
        return x[:rows].clone(memory_format=torch.contiguous_format)
    out = x.new_empty((rows, *x.shape[1:]))
    whole = rows // have
    out[: whole * have].view(whole, *x.shape).copy_(x.unsqueeze(0).expand(whole, *x.shape))
    if whole * have < rows:
        out[whole * have :].copy_(x[: rows - whole * have])
    return out


for name in COLLECTIVES:
    moves.define(f"{name}(Tensor x, int rows) -> Tensor")
    moves.impl(name, move, "CompositeExplicitAutograd")
    moves._register_fake(name, lambda x, rows: x.new_empty((rows, *x.shape[1:])))


class Copies:
    """Stand-ins of a program's collectives, and the sizes that they had in the last step."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[int, ...], int, torch.dtype]] = []
        self.recording = False

    def __call__(self, name: str, x: torch.Tensor, rows: int) -> torch.Tensor:
        x = x.contiguous()
        if self.recording:
            self.seen.append((name, tuple(x.shape), rows, x.dtype))
        call = getattr(torch.ops.shardwright_bench, name)
        return call(x.reshape(1), 1).reshape(()) if x.dim() == 0 else call(x, rows)

    def into(self, program: ModuleType) -> None:
        reduce, gather, scatter, exchange = COLLECTIVES
        program.wait = lambda x: x
        program.all_reduce = lambda here, x, op, group: self(reduce, x, x.shape[0] if x.dim() else 1)
        program.all_gather = lambda here, x, n, group: self(gather, x, n * x.shape[0])
        program.reduce_scatter = lambda here, x, op, n, group: self(scatter, x, x.shape[0] // n)
        program.all_to_all = lambda here, x, received, sent, group: self(exchange, x, sum(received))
        program.permute = lambda here, x, targets, group: self(exchange, x, x.shape[0])


def load(folder: Path) -> tuple[ModuleType, dict[str, Any]]:
    spec = importlib.util.spec_from_file_location(f"program_{abs(hash(str(folder)))}", folder / "program.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program, json.loads((folder / "placements.json").read_text())


def place(program: ModuleType, device: torch.device) -> SimpleNamespace:
    """The first device of the mesh, as a program knows it, without process groups."""
    sizes = {}
    for group in program.GROUPS:
        members = 1
        for name in group.split(","):
            members *= program.MESH_SIZES[program.MESH_NAMES.index(name)]
        sizes[group] = members
    zero = {group: 0 for group in program.GROUPS}
    names = {group: group for group in program.GROUPS}
    coordinate = [0] * len(program.MESH_SIZES)
    return SimpleNamespace(
        mesh=None, coordinate=coordinate, rank=0, device=device, groups=names, sizes=sizes, places=zero, averages=True
    )


def tensor(row: dict[str, Any], device: torch.device) -> torch.Tensor:
    dtype = getattr(torch, row["dtype"])
    shape = row["local"]
    if dtype.is_floating_point:
        scale = 0.02 if row.get("role") == "parameter" else 1.0
        return (scale * torch.randn(shape, device=device)).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else TOKENS, shape, device=device).to(dtype)


def sync(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


def timed(step: Callable[[], Any], device: torch.device, steps: int, warm: float) -> list[float]:
    """Seconds of each of `steps` steps that run one behind another, the host ahead of the device where it can be."""
    start = time.perf_counter()
    while True:
        step()
        sync(device)
        if time.perf_counter() - start > warm:
            break
    if device.type == "cpu":
        seconds = []
        for _ in range(steps):
            begin = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begin)
        return seconds
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    sync(device)
    return [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])]


def kernel_seconds(
    step: Callable[[], Any], device: torch.device, trace: "Path | None", shapes: bool, warm_steps: int
) -> "float | None":
    """Seconds of all kernels of one step, and its trace.

    Steps run one behind another, and `warm_steps` of them run under the profiler before the first that is kept: starting it leaves the
    device idle, and an idle device runs its next 0.14 seconds at clocks that it does not hold.
    """
    if device.type == "cpu" and trace is None:
        return None
    from torch.profiler import ProfilerActivity, profile, schedule

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type != "cpu" else [])
    kept = schedule(wait=0, warmup=max(1, warm_steps), active=3, repeat=1)
    with profile(activities=kinds, record_shapes=shapes, schedule=kept) as run:
        for i in range(max(1, warm_steps) + 3):
            step()
            if i == max(1, warm_steps) + 2:
                sync(device)
            run.step()
    if trace is not None:
        run.export_chrome_trace(str(trace))
    if device.type == "cpu":
        return None
    ranges = ("Step", "StepBackward")
    spans = [
        e
        for e in run.events()
        if e.device_type == torch.autograd.DeviceType.CUDA and e.name not in ranges and not e.name.startswith("ProfilerStep")
    ]
    return sum(e.time_range.elapsed_us() for e in spans) * 1e-6 / 3


def measure(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(args.device)
    program, tables = load(folder)
    copies = Copies()
    copies.into(program)
    here = place(program, device)
    torch.manual_seed(0)
    primals = [tensor(row, device) for row in tables["primals"]]
    tangents = [tensor(row, device) for row in tables["tangents"]]
    forward, backward = program.forward, program.backward
    if args.mode == "compiled":
        forward = torch.compile(forward, fullgraph=True, dynamic=False)
        backward = torch.compile(backward, fullgraph=True, dynamic=False)

    def step() -> None:
        with torch.profiler.record_function("Step"):
            outputs, saved = forward(here, list(primals))
        with torch.profiler.record_function("StepBackward"):
            backward(here, list(saved) if args.mode == "compiled" else saved, list(tangents))

    result: dict[str, Any] = {"folder": folder.name, "mode": args.mode}
    with torch.no_grad():
        begin = time.perf_counter()
        if args.mode == "eager":
            copies.recording = True
        step()
        sync(device)
        copies.recording = False
        result["firstStepSeconds"] = time.perf_counter() - begin
        if args.compile_only:
            return result
        result["stepSeconds"] = timed(step, device, args.steps, args.warm)
        trace = None if args.traces is None else Path(args.traces) / f"{folder.name}-{args.mode}.json"
        warm_steps = math.ceil(args.warm / statistics.median(result["stepSeconds"]))
        result["kernelSeconds"] = kernel_seconds(step, device, trace, args.mode == "eager", warm_steps)
        if device.type != "cpu":
            result["peakBytes"] = torch.cuda.max_memory_allocated()
        if copies.seen:
            seen = list(copies.seen)
            sources = {
                (shape, dtype): torch.empty(shape, device=device, dtype=dtype).fill_(1) for _, shape, _, dtype in seen
            }

            def all_copies() -> None:
                for name, shape, rows, dtype in seen:
                    copies(name, sources[shape, dtype], rows)

            result["collectives"] = len(seen)
            result["copySeconds"] = timed(all_copies, device, args.steps, args.warm / 3)
            result["copyKernelSeconds"] = kernel_seconds(all_copies, device, None, False, 3)
    return result


def child(folder: str, mode: str, args: argparse.Namespace, *more: str) -> list[str]:
    flags = ["--one", "--mode", mode, "--device", args.device, "--steps", str(args.steps), "--warm", str(args.warm)]
    if args.traces is not None:
        flags += ["--traces", args.traces]
    return [sys.executable, __file__, *flags, *more, folder]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--warm", type=float, default=WARM_SECONDS)
    parser.add_argument("--traces", help="folder for profiler traces")
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--together", type=int, default=1, help="programs that are compiled at the same time, before any is timed")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--mode", default="eager", help=argparse.SUPPRESS)
    parser.add_argument("--compile-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(Path(args.folders[0]), args)))
        return 0
    if args.device != "cpu" and not torch.cuda.is_available():
        print("no CUDA or ROCm device", file=sys.stderr)
        return 2
    modes = args.modes.split(",")
    if "compiled" in modes and args.together > 1:
        # Inductor keeps what it compiles on disk: what is timed later is read from there.
        waiting = [child(folder, "compiled", args, "--compile-only") for folder in args.folders]
        running: list[subprocess.Popen[bytes]] = []
        while waiting or running:
            running = [p for p in running if p.poll() is None]
            while waiting and len(running) < args.together:
                running.append(subprocess.Popen(waiting.pop(0), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(0.2)
    rows = []
    for folder in args.folders:
        for mode in modes:
            print(f"{folder} {mode}", file=sys.stderr, flush=True)
            run = subprocess.run(child(folder, mode, args), capture_output=True, text=True)
            if run.returncode != 0:
                print(run.stderr[-3000:], file=sys.stderr, flush=True)
                rows.append({"folder": Path(folder).name, "mode": mode, "error": run.stderr.strip().splitlines()[-1:]})
                continue
            row = json.loads(run.stdout.strip().splitlines()[-1])
            rows.append(row)
            median = statistics.median(row["stepSeconds"])
            kernels = row.get("kernelSeconds")
            print(f"  step {1e3 * median:.2f} ms, kernels {1e3 * (kernels or 0):.2f} ms", file=sys.stderr, flush=True)
    device = "cpu" if args.device == "cpu" else torch.cuda.get_device_name(0)
    json.dump({"device": device, "software": f"torch {torch.__version__}", "programs": rows}, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
