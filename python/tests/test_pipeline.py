"""Four processes run the stages of a model by the schedules of PyTorch: losses, gradients and checkpoints are those of one process."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from models import Mlp, refused
from processes import run_ranks, start_ranks
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

import shardwright

ROWS = 4
MICROBATCHES = 4


class Chain(nn.Module):
    """Layers with a connection from the first over the others to the last, whose weight the first has too; and a buffer that counts."""

    def __init__(self, counts: bool = True) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d, self.e, self.f = (nn.Linear(16, 16) for _ in range(6))
        self.f.weight = self.a.weight
        self.b.weight.requires_grad_(False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))
        self.counts = counts
        self.unread = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        if self.counts:
            self.calls.add_(1)
        h = torch.relu(self.a(x))
        k = torch.tanh(self.c(torch.tanh(self.b(h))))
        return self.f(torch.tanh(self.e(torch.relu(self.d(k)))) * scale) + h


def chain(counts: bool = True) -> nn.Module:
    torch.manual_seed(3)
    return Chain(counts).double()


def batch(rows: int = ROWS * MICROBATCHES) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(5)
    x, y = (torch.randn(rows, 16, generator=draws, dtype=torch.float64) for _ in range(2))
    return x, torch.randn(16, generator=draws, dtype=torch.float64), y


#: Column and row cuts of the layers, so that a stage gets what it wants otherwise than it comes.
COLUMNS = [f"{name}.weight={at}" for name, at in zip("abcde", ("S(0)", "S(0)", "S(1)", "S(0)", "S(0)"), strict=True)]
PLANS: dict[str, dict[str, Any]] = {
    "rows": {"mesh": "pp=2,dp=2", "pin": ["x=S(0)", *(f"{name}.weight=R" for name in "abcdef")]},
    "columns": {"mesh": "pp=2,tp=2", "pin": COLUMNS},
    "interleaved": {"mesh": "pp=2,dp=2", "virtual": 2, "pin": ["x=S(0)"]},
}
#: Plans of a model that writes no buffer, whose evaluation is that of training.
WITHOUT_COUNTS = ("interleaved",)
RUNS = [
    *(("rows", None), ("rows", "GPipe"), ("columns", "1F1B"), ("columns", "zb-h1")),
    *(("interleaved", None), ("interleaved", "ZBVZeroBubble"), ("interleaved", "DualPipeV"), ("interleaved", "InterleavedZeroBubble")),
]


def whole(tensor: Any) -> Any:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def alike(found: Any, wanted: Any) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return bool(torch.allclose(whole(found), wanted, rtol=1e-9, atol=1e-12))


def trained(place: str, name: str, schedule: str | None) -> tuple[Any, nn.Module, dict[str, bool]]:
    """Three steps, the second of which adds its gradients to those of the first."""
    counts = name not in WITHOUT_COUNTS
    plain = chain(counts)
    staged = shardwright.load_stages(f"{place}/{name}")
    pipe = shardwright.pipeline(chain(counts), staged, PLANS[name]["mesh"], schedule=schedule)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (plain, pipe)]
    x, scale, y = batch()
    facts: dict[str, bool] = {}
    for k in range(3):
        wanted = F.mse_loss(plain(x, scale), y)
        wanted.backward()
        found = pipe.step(x, scale, y)
        facts[f"loss {k}"] = alike(found, wanted.detach())
        own = dict(pipe.named_parameters(remove_duplicate=False))
        others = dict(plain.named_parameters(remove_duplicate=False))
        facts[f"gradients {k}"] = all(alike(p.grad, others[n].grad) for n, p in own.items())
        if k == 0:
            continue
        norm = 2.0 if k == 1 else float("inf")
        expected = nn.utils.clip_grad_norm_(plain.parameters(), 0.01, norm)
        facts[f"norm {k}"] = alike(pipe.clip_grad_norm_(0.01, norm), expected) and expected.item() > 0.01
        for one in optimizers:
            one.step()
            one.zero_grad()
        facts[f"weights {k}"] = all(alike(p.detach(), others[n]) for n, p in own.items())
    facts["the tied weight is one tensor under both names"] = own.get("a.weight") is own.get("f.weight")
    calls = 3 * MICROBATCHES if counts else 0
    facts["a buffer counts microbatches"] = "calls" not in dict(pipe.named_buffers()) or whole(pipe.calls).item() == calls
    if not counts:
        with torch.no_grad():
            facts["evaluation"] = alike(pipe.evaluate(x, scale, y), F.mse_loss(plain(x, scale), y))
        facts["no gradient of evaluation"] = all(p.grad is None for p in pipe.parameters())
    facts["what no stage reads is here"] = alike(pipe.unread.detach(), torch.ones(3).double())
    return pipe, plain, facts


def checkpoints(place: str, pipe: Any, plain: nn.Module) -> dict[str, bool]:
    """Weights of the stages into the model, and of the model into the stages."""
    dcp.save({"model": pipe.state_dict()}, checkpoint_id=f"{place}/checkpoint")
    fresh = Chain().double()
    weights = fresh.state_dict()
    dcp.load({"model": weights}, checkpoint_id=f"{place}/checkpoint")
    fresh.load_state_dict(weights)
    wanted = plain.state_dict()
    saved = all(alike(value, wanted[name]) for name, value in weights.items() if name != "calls")
    with torch.no_grad():
        for p in pipe.parameters():
            p.zero_()
    pipe.load_state_dict(wanted)
    loaded = all(alike(value, wanted[name]) for name, value in pipe.state_dict().items())
    return {"stages into a model": saved, "a model into stages": loaded}


def refusals(place: str, pipe: Any) -> dict[str, str]:
    folder, (x, scale, y) = f"{place}/rows", batch()

    def made(**options: Any) -> str:
        model = options.pop("model", None) or chain()
        return refused(lambda: shardwright.pipeline(model, folder, options.pop("mesh", "pp=2,dp=2"), **options))

    return {
        "mesh": made(mesh="pp=4,dp=1"),
        "schedule": made(schedule="Interleaved1F1B"),
        "zero bubble": made(schedule="zb-h2"),
        "a V": made(schedule="DualPipeV"),
        "microbatches": made(microbatches=1),
        "model": made(model=Mlp().double()),
        "mode": made(model=chain().eval()),
        "rows that divide": refused(lambda: pipe.step(*(v[:8] if v.ndim > 1 else v for v in (x, scale, y)))),
        "rows that do not": refused(lambda: pipe.step(*(v[:15] if v.ndim > 1 else v for v in (x, scale, y)))),
        "one microbatch": refused(lambda: pipe.step(*(v[:4] if v.ndim > 1 else v for v in (x, scale, y)))),
        "forward": refused(lambda: pipe(x, scale)),
        "load": refused(lambda: shardwright.load(folder)),
        "evaluate": refused(lambda: pipe.evaluate(x, scale, y)),
    }


def work(rank: int, place: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=4)
    facts: dict[str, Any] = {}
    for name, schedule in RUNS:
        pipe, plain, found = trained(place, name, schedule)
        facts |= {f"{name} {schedule}: {fact}": value for fact, value in found.items()}
    facts |= checkpoints(place, pipe, plain)
    pipe = shardwright.pipeline(chain(), f"{place}/rows", "pp=2,dp=2")
    facts |= refusals(place, pipe)
    Path(f"{place}/facts{rank}.json").write_text(json.dumps(facts))
    dist.barrier()
    dist.destroy_process_group()


def planned(place: str) -> dict[str, shardwright.StagedPlan]:
    x, scale, y = batch(ROWS)
    models = {
        counts: shardwright.capture(chain(counts), (x, scale), loss=F.mse_loss, targets=(y,), path=f"{place}/{name}.fx.txt")
        for counts, name in ((True, "counting"), (False, "model"))
    }
    how: dict[str, Any] = {"cluster": "dgx-h100", "microbatches": MICROBATCHES, "quiet": True, "order": "program"}
    return {
        name: shardwright.plan_stages(models[name not in WITHOUT_COUNTS], out=f"{place}/{name}", **how, **flags)
        for name, flags in PLANS.items()
    }


@pytest.fixture(scope="module")
def found() -> Iterator[tuple[dict[str, shardwright.StagedPlan], list[dict[str, Any]]]]:
    with tempfile.TemporaryDirectory() as place:
        plans = planned(place)
        run_ranks(work, (place,), 4)
        yield plans, [json.loads(Path(f"{place}/facts{rank}.json").read_text()) for rank in range(4)]


def test_plans_send_and_receive_in_one_placement_and_carry_what_later_stages_read(found: Any) -> None:
    plans, _ = found
    for plan in plans.values():
        shared = plan.table["shared"]
        assert [sorted(row["names"]) for row in shared] == [["a.weight", "f.weight"]]
    assert [row["stages"] for row in plans["interleaved"].table["pipeline"]["carried"]] != []
    placed = [row["placement"] for stage in plans["columns"].stages for row in stage.placements["primals"]]
    assert "S(0)" in placed and "S(1)" in placed
    assert repr(plans["rows"]).startswith("StagedPlan of counting on pp=2,dp=2: 2 stages, 1f1b, 4 microbatches")


def test_a_run_of_stages_is_that_of_one_process(found: Any) -> None:
    for facts in found[1]:
        truths = {name: value for name, value in facts.items() if not isinstance(value, str)}
        assert len(truths) > 40
        assert [name for name, value in truths.items() if value is not True] == []


REFUSALS = {
    "mesh": ["E_MESH the stages are planned for pp=2,dp=2, the device mesh is pp=4,dp=1", 'hint: "pp=2,dp=2"'],
    "schedule": ["E_SCHEDULE schedule interleaved does not run these stages: each device has one stage", 'schedule="1f1b"'],
    "zero bubble": ["E_SCHEDULE schedule zb-h2 does not run these stages", "runs: gpipe, 1f1b, interleaved, zb-h1, zbv, dualpipev"],
    "a V": ["E_SCHEDULE schedule dualpipev does not run these stages: each device has one stage", 'schedule="zb-h1"'],
    "microbatches": ["E_SCHEDULE schedule 1f1b on 2 devices in a row does not run 1 microbatches", 'microbatches=2, or schedule="gpipe"'],
    "model": ["E_MODEL Mlp is not the model that was captured (Chain): unread is missing"],
    "mode": ["E_MODE the model was captured in training mode and is in evaluation mode"],
    "rows that divide": ["input x: E_INPUT it is float64[8, 16], a microbatch is float64[4, 16], and a step has 4", "microbatches=2"],
    "rows that do not": ["E_INPUT it is float64[15, 16]", "give 16 in dim 0, or 12 with microbatches=3"],
    "one microbatch": ["E_INPUT it has the sizes of one microbatch, float64[4, 16]", "give the whole batch, [16, 16]"],
    "forward": ["E_PIPELINE a pipeline runs whole steps", "loss = pipeline.step(x, y)"],
    "evaluate": ["evaluate: E_MODE stage 0 was captured in training mode and writes calls", "evaluate that"],
    "load": ["E_PLAN it holds the stages of a pipeline, each a plan of its own", "load_stages"],
}


def test_refusals_name_what_would_work(found: Any) -> None:
    for facts in found[1]:
        said = {name: value for name, value in facts.items() if isinstance(value, str)}
        assert said.keys() == REFUSALS.keys()
        missing = {name: (part, said[name]) for name, parts in REFUSALS.items() for part in parts if part not in said[name]}
        assert missing == {}


@pytest.mark.skipif(not os.environ.get("SHARDWRIGHT_FULL"), reason="as long as all others together")
def test_the_example_prints_the_losses_of_one_process(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "train_stages.py"
    started = [*start_ranks(script, ["--single"], 0, tmp_path / "one"), *start_ranks(script, ["--schedule", "zbv"], 4, tmp_path / "four")]
    ended = [one.ended(time.monotonic() + 300) for one in started]
    assert [code for code, _ in ended] == [0] * 5, "".join(text[-2000:] for _, text in ended)
    one, four = ([float(line) for line in text.splitlines() if line[:1].isdigit()] for _, text in ended[:2])
    assert len(one) == 6
    assert four == pytest.approx(one, rel=1e-9)
