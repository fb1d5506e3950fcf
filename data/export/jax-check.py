"""Runs the sharded program beside the one that was not cut, on the same random numbers.

    python check.py [largest integer input, default 2]

On a machine without enough devices the CPU stands in for them. Prints the largest relative error, the output that has it, the outputs
whose error is above the bound of their dtype, and the collectives that XLA compiled beside those of the plan. Ends with 1 where an
output is above its bound or cannot be compared.
"""
import json
import os
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).parent
PLANNED = json.loads((FOLDER / "collectives.json").read_text())["collectives"]
SHARDINGS = json.loads((FOLDER / "shardings.json").read_text())
BOUNDS = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=64")
sys.path.insert(0, str(FOLDER))

import jax  # noqa: E402
import numpy as np  # noqa: E402
import program  # noqa: E402
import reference  # noqa: E402

if any(dtype in ("float64", "int64", "uint64", "complex128") for _, _, dtype in program.INPUTS):
    jax.config.update("jax_enable_x64", True)

HLO = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "collective_permute": "collective-permute",
}


def draw(number, shape, dtype, largest, positive):
    """Numbers of the size that networks have at their start."""
    random = np.random.default_rng(number)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if "int" in dtype:
        return random.integers(0, largest, shape).astype(dtype)
    scale = 1 / np.sqrt(max(1, shape[-1])) if len(shape) > 1 else 1
    drawn = random.normal(size=shape) * scale
    return np.asarray(jax.numpy.asarray(np.abs(drawn) if positive else drawn, dtype))


def draw_all(largest, roles):
    """Values of all inputs; those of the roles are not negative, as second moments and variances are not."""
    given = enumerate(zip(program.INPUTS, SHARDINGS["inputs"]))
    return [draw(i, shape, dtype, largest, row["role"] in roles) for i, ((_, shape, dtype), row) in given]


def draw_finite(largest):
    """Values of all inputs and the outputs of the program before it was cut, drawn so that these are numbers.

    A text that does not say which inputs are states has them among its inputs or parameters.
    """
    run = jax.jit(reference.reference)
    for roles in (("state", "buffer"), ("state", "buffer", "input"), ("state", "buffer", "input", "parameter")):
        values = draw_all(largest, roles)
        want = run(*values)
        if not any(one is not None and np.isnan(wide(one)).any() for one in want):
            break
    return values, want


def wide(array):
    return np.asarray(array).astype(np.complex128)


def difference(one, other):
    """The largest relative error of an output; infinite where the two are not finite in the same places, or hold NaN."""
    a, b = wide(one), wide(other)
    if np.isnan(a).any() or np.isnan(b).any():
        return float("inf")
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite]):
        return float("inf")
    scale = float(np.max(np.abs(b[finite]), initial=0.0))
    return float(np.max(np.abs(a - b)[finite], initial=0.0) / (scale or 1.0))


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
    values, want = draw_finite(largest)
    step = program.sharded()
    lowered = step.lower(*values)
    got = step(*values)
    worst = {"error": 0.0, "of": None}
    compared, failed = 0, []
    for k, (one, other) in enumerate(zip(got, want)):
        if one is None or other is None:
            continue
        name = SHARDINGS["outputs"][k]["name"]
        error = difference(one, other)
        compared += 1
        if error > BOUNDS.get(str(other.dtype), 0.0):
            failed.append(name)
        if error >= worst["error"]:
            worst = {"error": error, "of": name}
    planned = {}
    for one in PLANNED:
        if not one.get("unread"):
            kind = HLO[one.get("as", one["kind"])]
            planned[kind] = planned.get(kind, 0) + 1
    written = count(lowered.compiler_ir("hlo").as_hlo_text())
    compiled = count(lowered.compile().as_text())
    # JSON has no infinity.
    error = worst["error"] if np.isfinite(worst["error"]) else None
    answer = {"compared": compared, "worst": error, "of": worst["of"], "failed": failed}
    print(json.dumps({**answer, "planned": planned, "written": written, "compiled": compiled}, sort_keys=True))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
