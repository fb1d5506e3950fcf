"""Steps of JAX on four CPU devices by their plans, and on one device."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
jax.config.update("jax_num_cpu_devices", 4)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402
from jax_programs import NEEDS, PROGRAMS, Program, mlp, regression  # noqa: E402

import shardwright  # noqa: E402
import shardwright.jax  # noqa: E402
from shardwright.jax_axes import axes_of, read_rules, rules_of, spec_by_rules, spec_of  # noqa: E402

MESH = jax.make_mesh((2, 2), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
STEPS = 20
#: Programs whose kind another one stands for where not all are asked.
LONG = {"transformer, unrolled", "transformer, rematerialised", "padding masks", "Flax linen", "dropout", "transformer, float32 masters"}
ASKED = [name for name in PROGRAMS if os.environ.get("SHARDWRIGHT_FULL") or name not in LONG]


def laid(tree: Any, rows: bool) -> Any:
    """Matrices cut over tp by their last dim, batches over dp by their first: a tiny model would stay whole."""

    def one(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        first = ["dp"] if rows and leaf.ndim > 0 and leaf.shape[0] % 2 == 0 else [None] * min(1, leaf.ndim)
        wide = not rows and leaf.ndim > 1 and leaf.shape[-1] % 2 == 0
        spec = [*first, *[None] * (leaf.ndim - 2), *(["tp"] if wide else [None] * (leaf.ndim > 1))]
        # A copy: the step may donate it.
        return jax.device_put(np.array(leaf), NamedSharding(MESH, PartitionSpec(*spec)))

    return jax.tree.map(one, tree)


def copied(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if hasattr(leaf, "dtype") else leaf, tree)


def compiled_kinds(text: str) -> Counter[str]:
    """Collectives of a compiled module by kind; one that holds several arrays counts as so many."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        match = re.search(r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\((.*?)\), ", line)
        if match is not None:
            found[match[2].replace("-", "_")] += 1 if match[2] == "all-to-all" else match[4].count("%")
    return found


def assert_near(found: Any, wanted: Any, bound: float) -> None:
    ones, others = jax.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        if not hasattr(one, "dtype"):
            assert one == other
        elif jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            assert (jax.random.key_data(one) == jax.random.key_data(other)).all()
        else:
            np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=bound, atol=bound)


def run(step: Any, program: Program, state: Any, batch: Any) -> tuple[Any, list[float]]:
    losses = []
    for _ in range(STEPS):
        out = step(*state, *batch)
        state = program.new_state(out)
        losses.append(float(program.loss(out)))
    return state, losses


@pytest.mark.parametrize("name", ASKED)
def test_twenty_steps_by_a_plan_are_those_of_one_device(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    program = PROGRAMS[name]()
    wanted, losses = run(program.step, program, copied(program.state), program.batch)
    state, batch = laid(program.state, rows=False), laid(program.batch, rows=True)
    step = plan_of(program.step, *state, *batch)
    planned = Counter(row.get("as", row["kind"]) for row in step.collectives if not row.get("unread"))
    compiled = compiled_kinds(step.lower(*state, *batch).compile().as_text())
    assert planned
    # XLA makes one of equal ones, and adds none.
    assert set(compiled) == set(planned)
    assert all(compiled[kind] <= planned[kind] for kind in planned), (compiled, planned)
    found, own = run(step, program, state, batch)
    bound = 2e-2 if "masters" in name else 1e-4
    np.testing.assert_allclose(own, losses, rtol=bound)
    assert losses[-1] < losses[0]
    assert len(step._programs) == 1
    assert_near(found, wanted, bound)


@pytest.fixture(scope="module")
def planned() -> tuple[shardwright.jax.ShardedStep, Any, Any]:
    program = mlp()
    state, batch = laid(program.state, rows=False), laid(program.batch, rows=True)
    donated = jax.jit(program.step, donate_argnums=0)
    return plan_of(donated, *state, *batch), state[0], batch[0]


def plan_of(step: Any, *args: Any, **more: Any) -> shardwright.jax.ShardedStep:
    return shardwright.jax.auto_shard(step, *args, mesh="dp=2,tp=2", cluster="dgx-h100", quiet=True, no_recipes=True, **more)


def test_the_new_state_lies_as_the_old_one_and_takes_its_memory(planned: Any) -> None:
    step, state, batch = planned
    placed = jax.tree.leaves(step.shardings[0])
    new, loss = step.out_shardings
    assert jax.tree.leaves(new) == placed
    assert loss["loss"].spec == PartitionSpec()
    assert all(leaf.sharding.is_equivalent_to(own, leaf.ndim) for leaf, own in zip(jax.tree.leaves(state), placed, strict=True))
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
    assert step.lower(state, batch).compile().memory_analysis().alias_size_in_bytes == held


def test_another_batch_and_another_function_are_planned_with_the_state_where_it_lies(planned: Any) -> None:
    step, state, batch = planned

    def evaluate(state: Any, batch: Any) -> Any:
        weights, _ = state
        x, y = batch
        hidden = jnp.tanh(x @ weights["l1"]["w"] + weights["l1"]["b"])
        return jnp.mean((hidden @ weights["l2"]["w"] + weights["l2"]["b"] - y) ** 2)

    half = jax.tree.map(lambda x: np.asarray(x)[:4], batch)
    wanted = float(evaluate(jax.tree.map(np.asarray, state), half))
    sharded = plan_of(evaluate, state, half)
    assert float(sharded(state, half)) == pytest.approx(wanted, rel=1e-6)
    assert jax.tree.leaves(sharded.shardings[0]) == jax.tree.leaves(step.shardings[0])
    _, told = step(copied_in_place(state), half)
    assert float(told["loss"]) == pytest.approx(wanted, rel=1e-6)
    assert len(step._programs) == 2
    assert jax.tree.leaves(step._program(shardwright.jax._Given((state, half), {})).shardings[0]) == jax.tree.leaves(step.shardings[0])


def test_arguments_with_keywords_are_planned_and_placed_by_their_names() -> None:
    def step(params: Any, x: Any, *, scale: Any, mask: Any) -> Any:
        loss, gradients = jax.value_and_grad(lambda p: jnp.mean(((x @ p["w"]) * mask) ** 2) * scale)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss

    params, x = {"w": np.ones((16, 8), np.float32)}, np.ones((8, 16), np.float32)
    named: dict[str, Any] = {"scale": 0.5, "mask": np.eye(8, dtype=np.float32)}
    wanted, loss = jax.jit(step)(params, x, **named)
    jitted = jax.jit(step, donate_argnames="params")
    sharded = plan_of(jitted, params, laid(x, rows=True), kwargs=named, pin=["mask=S(0)R"])
    assert [row.spec for row in sharded.shardings[2].values()] == [PartitionSpec("dp"), PartitionSpec()]
    (placed, x), named = sharded.place(params, x, **named)
    assert named["mask"].sharding.spec == PartitionSpec("dp")
    new, own = sharded(placed, x, **named)
    assert placed["w"].is_deleted() and not named["mask"].is_deleted()
    assert float(own) == pytest.approx(float(loss), rel=1e-6)
    assert_near(new, wanted, 1e-6)
    assert len(sharded._programs) == 1


def copied_in_place(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.device_put(np.array(leaf), leaf.sharding), tree)


def test_a_saved_plan_is_taken_for_its_step_alone(planned: Any, tmp_path: Path) -> None:
    step, state, batch = planned
    saved = step.save(tmp_path / "plan")
    refused = ["node", "-e", "process.exit(1)"]
    again = plan_of(jax.jit(mlp().step, donate_argnums=0), state, batch, plan=saved, command=refused)
    assert jax.tree.leaves(again.shardings) == jax.tree.leaves(step.shardings)
    with pytest.raises(shardwright.MismatchError, match="another step"):
        plan_of(lambda state, batch: batch, state, batch, plan=saved, command=refused)


def test_the_check_of_a_program_fails_where_a_sum_is_left_out(tmp_path: Path) -> None:
    program = regression()
    step = plan_of(program.step, *program.state, *laid(program.batch, rows=True))
    folder = step.save(tmp_path / "plan") / "jax"

    def check() -> tuple[int, dict[str, Any]]:
        ran = subprocess.run([sys.executable, str(folder / "check.py")], capture_output=True, text=True, timeout=300, check=False)
        assert ran.stdout.startswith("{"), ran.stderr
        return ran.returncode, json.loads(ran.stdout)

    code, right = check()
    assert (code, right["failed"]) == (0, [])
    assert right["compared"] == len(jax.tree.leaves(step.out_shardings))
    assert right["worst"] < 1e-5
    assert right["written"] == right["planned"]
    # One all-reduce over two devices of the gradient and the loss, in float32: a ring sends each number once.
    sent = 4 * (program.state[0]["w"].size + 1)
    assert right["bytes"] == sent
    assert right["partitioner"]["bytes"] >= sent
    assert right["partitioner"]["failed"] == []
    assert right["peak_bytes"]["planned"] == pytest.approx(right["peak_bytes"]["compiled"], rel=0.3)
    text = (folder / "program.py").read_text()
    wrong, count = re.subn(r"lax\.psum\((\w+), .*\)$", r"\1", text, count=1, flags=re.MULTILINE)
    assert count == 1
    (folder / "program.py").write_text(wrong)
    code, broken = check()
    assert code == 1
    assert broken["failed"]


@pytest.mark.parametrize("seed", range(40))
def test_rules_place_arrays_as_flax_does(seed: int) -> None:
    linen = pytest.importorskip("flax.linen")
    random = np.random.default_rng(seed)
    known = ["embed", "mlp", "heads", "vocab"]
    names = [None if random.random() < 0.2 else name for name in random.permutation(known)[: random.integers(1, 5)]]
    choices = [None, "dp", "tp", ("dp", "tp"), ["tp"]]
    rules = [(str(random.choice(known)), choices[random.integers(5)]) for _ in range(8)]
    # All names have a rule at the end, which Flax then takes if no earlier one is free.
    rules += [(name, None) for name in known]
    own = spec_by_rules(PartitionSpec(*names), rules, MESH)
    theirs = linen.logical_to_mesh_axes(names, [(name, tuple(axes) if isinstance(axes, list) else axes) for name, axes in rules])
    assert own == spec_of([axes_of(entry) for entry in theirs])


def test_rules_are_pins_and_a_plan_becomes_rules() -> None:
    nn = pytest.importorskip("flax.linen")

    def named(*names: str) -> Any:
        return nn.with_logical_partitioning(nn.initializers.lecun_normal(), names)

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Dense(32, use_bias=False, kernel_init=named("embed", "mlp"))(x))
            return nn.Dense(16, use_bias=False, kernel_init=named("mlp", "embed"))(x)

    net, x = Net(), jnp.ones((8, 16))
    params = net.init(jax.random.key(0), x)

    def step(params: Any, x: Any) -> Any:
        loss, gradients = jax.value_and_grad(lambda params: jnp.mean(net.apply(params, x) ** 2))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss

    rules = [["mlp", ["tensor", "tp"]], ["embed", None]]
    sharded = plan_of(step, params, x, logical=nn.get_partition_spec(params), rules=rules)
    assert [one.spec for one in jax.tree.leaves(sharded.shardings[0])] == [PartitionSpec(None, "tp"), PartitionSpec("tp")]
    found = sharded.logical_axis_rules
    assert (found.rules, found.others) == ([("embed", None), ("mlp", ("tp",))], {})
    wanted, loss = jax.jit(step)(params, x)
    new, own = sharded(params, x)
    assert float(own) == pytest.approx(float(loss), rel=1e-6)
    assert_near(new, wanted, 1e-6)
    with pytest.raises(shardwright.MismatchError, match="2 leaves, its tree of logical names 1"):
        plan_of(step, params, x, logical=PartitionSpec("embed"), rules=rules)


def test_rules_of_maxtext_are_read_from_its_files(tmp_path: Path) -> None:
    base, own = tmp_path / "base.yml", tmp_path / "own.yml"
    listed = "[\n  ['batch', ['data', 'fsdp']],\n  ['mlp', 'fsdp'], ['embed', []],\n]"
    base.write_text(f"mesh_axes: ['data', 'fsdp']\nlogical_axis_rules: {listed}\n")
    own.write_text("base_config: base.yml\nsteps: 5\n")
    rules = [("batch", ["data", "fsdp"]), ("mlp", "fsdp"), ("embed", [])]
    assert read_rules(str(base)) == read_rules(own) == rules
    mesh = jax.make_mesh((2, 2), ("data", "fsdp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    placed = [spec_by_rules(PartitionSpec(*names), rules, mesh) for names in (("embed", "mlp"), ("batch", "embed"))]
    assert placed == [PartitionSpec(None, "fsdp"), PartitionSpec(("data", "fsdp"))]
    faults = {"steps: 5": "own.yml: E_AXES it has no list", "a: [": "cannot be read", "logical_axis_rules: [mlp]": "not a pair"}
    faults["base_config: own.yml"] = "its own base_config"
    for text, said in faults.items():
        own.write_text(text)
        with pytest.raises(shardwright.MismatchError, match=said):
            read_rules(own)


def test_rules_follow_the_most_bytes_and_name_the_other_arrays() -> None:
    arrays = {
        "w": (PartitionSpec("embed", "mlp"), PartitionSpec("dp", "tp"), 4000),
        "b": (PartitionSpec("mlp"), PartitionSpec(), 40),
        "count": (PartitionSpec(), PartitionSpec(), 4),
    }
    found = rules_of(arrays, MESH)
    assert found.rules == [("embed", ("dp",)), ("mlp", ("tp",))]
    assert found.others == {"b": (PartitionSpec(), PartitionSpec("tp"))}


def test_planning_and_running_leave_the_types_of_jax_as_they_are() -> None:
    step = plan_of(lambda key: jax.random.normal(key, (4, 4)), jax.random.key(0))
    assert (step(jax.random.key(3)) == jax.random.normal(jax.random.key(3), (4, 4))).all()
    assert jnp.asarray(np.ones(2, np.float64)).dtype == jnp.float32


def test_each_half_of_the_package_does_without_the_other() -> None:
    read = "import sys, {}; print([name for name in ('jax', 'torch') if name in sys.modules])"
    for module, loaded in (("shardwright", "[]"), ("shardwright.jax", "['jax']")):
        ran = subprocess.run([sys.executable, "-c", read.format(module)], capture_output=True, text=True, timeout=120, check=False)
        assert ran.stdout.strip() == loaded, ran.stderr
