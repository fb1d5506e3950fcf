"""Steps of JAX on four CPU devices by their plans, and on one device."""

from __future__ import annotations

import json
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
from jax_programs import NEEDS, PROGRAMS, Program, mlp  # noqa: E402

import shardwright  # noqa: E402
import shardwright.jax  # noqa: E402

MESH = jax.make_mesh((2, 2), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
STEPS = 20


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


@pytest.mark.parametrize("name", PROGRAMS)
def test_twenty_steps_by_a_plan_are_those_of_one_device(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    program = PROGRAMS[name]()
    wanted, losses = run(program.step, program, copied(program.state), program.batch)
    state, batch = laid(program.state, rows=False), laid(program.batch, rows=True)
    step = shardwright.jax.auto_shard(
        program.step, *state, *batch, mesh="dp=2,tp=2", cluster="dgx-h100", quiet=True, no_recipes=True
    )
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
    assert_near(found, wanted, bound)
