"""Runs the plan at small sizes on real processes, and the program before it was cut in each of them, on the same numbers.

    torchrun --standalone --nproc-per-node DEVICES check.py [largest integer input, default 2]

Prints the largest relative error of outputs, buffers and gradients as JSON; ends with 1 where one is above the bound of
the coarsest dtype that it is computed from.
"""
import importlib.util
import json
import pathlib
import re
import sys

import torch
import torch.distributed as dist

FOLDER = pathlib.Path(__file__).parent / "check"
BOUNDS = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "avg": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT}


def module(name):
    spec = importlib.util.spec_from_file_location("shardwright_check_" + name, FOLDER / (name + ".py"))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def draw(number, row, largest):
    """Numbers of the size that networks have at their start; buffers are positive, as variances are."""
    random = torch.Generator().manual_seed(number)
    shape, dtype = row["shape"], getattr(torch, row["dtype"])
    if dtype == torch.bool:
        return torch.rand(shape, generator=random) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, largest, shape, generator=random).to(dtype)
    scale = shape[-1] ** -0.5 if len(shape) > 1 else 1.0
    drawn = torch.randn(shape, generator=random, dtype=torch.float64) * scale
    return (drawn.abs() + 0.5 if row["role"] == "buffer" else drawn).to(dtype)


def rows(x, dim, n, k):
    size = -(-x.shape[dim] // n)
    start = min(size * k, x.shape[dim])
    return x.narrow(dim, start, min(size, x.shape[dim] - start))


def cuts(words, sizes):
    """Mesh dim, tensor dim and blocks of each cut, in order; strides that are an order of mesh dims are plain cuts in it."""
    own = {}
    for d, word in enumerate(words):
        found = re.match(r"_?S\((\d+)(?:, (\d+))?\)", word)
        if found is not None:
            own.setdefault(int(found[1]), []).append((d, int(found[2] or 1)))
    made = []
    for dim, factors in own.items():
        order = []
        for d, factor in reversed(factors):
            product, at = 1, 0
            while product != factor and at < len(order):
                product, at = product * sizes[order[at]], at + 1
            if product != factor:
                order = None
                break
            order.insert(at, d)
        made += [(d, dim, factor) for d, factor in factors] if order is None else [(d, dim, 1) for d in order]
    return made


def part(whole, row, here, sizes):
    """What this device has of a whole tensor; of a pending sum the first device has the value, the others zeros."""
    for d, dim, blocks in cuts(row["dtensor"], sizes):
        n, k = sizes[d], here.coordinate[d]
        whole = torch.cat([rows(rows(whole, dim, blocks, b), dim, n, k) for b in range(blocks)], dim)
    if any(word == "P(sum)" and k > 0 for word, k in zip(row["dtensor"], here.coordinate)):
        whole = torch.zeros_like(whole)
    return whole.to(here.device).contiguous()


def settled(local, row, mesh, sizes):
    """The value of a result, with what is pending reduced."""
    for d, word in enumerate(row["dtensor"]):
        if word.startswith("P("):
            op = word[2:-1]
            own = local.dtype
            wide = torch.float32 if "float8" in str(own) else {torch.int16: torch.int32, torch.uint16: torch.int32}.get(own, own)
            local = local.to(wide, copy=True)
            dist.all_reduce(local, OPS[op], group=mesh.get_group(d))
            local = local / sizes[d] if op == "avg" else local.to(own)
    return local, {**row, "dtensor": ["R" if word.startswith("P(") else word for word in row["dtensor"]]}


def main():
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    table = json.loads((FOLDER / "placements.json").read_text())
    program, reference = module("program"), module("reference")
    names, sizes = tuple(table["mesh"]["names"]), tuple(table["mesh"]["sizes"])
    dist.init_process_group()
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = dist.init_device_mesh(kind, sizes, mesh_dim_names=names)
    here = program.Here(mesh)
    wholes = [draw(k, row, largest) for k, row in enumerate(table["primals"])]
    turns = [draw(1000 + k, row, largest) for k, row in enumerate(table["tangents"])]
    torch.manual_seed(0)
    wanted, kept = reference.forward(here, [x.to(here.device) for x in wholes])
    slopes = reference.backward(here, kept, [x.to(here.device) for x in turns])
    torch.manual_seed(0)
    found, saved = program.forward(here, [part(x, row, here, sizes) for x, row in zip(wholes, table["primals"])])
    own = program.backward(here, saved, [part(x, row, here, sizes) for x, row in zip(turns, table["tangents"])])
    gradients = {row["of"]: row for row in table["gradients"] if "of" in row}
    pairs = [*zip(table["outputs"], found, wanted)]
    pairs += [(gradients.get(row.get("of", row["name"])), a, b) for row, a, b in zip(table["primals"], own, slopes)]
    precision = json.loads((FOLDER / "precision.json").read_text())
    worst = {"error": 0.0, "of": None}
    compared, failed = 0, []
    for row, local, whole in pairs:
        if row is None or local is None or whole is None:
            continue
        value, at = settled(local, row, mesh, sizes)
        expected = part(whole.cpu(), at, here, sizes)
        scale = whole.double().abs().max().item() if whole.numel() else 1.0
        error = (value.double() - expected.double()).abs().max().item() / (scale or 1.0) if value.numel() else 0.0
        error = torch.tensor(error if error == error else float("inf"), dtype=torch.float64, device=here.device)
        dist.all_reduce(error, dist.ReduceOp.MAX)
        compared += 1
        label = row.get("of", row["name"])
        bound = BOUNDS.get(row["dtype"], 0.0)
        coarsest = precision.get(f"{row['role']} {row.get('of', row.get('index', ''))}")
        if error.item() > (max(bound, BOUNDS[coarsest]) if bound and coarsest else bound):
            failed.append(label)
        if error.item() >= worst["error"]:
            worst = {"error": error.item(), "of": label}
    if dist.get_rank() == 0:
        print(json.dumps({"compared": compared, "worst": worst["error"], "of": worst["of"], "failed": failed}))
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
