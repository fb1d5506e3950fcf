"""Runs the best few plans of a model in the processes at hand, on random numbers, and keeps the fastest.

    torchrun --nproc-per-node 4 -m shardwright.tune model.fx.txt --cluster cluster.json -o plan

The model is what `shardwright plan` reads: a captured text, a file of another format, a name. `shardwright compare` ranks recipes and
optima of every mesh of the processes; those whose programs differ are planned in that order, and each runs for a few steps. A plan that
fails or runs out of memory is left out. Predicted and measured steps are printed and written to `plan/tuned.json`; `plan` itself is the
fastest plan.

A step is forward and backward of the plan's program, as `auto_parallelize` runs it, without optimizer and data loader. Weights and inputs
are random parts of their sizes, integers are zeros and ones.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from .command import plan as make_plan
from .command_line import run_command
from .errors import CommandError, ShardwrightError
from .folder import Plan
from .making import on_first, open_mesh
from .placements import part_of, placements
from .planner import find_command
from .precision import dtype_of
from .tuning import Candidate, Tuning, candidate_of, report_of

VERSION = 1
#: Plans that are asked of the planner at most, for each that is run: several recipes may be one program.
ASKED = 4


def ranked(model: str, cluster: str, devices: int, mesh: str | None, flags: dict[str, Any], quiet: bool) -> list[dict[str, Any]]:
    """Plans of all meshes as `compare` ranks them by their step: those that fit and that a program is written of."""
    argv = ["compare", model, "--cluster", cluster, "--devices", str(devices), "--json"]
    for name, value in flags.items():
        argv += [f"--{name}", value]
    rows = json.loads(run_command(find_command(), argv, quiet, allowed=(0, 3, 4)))["plans"]
    found = [row for row in rows if row.get("fits") and row.get("choice", True) and "pp=" not in row["mesh"]]
    if mesh is not None:
        wanted = sizes_of(mesh)
        found = [row for row in found if sizes_of(row["mesh"]) == wanted]
    return sorted(found, key=lambda row: row.get("stepSeconds") or row["seconds"])


def sizes_of(mesh: str) -> list[int]:
    """`[2, 4]` of `dp=2,tp=4`; dims of one device are none."""
    return [size for size in (int(part.partition("=")[2]) for part in mesh.split(",")) if size > 1]


def make_candidates(
    rows: Sequence[dict[str, Any]], folder: Path, count: int, model: str, cluster: str, flags: dict[str, Any]
) -> list[Candidate]:
    """The best plans whose programs differ, planned and written; `count` of them at most."""
    found: list[Candidate] = []
    known: set[str] = set()
    for at, row in enumerate(rows[: ASKED * count]):
        if len(found) == count:
            break
        place = folder / "tune" / str(at)
        recipe = None if row["plan"] == "optimum" else row["plan"]
        try:
            make_plan(model, mesh=row["mesh"], cluster=cluster, out=place, recipe=recipe, no_recipes=True, quiet=True, **flags)
        except CommandError:
            continue
        program = calls_of(place)
        if program in known:
            shutil.rmtree(place)
            continue
        known.add(program)
        found.append(candidate_of(place, f"{row['plan']} on {row['mesh']}"))
    return sorted(found, key=lambda one: one.seconds)


def calls_of(folder: Path) -> str:
    """What each device computes and sends, whatever the dims of the mesh are called: plans of several meshes may be one program."""
    tables = json.loads((folder / "torch" / "placements.json").read_text())
    text = (folder / "torch" / "program.py").read_text()
    text = text[text.index("\ndef forward(") :]
    for at, name in enumerate(tables["mesh"]["names"]):
        text = re.sub(rf"\b{re.escape(name)}\b", f"dim{at}", text)
    sends = json.loads((folder / "torch" / "collectives.json").read_text())["collectives"]
    # Without collectives nothing tells one mesh from another.
    sizes = tables["mesh"]["sizes"] if sends else []
    return repr((text, sizes, [(row.get("of"), row["local"]) for row in tables["primals"]]))


def part(row: dict[str, Any], plan: Plan, here: Any) -> torch.Tensor:
    """Random numbers in the place of this device's part of a tensor."""
    dtype = dtype_of(row["dtype"], "placements.json")
    whole = torch.empty(row["shape"], dtype=dtype, device="meta")
    shape = part_of(whole, placements(row), plan.mesh_shape, here.coordinate).shape
    if dtype.is_floating_point or dtype.is_complex:
        return (torch.randn(shape, device=here.device) * 0.02).to(dtype)
    return torch.randint(0, 2, shape, device=here.device).to(dtype)


def step_of(plan: Plan, device: str) -> Callable[[], None]:
    """Forward and backward of a plan's program on this device."""
    here = plan.program.Here(init_device_mesh(device, plan.mesh_shape, mesh_dim_names=plan.mesh_dim_names))
    tables = plan.placements
    given = [part(row, plan, here) for row in tables["primals"]]
    tangents = [part(row, plan, here) for row in tables["tangents"]]

    def step() -> None:
        with torch.no_grad():
            _, saved = plan.program.forward(here, list(given))
            if tables["gradients"]:
                plan.program.backward(here, saved, list(tangents))

    return step


def tune(args: argparse.Namespace, mesh: DeviceMesh) -> dict[str, Any]:
    """Plans, runs and keeps; the answer is that of `tuned.json`. All ranks call this together."""
    folder = Path(args.out)
    flags = {} if args.memory is None else {"memory": args.memory}
    table = folder / "tune" / "candidates.json"

    def make() -> Path:
        rows = ranked(args.model, args.cluster, dist.get_world_size(), args.mesh, flags, args.quiet)
        found = make_candidates(rows, folder, args.plans, args.model, args.cluster, flags)
        if not found:
            raise CommandError("E_PLAN", f"no plan of {dist.get_world_size()} devices fits and runs as one program", place=args.model)
        table.write_text(json.dumps([vars(one) for one in found]))
        return Path(found[0].folder)

    on_first(mesh, make)
    listed = [Candidate(**row) for row in json.loads(table.read_text())]
    trials = Tuning(mesh, args.seconds, args.quiet)
    torch.manual_seed(0)
    best = trials.fastest(listed, lambda plan: step_of(plan, mesh.device_type))
    answer = {"version": VERSION, "model": args.model, **vars(best), "plans": trials.rows}
    if dist.get_rank() == 0:
        shutil.copytree(best.folder, folder, dirs_exist_ok=True)
        (folder / "tuned.json").write_text(json.dumps(answer, indent=1) + "\n")
    dist.barrier()
    return answer


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m shardwright.tune", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", help="what shardwright plan reads: a captured text, a file, a name")
    parser.add_argument("--cluster", required=True, help="name of a node design, or a file of shardwright.measure")
    parser.add_argument("--mesh", help="plans of these sizes alone: dp=2,tp=2 (default: every mesh of the processes)")
    parser.add_argument("--plans", type=int, default=5, help="plans that are run (default 5)")
    parser.add_argument("--seconds", type=float, default=120, help="seconds after which no further plan is run (default 120)")
    parser.add_argument("--memory", help="bytes of a device: 60GiB")
    parser.add_argument("-o", "--out", default="plan", help="the folder of the fastest plan (default plan)")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on this rank."""
    args = options().parse_args(argv)
    if args.plans < 1:
        options().error("--plans takes a whole number from 1")
    try:
        answer = tune(args, open_mesh("ranks=-1"))
    except ShardwrightError as error:
        if not dist.is_initialized() or dist.get_rank() == 0:
            print(error, file=sys.stderr)
        return 2
    if dist.get_rank() == 0:
        print(json.dumps(answer) if args.json else report_of(answer["plans"], answer["name"], args.out))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
