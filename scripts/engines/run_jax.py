"""Runs exported JAX programs on eight CPU devices.

stdin: {"cases": [{"name", "folder", "inputs": [{"shape", "dtype", "data"}]}]}
stdout: {"jax", "cases": {name: {"sharded": [...], "whole": [...], "written": {kind: count}, "compiled": {kind: count}}}}
or {"error"} for a case that JAX refuses. Values are flat lists; numbers that JSON cannot hold are strings.
`written` counts what the program asks XLA for, `compiled` what XLA made of it.
"""

import importlib.util
import json
import math
import os
import pathlib
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402


def module(folder, name):
    spec = importlib.util.spec_from_file_location(f"case_{abs(hash(folder))}_{name}", pathlib.Path(folder) / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def array(one):
    if one["dtype"] in ("complex64", "complex128"):
        return jnp.asarray(np.array(one["data"]).view(complex), one["dtype"]).reshape(one["shape"])
    data = [float(v) if isinstance(v, str) else v for v in one["data"]]
    return jnp.asarray(np.array(data).reshape(one["shape"]), one["dtype"])


def plain(value):
    if value is None:
        return None
    flat = np.asarray(value).ravel()
    if flat.dtype == np.bool_:
        return [int(v) for v in flat]
    if np.iscomplexobj(flat):
        flat = flat.view(np.float64)
    if flat.dtype.kind not in "iu":
        flat = flat.astype(np.float64)
    return [v if not isinstance(v, float) or math.isfinite(v) else str(v) for v in flat.tolist()]


def run(case):
    program, reference = module(case["folder"], "program"), module(case["folder"], "reference")
    check = module(case["folder"], "check")
    values = [array(one) for one in case["inputs"]]
    # The same numbers go through both.
    step = program.sharded(donate=False)
    lowered = step.lower(*values)
    compiled = lowered.compile()
    return {
        "sharded": [plain(v) for v in compiled(*values)],
        "whole": [plain(v) for v in jax.jit(reference.reference)(*values)],
        "written": check.count(lowered.compiler_ir("hlo").as_hlo_text()),
        "compiled": check.count(compiled.as_text()),
    }


def main():
    sys.path.insert(0, "")
    answers = {}
    for case in json.load(sys.stdin)["cases"]:
        sys.path[0] = case["folder"]
        for name in ("program", "reference"):
            sys.modules.pop(name, None)
        try:
            answers[case["name"]] = run(case)
        except Exception as error:  # what JAX says is the answer
            answers[case["name"]] = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
    json.dump({"jax": jax.__version__, "cases": answers}, sys.stdout)


main()
