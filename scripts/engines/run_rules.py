"""Judges single-dim sharding rules by running the real operator on every rank of a simulated group.

Request {"calls": [call]}, where a call has "tensors": [{"dtype", "shape", "init", "hi"}], "seeds": [int], "order" of the dims in
memory ("rows", "reversed", "channels"), whether it "draws" numbers, "forms": the shapes that its results may have, null for one that is
masked off, "views": whether a part of the slowest dim is a view of the whole, and
"rules": [{"inputs": [slot], "outputs": [slot], "ranks": [int], "size": int or null, "programs": [INDEX for each number of ranks] or
null}]; "size" is the argument that states the size of the result, which every rank gets as its local size; programs are the exported
texts that devices run in place of the call, listed in "programs" of the request. A slot is null, {"kind": "replicate"},
{"kind": "shard", "dim", "chunks"} or {"kind": "partial", "op"}. Answer: for each call {"refused": TEXT} where PyTorch does not run the
unsharded call, {"untyped": TEXT} where it gives results of no form, else {"verdicts": [[TEXT or null for each number of ranks] for each rule]}: null is right, a text
that starts with "kernel:" says that the kernel does not take the local call.

Inputs are cut as the rule says (shards at the boundaries of torch.chunk), the operator runs on every rank, and the results are
put together as the rule claims and compared with the unsharded run. Nothing here knows the rules. Collectives of a program exchange
tensors in this process: a rank that waits for others is run again from its start when they have come as far.
"""

from typing import Any, Callable

import torch
import wire

# Largest allowed |difference| / max(1, |wanted|) by the least precise dtype of inputs and result: 1e-8 where the arithmetic is
# float64. Lower precisions occur in casts and mixed calls, where the operands of a pending sum are rounded one by one.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-6, torch.float16: 2e-2, torch.bfloat16: 2e-1}

# Order of the dims in memory, the slowest first.
ORDERS: dict[str, Callable[[int], list[int]]] = {
    "rows": lambda rank: list(range(rank)),
    "reversed": lambda rank: list(reversed(range(rank))),
    "channels": lambda rank: [0, *range(2, rank), 1] if rank > 2 else list(range(rank)),
}

Slot = dict[str, Any] | None


def draw(spec: dict[str, Any], generator: torch.Generator) -> torch.Tensor:
    """A tensor with values by its `init`: the domain that the operator is defined on."""
    shape, dtype, hi = spec["shape"], wire.DTYPES[spec["dtype"]], spec.get("hi", 2)
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
    place = torch.arange(uniform.numel()).reshape(shape) % hi
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
        # Rows of hi numbers that exchange a row with itself or a later one, counted from one.
        "pivots": lambda: place + 1 + torch.floor(uniform * (hi - place)),
    }
    return by_init[spec["init"]]().to(dtype)


def laid(x: torch.Tensor, order: str) -> torch.Tensor:
    """The tensor in a memory of its own, its dims in an order."""
    return torch.empty_permuted(x.shape, ORDERS[order](x.dim()), dtype=x.dtype).copy_(x)


def copied(x: torch.Tensor) -> torch.Tensor:
    """The tensor with a memory of its own, at the same place and with the same strides in it."""
    return x.new_empty(0).set_(x.untyped_storage().clone(), x.storage_offset(), x.shape, x.stride())


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


def place(x: torch.Tensor, slot: Slot, ranks: int, call: dict[str, Any], generator: torch.Generator) -> list[torch.Tensor]:
    """What each rank holds of `x`, in the memory order of the call."""
    order = call["order"]
    if slot is None or slot["kind"] == "replicate":
        return [laid(x, order) for _ in range(ranks)]
    if slot["kind"] == "shard":
        # Lowering copies what it cuts, but for a dim whose rows follow each other.
        if call["views"] and slot["dim"] == 0 and slot["chunks"] == 1:
            return [laid(x, order).narrow(0, *chunk(x.shape[0], ranks, rank)) for rank in range(ranks)]
        return [laid(cut(x, slot, ranks, rank), order) for rank in range(ranks)]
    return [laid(part, order) for part in operands(x, slot["op"], ranks, generator)]


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


def greatest(x: torch.Tensor) -> float:
    """The largest finite magnitude of a tensor."""
    size = (x if x.is_complex() else x.double()).abs()
    return float(size.where(size.isfinite(), 0.0).max()) if x.numel() else 0.0


def difference(got: torch.Tensor, want: torch.Tensor, tolerance: float, largest: float = 0.0) -> str | None:
    """Why two tensors are not the same, or None.

    Below float64 a number is rounded at the size of what it was summed from: of the largest number of the tensor, and of `largest`.
    """
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if want.numel() == 0:
        return None
    if want.is_complex():
        return difference(torch.view_as_real(got.resolve_conj()), torch.view_as_real(want.resolve_conj()), tolerance, largest)
    if not want.is_floating_point():
        return None if torch.equal(got, want) else "other values"
    a, b = got.double(), want.double()
    same = (a == b) | (a.isnan() & b.isnan())
    scale = b.abs().clamp(min=1.0)
    if tolerance > TOLERANCE[torch.float64]:
        scale = torch.full_like(b, max(1.0, largest, greatest(b)))
    gap = torch.where(same, 0.0, (a - b).abs() / scale).nan_to_num(nan=float("inf"))
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
    return difference(reduce(parts, slot["op"]), want, tolerance, max(map(greatest, parts)))


def local_call(call: dict[str, Any], rule: dict[str, Any], ranks: int, rank: int, truth: list[Any]) -> dict[str, Any]:
    """The call as a rank makes it: the same, but for a size argument, which is local."""
    if rule["size"] is None:
        return call
    slot, shape = rule["outputs"][0], list(truth[0].shape)
    if slot["kind"] == "shard":
        shape = [rows_of(n, slot, ranks, rank) if d == slot["dim"] else n for d, n in enumerate(shape)]
    args = [shape if k == rule["size"] else arg for k, arg in enumerate(call["args"])]
    return {**call, "args": args}


class Waits(Exception):
    """A rank is at a collective that others have not come to."""


class Exchange:
    """What the ranks of a program hand to each of its collectives, in their order."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.given: list[dict[int, torch.Tensor]] = []
        self.done = 0

    def of(self, rank: int, x: torch.Tensor) -> list[torch.Tensor]:
        """The tensors that all ranks hand to the next collective of a rank."""
        if self.done == len(self.given):
            self.given.append({})
        held = self.given[self.done]
        held.setdefault(rank, x.clone())
        if len(held) < self.ranks:
            raise Waits
        self.done += 1
        return [held[r] for r in range(self.ranks)]


class Here:
    """A device of a program on one mesh dim, and its collectives."""

    def __init__(self, rank: int, exchange: Exchange) -> None:
        self.rank, self.exchange = rank, exchange
        self.coordinate = [rank]
        self.device = torch.device("cpu")

    def all_reduce(self, x: torch.Tensor, op: str, group: str) -> torch.Tensor:
        return reduce(self.exchange.of(self.rank, x), op)

    def all_gather(self, x: torch.Tensor, n: int, group: str) -> torch.Tensor:
        return torch.cat(self.exchange.of(self.rank, x))

    def reduce_scatter(self, x: torch.Tensor, op: str, n: int, group: str) -> torch.Tensor:
        return reduce(self.exchange.of(self.rank, x), op).tensor_split(n)[self.rank].clone()

    def all_to_all(self, x: torch.Tensor, received: list[int], sent: list[int], group: str) -> torch.Tensor:
        parts = [y.tensor_split(self.exchange.ranks)[self.rank] for y in self.exchange.of(self.rank, x)]
        return torch.cat(parts)


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def run_program(code: Any, held: list[list[torch.Tensor]], slots: list[Slot], ranks: int, seed: int) -> list[list[Any]]:
    """The results of an exported program on every rank, each from its start until all have finished."""
    names: dict[str, Any] = {}
    exec(code, names)
    for name in COLLECTIVES:
        names[name] = lambda here, *args, name=name: getattr(here, name)(*args)
    names["wait"] = lambda x: x
    exchange = Exchange(ranks)
    while True:
        results: list[list[Any]] = []
        for rank in range(ranks):
            exchange.done = 0
            torch.manual_seed(seed)
            try:
                found, _ = names["forward"](Here(rank, exchange), [copied(parts[rank]) for parts in held])
            except Waits:
                continue
            # The program returns no results that the call masks off.
            given = iter(found)
            results.append([None if slot is None else next(given) for slot in slots])
        if len(results) == ranks:
            return results


def judge(op: Any, call: dict[str, Any], rule: dict[str, Any], at: int, inputs: list[torch.Tensor], seed: int) -> str | None:
    """None where the rule is right on a number of ranks, else what is wrong."""
    ranks = rule["ranks"][at]
    torch.manual_seed(seed)
    truth = wire.invoke(op, call, [laid(x, call["order"]) for x in inputs])
    generator = torch.Generator().manual_seed(seed)
    held = [place(x, slot, ranks, call, generator) for x, slot in zip(inputs, rule["inputs"], strict=True)]
    results: list[list[Any]] = []
    try:
        if rule["programs"] is not None:
            # A program reduces what is pending from a stack of what the ranks hold.
            for slot, parts in zip(rule["inputs"], held, strict=True):
                if slot is not None and slot["kind"] == "partial":
                    parts[:] = [part.unsqueeze(0) for part in parts]
            results = run_program(PROGRAMS[rule["programs"][at]], held, rule["outputs"], ranks, seed)
        for rank in range(0 if rule["programs"] is not None else ranks):
            local = local_call(call, rule, ranks, rank, truth)
            results.append(wire.invoke(op, local, [copied(parts[rank]) for parts in held]))
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


def typed(found: list[Any], forms: list[list[list[int] | None]]) -> bool:
    """Whether results have the shapes of one of the forms."""
    return any(
        len(form) == len(found) and all(shape is None or list(x.shape) == shape for x, shape in zip(found, form, strict=True))
        for form in forms
    )


def agree(found: list[Any], wanted: list[Any]) -> bool:
    """Whether results are the same but for rounding, as far as both forms have them; memory that is not set says nothing."""
    pairs = [(a, b) for a, b in zip(found, wanted, strict=True) if isinstance(a, torch.Tensor) and a.shape == b.shape]
    return all(difference(a, b, 1e-8 if b.dtype == torch.float64 else 2e-1) is None for a, b in pairs)


def judge_call(call: dict[str, Any]) -> dict[str, Any]:
    drawn = []
    for seed in call["seeds"]:
        generator = torch.Generator().manual_seed(seed)
        drawn.append([draw(spec, generator) for spec in call["tensors"]])
    try:
        op = wire.implementation(call["target"])
        for seed, inputs in zip(call["seeds"], drawn, strict=True):
            torch.manual_seed(seed)
            found = wire.invoke(op, call, [laid(x, call["order"]) for x in inputs])
            if not typed(found, call["forms"]):
                return {"untyped": str([list(x.shape) if isinstance(x, torch.Tensor) else None for x in found])}
            if call["order"] == "rows" or call["draws"]:
                continue
            # Results that a call masks off hold what the kernel leaves there.
            said = {k for rule in call["rules"] for k, slot in enumerate(rule["outputs"]) if slot is not None}
            row_by_row = wire.invoke(op, call, [laid(x, "rows") for x in inputs])
            if not agree([x for k, x in enumerate(found) if k in said], [x for k, x in enumerate(row_by_row) if k in said]):
                return {"refused": "reads memory and not strides"}
    except Exception as error:
        return {"refused": str(error).splitlines()[0][:100]}
    verdicts: list[list[str | None]] = []
    for rule in call["rules"]:
        row: list[str | None] = []
        for at in range(len(rule["ranks"])):
            whys = (judge(op, call, rule, at, inputs, seed) for seed, inputs in zip(call["seeds"], drawn, strict=True))
            row.append(next((why for why in whys if why is not None), None))
        verdicts.append(row)
    return {"verdicts": verdicts}


PROGRAMS: list[Any] = []


def answer(request: dict[str, Any]) -> dict[str, Any]:
    PROGRAMS.extend(compile(text, f"program {k}", "exec") for k, text in enumerate(request["programs"]))
    torch.use_deterministic_algorithms(True)
    with torch.no_grad():
        return {"calls": [judge_call(call) for call in request["calls"]]}


if __name__ == "__main__":
    wire.serve(answer)
