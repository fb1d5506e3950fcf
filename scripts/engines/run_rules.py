"""Judges single-dim sharding rules by running the real operator on every rank of a simulated group.

Request {"calls": [call]}, where a call has "tensors": [{"dtype", "shape", "init", "hi"}], "seeds": [int] and
"rules": [{"inputs": [slot], "outputs": [slot], "ranks": [int], "size": int or null}]; "size" is the argument that states the size
of the result, which every rank gets as its local size. A slot is null, {"kind": "replicate"},
{"kind": "shard", "dim", "chunks"} or {"kind": "partial", "op"}. Answer: for each call {"refused": TEXT} where PyTorch does not run the
unsharded call, else {"verdicts": [[TEXT or null for each number of ranks] for each rule]}: null is right, a text
that starts with "kernel:" says that the kernel does not take the local call.

Inputs are cut as the rule says (shards at the boundaries of torch.chunk), the operator runs on every rank, and the results are
put together as the rule claims and compared with the unsharded run. Nothing here knows the rules.
"""

from typing import Any, Callable

import torch
import wire

# Largest allowed |difference| / max(1, |wanted|) by the least precise dtype of inputs and result: 1e-8 where the arithmetic is
# float64. Lower precisions occur in casts and mixed calls, where the operands of a pending sum are rounded one by one.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-6, torch.float16: 2e-2, torch.bfloat16: 2e-1}

Slot = dict[str, Any] | None


def draw(spec: dict[str, Any], generator: torch.Generator) -> torch.Tensor:
    """A tensor with values by its `init`: the domain that the operator is defined on."""
    shape, dtype, hi = spec["shape"], wire.DTYPES[spec["dtype"]], spec.get("hi", 2)
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
    by_init: dict[str, Callable[[], torch.Tensor]] = {
        "any": lambda: 4 * uniform - 2,
        "positive": lambda: uniform + 0.5,
        "unit": lambda: 0.9 * uniform + 0.05,
        "above-one": lambda: uniform + 1.1,
        "large": lambda: uniform + 3,
        "few": lambda: torch.floor(5 * uniform) - 2,
        "index": lambda: torch.floor(hi * uniform),
        "signed-index": lambda: torch.floor(2 * hi * uniform) - hi,
        "distinct": lambda: torch.randperm(hi, generator=generator)[: uniform.numel()].reshape(shape),
        "shuffled": lambda: torch.randperm(uniform.numel(), generator=generator).reshape(shape) / 3 - 2,
        "bits": lambda: uniform < 0.4,
        "seven": lambda: torch.full(shape, 7),
        "ends": lambda: torch.floor((hi + 1) * uniform).flatten().sort().values.reshape(shape),
        "starts": lambda: torch.cat([torch.zeros(1), torch.floor(hi * uniform.flatten()[1:])]).sort().values.reshape(shape),
        # Matrices of hi rows whose diagonal outweighs the rest.
        "definite": lambda: uniform - 0.5 + (hi + 0.5) * torch.eye(hi, dtype=torch.float64),
    }
    return by_init[spec["init"]]().to(dtype)


def chunk(size: int, ranks: int, rank: int) -> tuple[int, int]:
    """First row and number of rows of a rank, as torch.chunk cuts; late ranks may be short or empty."""
    rows = -(-size // ranks)
    start = min(size, rank * rows)
    return start, min(size, start + rows) - start


def cut(x: torch.Tensor, slot: dict[str, Any], ranks: int, rank: int) -> torch.Tensor:
    """A rank's rows of the slot's dim: a chunk, or a piece of each of `chunks` equal chunks."""
    dim = slot["dim"]
    start, rows = chunk(x.shape[dim] // slot["chunks"], ranks, rank)
    return torch.cat([part.narrow(dim, start, rows) for part in x.tensor_split(slot["chunks"], dim)], dim)


def rows_of(size: int, slot: dict[str, Any], ranks: int, rank: int) -> int:
    """How many rows of a dim of `size` a rank holds."""
    return slot["chunks"] * chunk(size // slot["chunks"], ranks, rank)[1]


def join(parts: list[torch.Tensor], slot: dict[str, Any]) -> torch.Tensor:
    """The whole tensor, from what the ranks hold of it."""
    dim, chunks = slot["dim"], slot["chunks"]
    pieces = [part.tensor_split(chunks, dim) for part in parts]
    return torch.cat([piece[k] for k in range(chunks) for piece in pieces], dim)


def checkerboard(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """The rank that holds each element: neighbours along every dim have different holders."""
    holder = torch.zeros(x.shape, dtype=torch.int64)
    for dim, size in enumerate(x.shape):
        steps = torch.arange(size).reshape([-1 if d == dim else 1 for d in range(x.dim())])
        holder = holder + steps
    return holder % ranks


def operands(x: torch.Tensor, op: str, ranks: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Operands whose reduction is `x`, made so that nothing passes by accident: shares vary over the tensor and carry offsets
    that cancel, and what does not hold an extreme is far on the losing side."""

    def noise() -> torch.Tensor:
        return torch.rand(x.shape, dtype=torch.float64, generator=generator)

    if op in ("sum", "avg"):
        total = x * ranks if op == "avg" else x
        shares: list[torch.Tensor] = []
        for rank in range(ranks - 1):
            offset = (-1) ** rank * (x.double().abs() + 1) * (0.5 + noise())
            share = total.double() * (0.6 - 0.5 * noise()) + offset
            shares.append((share if x.is_floating_point() else share.round()).to(x.dtype))
        return [*shares, total - sum(shares)]
    holder = checkerboard(x, ranks)
    if op in ("bor", "band"):
        losing = torch.full_like(x, op == "band")
        return [torch.where(holder == rank, x, losing) for rank in range(ranks)]
    if op in ("max", "min"):
        sign = -1 if op == "max" else 1
        parts = []
        for rank in range(ranks):
            away = 5 * (0.5 + noise())
            parts.append(torch.where(holder == rank, x, x + sign * (away.ceil() if not x.is_floating_point() else away).to(x.dtype)))
        return parts
    if op == "product":
        factors = [((-1) ** rank * (0.5 + noise())).to(x.dtype) for rank in range(ranks - 1)]
        return [*factors, x / torch.stack(factors).prod(0)]
    raise ValueError(f"no operands for a pending {op}")


def place(x: torch.Tensor, slot: Slot, ranks: int, generator: torch.Generator) -> list[torch.Tensor]:
    """What each rank holds of `x`."""
    if slot is None or slot["kind"] == "replicate":
        return [x.clone() for _ in range(ranks)]
    if slot["kind"] == "shard":
        return [cut(x, slot, ranks, rank) for rank in range(ranks)]
    return operands(x, slot["op"], ranks, generator)


def reduce(parts: list[torch.Tensor], op: str) -> torch.Tensor:
    stacked = torch.stack(parts)
    if op == "sum":
        return stacked.sum(0, dtype=stacked.dtype)
    if op == "avg":
        return stacked.mean(0) if stacked.is_floating_point() or stacked.is_complex() else stacked.double().mean(0).to(stacked.dtype)
    if op == "max":
        return stacked.amax(0)
    if op == "min":
        return stacked.amin(0)
    if op == "bor":
        return stacked.any(0)
    if op == "band":
        return stacked.all(0)
    if op == "product":
        return stacked.prod(0, dtype=stacked.dtype)
    raise ValueError(f"no reduction {op}")


def difference(got: torch.Tensor, want: torch.Tensor, tolerance: float) -> str | None:
    """Why two tensors are not the same, or None."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if want.numel() == 0:
        return None
    if want.is_complex():
        return difference(torch.view_as_real(got.resolve_conj()), torch.view_as_real(want.resolve_conj()), tolerance)
    if not want.is_floating_point():
        return None if torch.equal(got, want) else "other values"
    a, b = got.double(), want.double()
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, (a - b).abs() / b.abs().clamp(min=1.0)).nan_to_num(nan=float("inf"))
    worst = gap.max().item()
    return None if worst <= tolerance else f"off by {worst:.3g}"


def claimed(
    parts: list[torch.Tensor], want: torch.Tensor, slot: dict[str, Any], ranks: int, inputs: list[torch.Tensor]
) -> str | None:
    """Whether the results of the ranks are `want` under the claimed placement: values, and the shape on every rank."""
    tolerance = max(TOLERANCE.get(x.dtype, 1e-8) for x in (want, *inputs))
    if slot["kind"] == "replicate":
        for rank, part in enumerate(parts):
            why = difference(part, want, tolerance)
            if why is not None:
                return f"rank {rank}: {why}"
        return None
    if slot["kind"] == "shard":
        for rank, part in enumerate(parts):
            shape = list(want.shape)
            shape[slot["dim"]] = rows_of(want.shape[slot["dim"]], slot, ranks, rank)
            if list(part.shape) != shape:
                return f"rank {rank} has shape {list(part.shape)}, claimed {shape}"
        return difference(join(parts, slot), want, tolerance)
    for rank, part in enumerate(parts):
        if part.shape != want.shape:
            return f"rank {rank} has shape {list(part.shape)}, claimed {list(want.shape)}"
    return difference(reduce(parts, slot["op"]), want, tolerance)


def local_call(call: dict[str, Any], rule: dict[str, Any], ranks: int, rank: int, truth: list[Any]) -> dict[str, Any]:
    """The call as a rank makes it: the same, but for a size argument, which is local."""
    if rule["size"] is None:
        return call
    slot, shape = rule["outputs"][0], list(truth[0].shape)
    if slot["kind"] == "shard":
        shape = [rows_of(n, slot, ranks, rank) if d == slot["dim"] else n for d, n in enumerate(shape)]
    args = [shape if k == rule["size"] else arg for k, arg in enumerate(call["args"])]
    return {**call, "args": args}


def judge(op: Any, call: dict[str, Any], rule: dict[str, Any], ranks: int, inputs: list[torch.Tensor], seed: int) -> str | None:
    """None where the rule is right on `ranks` ranks, else what is wrong."""
    truth = wire.invoke(op, call, [x.clone() for x in inputs])
    generator = torch.Generator().manual_seed(seed)
    held = [place(x, slot, ranks, generator) for x, slot in zip(inputs, rule["inputs"], strict=True)]
    results = []
    for rank in range(ranks):
        try:
            local = local_call(call, rule, ranks, rank, truth)
            results.append(wire.invoke(op, local, [parts[rank] for parts in held]))
        except (RuntimeError, ValueError, IndexError) as error:
            return f"kernel: {str(error).splitlines()[0]}"
    if len(truth) != len(rule["outputs"]):
        return f"{len(truth)} results, {len(rule['outputs'])} placements"
    for index, slot in enumerate(rule["outputs"]):
        # A masked-off result: None, or whatever the kernel leaves there.
        if slot is None:
            continue
        if not all(isinstance(r[index], torch.Tensor) for r in (truth, *results)):
            return f"result {index} is absent on some rank"
        why = claimed([r[index] for r in results], truth[index], slot, ranks, inputs)
        if why is not None:
            return f"result {index}: {why}"
    return None


def judge_call(call: dict[str, Any]) -> dict[str, Any]:
    drawn = []
    for seed in call["seeds"]:
        generator = torch.Generator().manual_seed(seed)
        drawn.append([draw(spec, generator) for spec in call["tensors"]])
    try:
        op = wire.implementation(call["target"])
        for inputs in drawn:
            wire.invoke(op, call, [x.clone() for x in inputs])
    except Exception as error:
        return {"refused": str(error).splitlines()[0][:100]}
    verdicts: list[list[str | None]] = []
    for rule in call["rules"]:
        row: list[str | None] = []
        for ranks in rule["ranks"]:
            whys = (judge(op, call, rule, ranks, inputs, seed) for seed, inputs in zip(call["seeds"], drawn, strict=True))
            row.append(next((why for why in whys if why is not None), None))
        verdicts.append(row)
    return {"verdicts": verdicts}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    torch.use_deterministic_algorithms(True)
    with torch.no_grad():
        return {"calls": [judge_call(call) for call in request["calls"]]}


if __name__ == "__main__":
    wire.serve(answer)
