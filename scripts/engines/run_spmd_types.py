"""Asks the package spmd_types (0.3.1, on PyTorch 2.13) what it says of typed per-device programs.

In: on stdin one JSON object {"cells": [..], "calls": [..], "einsums": [..], "refinements": [..]} as
test/engines/support/spmd-questions.ts writes it. Out: on stdout one JSON object with an answer for each, in the same order,
and the versions. `cells` run on simulated ranks of one process (LocalTensorMode on a fake process group), forward and backward;
with the argument `gloo` they run on as many real gloo processes as the cell has ranks, without the checker.

An answer is {"refused": first line of the message} or what the package computed: `type` and `gradient` are the types of the
result and of the operand's gradient, values are rows of one list for each rank, `forward` and `backward` the collectives run.
"""

import json
import os
import sys
from importlib.metadata import version

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import spmd_types as spmd
from spmd_types import I, P, R, S, V, Scalar, no_typecheck, rules
from spmd_types._checker import typecheck
from spmd_types._mesh_axis import _reset
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

NAMED = {"R": R, "I": I, "V": V, "P": P}


def type_of(text):
    return S(int(text[2:-1])) if text.startswith("S") else NAMED[text]


def base(typ):
    return V if isinstance(typ, S) else typ


def refusal(error):
    return {"refused": str(error).strip().split("\n")[0].split(" operands:")[0]}


def number(rank, index, seed):
    """Small whole numbers, so that sums are exact in every order."""
    return float((rank * 31 + index * 7 + seed * 5) % 13 - 6)


def data(shape, rank, typ, seed):
    """Equal on all ranks where the type says so."""
    size = 1
    for n in shape:
        size *= n
    rank = 0 if base(typ) in (R, I) else rank
    return torch.tensor([number(rank, k, seed) for k in range(size)], dtype=torch.float64).reshape(shape)


class Collectives(TorchDispatchMode):
    """Names of the collectives that run, in order."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        if name.startswith(("_c10d_functional::", "c10d::")):
            kind = name.split("::")[1].split(".")[0].strip("_")
            if kind not in ("wait_tensor", "wrap_tensor_autograd"):
                self.names.append(KINDS[kind])
        return func(*args, **(kwargs or {}))


KINDS = {
    "all_reduce": "all_reduce",
    "allreduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "allgather_base": "all_gather",
    "allgather": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_base": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "alltoall_base": "all_to_all",
    "alltoall": "all_to_all",
}


# Columns of the operand: as many on each of 2, 3 and 4 ranks.
WIDTH = 12


def operation(cell):
    func = getattr(spmd, cell["op"])
    options = {"expert_mode": True} if cell.get("expert") else {}
    src, dst = type_of(cell["src"]), type_of(cell["dst"])
    return lambda x, axis: func(x, axis, src=src, dst=dst, **options)


def rows(value, ranks):
    return [value._local_tensors[r].reshape(-1).tolist() for r in range(ranks)]


def world(size, shape=None, names=("tp",)):
    if dist.is_initialized():
        dist.destroy_process_group()
    _reset()
    dist.init_process_group(backend="fake", rank=0, world_size=size, store=FakeStore())
    return init_device_mesh("cpu", shape or (size,), mesh_dim_names=names)


def answer_cell(cell, mesh, mode):
    n = cell["ranks"]
    axis = mesh.get_group("tp")
    src, dst = type_of(cell["src"]), type_of(cell["dst"])
    shape = [n, WIDTH]
    with no_typecheck():
        x = mode.rank_map(lambda r: data(shape, r, src, 0))
    spmd.assert_type(x, {axis: base(src)})
    x.requires_grad_(True)
    try:
        with Collectives() as forward:
            y = operation(cell)(x, axis)
    except (ValueError, TypeError, spmd.SpmdTypeError) as error:
        return refusal(error)
    kind = spmd.get_axis_local_type(y, axis)
    out_shape = list(y._local_tensors[0].shape)
    with no_typecheck():
        dual = base(dst).backward_type()
        g = mode.rank_map(lambda r: data(out_shape, r, dual, 1))
        if y is x:  # nothing to do: the gradient passes
            y = x * 1
        with Collectives() as backward:
            y.backward(g)
        return {
            "type": repr(kind),
            "gradient": repr(src.backward_type()),
            "shape": out_shape,
            "input": rows(x.detach(), n),
            "output": rows(y.detach(), n),
            "upstream": rows(g, n),
            "back": rows(x.grad, n),
            "forward": forward.names,
            "backward": backward.names,
        }


def answer_cells(cells):
    answers = []
    for n in sorted({c["ranks"] for c in cells}):
        mesh = world(n)
        with LocalTensorMode(n) as mode, typecheck():
            answers += [(cells.index(c), answer_cell(c, mesh, mode)) for c in cells if c["ranks"] == n]
    return [a for _, a in sorted(answers, key=lambda pair: pair[0])]


def gloo_rank(rank, n, cells, out):
    # Ranks meet in a file: a port may be taken by another test.
    dist.init_process_group("gloo", init_method=f"file://{out}.store", rank=rank, world_size=n)
    torch.set_num_threads(1)
    axis = dist.distributed_c10d._get_default_group()
    mine = []
    for cell in cells:
        src, dst = type_of(cell["src"]), type_of(cell["dst"])
        x = data([n, WIDTH], rank, src, 0).requires_grad_(True)
        try:
            y = operation(cell)(x, axis)
        except (ValueError, TypeError) as error:
            mine.append(refusal(error))
            continue
        if y is x:
            y = x * 1
        g = data(list(y.shape), rank, base(dst).backward_type(), 1)
        y.backward(g)
        mine.append({"output": y.detach().reshape(-1).tolist(), "back": x.grad.reshape(-1).tolist()})
    every = [None] * n
    dist.all_gather_object(every, mine)
    if rank == 0:
        with open(out, "w") as file:
            json.dump(every, file)
    dist.destroy_process_group()
    # Not by the interpreter: it aborts where a thread of gloo still holds a tensor when it ends.
    os._exit(0)


def answer_gloo(cells):
    answers = [None] * len(cells)
    for n in sorted({c["ranks"] for c in cells}):
        own = [(i, c) for i, c in enumerate(cells) if c["ranks"] == n]
        out = f"{os.environ['GLOO_OUT']}/{n}.json"
        # Forked, so that PyTorch is imported once; nothing was computed yet.
        mp.start_processes(gloo_rank, (n, [c for _, c in own], out), nprocs=n, start_method="fork")
        with open(out) as file:
            every = json.load(file)
        for k, (i, _) in enumerate(own):
            parts = [every[r][k] for r in range(n)]
            if "refused" in parts[0]:
                answers[i] = parts[0]
            else:
                answers[i] = {"output": [p["output"] for p in parts], "back": [p["back"] for p in parts]}
    return answers


def tensor(shape, seed=0):
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.5


# Operators by name: the shapes of their tensor operands and the call.
def linear_bias(x, w, b):
    return torch.nn.functional.linear(x, w, b)


OPERATORS = {
    # one operand
    "neg": ([(4, 4)], lambda x: -x),
    "clone": ([(4, 4)], torch.clone),
    "sum": ([(4, 4)], torch.sum),
    "sum.dim": ([(4, 4)], lambda x: torch.sum(x, 0)),
    "mean.dim": ([(4, 4)], lambda x: torch.mean(x, 0)),
    "cumsum": ([(4, 4)], lambda x: torch.cumsum(x, 0)),
    "reshape": ([(4, 4)], lambda x: x.reshape(16)),
    "view": ([(4, 4)], lambda x: x.view(2, 8)),
    "transpose": ([(4, 4)], lambda x: x.transpose(0, 1)),
    "t": ([(4, 4)], lambda x: x.t()),
    "permute": ([(4, 4)], lambda x: x.permute(1, 0)),
    "unsqueeze": ([(4, 4)], lambda x: x.unsqueeze(0)),
    "squeeze": ([(4, 4)], lambda x: x.squeeze(0)),
    "expand": ([(1, 4)], lambda x: x.expand(4, 4)),
    "select": ([(4, 4)], lambda x: x.select(0, 1)),
    "narrow": ([(4, 4)], lambda x: x.narrow(0, 1, 2)),
    "split": ([(4, 4)], lambda x: x.split(2)[0]),
    "chunk": ([(4, 4)], lambda x: x.chunk(2)[0]),
    "unbind": ([(4, 4)], lambda x: x.unbind(0)[0]),
    "flip": ([(4, 4)], lambda x: x.flip(0)),
    "roll": ([(4, 4)], lambda x: x.roll(1, 0)),
    "contiguous": ([(4, 4)], lambda x: x.contiguous()),
    "slice": ([(4, 4)], lambda x: x[1:3]),
    "relu": ([(4, 4)], torch.relu),
    "exp": ([(4, 4)], torch.exp),
    "log": ([(4, 4)], torch.log),
    "tanh": ([(4, 4)], torch.tanh),
    "sigmoid": ([(4, 4)], torch.sigmoid),
    "silu": ([(4, 4)], torch.nn.functional.silu),
    "gelu": ([(4, 4)], torch.nn.functional.gelu),
    "cos": ([(4, 4)], torch.cos),
    "abs": ([(4, 4)], torch.abs),
    "sqrt": ([(4, 4)], torch.sqrt),
    "rsqrt": ([(4, 4)], torch.rsqrt),
    "square": ([(4, 4)], torch.square),
    "pow.number": ([(4, 4)], lambda x: torch.pow(x, 3)),
    "reciprocal": ([(4, 4)], torch.reciprocal),
    "softmax": ([(4, 4)], lambda x: torch.softmax(x, 1)),
    "log_softmax": ([(4, 4)], lambda x: torch.log_softmax(x, 1)),
    "amax": ([(4, 4)], lambda x: torch.amax(x, 0)),
    "layer_norm": ([(4, 4)], lambda x: torch.nn.functional.layer_norm(x, [4])),
    "clamp": ([(4, 4)], lambda x: torch.clamp(x, 0.0, 1.0)),
    # two operands, either of which may be a number
    "add": ([(4, 4), (4, 4)], lambda x, y: x + y),
    "sub": ([(4, 4), (4, 4)], lambda x, y: x - y),
    "mul": ([(4, 4), (4, 4)], lambda x, y: x * y),
    "div": ([(4, 4), (4, 4)], lambda x, y: x / y),
    "maximum": ([(4, 4), (4, 4)], torch.maximum),
    "pow": ([(4, 4), (4, 4)], torch.pow),
    "mm": ([(4, 4), (4, 4)], torch.mm),
    "matmul": ([(4, 4), (4, 4)], torch.matmul),
    "bmm": ([(2, 4, 4), (2, 4, 4)], torch.bmm),
    "einsum": ([(4, 4), (4, 4)], lambda x, y: torch.einsum("ij,jk->ik", x, y)),
    "dot": ([(4,), (4,)], torch.dot),
    "mv": ([(4, 4), (4,)], torch.mv),
    "linear": ([(4, 4), (4, 4)], torch.nn.functional.linear),
    "cat": ([(4, 4), (4, 4)], lambda x, y: torch.cat([x, y])),
    "stack": ([(4, 4), (4, 4)], lambda x, y: torch.stack([x, y])),
    # in place: the first operand is the target
    "add_": ([(4, 4), (4, 4)], lambda x, y: x.add_(y)),
    "sub_": ([(4, 4), (4, 4)], lambda x, y: x.sub_(y)),
    "mul_": ([(4, 4), (4, 4)], lambda x, y: x.mul_(y)),
    "div_": ([(4, 4), (4, 4)], lambda x, y: x.div_(y)),
    # three operands
    "addmm": ([(4, 4), (4, 4), (4, 4)], torch.addmm),
    "addmv": ([(4,), (4, 4), (4,)], torch.addmv),
    "addbmm": ([(4, 4), (2, 4, 4), (2, 4, 4)], torch.addbmm),
    "baddbmm": ([(2, 4, 4), (2, 4, 4), (2, 4, 4)], torch.baddbmm),
    "addr": ([(4, 4), (4,), (4,)], torch.addr),
    "linear.bias": ([(4, 4), (4, 4), (4,)], linear_bias),
    "where": ([(4, 4), (4, 4), (4, 4)], lambda c, x, y: torch.where(c > 0, x, y)),
    "einsum.3": ([(4, 4), (4, 4), (4, 4)], lambda x, y, z: torch.einsum("ij,jk,kl->il", x, y, z)),
    # the last operand receives the result
    "add.out": ([(4, 4), (4, 4), (4, 4)], lambda x, y, z: torch.add(x, y, out=z)),
    "mul.out": ([(4, 4), (4, 4), (4, 4)], lambda x, y, z: torch.mul(x, y, out=z)),
}
TARGETS = {"add_": 0, "sub_": 0, "mul_": 0, "div_": 0, "add.out": 2, "mul.out": 2}


def answer_call(call, axis):
    shapes, func = OPERATORS[call["op"]]
    target = TARGETS.get(call["op"])
    operands = []
    for i, (shape, text) in enumerate(zip(shapes, call["operands"])):
        if text == "n":
            operands.append(2.0)
        elif text.startswith("n"):
            operands.append(Scalar(2.0, {axis: NAMED[text[1:]]}))
        else:
            with no_typecheck():
                x = tensor(shape, i)
                # Without a gradient R and I are one, here. PyTorch has none for `out=`, and writes to no leaf in place.
                if not call["op"].endswith(".out"):
                    x.requires_grad_(True)
                if target == i and call["op"].endswith("_"):
                    x = x * 1
            operands.append(spmd.assert_type(x, {axis: NAMED[text]}))
    try:
        out = func(*operands)
    except (ValueError, TypeError, spmd.SpmdTypeError) as error:
        return refusal(error)
    return {"type": repr(spmd.get_axis_local_type(out, axis))}


def answer_calls(calls):
    mesh = world(2)
    with typecheck():
        return [answer_call(c, mesh.get_group("tp")) for c in calls]


def spec_text(value, names, axes):
    """`S(0)R`: one placement for each axis, and the order where several axes cut one dim."""
    spec = spmd.get_partition_spec(value)
    local = spmd.get_local_type(value)
    by_axis = {spmd.normalize_axis(axes[n]): n for n in names}
    held = {by_axis[a]: t for a, t in local.items()}
    cut = {}
    for dim, entry in enumerate(spec or ()):
        for a in entry if isinstance(entry, tuple) else (() if entry is None else (entry,)):
            cut[by_axis[spmd.normalize_axis(a)]] = dim
    return [f"S({cut[n]})" if n in cut else repr(held[n]) for n in names]


def answer_einsum(question, axes):
    names = list(axes)
    left = question["equation"].split("->")[0].split(",")
    operands = []
    try:
        for letters, types in zip(left, question["operands"]):
            entries = [[] for _ in letters]
            local = {}
            for name, text in zip(names, types):
                if text.startswith("S"):
                    entries[int(text[2:-1])].append(axes[name])
                    local[axes[name]] = V
                else:
                    local[axes[name]] = NAMED[text]
            value = rules.NdimWithSpmdType(len(letters))
            spec = spmd.PartitionSpec(*[None if not e else e[0] if len(e) == 1 else tuple(e) for e in entries])
            spmd.assert_type(value, local, spec if any(entries) else None)
            operands.append(value)
        out = rules.einsum(question["equation"], *operands, linear_in=tuple(range(len(operands))))
    except (ValueError, TypeError, spmd.SpmdTypeError) as error:
        return refusal(error)
    return {"types": spec_text(out, names, axes)}


def answer_einsums(questions):
    answers = []
    mesh = world(4, (2, 2), ("dp", "tp"))
    for q in questions:
        names = ("dp", "tp")[: len(q["operands"][0])]
        with typecheck(local=False):
            answers.append(answer_einsum(q, {n: mesh.get_group(n) for n in names}))
    return answers


def apply_type(value, claim, axes):
    local = {axes[n]: type_of(t) for n, t in claim.get("types", {}).items()}
    spec = claim.get("spec")
    if spec is None:
        return spmd.assert_type(value, local)
    entries = [None if e is None else axes[e] if isinstance(e, str) else tuple(axes[a] for a in e) for e in spec]
    return spmd.assert_type(value, local, spmd.PartitionSpec(*entries))


def answer_refinements(questions):
    mesh = world(4, (2, 2), ("dp", "tp"))
    axes = {n: mesh.get_group(n) for n in ("dp", "tp")}
    answers = []
    for q in questions:
        with typecheck():
            x = torch.ones(4, 4)
            try:
                for claim in q:
                    apply_type(x, claim, axes)
                held = [n for n in axes if spmd.normalize_axis(axes[n]) in spmd.get_local_type(x)]
                answers.append({"types": dict(zip(held, spec_text(x, held, axes)))})
            except (ValueError, TypeError, spmd.SpmdTypeError) as error:
                answers.append(refusal(error))
    return answers


if __name__ == "__main__":
    request = json.load(sys.stdin)
    if sys.argv[1:] == ["gloo"]:
        answer = {"cells": answer_gloo(request["cells"])}
    else:
        answer = {
            "cells": answer_cells(request["cells"]),
            "calls": answer_calls(request["calls"]),
            "einsums": answer_einsums(request["einsums"]),
            "refinements": answer_refinements(request["refinements"]),
        }
    answer["versions"] = {"spmd_types": version("spmd_types"), "torch": torch.__version__.split("+")[0]}
    json.dump(answer, sys.stdout)
