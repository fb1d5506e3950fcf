"""Runs different plans of six models on the machine at hand, and compares their steps with what the planner said.

    torchrun --nproc-per-node 4 -m shardwright.measure --mesh dp=2,tp=2 -o cluster.json
    torchrun --nproc-per-node 4 bench/own-machine.py cluster.json -o own-machine.json

For each mesh of `--mesh` a model has the best plan and every recipe whose program differs. All plans of a model take turns, a step
each, and a step takes as long as its slowest rank. `own-machine.json` has the medians and their spread; a table in Markdown is printed.
A step is the forward and the backward pass with the reduction of gradients, as the captured program has it.
"""

import argparse
import copy
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))

import shardwright  # noqa: E402
from shardwright.folder import load  # noqa: E402
from shardwright.making import on_first, open_mesh  # noqa: E402
from shardwright.tuning import Candidate, make_candidates  # noqa: E402

#: Steps of each plan before the first that is timed, and those that are.
WARM, STEPS = 2, 9
#: More plans than a mesh has recipes: all of them are run.
ALL = 99


def transformers() -> Any:
    """`local-models.py`, which has the Llama and the GPT-2."""
    spec = importlib.util.spec_from_file_location("local_models", HERE / "local-models.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Residual(nn.Module):
    """Two convolutions with batch norm beside a skip connection."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.skip = nn.Conv2d(before, after, 1, stride, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class Mixture(nn.Module):
    """A router and experts that are products of one batch: every expert computes every token, two of them count."""

    def __init__(self, hidden: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, hidden, inner) / hidden**0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, hidden) / inner**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.router(x)
        least = scores.topk(2, dim=-1).values[..., -1:]
        weights = torch.where(scores >= least, scores, torch.full_like(scores, -1e9)).softmax(-1)
        tokens = x.expand(self.up.shape[0], *x.shape)
        out = F.silu(tokens @ self.up) @ self.down
        return x + (out * weights.t().unsqueeze(-1)).sum(0)


def stack(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers = [layer for a, b in zip(sizes, sizes[1:], strict=False) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def squared(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (out - target).square().mean()


@dataclass(frozen=True)
class Model:
    """A model, its inputs, and its loss where the model has none."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    loss: Callable[..., torch.Tensor] | None = None
    targets: tuple[torch.Tensor, ...] = ()


def models(scale: int) -> dict[str, Callable[[], Model]]:
    """Six models; sizes are divided by `scale`."""
    texts = transformers()
    hidden, rows, words = 256 // scale, 128 // scale, 8192 // scale

    def tokens(batch: int) -> tuple[torch.Tensor, ...]:
        return tuple(torch.randint(0, words, (batch, rows)) for _ in range(2))

    def pair(batch: int, width: int) -> tuple[tuple[torch.Tensor], tuple[torch.Tensor]]:
        return (torch.randn(batch, width),), (torch.randn(batch, width),)

    def perceptron(batch: int, *sizes: int) -> Model:
        inputs, targets = pair(batch, sizes[0])
        return Model(stack(*sizes), inputs, squared, targets)

    def residual() -> Model:
        widths = [64 // scale, 64 // scale, 128 // scale, 256 // scale]
        blocks = [Residual(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:], strict=False)]
        ends = [nn.Conv2d(3, widths[0], 3, 1, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100)]
        return Model(nn.Sequential(*ends), (torch.randn(32, 3, 32, 32),), F.cross_entropy, (torch.randint(0, 100, (32,)),))

    def mixture() -> Model:
        inputs, targets = pair(512, hidden)
        return Model(nn.Sequential(*(Mixture(hidden, 2 * hidden, 8) for _ in range(2))), inputs, squared, targets)

    wide, deep = 1024 // scale, 512 // scale
    return {
        "MLP, wide": lambda: perceptron(256, wide, 4 * wide, wide),
        "MLP, deep": lambda: perceptron(512, *[deep] * 13),
        "Llama": lambda: Model(texts.Llama(2, hidden, 8, 4, 704 // scale, words, rows), tokens(8)),
        "GPT-2": lambda: Model(texts.Gpt(4, hidden, 8, words, rows), tokens(8)),
        "ResNet": residual,
        "mixture of experts": mixture,
    }


@dataclass(frozen=True)
class Row:
    """What a plan was said to take, and took."""

    model: str
    mesh: str
    plan: str
    predicted: float
    measured: float
    spread: float


def slowest(seconds: list[float]) -> list[float]:
    """The largest of all ranks, step by step."""
    told = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    return told.tolist()


def run(name: str, model: Model, cluster: str, meshes: list[str], folder: Path) -> list[Row]:
    """All plans of one model, a step of each by turns."""
    plans: list[tuple[str, Candidate, Callable[[], None]]] = []
    for text in meshes:
        mesh = open_mesh(text)
        at = folder / name.replace(", ", "-").replace(" ", "-") / text.replace(",", "-")

        def make(at: Path = at, text: str = text) -> Path:
            how: dict[str, Any] = {"loss": model.loss, "targets": model.targets}
            captured = shardwright.capture(model.module, model.inputs, **how, path=at / "model.fx.txt")
            asked = {"mesh": text, "cluster": cluster, "quiet": True}
            shardwright.plan(captured, out=at, recipes=True, **asked)
            batch = [f"{n}=0" for n in captured.inputs]
            found = make_candidates(captured, at, ALL, batch_dim=batch, **asked)
            (at / "candidates.json").write_text(json.dumps([vars(one) for one in found]))
            return at

        on_first(mesh, make)
        for one in json.loads((at / "candidates.json").read_text()):
            candidate = Candidate(**one)
            module = shardwright.parallelize(
                copy.deepcopy(model.module), load(candidate.folder), mesh, check_batches=False, loss=model.loss
            )
            plans.append((text, candidate, step_of(module, model)))
    seconds: list[list[float]] = [[] for _ in plans]
    for turn in range(WARM + STEPS):
        for (_, _, step), times in zip(plans, seconds, strict=True):
            dist.barrier()
            begin = time.perf_counter()
            step()
            if turn >= WARM:
                times.append(time.perf_counter() - begin)
    rows: list[Row] = []
    for (text, one, _), times in zip(plans, seconds, strict=True):
        ends = slowest(times)
        low, _, high = statistics.quantiles(ends, n=4)
        rows.append(Row(name, text, one.name, one.seconds, statistics.median(ends), high - low))
    return rows


def step_of(module: Any, model: Model) -> Callable[[], None]:
    def step() -> None:
        module.zero_grad(set_to_none=True)
        module(*model.inputs, *model.targets).backward()

    return step


def ranks(values: list[float]) -> list[float]:
    """The place of each value; equal ones share the mean of theirs."""
    return [sum(b < a for b in values) + (sum(b == a for b in values) - 1) / 2 for a in values]


def told_of(name: str, rows: list[Row]) -> str:
    """A row of the table: how well a model's plans are ordered, and how far their seconds are off."""
    predicted, measured = [row.predicted for row in rows], [row.measured for row in rows]
    fastest = min(rows, key=lambda row: row.measured)
    first = min(rows, key=lambda row: row.predicted)
    rank = statistics.correlation(ranks(predicted), ranks(measured))
    off = statistics.median(abs(p / m - 1) for p, m in zip(predicted, measured, strict=True))
    lost = first.measured / fastest.measured - 1
    cells = [
        name,
        str(len(rows)),
        f"{rank:.2f}",
        f"{first.plan} ({first.mesh})",
        f"{1e3 * first.predicted:.0f}",
        f"{1e3 * first.measured:.0f}",
        f"{100 * lost:.0f} %",
        f"{100 * off:.0f} %",
    ]
    return f"| {' | '.join(cells)} |"


HEAD = """| model | plans | rank correlation | first by its prediction | ms, predicted | ms, measured | slower than the fastest | median error |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster", help="the file that shardwright.measure wrote on this machine")
    parser.add_argument("-o", "--out", type=Path, default=Path("own-machine.json"))
    parser.add_argument("--mesh", action="append", help="default d=4 and dp=2,tp=2")
    parser.add_argument("--model", action="append", help="one of the six; default all")
    parser.add_argument("--scale", type=int, default=1, help="divides the sizes, to try the road")
    args = parser.parse_args()
    meshes = args.mesh or ["d=4", "dp=2,tp=2"]
    open_mesh(meshes[0])
    first = dist.get_rank() == 0
    shared: list[Any] = [tempfile.mkdtemp() if first else None]
    dist.broadcast_object_list(shared)
    rows: list[Row] = []
    if first:
        print(HEAD, flush=True)
    for name, make in models(args.scale).items():
        if args.model and name not in args.model:
            continue
        torch.manual_seed(0)
        found = run(name, make(), args.cluster, meshes, Path(shared[0]))
        rows += found
        if first:
            print(told_of(name, found), flush=True)
            args.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    dist.barrier()
    # A thread of gloo that still holds a tensor aborts a process that ends.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
