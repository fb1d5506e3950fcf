"""Types that JAX gives to values whose shardings are in their types (explicit axes).

Prints JSON: for each expression in `x`, 8 x 8 with its rows cut on `a` (2 devices), and `z`, 8 x 8
and whole, the type of the result as JAX prints it, or `refused`. Named by the call of this library
that says the same (`test/local-spmd/explicit.test.ts`).
"""

import json
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((2,), ("a",), axis_types=(AxisType.Explicit,))
jax.set_mesh(mesh)

EXPRESSIONS = {
    "argmax": lambda x, z: jnp.argmax(x, 0),
    "argmax of rows": lambda x, z: jnp.argmax(x, 1),
    "var": lambda x, z: jnp.var(x, 0),
    "std": lambda x, z: jnp.std(x, 0),
    "mean": lambda x, z: jnp.mean(x, 0),
    "sum": lambda x, z: jnp.sum(x, 0),
    "prod": lambda x, z: jnp.prod(x, 0),
    "amax": lambda x, z: jnp.max(x, 0),
    "any": lambda x, z: jnp.any(x > 3, 0),
    "logsumexp": lambda x, z: jax.nn.logsumexp(x, 0),
    "norm": lambda x, z: jnp.linalg.norm(x, axis=0),
    "norm of all": lambda x, z: jnp.linalg.norm(x),
    "softmax": lambda x, z: jax.nn.softmax(x, 0),
    "cumsum": lambda x, z: jnp.cumsum(x, 0),
    "cumsum of rows": lambda x, z: jnp.cumsum(x, 1),
    "sort": lambda x, z: jnp.sort(x, 0),
    "topk": lambda x, z: jax.lax.top_k(x.T, 2)[0],
    "flip": lambda x, z: jnp.flip(x, 0),
    "roll": lambda x, z: jnp.roll(x, 1, 0),
    "cat": lambda x, z: jnp.concatenate([x, x], 0),
    "cat of columns": lambda x, z: jnp.concatenate([x, x], 1),
    "cat with a whole one": lambda x, z: jnp.concatenate([x, z], 1),
    "stack": lambda x, z: jnp.stack([x, x], 0),
    "stack with a whole one": lambda x, z: jnp.stack([x, z], 0),
    "tril": lambda x, z: jnp.tril(x),
    "triu": lambda x, z: jnp.triu(x),
    "pad": lambda x, z: jnp.pad(x, ((1, 1), (0, 0))),
    "pad by one": lambda x, z: jnp.pad(x, ((1, 0), (0, 0))),
    "pad of columns": lambda x, z: jnp.pad(x, ((0, 0), (1, 1))),
    "slice": lambda x, z: x[0:4],
    "slice of 3": lambda x, z: x[0:3],
    "slice with a step": lambda x, z: x[::2],
    "slice of columns": lambda x, z: x[:, 0:4],
    "select": lambda x, z: x[0],
    "take": lambda x, z: jnp.take(x, jnp.array([0, 1]), axis=0),
    "take of columns": lambda x, z: jnp.take(x, jnp.array([0, 1]), axis=1),
    "where": lambda x, z: jnp.where(x > 0, x, z),
    "where of a number": lambda x, z: jnp.where(x > 0, x, 0.0),
    "where by a whole one": lambda x, z: jnp.where(z > 0, x, x),
    "add": lambda x, z: x + z,
    "maximum": lambda x, z: jnp.maximum(x, z),
    "clamp": lambda x, z: jnp.clip(x, 0, 1),
    "transpose": lambda x, z: x.T,
    "view as one dim": lambda x, z: x.reshape(64),
    "view that splits the cut": lambda x, z: x.reshape(4, 2, 8),
    "expand": lambda x, z: jnp.broadcast_to(x, (3, 8, 8)),
    "split": lambda x, z: jnp.split(x, 2, 0)[0],
    "unbind": lambda x, z: jnp.unstack(x, axis=0)[0],
    "unbind of columns": lambda x, z: jnp.unstack(x, axis=1)[0],
    "matmul with a whole one": lambda x, z: x @ z,
    "matmul of a whole one": lambda x, z: z @ x,
    "matmul with itself": lambda x, z: x @ x,
    "matmul over the cut": lambda x, z: x.T @ x,
    "matmul that cuts twice": lambda x, z: x @ x.T,
    "view that joins the cut": lambda x, z: x.reshape(1, 64),
    "view into longer rows": lambda x, z: x.reshape(4, 16),
    "view into shorter rows": lambda x, z: x.reshape(16, 4),
    "view that splits columns": lambda x, z: x.reshape(8, 2, 4),
    "repeat each row": lambda x, z: jnp.repeat(x, 2, 0),
    "repeat each column": lambda x, z: jnp.repeat(x, 2, 1),
    "tile of columns": lambda x, z: jnp.tile(x, (1, 2)),
    "trace": lambda x, z: jnp.trace(x),
    "slice inside": lambda x, z: jax.lax.slice_in_dim(x, 1, 7, axis=0),
    "gather of columns": lambda x, z: jnp.take_along_axis(x, jnp.zeros((8, 8), int), 1),
    "argsort of rows": lambda x, z: jnp.argsort(x, 1),
    "minus a row": lambda x, z: x - z[0],
    "minus a column": lambda x, z: x - z[:, :1],
    "product with a vector": lambda x, z: x @ z[0],
    "a vector with the product": lambda x, z: z[0] @ x,
    "layer norm": lambda x, z: (x - x.mean(0, keepdims=True))
    * jax.lax.rsqrt(x.var(0, keepdims=True) + 1e-5),
}


def answer(f):
    x = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("a", None)))
    z = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P(None, None)))
    try:
        return str(jax.typeof(jax.jit(f)(x, z)))
    except Exception as error:
        if "Sharding" not in type(error).__name__ and "out_sharding" not in str(error):
            raise
        return "refused"


print(json.dumps({name: answer(f) for name, f in EXPRESSIONS.items()}, indent=1))
