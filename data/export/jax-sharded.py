"""The fixed end of program.py: the mesh of the plan, and its program over that mesh.

An exported program has `make_mesh`, `over` and `sharded`, with the number and the order of its devices for `[:DEVICES]`. Where it
computes with 64-bit types, `wide` stands above it, and above the program before it was cut.
"""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# An exported program has the tables of its plan and the program of each device here.
MESH_SHAPE = ()
MESH_NAMES = ()
DEVICES = 0
INPUTS = []
IN_SPECS = ()
OUT_SPECS = ()
DONATED = ()


def wide(function):
    """The function with 64-bit types, which JAX then has inside of it alone."""

    def with_64_bits(*inputs):
        with jax.enable_x64(True):
            return function(*inputs)

    return with_64_bits


def device_program(*inputs):
    """What each device runs."""
    return inputs


def make_mesh(devices=None):
    """The mesh of the plan over the first devices, in their order."""
    devices = np.array(jax.devices() if devices is None else devices)[:DEVICES]
    if devices.size != np.prod(MESH_SHAPE):
        raise ValueError(f"the plan is for {np.prod(MESH_SHAPE)} devices, there are {devices.size}")
    return Mesh(devices.reshape(MESH_SHAPE), MESH_NAMES, axis_types=(AxisType.Auto,) * len(MESH_NAMES))


def over(mesh):
    """The program over a mesh, to be called in a jitted function: global arrays in, global arrays out."""
    wide = next((name for name, _, dtype in INPUTS if dtype in ("float64", "int64", "uint64", "complex128")), None)
    if wide is not None and not jax.config.jax_enable_x64:
        raise ValueError(f'{wide} has 64 bits: call jax.config.update("jax_enable_x64", True) first')
    # None is returned where the plan returns nothing.
    specs = tuple(P() if spec is None else spec for spec in OUT_SPECS)
    return jax.shard_map(device_program, mesh=mesh, in_specs=IN_SPECS, out_specs=specs, check_vma=False)


def sharded(mesh=None, donate=True):
    """The jitted program over the mesh; `donate`: the inputs that the step replaces give their memory to the new values."""
    mesh = make_mesh() if mesh is None else mesh
    return jax.jit(
        over(mesh),
        in_shardings=tuple(NamedSharding(mesh, spec) for spec in IN_SPECS),
        out_shardings=tuple(None if spec is None else NamedSharding(mesh, spec) for spec in OUT_SPECS),
        donate_argnums=DONATED if donate else (),
    )
