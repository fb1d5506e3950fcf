"""Runs the sharded program beside the one that was not cut, on the same random numbers.

    python check.py [largest integer input, default 2]

On a machine without enough devices the CPU stands in for them. Prints the largest relative error, the output that has it, the outputs
whose error is above the bound of their dtype, and the collectives that XLA compiled beside those of the plan; and the same of
constrained.py, in which XLA chooses the collectives. `bytes` are those that a device sends by ring algorithms, all trips of loops counted;
`peak_bytes` what a device holds at most: as planned, and as XLA says. Ends with 1 where an output is above its bound or cannot be compared.
"""
import json
import os
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).parent
PLAN = json.loads((FOLDER / "collectives.json").read_text())
PLANNED = PLAN["collectives"]
SHARDINGS = json.loads((FOLDER / "shardings.json").read_text())
BOUNDS = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=64")
sys.path.insert(0, str(FOLDER))

import constrained  # noqa: E402
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


#: Bits of the element types of HLO whose name does not end with them.
BITS = {"pred": 8, "f8e4m3fn": 8, "f8e5m2": 8, "f8e8m0fnu": 8}


def array_bytes(text):
    """Bytes of the arrays of a type as HLO writes it."""
    total = 0
    for name, dims in re.findall(r"\b([a-z]\w*)\[([\d,]*)\]", text):
        bits = BITS.get(name) or int(re.search(r"\d+$", name)[0])
        total += int(np.prod([int(dim) for dim in dims.split(",") if dim], dtype=np.int64)) * bits // 8
    return total


def sent_bytes(kind, line, out):
    """Bytes that a device sends in a collective by a ring algorithm; `out`: those of its result."""
    groups = re.search(r"replica_groups=(?:\{\{([\d,]*)\}|\[\d+,(\d+)\])", line)
    members = int(np.prod(program.MESH_SHAPE)) if groups is None else int(groups[2] or groups[1].count(",") + 1)
    others = members - 1
    by_kind = {"all-reduce": 2 * others / members, "reduce-scatter": others, "collective-permute": 1}
    return out * by_kind.get(kind, others / members)


def computations(text):
    """Of each computation of a module: bytes of its collectives, and the computations that it runs with how often; the entry first."""
    found, own, calls = {}, [], []
    entry = None
    for line in text.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.\-]+) .*\{$", line)
        if head is not None and not line.startswith(" "):
            own, calls = found.setdefault(head[2], ([], []))
            entry = head[2] if head[1] else entry
            continue
        match = re.search(r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\(", line)
        if match is not None:
            own.append(sent_bytes(match[2], line, array_bytes(match[1])))
        loop = re.search(r" while\(.*body=%?([\w.\-]+)", line)
        if loop is not None:
            trips = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            calls.append((loop[1], int(trips[1]) if trips else 1))
            continue
        for names in re.findall(r"(?:to_apply|calls|true_computation|false_computation|branch_computations)=\{?([^}\s]+(?:, %[^},\s]+)*)", line):
            calls += [(name.strip(" %,"), 1) for name in names.split(", ")]
    return entry, found


def moved_bytes(text):
    """Bytes that a device sends in one run of a module."""
    entry, found = computations(text)

    def of(name):
        own, calls = found.get(name, ((), ()))
        return sum(own) + sum(times * of(called) for called, times in calls)

    return round(of(entry))


def peak_bytes(compiled):
    """What XLA says that a device holds at most; none where it does not say."""
    stats = compiled.memory_analysis()
    if stats is None:
        return None
    held = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    return held - stats.alias_size_in_bytes


def measured(step, values):
    """The collectives of a step by kind, their bytes, and its peak; and what it gives."""
    compiled = step.lower(*values).compile()
    text = compiled.as_text()
    return {"compiled": count(text), "bytes": moved_bytes(text), "peak_bytes": peak_bytes(compiled)}, step(*values)


def compared(got, want):
    """The largest error with the output that has it, the outputs that are wrong, and how many there are."""
    worst, of, failed, count = 0.0, None, [], 0
    for k, (one, other) in enumerate(zip(got, want)):
        if one is None or other is None:
            continue
        name = SHARDINGS["outputs"][k]["name"]
        error = difference(one, other)
        count += 1
        if error > BOUNDS.get(str(other.dtype), 0.0):
            failed.append(name)
        if error >= worst:
            worst, of = error, name
    # JSON has no infinity.
    return {"compared": count, "worst": worst if np.isfinite(worst) else None, "of": of, "failed": failed}


def main():
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    values, want = draw_finite(largest)
    written = count(program.sharded().lower(*values).compiler_ir("hlo").as_hlo_text())
    own, got = measured(program.sharded(), values)
    memory = {"planned": PLAN.get("peakBytes"), "compiled": own.pop("peak_bytes")}
    partitioner, chosen = measured(constrained.partitioned(), values)
    planned = {}
    for one in PLANNED:
        if not one.get("unread"):
            kind = HLO[one.get("as", one["kind"])]
            planned[kind] = planned.get(kind, 0) + 1
    answer = compared(got, want)
    partitioner["failed"] = compared(chosen, want)["failed"]
    told = {"planned": planned, "written": written, **own, "peak_bytes": memory, "partitioner": partitioner}
    print(json.dumps({**answer, **told}, sort_keys=True))
    sys.exit(1 if answer["failed"] or partitioner["failed"] else 0)


if __name__ == "__main__":
    main()
