from __future__ import annotations

import copy
import datetime
import json
import math
import os
import random
import re
import secrets
import time
import uuid
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy
import pytest
import torch
from models import mlp
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import shardwright
from shardwright import CaptureError, capture
from shardwright.command_line import run_command
from shardwright.decompositions import OWN
from shardwright.output_trees import flatten_outputs, rebuild_tree
from shardwright.planner import find_command


def text_of(tmp_path: Path, model: nn.Module, *args: object, **options: object) -> str:
    return capture(model, args, path=tmp_path / "m.fx.txt", **options).path.read_text()  # type: ignore[arg-type]


def test_real_meta_and_fake_weights_give_one_text(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    model, x, y = mlp()
    with torch.device("meta"):
        meta = type(model)().double()
    torch.set_default_dtype(torch.float64)
    try:
        with FakeTensorMode():
            fake = type(model)()
    finally:
        torch.set_default_dtype(torch.float32)
    texts = {text_of(tmp_path, m, x, loss=F.mse_loss, targets=(y,)) for m in (model, meta, fake)}
    assert len(texts) == 1
    assert "mse_loss_backward" in texts.pop()


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model, x, y = mlp()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    capture(model, (x,), loss=F.mse_loss, targets=(y,), path=tmp_path / "m.fx.txt")
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert type(model.fc1.weight.data) is torch.Tensor
    assert not torch.compiler.is_compiling()


def test_record_names_what_runs_it_again(tmp_path: Path) -> None:
    model, x, y = mlp()
    captured = capture(model, (x,), loss=F.mse_loss, targets=(y,), path=tmp_path / "m.fx.txt")
    record = json.loads((tmp_path / "m.fx.txt.json").read_text())
    assert record == captured.record
    assert [p["name"] for p in record["parameters"]] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert [(i["name"], i["shape"]) for i in record["inputs"]] == [("x", [8, 16]), ("target 0", [8, 8])]
    assert record["training"] is True
    assert record["torch"] == torch.__version__


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 8)
        self.head = nn.Linear(8, 32, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids)).square().mean()


def test_tied_weights_are_named_together(tmp_path: Path) -> None:
    captured = capture(Tied(), (torch.zeros(4, dtype=torch.int64),), path=tmp_path / "m.fx.txt")
    assert captured.ties == [["table.weight", "head.weight"]]


class Nested(nn.Module):
    """Nested inputs and outputs, a buffer that changes, a number that is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, batch: dict[str, torch.Tensor], scale: float, *rest: torch.Tensor) -> dict[str, object]:
        y = self.norm(batch["x"]) * scale + rest[0]
        return {"loss": y.mean(), "pair": (y, [y + 1, None])}


def test_nested_inputs_outputs_and_constants(tmp_path: Path) -> None:
    x = torch.randn(6, 4)
    captured = capture(Nested(), ({"x": x}, 2.0, torch.ones(4)), loss=False, path=tmp_path / "m.fx.txt")
    record = captured.record
    assert [i["name"] for i in record["inputs"]] == ["batch.x", "rest.0"]
    assert record["constants"] == {"scale": 2.0}
    tree = {"dict": {"loss": 0, "pair": {"tuple": [1, {"list": [2, None]}]}}}
    assert record["outputs"] == {"tree": tree, "count": 3}
    text = captured.path.read_text()
    assert "InputMutationAOTOutput(mutated_input=BufferAOTInput(target='norm.running_mean'))" in text
    alone = capture(Nested(), ({"x": x}, 2.0, torch.ones(4)), path=tmp_path / "m.fx.txt")
    assert alone.record["outputs"] == {"tree": 0, "count": 1}


class Changes(nn.Module):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.weight = nn.Parameter(torch.ones(4))

        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x + self.weight).sum()
        with torch.no_grad():
            if self.what == "data":
                self.weight.data = self.weight.data * 2
            elif self.what == "parameter":
                self.weight = nn.Parameter(self.weight * 2)
            elif self.what == "wider":
                self.seen = torch.zeros(5)
            else:
                (x if self.what == "x" else self.weight).mul_(2)
        return y


@pytest.mark.parametrize(
    ("what", "place"), [("weight", "weight"), ("x", "input x"), ("data", "weight"), ("parameter", "weight"), ("wider", "seen")]
)
def test_what_forward_changes_in_place_is_refused_by_name(tmp_path: Path, what: str, place: str) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(Changes(what), (torch.ones(3, 4),), path=tmp_path / "m.fx.txt")
    assert (caught.value.code, caught.value.place) == ("E_MUTATION", place)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_steps_with_the_dropout_between_them(tmp_path: Path, kind: Any) -> None:
    text = text_of(tmp_path, kind(4, 4, 3, dropout=0.5), torch.ones(3, 2, 4), loss=lambda output: output[0].sum())
    assert "rnn_layer" not in text
    assert text.count("= torch.ops.aten.native_dropout.default(") == 2
    assert "native_dropout" not in text_of(tmp_path, kind(4, 4, 3, dropout=0.5).eval(), torch.ones(3, 2, 4), loss=lambda o: o[0].sum())


def test_slopes_of_rrelu_are_drawn_for_every_element(tmp_path: Path) -> None:
    text = text_of(tmp_path, nn.Sequential(nn.Linear(4, 4), nn.RReLU(0.1, 0.3)), torch.ones(3, 4))
    assert "rrelu" not in text.replace("# Decomposed at capture: aten.rrelu", "").split("class", 1)[-1]
    assert text.count("= torch.ops.aten.uniform.default(") == 1
    quiet = text_of(tmp_path, nn.Sequential(nn.Linear(4, 4), nn.RReLU(0.1, 0.3)).eval(), torch.ones(3, 4))
    assert "uniform" not in quiet


def test_slopes_of_rrelu_are_within_their_bounds_and_one_where_the_input_is_positive() -> None:
    x = torch.linspace(-3, 3, 1001, dtype=torch.float64)
    rrelu = OWN[torch.ops.aten.rrelu_with_noise_functional.default]
    out, slopes = rrelu(x, torch.empty_like(x), 0.1, 0.3, True)
    assert torch.equal(out, x * slopes)
    assert torch.equal(slopes[x > 0], torch.ones(500, dtype=torch.float64))
    low = slopes[x <= 0]
    assert 0.1 <= low.min() < 0.11 and 0.29 < low.max() <= 0.3
    out, _ = rrelu(x, torch.empty_like(x), 0.1, 0.3, False)
    assert torch.equal(out, nn.functional.rrelu(x, 0.1, 0.3, training=False))


class Flex(nn.Module):
    """`flex_attention` whose scores have a slope of each head, and whose mask is causal."""

    def __init__(self) -> None:
        super().__init__()
        from torch.nn.attention.flex_attention import create_block_mask

        self.qkv = nn.Linear(16, 48)
        self.register_buffer("slopes", torch.arange(4.0))
        self.mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8, device="cpu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.flex_attention import flex_attention

        q, k, v = self.qkv(x).view(2, 8, 3, 4, 4).permute(2, 0, 3, 1, 4)
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + self.slopes[h] * (j - i), block_mask=self.mask)


def test_flex_attention_is_captured_with_its_gradients_and_cut_on_batch_and_heads(tmp_path: Path) -> None:
    captured = capture(Flex(), (torch.ones(2, 8, 16),), loss=lambda y: y.sum(), path=tmp_path / "m.fx.txt")
    assert captured.record["decomposed"] == []
    text = captured.path.read_text()
    assert text.count("higher_order.flex_attention_backward(") == 1
    (out,) = re.findall(r"(\w+): \S+ .* = flex_attention\[0\]", text)
    options = ["--mesh", "dp=2,tp=2", "--cluster", "dgx-h100", "--pin", f"{out}=S(0)S(1)", "--json"]
    found = json.loads(run_command(find_command(), ["verify", str(captured.path), *options], quiet=True))
    assert found["mismatches"] == []
    # The parts of the weights and of the inputs are gathered, and the loss is added up: no score is exchanged.
    assert set(found["collectives"]) <= {"all_gather", "all_reduce"} and found["collectives"].get("all_reduce", 0) <= 1


def test_outputs_are_in_the_classes_of_torch() -> None:
    returned = torch.sort(torch.tensor([2.0, 1.0]))
    spec, leaves = flatten_outputs(returned)
    found = rebuild_tree(json.loads(json.dumps(spec)), leaves)
    assert type(found) is type(returned)
    assert found.indices.tolist() == [1, 0]


class Averages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight
        self.mean = self.mean * 0.9 + y.detach().mean(0) * 0.1
        self.last.data = y.detach()[0]
        return (y * self.mean).sum()


def test_a_tensor_that_forward_puts_in_the_place_of_a_buffer_is_its_new_value(tmp_path: Path) -> None:
    text = capture(Averages(), (torch.ones(3, 4),), path=tmp_path / "m.fx.txt").path.read_text()
    for name in ("mean", "last"):
        assert f"InputMutationAOTOutput(mutated_input=BufferAOTInput(target='{name}'))" in text


class Reads(nn.Module):
    def __init__(self, number: Callable[[], float], generator: Any = None) -> None:
        super().__init__()
        self.number = number
        self.generator = generator
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number = self.number() if self.generator is None else float(self.generator.random())
        return (x * self.weight * number).sum()


DICE = random.Random(3)


@pytest.mark.parametrize(
    ("number", "generator", "words"),
    [
        (lambda: random.random(), None, "random"),
        (lambda: random.choice([0.1, 0.2]), None, "random"),
        (lambda: float(numpy.random.rand()), None, "numpy.random"),
        (lambda: DICE.random(), None, "DICE"),
        (lambda: float(numpy.random.default_rng().random()), None, r"numpy\.random\.default_rng\(\)"),
        (lambda: random.Random().random(), None, r"random\.Random\(\)"),
        (lambda: Random(None).gauss(0, 1), None, r"random\.Random\(\)"),
        (lambda: secrets.randbelow(9) / 9, None, r"random\.SystemRandom"),
        (lambda: secrets.token_bytes(1)[0] / 255, None, r"(random\.SystemRandom|os\.urandom)"),
        (lambda: os.urandom(1)[0] / 255, None, r"os\.urandom"),
        (lambda: os.getrandom(1)[0] / 255, None, r"os\.getrandom"),
        (lambda: uuid.uuid4().int / 2**128, None, r"uuid\.uuid4\(\)"),
        (lambda: uuid4().int / 2**128, None, r"uuid\.uuid4\(\)"),
        (lambda: uuid.uuid1().int / 2**128, None, r"uuid\.uuid1\(\)"),
        (None, random.Random(0), "generator"),
        (None, numpy.random.default_rng(0), "generator"),
        (None, numpy.random.RandomState(0), "generator"),
    ],
)
def test_a_model_that_draws_other_random_numbers_is_refused_and_draws_none(
    tmp_path: Path, number: Callable[[], float], generator: Any, words: str
) -> None:
    def states() -> tuple[str, ...]:
        return tuple(repr(state) for state in (random.getstate(), numpy.random.get_state(), DICE.getstate()))

    before = states()
    following = copy.deepcopy(generator)
    with pytest.raises(CaptureError, match=f"E_RANDOM Reads draws from {words} in forward"):
        capture(Reads(number, generator), (torch.ones(3, 4),), path=tmp_path / "m.fx.txt")
    assert states() == before
    assert generator is None or generator.random() == following.random()


class Turns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 16).view(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = (x @ self.weight) * 1j + (2 - 1j)
        moved = turned * torch.tensor(0.5 - 2j) + torch.full((4, 4), 1 + 3j)
        return torch.view_as_real(moved / torch.tensor([1j, 1j, 2, 3])).pow(2).sum()


def test_complex_numbers_are_written_as_two_reals_and_the_gradient_is_that_of_the_model(tmp_path: Path) -> None:
    model, x = Turns(), torch.linspace(0, 1, 16).view(4, 4)
    text = text_of(tmp_path, model, x)
    assert "aten.complex.default" in text
    assert re.search(r"\dj\b", text) is None
    model(x).backward()
    names: dict[str, Any] = {"torch": torch, "device": torch.device}
    body = text.split("tree_flatten_spec([primals, tangents], self._in_spec)\n")[1].split("return ")[0]
    names.update(primals_1=model.weight.detach(), x=x, tangents_1=torch.tensor(1.0))
    lines = [re.sub(r': "[^"]*"(?=( = |$))', "", line.strip()).split(";  ")[0] for line in body.splitlines()]
    exec("\n".join(line for line in lines if not line.startswith("#")), names)  # noqa: S102
    (gradient,) = re.findall(r"(\w+),  # GradAOTOutput", text)
    assert model.weight.grad is not None
    torch.testing.assert_close(names[gradient], model.weight.grad)


def test_a_complex_exponent_is_refused(tmp_path: Path) -> None:
    class Powers(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x**2j

    with pytest.raises(CaptureError, match=r"E_CONSTANT aten\.pow\.Tensor_Scalar takes the complex number 2j"):
        capture(Powers(), (torch.ones(3, dtype=torch.complex64),), path=tmp_path / "m.fx.txt")


def test_numbers_of_a_generator_with_a_seed_of_its_own_are_constants(tmp_path: Path) -> None:
    model = Reads(
        lambda: (
            float(numpy.random.default_rng(0).random())
            + random.Random(3).random()
            + isinstance(DICE, random.Random)
        )
    )
    assert capture(model, (torch.ones(3, 4),), path=tmp_path / "m.fx.txt").record["model"] == "Reads"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (lambda: time.time(), r"time\.time\(\)"),
        (lambda: time.localtime().tm_sec, r"time\.localtime\(\)"),
        (lambda: float(time.strftime("%S")), r"time\.strftime\(\)"),
        (lambda: time.clock_gettime(time.CLOCK_REALTIME), r"time\.clock_gettime\(\)"),
        (lambda: perf_counter(), r"time\.perf_counter\(\)"),
        (lambda: datetime.datetime.now().timestamp(), r"datetime\.datetime\.now\(\)"),
        (lambda: float(date.today().day), r"datetime\.date\.today\(\)"),
    ],
)
def test_a_clock_that_is_read_while_a_model_is_captured_is_told(tmp_path: Path, number: Callable[[], float], words: str) -> None:
    originals = time.time, perf_counter, datetime.datetime, date
    with pytest.warns(UserWarning, match=f"Reads reads {words} while it is captured"):
        capture(Reads(number), (torch.ones(3, 4),), path=tmp_path / "m.fx.txt")
    assert (time.time, perf_counter, datetime.datetime, date) == originals


def test_dates_are_dates_while_a_model_is_captured(tmp_path: Path) -> None:
    def number() -> float:
        made = datetime.datetime(2024, 1, 1)
        assert isinstance(made, datetime.datetime)
        return float(made.day)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        capture(Reads(number), (torch.ones(3, 4),), path=tmp_path / "m.fx.txt")


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.sizes, self.width = 0, [], 4
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.sizes.append(len(x))
        return (x * self.weight * self.calls).sum()


def test_attributes_that_forward_changes_are_told(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Counts changes its calls, sizes in forward") as told:
        capture(Counts(), (torch.ones(3, 4),), path=tmp_path / "m.fx.txt")
    (message,) = [str(warning.message) for warning in told]
    assert 'register_buffer("calls", torch.tensor(0))' in message
    assert "Change sizes outside of forward" in message


class CountsInBuffer(nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return (x * self.weight * self.calls).sum()


def test_a_number_in_a_buffer_is_carried_from_step_to_step(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        text = text_of(tmp_path, CountsInBuffer(), torch.ones(3, 4))
    assert "BufferMutation" in text or "InputMutation" in text, text


def test_what_is_read_while_a_model_is_captured_is_told_of_that_model_alone(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        capture(Reads(lambda: 2.0), (torch.ones(3, 4),), path=tmp_path / "m.fx.txt")


class Selects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[x.sum(1) > 0] * self.weight).sum()


class Holds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight * torch.tensor([math.sqrt(k) for k in range(100)])[:4]).sum()


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.scale = torch.tensor([[0.5, 0.5], [2.0, 4.0]])

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        x = (batch["x"] * self.weight * torch.tensor([1.0, 2.0, 3.0, 4.0]))[:, [0, 2, 1]]
        return x.sum() * self.scale.sum()


def test_small_constants_are_written_into_the_graph_and_dictionaries_are_arguments(tmp_path: Path) -> None:
    captured = capture(Constants(), ({"x": torch.randn(3, 4)},), path=tmp_path / "m.fx.txt")
    text = captured.path.read_text()
    assert [entry["name"] for entry in captured.record["inputs"]] == ["batch.x"]
    assert "_tensor_constant" not in text
    for made in ("full.default([1], 3.0", "full.default([2], 0.5", "full.default([1], 2,"):
        assert made in text


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(torch.block_diag(x, self.weight)).sum()


class Caching(nn.Module):
    """Keys and values are joined with those of a cache, which begins without any, as in transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nothing = torch.tensor([])
        keys = torch.cat([nothing, self.key(x)], dim=-2)
        values = torch.cat([nothing, x.new_zeros(2, 0, 4), self.value(x)], dim=-2)
        return keys * values


def test_tensors_without_elements_are_left_out_of_what_they_are_joined_with(tmp_path: Path) -> None:
    text = text_of(tmp_path, Caching(), torch.randn(2, 3, 4), gradients=False)
    assert len(re.findall(r"cat\.default\(\[view\w*\], -2\)", text)) == 2, text
    assert "lift_fresh_copy" not in text


def test_operators_that_the_planner_does_not_know_are_decomposed(tmp_path: Path) -> None:
    captured = capture(Joined(), (torch.eye(4),), path=tmp_path / "m.fx.txt")
    text = captured.path.read_text()
    assert captured.record["decomposed"] == ["aten.block_diag.default"]
    assert text.startswith("# Decomposed at capture: aten.block_diag.default\n")
    assert "torch.ops.aten.block_diag" not in text
    # The check of the inverse is not a call with an effect that would order the graph.
    assert "with_effects" not in text


def test_a_decomposition_that_is_given_takes_the_place_of_an_operator(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    gelu = {torch.ops.aten.gelu.default: lambda x, approximate="none": x * torch.sigmoid(1.702 * x)}
    captured = capture(model, (torch.randn(3, 4),), path=tmp_path / "m.fx.txt", gradients=False, decompositions=gelu)
    text = captured.path.read_text()
    assert captured.record["decomposed"] == ["aten.gelu.default"]
    assert "ops.aten.gelu" not in text
    assert "ops.aten.sigmoid" in text


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> object:
        return {"y": x * self.weight, "cache": object()}


@pytest.mark.parametrize(
    ("model", "code", "words"),
    [
        (Selects(), "E_DATA_DEPENDENT", "fixed capacity"),
        (Holds(), "E_CONSTANT", "register_buffer"),
        (Odd(), "E_OUTPUT", "output.cache"),
    ],
)
def test_refusals_name_the_fix(tmp_path: Path, model: nn.Module, code: str, words: str) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(model, (torch.randn(3, 4),), path=tmp_path / "m.fx.txt")
    assert caught.value.code == code
    assert words in str(caught.value)
    assert not (tmp_path / "m.fx.txt").exists()


def test_refusals_name_the_line_of_the_model(tmp_path: Path) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(Selects(), (torch.randn(3, 4),), path=tmp_path / "m.fx.txt")
    line = Selects.forward.__code__.co_firstlineno + 1
    assert caught.value.place == f"{__file__}:{line}"


class Constrained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = shardwright.constrain(torch.relu(self.fc1(x)), "S(0)S(1)")
        return h, self.fc2(h)


def test_a_plan_has_the_placements_that_model_and_call_state(tmp_path: Path) -> None:
    x = torch.randn(16, 8)
    stated = {"in_placements": ["S(0)R"], "out_placements": {1: "RS(0)"}}
    captured = capture(Constrained(), (x,), loss=False, path=tmp_path / "m.fx.txt", **stated)
    plan = shardwright.plan(captured, mesh="dp=2,tp=2", cluster="dgx-h100", out=tmp_path / "plan", quiet=True, no_recipes=True)
    nodes = {row["name"]: row for row in json.loads((tmp_path / "plan" / "plan.json").read_text())["nodes"]}
    found = {name: nodes[name]["outputs"] for name in captured.record["pins"]}
    assert found == {"x": ["S(0)R"], "constrain": ["S(0)S(1)"], "constrain_1": ["RS(0)"]}
    assert next(row for row in plan.placements["primals"] if row["name"] == "x")["placement"] == "S(0)R"
    assert Constrained()(x)[0].grad_fn.name() == "ReluBackward0"


def test_placements_of_what_there_is_not_are_refused(tmp_path: Path) -> None:
    for stated, said in (
        ({"in_placements": {"z": "R"}}, "in_placements: E_INPUT there is no 'z'; there are x"),
        ({"out_placements": ["R", "R", "R"]}, "out_placements: E_INPUT there is no 2; there are 0, 1"),
    ):
        with pytest.raises(CaptureError, match=said):
            capture(Constrained(), (torch.randn(16, 8),), loss=False, path=tmp_path / "m.fx.txt", **stated)


def test_inputs_that_the_model_does_not_take(tmp_path: Path) -> None:
    model, x, _ = mlp()
    with pytest.raises(CaptureError, match="forward does not take these inputs"):
        capture(model, (x, x), path=tmp_path / "m.fx.txt")
    with pytest.raises(CaptureError, match="input x: E_INPUT it is a object"):
        capture(model, (object(),), path=tmp_path / "m.fx.txt")


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q := self.q(x), q, q, is_causal=True).sum()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_here_is_refused(tmp_path: Path) -> None:
    """PyTorch itself ends the process, by std::terminate."""
    with pytest.raises(CaptureError) as caught:
        capture(Attends(), (torch.randn(1, 2, 4, 8),), device="cuda", path=tmp_path / "m.fx.txt")
    assert caught.value.code == "E_DEVICE"
    assert "finds no cuda device here" in str(caught.value) and "device='cpu'" in str(caught.value)


def test_attention_without_kernels_of_the_cpu(tmp_path: Path) -> None:
    """What the hint of that refusal says."""
    with sdpa_kernel(SDPBackend.MATH):
        captured = capture(Attends(), (torch.randn(1, 2, 4, 8),), path=tmp_path / "m.fx.txt")
    text = captured.path.read_text()
    assert "softmax" in text and "for_cpu" not in text
