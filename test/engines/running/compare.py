"""Runs plans in several processes and compares them with one: `compare.py WORLD NAME=FOLDER...` prints one JSON line each.

A line has the relative errors of the loss and of every gradient, whether the collectives that the processes called are those of
`collectives.json` (kind, group, bytes and order), and the most bytes that were alive in one of the processes. Models in less than
float64 are compared with the same weights in float64, and so is one process: `rounding.py`.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from memory import least_peak
from models import sample
from rounding import rounded
from torch._functorch.aot_autograd import boxed_nop_preserve_node_meta
from torch.utils._python_dispatch import TorchDispatchMode

import shardwright

KINDS = {
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
}


#: Kind, ranks, and the bytes of each tensor: of a bucket there are several.
Call = tuple[str, tuple[int, ...], tuple[int, ...]]


class Seen(TorchDispatchMode):
    """Collectives that are called, with the ranks of their groups."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        namespace, name = func._schema.name.split("::")
        if namespace == "_c10d_functional" and name in KINDS:
            group = dist.distributed_c10d._resolve_process_group(args[-1])
            sent = out if name.startswith("all_gather_into_tensor") else args[0]
            sizes = tuple(x.numel() * x.element_size() for x in (sent if isinstance(sent, (list, tuple)) else [sent]))
            self.calls.append((KINDS[name], tuple(dist.get_process_group_ranks(group)), sizes))
        return out


def promised(plan: Any, mesh: Any) -> list[tuple[Call, list[dict[str, Any]]]]:
    """What a process is to call, in order, each with the bodies around it."""
    at = mesh.get_coordinate()
    names = list(plan.mesh_dim_names)
    rows = []
    for row in plan.collectives:
        dims = [names.index(name) for name in row["meshDims"]]
        ranks = mesh.mesh[tuple(slice(None) if d in dims else c for d, c in enumerate(at))].flatten().tolist()
        kind = "all_to_all" if row["kind"] == "collective_permute" else row["kind"]
        sizes = tuple(member["bytes"] for member in row.get("members", [row]))
        assert sum(sizes) == row["bytes"], row
        rows.append(((kind, tuple(ranks), sizes), row.get("inside", [])))
    return rows


def as_planned(seen: list[Call], plan: Any, mesh: Any) -> bool:
    """Whether the calls are those of the plan: loops as often as they say, of a branching one branch or none."""
    return len(seen) in _after(promised(plan, mesh), 0, seen, {0})


def _after(rows: list[tuple[Call, list[dict[str, Any]]]], depth: int, seen: list[Call], starts: set[int]) -> set[int]:
    """Where in the calls one may be after these rows, when one was at one of `starts`."""
    at, k = starts, 0
    while k < len(rows) and at:
        call, inside = rows[k]
        if len(inside) == depth:
            at, k = {i + 1 for i in at if i < len(seen) and seen[i] == call}, k + 1
            continue
        around = inside[depth]["call"]
        group = [row for row in rows[k:] if len(row[1]) > depth and row[1][depth]["call"] == around]
        k += len(group)
        bodies = {row[1][depth]["body"]: [one for one in group if one[1][depth]["body"] == row[1][depth]["body"]] for row in group}
        kind = inside[depth]["kind"]
        if kind == "branch":
            at = at.union(*(_after(body, depth + 1, seen, at) for body in bodies.values()))
        elif kind == "call":
            at = _after(group, depth + 1, seen, at)
        else:
            for _ in range(inside[depth]["trips"]):
                at = _after(group, depth + 1, seen, at)
    return at


#: A gradient below this part of the model's largest one is zero but for float64 rounding (keys' biases: the softmax takes them away).
ZERO = 4 * torch.finfo(torch.float64).eps


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference over the largest value; NaN counts as infinite."""
    difference = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
    scale = b.double().abs().max().item() if b.numel() else 1.0
    found = difference / (scale or 1.0)
    return found if found == found else float("inf")


def compared(module: Any, reference: Any) -> tuple[dict[str, float], list[str]]:
    """Relative error of every gradient, and the names of those that are zero on both sides.

    A gradient is zero where one process has it below `ZERO` of the largest gradient; the plan must have it below that too.
    """
    pairs = [(key, own, other) for (key, own), (_, other) in zip(module.named_parameters(), reference.named_parameters(), strict=True)]
    bound = ZERO * max(other.grad.abs().max().item() for _, _, other in pairs if other.grad is not None)
    errors: dict[str, float] = {}
    zeros: list[str] = []
    for key, own, other in pairs:
        if own.grad is None or other.grad is None:
            if own.grad is not other.grad:
                errors[key] = float("inf")
            continue
        assert own.grad.placements == own.placements, key
        whole = own.grad.full_tensor()
        if other.grad.abs().max().item() <= bound:
            zeros.append(key)
            errors[key] = 0.0 if whole.abs().max().item() <= bound else float("inf")
        else:
            errors[key] = relative(whole, other.grad)
    return errors, zeros


def in_graph(graph: Any) -> list[Call]:
    """Collectives of a graph, in its order."""
    calls: list[Call] = []
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        namespace, name = schema.name.split("::") if schema is not None else ("", "")
        if namespace == "_c10d_functional" and name in KINDS:
            ranks = dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(node.args[-1]))
            sent = node if name.startswith("all_gather_into_tensor") else node.args[0]
            values = [member.meta["val"] for member in sent] if isinstance(sent, (list, tuple)) else sent.meta["val"]
            sizes = tuple(x.numel() * x.element_size() for x in (values if isinstance(values, (list, tuple)) else [values]))
            calls.append((KINDS[name], tuple(ranks), sizes))
    return calls


def one(name: str, folder: str, steps: int) -> dict[str, Any]:
    name, _, compiled = name.partition(":")
    it = sample(name)
    reference = copy.deepcopy(it.model)
    plan = shardwright.load(folder)
    mesh = plan.init_device_mesh("cpu")
    module = shardwright.parallelize(it.model, plan, mesh, compile=compiled == "compiled")
    in_joint: list[Call] = []
    if compiled.startswith("joint"):
        compiler = None if compiled == "joint-inductor" else boxed_nop_preserve_node_meta
        shardwright.compile_joint(
            module,
            passes=lambda joint: in_joint.extend(in_graph(joint.graph_module.graph)),
            fw_compiler=compiler,
            bw_compiler=compiler,
        )
    torch.manual_seed(1)
    # A traced step has its own gradient of the loss written in, which what the caller does with the loss must scale.
    scale = 1.0 if plan.placements["tangents"] else 2.0
    expected = it.reference(reference)
    (expected * scale).backward()
    seen = Seen()
    torch.manual_seed(1)
    if compiled:
        # What Inductor made calls no dispatcher: there are numbers alone.
        loss = module(*it.args, *it.targets, **it.kwargs)
        (loss * scale).backward()
        error = relative(shardwright.gather_outputs(loss).detach(), expected.detach())
        worst_of_all = max(compared(module, reference)[0].values())
        planned = {"collectives": len(in_joint), "asPlanned": as_planned(in_joint, plan, mesh)} if in_joint else {}
        return {"name": name, "plan": Path(folder).name, "loss": error, "gradient": worst_of_all, **planned}
    args = (*it.args, *it.targets)
    with seen:
        loss = module(*args, **it.kwargs)
        (loss * scale).backward()
    whole = shardwright.gather_outputs(loss)
    if whole.dtype != torch.float64:
        return {
            "name": name,
            "plan": Path(folder).name,
            **rounded(it, module, whole.detach(), reference, expected.detach()),
            "collectives": len(seen.calls),
            "asPlanned": as_planned(seen.calls, plan, mesh),
            "peakBytes": most(least_peak(module, args, it.kwargs)),
        }
    gradients, zeros = compared(module, reference)
    buffers = {
        key: relative(own.full_tensor(), other)
        for (key, own), (_, other) in zip(module.named_buffers(), reference.named_buffers(), strict=True)
    }
    worst = max(gradients, key=gradients.__getitem__)
    result = {
        "name": name,
        "plan": Path(folder).name,
        "loss": relative(whole.detach(), expected.detach()),
        "gradients": len(gradients),
        "gradient": gradients[worst],
        "worst": worst,
        **({"zeros": zeros} if zeros else {}),
        "buffer": max(buffers.values(), default=0.0),
        "collectives": len(seen.calls),
        "asPlanned": as_planned(seen.calls, plan, mesh),
        "peakBytes": most(least_peak(module, args, it.kwargs)),
    }
    if steps > 0:
        result["steps"] = train(name, folder, steps, zeros)
    return result


def most(count: int) -> int:
    """The largest count of all processes."""
    largest = torch.tensor(count)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return int(largest)


def train(name: str, folder: str, steps: int, zeros: list[str]) -> float:
    """Largest relative difference of a parameter after AdamW steps; one whose gradient is zero may move by `ZERO` only."""
    it = sample(name)
    reference = copy.deepcopy(it.model)
    plan = shardwright.load(folder)
    module = shardwright.parallelize(it.model, plan, plan.init_device_mesh("cpu"))
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3, eps=1e-3, foreach=True) for m in (module, reference)]
    args = (*it.args, *it.targets)
    for step in range(steps):
        for optimizer, loss in zip(optimizers, (lambda: module(*args, **it.kwargs), lambda: it.reference(reference)), strict=True):
            optimizer.zero_grad()
            torch.manual_seed(step)
            loss().backward()
            optimizer.step()
    errors = []
    for (key, own), (_, other) in zip(module.named_parameters(), reference.named_parameters(), strict=True):
        a, b = own.detach().full_tensor(), other.detach()
        if key in zeros:
            errors.append(0.0 if (a - b).abs().max().item() <= ZERO else float("inf"))
        else:
            errors.append(relative(a, b))
    return max(errors)


def work(rank: int, world: int, store: str, jobs: list[tuple[str, str]], steps: int) -> None:
    import logging

    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    for name, folder in jobs:
        try:
            result = one(name, folder, steps)
        except shardwright.MismatchError as error:
            # Every process refuses the same way, before anything is sent.
            result = {"name": name, "plan": Path(folder).name, "refused": str(error)}
        except Exception as error:
            import traceback

            traceback.print_exc()
            result = {"name": name, "plan": Path(folder).name, "error": f"{type(error).__name__}: {error}"}
            print(json.dumps(result), flush=True)
            raise
        if rank == 0:
            print(json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1])
    steps = int(sys.argv[2])
    jobs = [tuple(argument.split("=", 1)) for argument in sys.argv[3:]]
    torch.set_num_threads(1)
    for name in dict(jobs):
        sample(name.partition(":")[0])
    with tempfile.TemporaryDirectory() as place:
        # Forked, so that PyTorch and transformers are imported once; no thread has been started yet.
        mp.start_processes(work, (world, f"{place}/store", jobs, steps), nprocs=world, start_method="fork")
