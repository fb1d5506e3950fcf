"""Two and four processes train, evaluate and initialise one model, as one process does; what ranks do differently is refused."""

from __future__ import annotations

import copy
import json
import os
import random
import tempfile
import warnings
from collections import OrderedDict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import refused
from processes import run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode

import shardwright

#: All calls under every plan and on all numbers of ranks.
FULL = bool(os.environ.get("SHARDWRIGHT_FULL"))


class Net(nn.Module):
    """A module under two names, a buffer that changes, dropout, a method, a property, an attribute that forward reads, a recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(16, 32), nn.Linear(8, 6)
        self.rnn = nn.LSTM(32, 8, 2, batch_first=True, dropout=0.1)
        self.again = self.fc
        self.bn, self.drop = nn.BatchNorm1d(32), nn.Dropout(0.1)
        self.scale = 1.0
        self.factors = [1.0, 1.0]

    _halves = False

    @property
    def width(self) -> int:
        return self.fc.out_features

    def reset(self) -> None:
        for p in self.parameters():
            nn.init.uniform_(p, -0.2, 0.2)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
        h = self.drop(self.bn(torch.relu(self.again(x)).flatten(0, 1)).view(*x.shape[:2], 32))
        z = self.out(self.rnn(h)[0]) * self.scale * self.factors[1] * (0.5 if self._halves else 1.0)
        return (z, None) if y is None else (z, F.cross_entropy(z.flatten(0, 1), y.flatten()))


class Draws(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * random.random()


def batch(rows: int = 8, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 2, 16, dtype=torch.float64, generator=draws), torch.randint(0, 6, (rows, 2), generator=draws)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(whole(a), b.detach(), rtol=1e-9, atol=1e-12)


def whole(tensor: Any) -> torch.Tensor:
    return tensor.detach().full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()


def agree(a: nn.Module, b: nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return list(ours) == list(theirs) and all(same(ours[name], theirs[name]) for name in theirs)


class Bench:
    """A model that was taken over, next to one that was not."""

    def __init__(self, place: str, recipe: str | None, **options: Any) -> None:
        torch.manual_seed(0)
        self.plain = Net().double()
        self.model: Any = copy.deepcopy(self.plain)
        self.own = self.model
        flags = {"recipe": recipe, "quiet": True, "folder": f"{place}/{recipe}", "programs": 32, **options}
        self.folder = flags["folder"]
        example = flags.pop("example", batch())
        self.model = shardwright.auto_parallelize(self.model, example, "dp=-1", cluster="dgx-h100", **flags)
        self.both = (self.model, self.plain)
        self.optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in self.both]

    def step(self, rows: int = 8, seed: int = 1) -> bool:
        losses = []
        for model, optimizer in zip(self.both, self.optimizers, strict=True):
            torch.manual_seed(seed)
            loss = model(*batch(rows, seed))[1]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss)
        return same(*losses) and agree(*self.both)

    def evaluated(self, rows: int, model: Any = None) -> bool:
        values = []
        for one in (self.model if model is None else model, self.plain):
            mode = one.training
            with torch.no_grad():
                values.append(one.eval()(*batch(rows))[1])
            one.train(mode)
        return same(*values)


def the_same_object(facts: dict[str, Any], bench: Bench) -> None:
    model = bench.model
    facts["the same object"] = model is bench.own and isinstance(model, Net) and model.width == 32 and model.again is model.fc
    pairs = zip(model.parameters(), bench.plain.parameters(), strict=True)
    facts["a number of a parameter"] = all(abs(p.mean().item() - q.mean().item()) < 1e-12 for p, q in pairs)
    facts["order of parameters"] = [n for n, _ in model.named_parameters()] == [n for n, _ in bench.plain.named_parameters()]


def any_call(facts: dict[str, Any], bench: Bench) -> None:
    ahead = len(list(Path(bench.folder, "programs").glob("*/capture.json")))
    facts["planned ahead"] = ahead == 1 and bench.evaluated(6)
    facts["planned once"] = len(list(Path(bench.folder, "programs").glob("*/capture.json"))) == 1
    facts["evaluated first"] = bench.evaluated(5)
    facts["trained"] = all([bench.step(seed=k) for k in range(3)])
    facts["a smaller last batch"] = bench.step(rows=3)
    facts["evaluated at many sizes"] = all([bench.evaluated(rows) for rows in (8, 5, 7, 3, 7, 2)])
    facts["without targets"] = same(bench.model.eval()(batch()[0])[0], bench.plain.eval()(batch()[0])[0])
    bench.model.train(), bench.plain.train()
    for scale in (0.5, 0.25):
        bench.model.scale = bench.plain.scale = scale
        facts[f"another attribute {scale}"] = bench.step()
    bench.model.scale = bench.plain.scale = 1.0
    planned = len(list(Path(bench.folder, "programs").glob("*/capture.json")))
    bench.model.label = bench.plain.label = "nothing reads it"
    facts["an attribute that decides nothing"] = bench.step()
    facts["no plan for it"] = len(list(Path(bench.folder, "programs").glob("*/capture.json"))) == planned
    for value in (True, False):
        bench.model._halves = bench.plain._halves = value
        facts[f"a private switch {value}"] = bench.step()
    for value in (3.0, 1.0):
        bench.model.factors[1] = bench.plain.factors[1] = value
        facts[f"a member of a list {value}"] = bench.step()
    facts["trained again"] = bench.step(seed=9)


def some_calls(facts: dict[str, Any], bench: Bench) -> None:
    """What shows another plan, or other ranks: training, a program of another size and of another attribute, evaluation."""
    facts["trained"] = all([bench.step(seed=k) for k in range(3)])
    facts["a smaller last batch"] = bench.step(rows=3)
    facts["evaluated"] = bench.evaluated(5)
    bench.model.scale = bench.plain.scale = 0.5
    facts["another attribute"] = bench.step()


def losses_and_inputs(facts: dict[str, Any], bench: Bench) -> None:
    x, y = batch()
    grads = []
    for model in bench.both:
        torch.manual_seed(3)
        z, loss = model(x, y)
        loss.backward(retain_graph=True)
        z.square().mean().backward()
        grads.append([p.grad for p in model.parameters()])
        model.zero_grad()
    facts["two losses of one call"] = all(map(same, *grads))
    again = []
    for model in bench.both:
        wanted = x.clone().requires_grad_()
        torch.manual_seed(3)
        loss = model(wanted, y)[1]
        loss.backward()
        model.zero_grad()
        again.append(wanted.grad)
    facts["the gradient of an input"] = same(*again)
    for model in bench.both:
        for p in model.rnn.parameters():
            p.requires_grad = False
    frozen = bench.step(seed=5)
    for model in bench.both:
        for p in model.rnn.parameters():
            p.requires_grad = True
    facts["frozen and unfrozen"] = frozen and bench.step(seed=6)
    weights = torch.rand(8, 2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    outside = []
    for model in bench.both:
        torch.manual_seed(4)
        loss = nn.MSELoss()(model(x)[0], weights)
        loss.backward()
        outside.append([loss, *(p.grad for p in model.parameters())])
        model.zero_grad()
    facts["a criterion outside"] = all(map(same, *outside))


def copies(facts: dict[str, Any], bench: Bench) -> None:
    twin = copy.deepcopy(bench.model)
    facts["a copy"] = bench.evaluated(8, twin) and twin.again is twin.fc and twin.fc.weight is not bench.model.fc.weight
    average = torch.optim.swa_utils.AveragedModel(bench.model)
    bench.step()
    facts["the average is its own"] = not agree(average.module, bench.plain)
    facts["compiled around"] = bench.evaluated(8, torch.compile(bench.model))


def initialised(facts: dict[str, Any], bench: Bench) -> None:
    def rows(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            module.weight.data[1].zero_()

    forms: dict[str, Any] = {
        "method": lambda m: m.reset(),
        "apply": lambda m: m.apply(rows),
        "normal_ of data": lambda m: m.fc.weight.data.normal_(0.0, 0.02),
        "reset_parameters": lambda m: [one.reset_parameters() for one in (m.fc, m.rnn, m.out)],
        "xavier_uniform_": lambda m: [nn.init.xavier_uniform_(p) for p in m.parameters() if p.dim() > 1],
        "copy_": lambda m: m.fc.weight.data.copy_(torch.randn(32, 16, dtype=torch.float64)),
        "slice": lambda m: m.fc.weight.data.__setitem__(slice(None), torch.randn(32, 16, dtype=torch.float64)),
        "fill_": lambda m: m.out.bias.data.fill_(0.5),
        "data set": lambda m: setattr(m.fc.weight, "data", torch.randn(32, 16, dtype=torch.float64)),
    }
    for name, form in forms.items():
        for model in bench.both:
            torch.manual_seed(11)
            with torch.no_grad():
                form(model)
        facts[f"initialised by {name}"] = agree(*bench.both)
    for model in bench.both:
        torch.manual_seed(12)
        with shardwright.whole_weights(model) if model is bench.model else torch.no_grad(), torch.no_grad():
            model.fc.weight[3:5] = 1.0
    facts["initialised by whole_weights"] = agree(*bench.both)
    facts["evaluated before .data is set"] = all([bench.evaluated(rows) for rows in (4, 4, 9)])
    before = [[p.data.clone() for p in model.parameters()] for model in bench.both]
    for model, values in zip(bench.both, before, strict=True):
        for p, value in zip(model.parameters(), values, strict=True):
            p.data = value * 2
    facts["values of .data"] = agree(*bench.both) and all([bench.evaluated(rows) for rows in (4, 9)])
    for model, values in zip(bench.both, before, strict=True):
        for p, value in zip(model.parameters(), values, strict=True):
            p.data = value
    facts["values of .data again"] = agree(*bench.both) and all([bench.evaluated(rows) for rows in (4, 9)])
    # None of these sizes comes twice: such calls run with whole weights.
    changes = (
        lambda p: p.mul_(2.0),
        lambda p: torch._foreach_mul_([p], 0.25),
        lambda p: p.data.neg_(),
        lambda p: p.lerp_(p + 0.1, 0.5),
        # The same values at other places.
        lambda p: p.copy_(p.flip(1)) if p.ndim > 1 else p,
    )
    for rows, change in enumerate(changes, 10):
        for model in bench.both:
            with torch.no_grad():
                for p in model.parameters():
                    change(p)
        facts[f"weights that change {rows - 10}"] = bench.evaluated(rows)
    ours, theirs = (model.fc.weight.detach().cpu() for model in bench.both)
    facts["numbers of a parameter"] = bool((ours.numpy() == theirs.numpy()).all()) and ours.tolist() == theirs.tolist()
    facts["other sizes of .data"] = refused(lambda: setattr(bench.model.out.bias, "data", torch.zeros(7, dtype=torch.float64)))
    facts["trained after"] = bench.step()


def loaded(facts: dict[str, Any], bench: Bench, place: str, rank: int) -> None:
    other = Net().double()
    torch.manual_seed(21)
    other.reset()
    before = copy.deepcopy(bench.plain.state_dict())
    wrong = OrderedDict({**other.state_dict(), "out.bias": torch.zeros(7)})
    facts["wrong sizes"] = refused(lambda: bench.model.load_state_dict(wrong))
    facts["nothing was loaded"] = all(same(value, before[name]) for name, value in bench.model.state_dict().items())
    for name, options in (("plainly", {}), ("assigned", {"assign": True})):
        bench.model.load_state_dict(other.state_dict(), **options)
        bench.plain.load_state_dict(other.state_dict())
        facts[f"loaded {name}"] = agree(*bench.both) and bench.evaluated(8)
        other.reset()
    part = {"out.bias": other.out.bias.detach()}
    facts["strict"] = bench.model.load_state_dict(part, strict=False).missing_keys == bench.plain.load_state_dict(
        part, strict=False
    ).missing_keys and agree(*bench.both)
    if rank == 0:
        torch.save(bench.model.state_dict(), f"{place}/rank0.pt")
    dist.barrier()
    loaded_part = torch.load(f"{place}/rank0.pt", weights_only=False)
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, refused(lambda: bench.model.load_state_dict(loaded_part) if rank else None))
    facts["the part of another rank"] = said[1]


def refusals(facts: dict[str, Any], place: str, rank: int) -> None:
    bench = Bench(place, "fsdp", folder=f"{place}/refusals")
    facts["other batches"] = refused(lambda: bench.model(*batch(seed=1 + rank)))
    bench = Bench(place, "fsdp", folder=f"{place}/refusals", check_batches=False)
    facts["batches that are not compared"] = refused(lambda: bench.model(*batch(seed=1 + rank)))
    x, y = batch()
    torch.manual_seed(1)
    loss = bench.model(x.requires_grad_(), y)[1]
    bench.step()
    facts["gradients of gradients of former weights"] = refused(lambda: torch.autograd.grad(loss, x, create_graph=True))
    facts["other sizes"] = refused(lambda: Bench(place, "fsdp", folder=f"{place}/refusals").model(*batch(rows=8 - rank)))
    draws = Draws().double()
    random.seed(4)
    state = random.getstate()
    facts["random"] = refused(
        lambda: shardwright.auto_parallelize(draws, (batch()[0],), "dp=-1", cluster="dgx-h100", folder=f"{place}/draws", quiet=True)
    )
    facts["random state"] = random.getstate() == state
    torch.manual_seed(rank)
    facts["other weights"] = refused(lambda: shardwright.parallelize(Net().double(), f"{place}/fsdp", bench.model.shardwright.mesh))


class Reductions(TorchDispatchMode):
    """How many sums over ranks are begun inside, or gathers."""

    def __init__(self, kind: str = "reduce") -> None:
        super().__init__()
        self.count, self.kind = 0, kind

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_c10d_functional::" in func._schema.name and self.kind in func._schema.name
        return func(*args, **(kwargs or {}))


def passed(model: Any, seed: int, rows: int = 8) -> int:
    """A forward and a backward pass; the sums over ranks of the backward one."""
    torch.manual_seed(seed)
    loss = model(*batch(rows, seed))[1]
    with Reductions() as seen:
        loss.backward()
    return seen.count


def accumulated(facts: dict[str, Any], bench: Bench) -> None:
    bench.plain.zero_grad()
    model = shardwright.parallelize(copy.deepcopy(bench.plain), bench.folder, bench.model.shardwright.mesh, loss=False)
    plain = copy.deepcopy(bench.plain)

    def equal() -> bool:
        pairs = zip(model.parameters(), plain.parameters(), strict=True)
        found = all(same(a.grad, b.grad) for a, b in pairs)
        model.zero_grad(), plain.zero_grad()
        return found

    once = passed(model, 0)
    model.zero_grad()
    with model.no_sync():
        inside = [passed(model, seed) for seed in (1, 2)]
    counts = [once, *inside, passed(model, 3)]
    for seed in (1, 2, 3):
        passed(plain, seed)
    # The batch norm adds up its own sums in every pass, as SyncBatchNorm does.
    own = 1
    facts["sums of no_sync"] = equal() and once > own and counts == [once, own, own, once]
    with model.no_sync():
        passed(model, 1)
        facts["a step too early"] = refused(torch.optim.SGD(model.parameters()).step)
        passed(model, 2)
        model.zero_grad()
        passed(model, 3)
    # A smaller last batch has a program of its own.
    passed(model, 4, rows=3), passed(plain, 3), passed(plain, 4, rows=3)
    facts["dropped, and reduced by another program"] = equal()
    every = shardwright.parallelize(copy.deepcopy(plain), bench.folder, bench.model.shardwright.mesh, accumulate=2)
    model, counts = every, [passed(every, seed) for seed in (1, 2)]
    passed(plain, 1), passed(plain, 2)
    facts["every second pass"] = equal() and counts == [own, once]
    passed(model, 3), passed(plain, 3)
    shardwright.reduce_gradients(model)
    facts["data that ends early"] = equal()


class Wide(nn.Module):
    """A weight that every device has, of which each computes some rows: its gradient is gathered, and nothing is added up."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).tanh().square().sum()


def gathered_once(facts: dict[str, Any], place: str) -> None:
    x = torch.randn(8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    plain = Wide().double()
    flags: dict[str, Any] = {"quiet": True, "cluster": "dgx-h100", "folder": f"{place}/wide", "accumulate": 3}
    pins = ["fc.weight=R", "mm=S(1)", "mm_1=S(0)"]
    model = shardwright.auto_parallelize(copy.deepcopy(plain), (x,), "tp=-1", pin=pins, **flags)
    counts, printed = [], []
    for k in range(3):
        loss, expected = model(x * (k + 1)), plain(x * (k + 1))
        # As scripts print it; a collective of one rank would be taken for the next one of the others.
        if dist.get_rank() == 0:
            printed.append(same(torch.tensor(loss.item(), dtype=torch.float64), expected))
        with Reductions("gather") as gathers:
            loss.backward()
        counts.append(gathers.count)
        expected.backward()
    facts["a loss that one rank prints"] = printed == [True] * 3 or dist.get_rank() > 0
    facts["gathered once"] = counts == [0, 0, 1] and same(model.fc.weight.grad, plain.fc.weight.grad)


def mixed(facts: dict[str, Any], place: str, rank: int) -> None:
    """Next to FSDP2, and to the same model in float64; weights are small numbers of bfloat16 so that all begin alike."""
    torch.manual_seed(0)
    truth = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 8)).double()
    draws = torch.Generator().manual_seed(1)
    x, y = torch.randn(64, 16, generator=draws), torch.randn(64, 8, generator=draws)
    model, theirs = copy.deepcopy(truth).float(), copy.deepcopy(truth).float()
    mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    for layer in (theirs[0], theirs[2], theirs):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    precision = shardwright.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    folder = f"{place}/mixed"
    flags: dict[str, Any] = {"recipe": "fsdp", "quiet": True, "folder": folder, "cluster": "dgx-h100", "mixed_precision": precision}
    model = shardwright.auto_parallelize(model, (x,), mesh, **flags)
    mine = slice(rank * 32, rank * 32 + 32)
    F.mse_loss(truth(x.double()), y.double()).backward()
    F.mse_loss(theirs(x[mine]), y[mine]).backward()
    output = model(x)
    F.mse_loss(output, y).backward()
    errors = [
        max(float((whole(p.grad).double() - q.grad).norm() / q.grad.norm()) for p, q in zip(one, truth.parameters(), strict=True))
        for one in (model.parameters(), theirs.parameters())
    ]
    facts["rounds as FSDP2 does"] = 1e-4 < errors[0] < 2 * errors[1]
    facts["dtypes of masters"] = output.dtype == torch.float32 and all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
    moved: dict[tuple[str, str], int] = {}
    for row in shardwright.load(folder).collectives:
        key = row["kind"], row["dtype"]
        moved[key] = moved.get(key, 0) + row["bytes"]
    # Of a bias, bytes cost nothing next to latency.
    gathers = moved["all_gather", "bfloat16"] > 8 * moved.get(("all_gather", "float32"), 0)
    facts["dtypes of collectives"] = gathers and moved["reduce_scatter", "float32"] > 0 and ("reduce_scatter", "bfloat16") not in moved
    with torch.no_grad():
        again, other = model(x[:6]), theirs(x[:6])
    facts["evaluated in bfloat16"] = float((again - other).abs().max()) < 2**-6 and not torch.equal(again, truth.float()(x[:6]))
    facts["other sums"] = refused(lambda: shardwright.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float64))


def scaled(facts: dict[str, Any], place: str) -> None:
    """`autocast` and `GradScaler`: gradients of one row overflow, which lies on one rank; all skip those steps, as one process does."""
    torch.manual_seed(0)
    plain = nn.Linear(16, 8)
    draws = torch.Generator().manual_seed(1)
    x, y = torch.randn(32, 16, generator=draws), torch.randn(32, 8, generator=draws)
    y[:, 7] *= 3000
    flags: dict[str, Any] = {"recipe": "fsdp", "quiet": True, "folder": f"{place}/scaled", "cluster": "dgx-h100"}
    model = shardwright.auto_parallelize(copy.deepcopy(plain), (x,), "dp=-1", **flags)
    curves: list[list[tuple[float, torch.Tensor]]] = []
    for one in (model, plain):
        optimizer, scaler = torch.optim.SGD(one.parameters(), lr=1e-4), torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=3)
        curve = []
        for step in range(16):
            with torch.autocast("cpu", dtype=torch.float16):
                output = one(x)
            scaler.scale(F.mse_loss(output.float(), y)).backward()
            if step == 0 and one is model:
                finite: list[Any] = [None] * 2
                dist.all_gather_object(finite, bool(one.weight.grad.to_local().isfinite().all()))
                facts["one rank overflows"] = finite == [True, False]
            scaler.unscale_(optimizer)
            norm = whole(nn.utils.clip_grad_norm_(one.parameters(), 100.0))
            scaler.step(optimizer), scaler.update()
            optimizer.zero_grad()
            curve.append((scaler.get_scale(), norm))
        curves.append(curve)
    ours, theirs = ([norm for _, norm in curve] for curve in curves)
    scales = [scale for scale, _ in curves[0]]
    facts["scales"] = scales == [scale for scale, _ in curves[1]] and min(scales) < 2.0**13 and scales[-1] > min(scales)
    facts["scaled norms"] = [bool(n.isnan()) for n in ours] == [bool(n.isnan()) for n in theirs] and all(
        torch.allclose(a, b, rtol=1e-3, equal_nan=True) for a, b in zip(ours, theirs, strict=True)
    )
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    facts["scaled weights"] = all(torch.allclose(whole(a), b.detach(), rtol=1e-4, atol=1e-6) for a, b in pairs)


def transformed(facts: dict[str, Any], place: str) -> None:
    """Functional training, gradients of single samples, an inner step that is differentiated, and autograd's tape over a transform."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 6)).double()
    x, y = torch.randn(8, 16, dtype=torch.float64), torch.arange(8) % 6
    flags: dict[str, Any] = {"recipe": "fsdp", "quiet": True, "cluster": "dgx-h100", "folder": f"{place}/transformed"}
    model = shardwright.auto_parallelize(copy.deepcopy(plain), (x,), "dp=-1", **flags)
    found: list[dict[str, list[torch.Tensor]]] = []
    for one in (model, plain):

        def loss(params: Any, x: torch.Tensor, y: torch.Tensor, one: Any = one) -> torch.Tensor:
            return F.cross_entropy(torch.func.functional_call(one, params, (x,)), y)

        def stepped(params: Any, loss: Any = loss) -> Any:
            grads = torch.func.grad(loss)(params, x, y)
            return {name: p - 0.1 * grads[name] for name, p in params.items()}

        params = {name: p.detach() for name, p in one.named_parameters()}
        alone = torch.func.vmap(torch.func.grad(lambda p, a, b, loss=loss: loss(p, a[None], b[None])), in_dims=(None, 0, 0))
        samples = alone(params, x, y)
        inner = torch.func.grad(lambda p, stepped=stepped, loss=loss: loss(stepped(p), x + 1, y))(params)
        for _ in range(3):
            params = stepped(params)
        one.zero_grad()
        torch.func.vmap(lambda row, one=one: one(row[None])[0])(x).square().sum().backward()
        rows = {"functional steps": params, "single samples": samples, "an inner step": inner}
        found.append({name: list(values.values()) for name, values in rows.items()})
        found[-1]["a tape over a transform"] = [p.grad for p in one.parameters()]
    for name, values in found[0].items():
        facts[name] = all(map(same, values, map(whole, found[1][name])))


class Policy(nn.Module):
    """A pruned layer, and a distribution as output."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(16, 32), nn.Linear(32, 6)
        prune.random_unstructured(self.body, "weight", amount=0.3)

    def forward(self, x: torch.Tensor) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=self.head(torch.relu(self.body(x))))


def made_before(facts: dict[str, Any], place: str) -> None:
    """The order of scripts for DDP: hooks of parameters, gradients and an optimizer, then `torch.compile`, and only then the wrapper."""
    x, y = torch.randn(8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3)), torch.arange(8) % 6
    flags: dict[str, Any] = {"recipe": "fsdp", "quiet": True, "cluster": "dgx-h100"}
    curves, models, seen = [], [], []
    for taken in (True, False):
        torch.manual_seed(0)
        model: Any = Policy().double()
        model.head.weight.register_hook(lambda g: g.clamp(-0.01, 0.01))
        handle = model.head.bias.register_hook(lambda g: g * 0)
        (-model(x).log_prob(y).mean()).backward()
        optimizer = torch.optim.AdamW([{"params": model.body.parameters()}, {"params": model.head.parameters(), "lr": 0.1}], lr=1e-2)
        if taken:
            # Compiled, the plain one would not call hooks that are set later.
            model = torch.compile(model, backend="eager")
            made = shardwright.auto_parallelize(model, (x,), "dp=-1", folder=f"{place}/before", **flags)
            facts["the compiled one"] = made is model and isinstance(model._orig_mod, shardwright.ParallelModule)
            facts["module"] = str(refusal(lambda model=model: model._orig_mod.module))
        curve, features = [], []
        for step in range(5):
            if step == 2:
                handle.remove()
                note = model.head.register_forward_hook(lambda m, i, o, features=features: features.append(o.detach().clone()))
            if step == 4:
                note.remove()
                model.head.register_forward_hook(lambda m, i, o: o * 1.5)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                loss = -model(x).log_prob(y).mean()
            seen += [str(one.message) for one in said if "whole weights" in str(one.message)]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            curve.append(loss.detach())
        curves.append([*curve, *features])
        models.append(model._orig_mod if taken else model)
    facts["trained by what was made before"] = len(curves[0]) == 7 and all(map(same, *curves)) and agree(*models)
    text = Path(__file__).read_text().splitlines()
    lines = [f"{__file__}:{n}" for n, line in enumerate(text, 1) if "model.head.register_forward_hook(" in line]
    facts["hooks inside"] = seen[0] if len(seen) == 2 and all(map(str.__contains__, seen, lines)) else f"said {seen}"


def by_former_parameters(facts: dict[str, Any], place: str) -> None:
    """Lists of parameters that are older than the parallel module: for gradients, clipping, averages, a penalty, noise and an optimizer."""
    x, y = torch.randn(8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3)), torch.arange(8) % 6
    told, models = [], []
    for taken in (True, False):
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 6)).double()
        params, weight = list(model.parameters()), model[0].weight
        if taken:
            flags: dict[str, Any] = {"recipe": "fsdp", "quiet": True, "cluster": "dgx-h100", "folder": f"{place}/former"}
            model = shardwright.auto_parallelize(model, (x,), "dp=-1", **flags)
            # What the list holds takes no memory beside the parts of the model.
            with torch._C.DisableTorchFunctionSubclass():
                facts["values of before are freed"] = all(p.numel() == 0 for p in params)
        optimizer = torch.optim.AdamW([{"params": params[:2]}, {"params": params[2:], "lr": 0.1}], lr=1e-2)
        ema = [p.detach().clone() for p in params]
        torch.manual_seed(1)
        for _ in range(4):
            loss = F.cross_entropy(model(x), y) + 1e-2 * weight.square().sum()
            for p, gradient in zip(params, torch.autograd.grad(loss, params), strict=True):
                p.grad = gradient
                p.grad.add_(torch.randn_like(p), alpha=1e-3)
            told += [loss.detach(), nn.utils.clip_grad_norm_(params, 0.05)]
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for average, p in zip(ema, params, strict=True):
                    average.lerp_(p, 0.5)
                weight[weight.abs() < 0.02] = 0.0
            told += [ema[0].sum(), (weight == 0).sum(), torch.bernoulli(weight.detach().sigmoid()).sum(), F.dropout(weight.detach()).sum()]
        told += [copy.deepcopy(weight).norm(), torch.poisson(weight.detach().abs()).sum(), torch.normal(weight.detach(), 1.0).sum()]
        models.append(model)
    half = len(told) // 2
    facts["trained by parameters of before"] = all(map(same, told[:half], told[half:])) and agree(*models)


class Sized(nn.Module):
    """Plain values among its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 6)

    def forward(self, x: torch.Tensor) -> Any:
        z = self.fc(x)
        return z, {"sizes": list(z.shape), "head": "linear", "cut": False}


def reduced_by_hand(facts: dict[str, Any], place: str) -> None:
    """A script for DDP by hand sends weights to all ranks, and takes means of gradients and losses over them."""
    x, y = torch.randn(8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3)), torch.arange(8) % 6
    torch.manual_seed(0)
    plain = Sized().double()
    flags: dict[str, Any] = {"recipe": "fsdp", "quiet": True, "cluster": "dgx-h100", "folder": f"{place}/by-hand"}
    model = shardwright.auto_parallelize(copy.deepcopy(plain), (x,), "dp=-1", **flags)
    facts["plain members of outputs"] = [one(x[:rows])[1] for one in (model, plain) for rows in (8, 6)] == 2 * [
        {"sizes": [rows, 6], "head": "linear", "cut": False} for rows in (8, 6)
    ]
    averages = [copy.deepcopy(plain) for _ in range(2)]
    with torch.no_grad():
        for average, one in zip(averages, (model, plain), strict=True):
            for a, p in zip(average.parameters(), one.parameters(), strict=True):
                a.mul_(0.9).add_(p.data, alpha=0.3)
                a.lerp_(p, 0.1)
                a.data.copy_(a.data + 2 * p.data)
    facts["averages from before"] = agree(*averages) and not agree(averages[0], plain)
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    losses = []
    for one in (model, plain):
        loss = F.cross_entropy(one(x)[0], y)
        loss.backward()
        if one is model:
            for p in one.parameters():
                dist.all_reduce(p.grad, async_op=True).wait()
                p.grad /= dist.get_world_size()
            dist.all_reduce(model.fc.bias.grad, dist.ReduceOp.MAX)
            loss = loss.detach().clone()
            dist.all_reduce(loss)
            loss /= 2
        losses.append(loss)
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    facts["means over ranks"] = same(*losses) and all(same(a.grad, b.grad) and same(a, b) for a, b in pairs)
    facts["a product over ranks"] = refused(lambda: dist.all_reduce(model.fc.bias.grad, dist.ReduceOp.PRODUCT))


class Head(nn.Module):
    """A head on a trunk that may be another model's, too."""

    def __init__(self, trunk: nn.Module, width: int, sizes: int = 6) -> None:
        super().__init__()
        self.trunk, self.out = trunk, nn.Linear(width, sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.trunk(x))


def shared(facts: dict[str, Any], place: str) -> None:
    """Two models on one trunk whose heads are tied, and a third one around the second; evaluation in inference mode with whole weights."""
    x = torch.randn(8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(16, 32, bias=False), nn.BatchNorm1d(32), nn.Tanh())
    first, second = Head(trunk, 32), Head(trunk, 32)
    second.out.weight = first.out.weight
    plain = [one.double() for one in (first, second, Head(second, 6, 4))]
    flags: dict[str, Any] = {"quiet": True, "cluster": "dgx-h100"}
    models = [
        shardwright.auto_parallelize(one, (x,), "dp=-1", folder=f"{place}/shared{k}", **({"recipe": "fsdp"} if k == 0 else {}), **flags)
        for k, one in enumerate(copy.deepcopy(plain))
    ]
    facts["one trunk and one tied weight"] = models[1].trunk[0].weight is models[0].trunk[0].weight and (
        models[1].out.weight is models[0].out.weight and models[2].trunk is models[1]
    )
    losses = []
    for ours in (models, plain):
        parameters = list(dict.fromkeys(p for one in ours for p in one.parameters()))
        optimizer = torch.optim.AdamW(parameters, lr=1e-2)
        for _ in range(2):
            loss = torch.stack([one(x).square().mean() for one in ours]).sum()
            loss.backward()
            losses += [nn.utils.clip_grad_norm_(parameters, 1.0), loss.detach()]
            optimizer.step()
            optimizer.zero_grad()
        ours[2].eval()
        # The first two sizes have programs; what is gathered for the third serves the fourth, outside of inference mode.
        with torch.inference_mode():
            losses += [ours[2](x[:rows]).sum() for rows in (3, 4, 5)]
        with torch.no_grad():
            losses.append(ours[2](x[:7]).sum())
        ours[2].train()
        losses.append(ours[2](x).sum().detach())
    half = len(losses) // 2
    facts["trained by models that share"] = all(map(same, losses[:half], losses[half:])) and all(map(agree, models, plain))
    other = Head(models[0].trunk, 32)
    elsewhere = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    flags["folder"] = f"{place}/other"
    facts["a trunk on another mesh"] = refused(lambda: shardwright.auto_parallelize(other, (x,), elsewhere, **flags))


class Rooted(nn.Module):
    """A root whose gradient at zero is infinite, and a logarithm that is none of numbers below zero."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out, self.how = nn.Linear(16, 32), nn.Linear(32, 6), "fine"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.dropout(self.fc(x), 0.1)
        h = torch.sqrt(h * 0) if self.how == "root" else torch.log(h) if self.how == "log" else h
        return self.out(h.masked_fill(h < -100, -float("inf")).exp()).square().mean()


def not_finite(facts: dict[str, Any], place: str) -> None:
    x = torch.randn(8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    plain = Rooted().double()
    flags: dict[str, Any] = {"recipe": "fsdp", "quiet": True, "cluster": "dgx-h100", "folder": f"{place}/finite"}
    model = shardwright.auto_parallelize(copy.deepcopy(plain), (x,), "dp=-1", check_finite=True, **flags)
    losses = []
    for one in (model, plain):
        torch.manual_seed(4)
        loss = one(x)
        loss.backward()
        losses.append(loss)
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    facts["finite steps"] = same(*losses) and all(same(a.grad, b.grad) for a, b in pairs)
    broken = x.clone()
    broken[5, 3] = float("nan")
    facts["a sample that is none"] = refused(lambda: model(broken))
    facts["a gradient of the script"] = refused(lambda: (model(x) * float("inf")).backward())
    model.how = "log"
    facts["a call that makes it"] = refused(lambda: model(x))
    model.how = "root"
    loss = model(x)
    facts["a gradient that is none"] = refused(loss.backward)
    with torch.no_grad():
        model.fc.bias.fill_(float("inf"))
    facts["a weight that is none"] = refused(lambda: model(x))


def refusal(call: Any) -> Exception | None:
    try:
        call()
    except AttributeError as error:
        return error
    return None


def rows_of_ranks(facts: dict[str, Any], place: str, rank: int, world: int) -> None:
    x, y = batch()
    mine = slice(rank * 8 // world, (rank + 1) * 8 // world)
    bench = Bench(place, "fsdp", folder=f"{place}/local", inputs="local", example=(x[mine], y[mine]))
    for one in (bench.model, bench.plain):
        one.drop.p = one.rnn.dropout = 0.0
    torch.manual_seed(2)
    z, loss = bench.model(x[mine], y[mine])
    expected, wanted = bench.plain(x, y)
    facts["rows of this rank"] = same(z, expected[mine]) and same(loss, wanted)
    F.cross_entropy(bench.model(x[mine])[0].flatten(0, 1), y[mine].flatten()).backward()
    F.cross_entropy(bench.plain(x)[0].flatten(0, 1), y.flatten()).backward()
    pairs = zip(bench.model.parameters(), bench.plain.parameters(), strict=True)
    facts["gradients of rows"] = all(same(a.grad, b.grad) for a, b in pairs)
    facts["a transform"] = refused(lambda: torch.func.grad(lambda x: bench.model(x, y[mine])[1])(x[mine]))
    # The loss of the whole batch is the mean of those of the ranks.
    rows, everything = x[mine].clone().requires_grad_(), x.clone().requires_grad_()
    F.cross_entropy(bench.model(rows)[0].flatten(0, 1), y[mine].flatten()).backward()
    F.cross_entropy(bench.plain(everything)[0].flatten(0, 1), y.flatten()).backward()
    facts["the gradient of own rows"] = same(rows.grad, everything.grad[mine] * world)
    for one in bench.both:
        one.zero_grad()
    (F.cross_entropy(bench.model(x[mine])[0].flatten(0, 1), y[mine].flatten()) + bench.model.fc.weight.square().sum()).backward()
    (F.cross_entropy(bench.plain(x)[0].flatten(0, 1), y.flatten()) + bench.plain.fc.weight.square().sum()).backward()
    pairs = zip(bench.model.parameters(), bench.plain.parameters(), strict=True)
    facts["a penalty beside the loss of rows"] = all(same(a.grad, b.grad) for a, b in pairs)
    with torch.no_grad():
        facts["a part of the model on rows"] = same(bench.model.fc(x[mine]), bench.plain.fc(x)[mine])
    facts["a part that records"] = refused(lambda: bench.model.fc(x[mine]))
    asked = bench.model(rows)[0].sum()
    facts["gradients of gradients"] = refused(lambda: torch.autograd.grad(asked, rows, create_graph=True))


def work(rank: int, place: str, world: int) -> None:
    torch.set_num_threads(1)
    os.chdir(place)
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=world, timeout=timedelta(seconds=300))
    everything: dict[str, Any] = {}
    for recipe in ("fsdp", None) if world == 2 else ("fsdp",):
        facts: dict[str, Any] = {}
        # Plans and ranks differ in how a step is cut, which few calls show; what makes a program of its own is asked of one of them.
        whole_list = FULL or (world == 2 and recipe)
        bench = Bench(place, recipe, also=[batch(6)] if whole_list else [])
        the_same_object(facts, bench)
        (any_call if whole_list else some_calls)(facts, bench)
        if world == 2 and whole_list:
            losses_and_inputs(facts, bench)
        if world == 2 and recipe:
            copies(facts, bench)
            initialised(facts, bench)
            loaded(facts, bench, place, rank)
            accumulated(facts, bench)
        everything.update({f"{world} {recipe or 'optimum'}: {name}": value for name, value in facts.items()})
    facts = {}
    rows_of_ranks(facts, place, rank, world)
    if world == 2:
        refusals(facts, place, rank)
        mixed(facts, place, rank)
        scaled(facts, place)
        made_before(facts, place)
        by_former_parameters(facts, place)
        not_finite(facts, place)
        transformed(facts, place)
        reduced_by_hand(facts, place)
        shared(facts, place)
        gathered_once(facts, place)
    everything.update({f"{world}: {name}": value for name, value in facts.items()})
    if rank == 0:
        Path(f"{place}/facts.json").write_text(json.dumps(everything))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=[2, 4])
def facts(request: pytest.FixtureRequest) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        run_ranks(work, (place, request.param), request.param)
        return json.loads(Path(f"{place}/facts.json").read_text())


def test_a_run_is_that_of_one_process(facts: dict[str, Any]) -> None:
    truths = {name: value for name, value in facts.items() if not isinstance(value, str)}
    assert len(truths) >= 10
    assert [name for name, value in truths.items() if value is not True] == []


REFUSALS = {
    "wrong sizes": ["E_MODEL out.bias is [7], planned is [6]", "nothing was loaded"],
    "other sizes of .data": [".data of a parameter: E_MODEL it is set to [7], planned is [6]"],
    "module": ["'ParallelPolicy' object has no attribute 'module': it is the model itself, which DDP and DataParallel wrap"],
    "hooks inside": ["E_HOOK no program calls the forward hook made_before.<locals>.<lambda> of head", "handle.remove()"],
    "a sample that is none": ["E_NAN in the forward of step 2 output", "is nan on", "input x came in as nan on rank"],
    "a gradient of the script": [
        "E_NAN in the backward of step 3 the gradient of",
        "the gradient of output 0, which comes from the script, came in",
    ],
    "a call that makes it": ["E_NAN in the forward of step 4", "made the first nan in aten.log.default (", "torch/program.py:"],
    "a gradient that is none": ["E_NAN in the backward of step 5 the gradient of fc.", "made the first nan in aten."],
    "a trunk on another mesh": ["trunk.0.weight: E_MESH another parallel model has it on", "give both the same device_mesh"],
    "a weight that is none": ["E_NAN in the forward of step 6", "parameter fc.bias came in as inf on rank 0"],
    "a product over ranks": ["torch.distributed: E_RANK a product over ranks is taken of a tensor that ranks hold parts of"],
    "the part of another rank": ["fc.weight: E_MODEL it is the part that rank 0 saved", "this is rank 1"],
    "other batches": ["input x: E_BATCH in step 1 rank 1 gives other values than rank 0", 'inputs="local"'],
    "batches that are not compared": ["nothing was refused"],
    "other sizes": ["E_INPUT in step 1 rank 0 calls it for training: x float64[8, 2, 16]", "rank 1 for training: x float64[7, 2, 16]"],
    "random": ["E_RANDOM Draws draws from random in forward"],
    "a step too early": ["optimizer.step(): E_ACCUMULATE the gradients of passes under no_sync() are not reduced", "reduce_gradients"],
    "a transform": ["E_TRANSFORM a transform of torch.func sees the rows of one rank", 'inputs="whole"'],
    "a part that records": ['inputs="local": E_GRADIENT aten.', "meets a parameter and rows of this rank outside of forward"],
    "gradients of gradients": ["backward: E_GRADIENT a gradient with create_graph=True", 'inputs="whole"', "in forward"],
    "gradients of gradients of former weights": ["backward: E_GRADIENT a parameter or an input was changed after the call"],
    "other sums": ["reduce_dtype: E_DTYPE gradients are summed in float32 or in param_dtype, not in torch.float64"],
    "other weights": ["E_MODEL rank 1 holds other values of fc.weight"],
}


def test_refusals_say_what_ranks_do_differently(facts: dict[str, Any]) -> None:
    said = {name.partition(": ")[2]: value for name, value in facts.items() if isinstance(value, str)}
    for name in said:
        for word in REFUSALS[name]:
            assert word in said[name], name
