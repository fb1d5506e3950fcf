"""Four processes on gloo run plans of models with `flex_attention` and `varlen_attn`, whose numbers are those of attention as it is written."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import run_ranks
from torch import nn

import shardwright

BATCH, HEADS, ROWS, WIDTH = 2, 4, 8, 4
Pairs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Flex(nn.Module):
    """`flex_attention` as a model calls it, and as it is written."""

    groups, values = HEADS, WIDTH
    operator, cut = "flex_attention", "S(0)S(1)"

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query = nn.Linear(16, HEADS * WIDTH)
        self.key = nn.Linear(16, self.groups * WIDTH)
        self.value = nn.Linear(16, self.groups * self.values)
        self.slopes = nn.Parameter(torch.arange(1.0, HEADS + 1) / 8)
        self.blocks = self.made(None)

    def score(self, s: torch.Tensor, b: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return s + self.slopes[h] * (j - i)

    def kept(self, b: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return i >= j

    def made(self, batch: int | None) -> Any:
        from torch.nn.attention.flex_attention import create_block_mask

        return create_block_mask(lambda b, h, i, j: self.kept(b, h, i, j), batch, None, ROWS, ROWS, device="cpu", BLOCK_SIZE=2)

    def mask(self) -> Any:
        return self.blocks

    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        shapes = ((self.query, HEADS, WIDTH), (self.key, self.groups, WIDTH), (self.value, self.groups, self.values))
        q, k, v = (layer(x).view(BATCH, ROWS, n, width).transpose(1, 2) for layer, n, width in shapes)
        return q, k, v

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.flex_attention import flex_attention

        return flex_attention(*self.heads(x), score_mod=self.score, block_mask=self.mask(), enable_gqa=self.groups < HEADS).square().sum()

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        numbers = [torch.arange(n).view([n if d == dim else 1 for d in range(4)]) for dim, n in enumerate((BATCH, HEADS, ROWS, ROWS))]
        raw = q @ k.repeat_interleave(HEADS // self.groups, 1).transpose(-1, -2) / math.sqrt(WIDTH)
        return torch.where(self.kept(*numbers), self.score(raw, *numbers), -math.inf)

    def written(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        shares = torch.softmax(self.scores(q, k), -1)
        return (shares @ v.repeat_interleave(HEADS // self.groups, 1)).square().sum()


class Window(Flex):
    """Grouped heads, a soft cap, a sliding window, and values that are wider than keys."""

    groups, values = 2, 6

    def score(self, s: torch.Tensor, b: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return 2.0 * torch.tanh(s / 2.0) * self.slopes[h]

    def kept(self, b: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return (i >= j) & (i - j <= 3)


class Documents(Flex):
    """Rows that see those of their document, whose numbers are a buffer: the mask is made in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = None
        self.register_buffer("document", torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1, 2, 2]]))

    def kept(self, b: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "document"):
            return i >= j
        return (i >= j) & (self.document[b, i] == self.document[b, j])

    def mask(self) -> Any:
        return self.made(BATCH)


class Sinks(Flex):
    """A sink for each head, as gpt-oss has them: the log-sum-exp has a gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.flex_attention import AuxRequest, flex_attention

        out, aux = flex_attention(*self.heads(x), block_mask=self.mask(), return_aux=AuxRequest(lse=True))
        return (out * torch.sigmoid(aux.lse - self.slopes.view(-1, 1)).unsqueeze(-1)).square().sum()

    def score(self, s: torch.Tensor, *numbers: torch.Tensor) -> torch.Tensor:
        return s

    def written(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        sinks = self.slopes.view(1, -1, 1, 1).expand(BATCH, HEADS, ROWS, 1)
        shares = torch.softmax(torch.cat([self.scores(q, k), sinks], -1), -1)[..., :-1]
        return (shares @ v).square().sum()


class Packed(Flex):
    """Sequences of several lengths one after another, those of keys longer, with a causal window and grouped heads."""

    groups = 2
    queries, keys = (3, 7, 6), (4, 7, 5)
    operator, cut = "torch_attn._varlen_attn", "RS(1)"

    def __init__(self) -> None:
        super().__init__()
        for name, lengths in (("own", self.queries), ("other", self.keys)):
            self.register_buffer(name, torch.tensor([0, *lengths]).cumsum(0).int())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (y.transpose(1, 2).flatten(0, 1) for y in self.heads(x))
        longest = max(self.queries), max(self.keys)
        return varlen_attn(q, k, v, self.own, self.other, *longest, window_size=(3, 0), enable_gqa=True).square().sum()

    def written(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.transpose(0, 1).flatten(1, 2) for y in self.heads(x))
        loss = torch.zeros(())
        for n, (rows, columns) in enumerate(zip(self.queries, self.keys, strict=True)):
            # Places that a row may read, counted from the last of both sequences.
            ahead = torch.arange(columns) - torch.arange(rows).unsqueeze(1) - (columns - rows)
            own, *others = (y[:, starts[n] : starts[n + 1]] for y, starts in ((q, self.own), (k, self.other), (v, self.other)))
            pair = nn.functional.scaled_dot_product_attention(own, *others, attn_mask=(ahead <= 0) & (ahead >= -3), enable_gqa=True)
            loss = loss + pair.square().sum()
        return loss


MODELS: dict[str, Callable[[], Flex]] = {"slopes": Flex, "window": Window, "documents": Documents, "sinks": Sinks, "packed": Packed}


def batch() -> torch.Tensor:
    return torch.randn(BATCH, ROWS, 16, generator=torch.Generator().manual_seed(7))


def work(rank: int, place: str) -> None:
    torch.set_num_threads(1)
    os.environ.pop("LOCAL_WORLD_SIZE", None)
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=4, timeout=timedelta(seconds=120))
    facts: dict[str, Any] = {}
    for name, make in MODELS.items():
        x, eager = batch(), make()
        expected = eager.written(x)
        expected.backward()
        plan = shardwright.load(f"{place}/{name}/torch")
        model = shardwright.parallelize(make(), plan, plan.init_device_mesh("cpu"))
        found = model(x)
        found.backward()
        pairs = [(found.detach(), expected.detach())]
        parameters = zip(model.parameters(), eager.parameters(), strict=True)
        pairs += [(own.grad, other.grad) for own, other in parameters if other.grad is not None]
        wholes = [(a.full_tensor() if hasattr(a, "full_tensor") else a, b) for a, b in pairs]
        # The gradient of a bias of keys is zero: a softmax does not see it.
        facts[name] = max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in wholes)
    if rank == 0:
        Path(f"{place}/facts.json").write_text(json.dumps(facts))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def facts() -> Any:
    with tempfile.TemporaryDirectory() as place:
        texts = {}
        for name, make in MODELS.items():
            captured = shardwright.capture(make(), (batch(),), path=f"{place}/{name}.fx.txt")
            texts[name] = captured.path.read_text()
            short = make().operator.split(".")[-1]
            calls = re.findall(rf"(\w+): .* = {short}(?:_backward)?(?:_default)?\[0\]", texts[name])
            assert len(calls) == 2
            pins = [f"{call}={make().cut}" for call in calls]
            shardwright.plan(captured, mesh="dp=2,tp=2", cluster="dgx-h100", out=f"{place}/{name}", quiet=True, no_recipes=True, pin=pins)
        run_ranks(work, (place,), 4)
        yield texts, json.loads(Path(f"{place}/facts.json").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_attention_is_one_call_whose_numbers_are_those_of_what_is_written(facts: Any, name: str) -> None:
    texts, errors = facts
    operator = MODELS[name]().operator
    assert len(re.findall(rf"torch\.ops\.(?:higher_order\.)?{operator}(?:\.default)?\(", texts[name])) == 1
    assert len(re.findall(rf"torch\.ops\.(?:higher_order\.)?{operator}_backward(?:\.default)?\(", texts[name])) == 1
    assert "_softmax" not in texts[name]
    assert errors[name] < 1e-5
