"""The fixed end of constrained.py: the program before it was cut, whose collectives XLA chooses between the points of the plan."""

import jax
import program
from jax.sharding import NamedSharding


def constrained(*inputs):
    """The program before it was cut, with the PartitionSpecs of the plan on its values."""
    return inputs


def partitioned(mesh=None, donate=True):
    """The jitted program over the mesh; `donate`: the inputs that the step replaces give their memory to the new values."""
    mesh = program.make_mesh() if mesh is None else mesh

    def on_mesh(*inputs):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return constrained(*inputs)

    return jax.jit(
        on_mesh,
        in_shardings=tuple(NamedSharding(mesh, spec) for spec in program.IN_SPECS),
        out_shardings=tuple(None if spec is None else NamedSharding(mesh, spec) for spec in program.OUT_SPECS),
        donate_argnums=program.DONATED if donate else (),
    )
