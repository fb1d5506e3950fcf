"""Runs the sharded program beside the one that was not cut, on the same random numbers.

    python check.py [largest integer input, default 2]

On a machine without enough devices the CPU stands in for them. Prints the largest relative error of every output, and
the collectives that XLA compiled beside those of the plan.
"""
import json
import os
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).parent
PLANNED = json.loads((FOLDER / "collectives.json").read_text())["collectives"]
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=64")
sys.path.insert(0, str(FOLDER))

import jax  # noqa: E402
import numpy as np  # noqa: E402
import program  # noqa: E402
import reference  # noqa: E402

HLO = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "collective_permute": "collective-permute",
}


def draw(number, shape, dtype, largest):
    """Numbers of the size that networks have at their start."""
    random = np.random.default_rng(number)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if "int" in dtype:
        return random.integers(0, largest, shape).astype(dtype)
    scale = 1 / np.sqrt(max(1, shape[-1])) if len(shape) > 1 else 1
    return jax.numpy.asarray(random.normal(size=shape) * scale, dtype)


def count(text):
    """Collectives of a module by kind; one that holds several arrays counts as so many."""
    found = {}
    for line in text.splitlines():
        match = re.search(r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\(", line)
        if match is None:
            continue
        operands = line[match.end() :].split("), ")[0].count("%")
        parts = 1 if match[2] == "all-to-all" else max(1, operands)
        found[match[2]] = found.get(match[2], 0) + parts
    return found


def main():
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    values = [draw(i, shape, dtype, largest) for i, (_, shape, dtype) in enumerate(program.INPUTS)]
    step = program.sharded()
    lowered = step.lower(*values)
    got = step(*values)
    want = jax.jit(reference.reference)(*values)
    worst = 0.0
    for one, other in zip(got, want):
        if one is None or other is None:
            continue
        a, b = np.asarray(one, np.complex128), np.asarray(other, np.complex128)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            raise SystemExit("the programs differ in what is not finite")
        a, b = np.nan_to_num(a), np.nan_to_num(b)
        error = float(np.max(np.abs(a - b), initial=0.0) / max(1e-30, float(np.max(np.abs(b), initial=0.0))))
        worst = max(worst, error)
    planned = {}
    for one in PLANNED:
        if not one.get("unread"):
            kind = HLO[one.get("as", one["kind"])]
            planned[kind] = planned.get(kind, 0) + 1
    written = count(lowered.compiler_ir("hlo").as_hlo_text())
    compiled = count(lowered.compile().as_text())
    print(json.dumps({"worst": worst, "planned": planned, "written": written, "compiled": compiled}, sort_keys=True))


if __name__ == "__main__":
    main()
