"""Compiles sharded StableHLO texts for eight CPU devices, as JAX hands them to XLA, and runs them.

stdin: {"cases": [{"name", "text", "mesh": [[name, size]], "specs": ["P(...)"], "shardy": bool,
                   "inputs": [{"shape", "dtype", "data"}], "outputs": [{"shape", "dtype"}]}]}
stdout: {"jax", "cases": {name: {"outputs": [flat list], "compiled": {kind: count}}}}, or {"error"} where XLA refuses.
"""

import json
import os
import re
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib import xla_client  # noqa: E402
from jax._src.sharding_impls import GSPMDSharding  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from jaxlib.mlir import ir  # noqa: E402

COLLECTIVE = re.compile(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\(")


def plain(value):
    flat = np.asarray(value).ravel()
    if flat.dtype == np.bool_:
        return [int(v) for v in flat]
    if flat.dtype.kind not in "iu":
        flat = flat.astype(np.float64)
    return [v if not isinstance(v, float) or np.isfinite(v) else str(v) for v in flat.tolist()]


def count(text):
    found = {}
    for line in text.splitlines():
        match = COLLECTIVE.search(line)
        if match is not None:
            found[match[1]] = found.get(match[1], 0) + 1
    return found


def run(case):
    names, sizes = zip(*case["mesh"])
    total = int(np.prod(sizes))
    devices = jax.devices()[:total]
    mesh = Mesh(np.array(devices).reshape(sizes), names)
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = 1, total
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(total).reshape(1, total))
    build = options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = case["shardy"]
    build.allow_spmd_sharding_propagation_to_output = [True] * len(case["outputs"])
    with mlir.make_ir_context():
        module = ir.Module.parse(case["text"])
        text = mlir.module_to_bytecode(module)
    loaded = devices[0].client.compile_and_load(text, xla_client.DeviceList(tuple(devices)), options)
    values = []
    for one, spec in zip(case["inputs"], case["specs"]):
        data = [float(v) if isinstance(v, str) else v for v in one["data"]]
        array = jnp.asarray(np.array(data).reshape(one["shape"]), one["dtype"])
        values.append(jax.device_put(array, NamedSharding(mesh, eval(spec, {"P": P}))))
    parts = loaded.execute_sharded(values).disassemble_into_single_device_arrays()
    outputs = []
    for one, arrays, sharding in zip(case["outputs"], parts, loaded.get_output_shardings() or []):
        own = GSPMDSharding(tuple(devices), sharding)
        outputs.append(plain(jax.make_array_from_single_device_arrays(tuple(one["shape"]), own, arrays)))
    return {"outputs": outputs, "compiled": count(loaded.hlo_modules()[0].to_string())}


def main():
    answers = {}
    for case in json.load(sys.stdin)["cases"]:
        try:
            answers[case["name"]] = run(case)
        except Exception as error:  # what XLA says is the answer
            answers[case["name"]] = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
    json.dump({"jax": jax.__version__, "cases": answers}, sys.stdout)


main()
