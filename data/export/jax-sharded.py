"""The fixed end of program.py: the mesh of the plan, and its program over that mesh.

An exported program has `make_mesh` and `sharded`, with the number and the order of its devices for `[:DEVICES]`.
"""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# An exported program has the tables of its plan and the program of each device here.
MESH_SHAPE = ()
MESH_NAMES = ()
DEVICES = 0
IN_SPECS = ()
OUT_SPECS = ()


def device_program(*inputs):
    """What each device runs."""
    return inputs


def make_mesh(devices=None):
    """The mesh of the plan over the first devices, in their order."""
    devices = np.array(jax.devices() if devices is None else devices)[:DEVICES]
    if devices.size != np.prod(MESH_SHAPE):
        raise ValueError(f"the plan is for {np.prod(MESH_SHAPE)} devices, there are {devices.size}")
    return Mesh(devices.reshape(MESH_SHAPE), MESH_NAMES, axis_types=(AxisType.Auto,) * len(MESH_NAMES))


def sharded(mesh=None):
    """The program over the mesh: takes and gives global arrays."""
    mesh = make_mesh() if mesh is None else mesh
    # None is returned where the plan returns nothing.
    specs = tuple(P() if spec is None else spec for spec in OUT_SPECS)
    body = jax.shard_map(device_program, mesh=mesh, in_specs=IN_SPECS, out_specs=specs, check_vma=False)
    return jax.jit(body, in_shardings=tuple(NamedSharding(mesh, spec) for spec in IN_SPECS))
