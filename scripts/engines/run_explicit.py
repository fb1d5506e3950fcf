"""Types that JAX gives to values whose shardings are in their types (explicit axes).

Prints JSON: by mesh, for each expression the type of the result as JAX prints it, or `refused`.
Named by the call of this library that says the same (`test/local-spmd/explicit.test.ts`). On `a=2`
the expressions are of `x`, 8 x 8 with its rows cut on `a`, and `z`, 8 x 8 and whole; on `a=2,b=2` of
those of `two`.
"""

import json
import os
from types import SimpleNamespace

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

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
    "layer norm": lambda x, z: (
        (x - x.mean(0, keepdims=True)) * jax.lax.rsqrt(x.var(0, keepdims=True) + 1e-5)
    ),
}


# `q`: a grid, `x`: rows, `y`: columns, `d`: rows cut by both, `z`: whole, `t3`: a batch of grids.
AXES = {
    "matmul of a grid with a whole one": lambda v: v.q @ v.z,
    "matmul of rows and columns": lambda v: v.x @ v.y,
    "matmul of a grid with itself": lambda v: v.q @ v.q,
    "matmul of rows with a grid": lambda v: v.x @ v.q,
    "matmul of columns with rows": lambda v: v.y @ v.x,
    "matmul of fine rows": lambda v: v.d @ v.z,
    "matmul of a grid with its transpose": lambda v: v.q @ v.q.T,
    "matmul over two whole dims and a cut one": lambda v: v.x @ v.y.T,
    "matmul that cuts two dims finely": lambda v: v.d @ v.d.T,
    "matmul over fine rows": lambda v: v.d.T @ v.d,
    "matmul over fine and coarse rows": lambda v: v.d.T @ v.x,
    "matmul of rows with fine rows": lambda v: v.x @ v.d,
    "matmul of columns with fine rows": lambda v: v.y @ v.d,
    "matmul of a grid with fine rows": lambda v: v.q @ v.d,
    "matmul of a grid with columns": lambda v: v.q @ v.y,
    "matmul of fine rows with a grid": lambda v: v.d @ v.q,
    "matmul of fine rows with columns": lambda v: v.d @ v.y,
    "dot of fine and coarse rows": lambda v: v.d.sum(1) @ v.x.sum(1),
    "batched matmul of a grid with itself": lambda v: v.t3 @ v.t3,
    "batched matmul of a grid with a whole one": lambda v: v.t3 @ v.z,
    "grid plus rows": lambda v: v.q + v.x,
    "rows plus columns": lambda v: v.x + v.y,
    "grid plus a whole row": lambda v: v.q + v.z[0],
    "batch of grids plus a grid": lambda v: v.t3 + v.q,
    "fine plus coarse rows": lambda v: v.d + v.x,
    "fine rows plus a grid": lambda v: v.d + v.q,
    "fine rows plus columns": lambda v: v.d + v.y,
    "maximum of fine and coarse rows": lambda v: jnp.maximum(v.d, v.x),
    "sum of the rows of a grid": lambda v: v.q.sum(0),
    "sum of a grid": lambda v: v.q.sum(),
    "sum of fine rows": lambda v: v.d.sum(0),
    "mean of grids": lambda v: v.t3.mean((1, 2)),
    "variances of a grid": lambda v: v.q.var(1),
    "argmax of fine rows": lambda v: jnp.argmax(v.d, 0),
    "minimum of a batch": lambda v: v.t3.min(1),
    "view that splits fine rows evenly": lambda v: v.d.reshape(4, 2, 8),
    "view that splits fine rows coarsely": lambda v: v.d.reshape(2, 4, 8),
    "view that splits fine rows twice": lambda v: v.d.reshape(2, 2, 2, 8),
    "view into shorter fine rows": lambda v: v.d.reshape(16, 4),
    "view of fine rows as one dim": lambda v: v.d.reshape(64),
    "view of a grid as one dim": lambda v: v.q.reshape(64),
    "view that joins a batch and rows": lambda v: v.t3.reshape(32, 8),
    "view that joins rows and columns": lambda v: v.t3.reshape(4, 64),
    "view that splits the columns of a grid": lambda v: v.q.reshape(8, 2, 4),
    "view with a dim more": lambda v: v.d.reshape(1, 8, 8),
    "permute": lambda v: v.t3.transpose(2, 0, 1),
    "stack of grids": lambda v: jnp.stack([v.q, v.q], 1),
    "cat of grids": lambda v: jnp.concatenate([v.q, v.q], 1),
    "cat of a grid and rows": lambda v: jnp.concatenate([v.q, v.x], 0),
    "cat of fine and coarse rows": lambda v: jnp.concatenate([v.d, v.x], 0),
    "stack of fine and coarse rows": lambda v: jnp.stack([v.d, v.x], 0),
    "slice of two fine rows": lambda v: jax.lax.slice_in_dim(v.d, 0, 2),
    "slice of four fine rows": lambda v: jax.lax.slice_in_dim(v.d, 0, 4),
    "slice of both dims": lambda v: jax.lax.slice(v.q, (2, 2), (6, 6)),
    "slice with an odd step": lambda v: jax.lax.slice_in_dim(v.q, 0, 8, 3),
    "slice of six fine rows": lambda v: jax.lax.slice_in_dim(v.d, 0, 6),
    "split into two fine rows": lambda v: jnp.split(v.d, 4, 0)[0],
    "select of a whole dim": lambda v: jax.lax.index_in_dim(v.x, 0, 1, False),
    "select of a cut dim": lambda v: jax.lax.index_in_dim(v.q, 0, 0, False),
    "select of a batch": lambda v: v.t3[0],
    "where of a grid and rows": lambda v: jnp.where(v.q > 0, v.q, v.x),
    "where of a whole one and a number": lambda v: jnp.where(v.x > 0, v.z, 1.0),
    "where by a scalar": lambda v: jnp.where(v.z[0, 0] > 0, v.q, v.q),
    "where of two whole ones": lambda v: jnp.where(v.x > 0, v.z, v.z),
    "where of a number and a whole one": lambda v: jnp.where(v.x > 0, 1.0, v.z),
    "where of columns and a number": lambda v: jnp.where(v.x > 0, v.y, 1.0),
    "where by a whole one, of a number": lambda v: jnp.where(v.z > 0, v.x, 1.0),
    "where by rows of two grids": lambda v: jnp.where(v.x > 0, v.q, v.q),
    "where by sums of rows": lambda v: jnp.where(v.x.sum(1, keepdims=True) > 0, v.x, 0.0),
    "where by a grid of rows": lambda v: jnp.where(v.q > 0, v.x, v.x),
    "softmax of fine rows": lambda v: jax.nn.softmax(v.d, 0),
    "flip of a grid": lambda v: jnp.flip(v.q, (0, 1)),
    "flip of fine columns": lambda v: jnp.flip(v.d.T, 1),
    "tril of fine rows": lambda v: jnp.tril(v.d),
    "pad of fine rows": lambda v: jnp.pad(v.d, ((2, 2), (0, 0))),
    "pad of fine rows by one": lambda v: jnp.pad(v.d, ((1, 1), (0, 0))),
    "pad of one column": lambda v: jnp.pad(v.q, ((0, 0), (1, 0))),
    "pad of a grid": lambda v: jnp.pad(v.q, ((1, 1), (1, 1))),
    "cumsum along the columns": lambda v: jnp.cumsum(v.q, 1),
    "sort along the columns": lambda v: jnp.sort(v.q, 1),
    "topk along the columns": lambda v: jax.lax.top_k(v.y, 2)[0],
    "roll of a grid": lambda v: jnp.roll(v.q, 1, 1),
    "take of whole columns": lambda v: jnp.take(v.x, jnp.array([0, 3]), axis=1),
    "expand of sums": lambda v: jnp.broadcast_to(v.d.sum(1), (3, 8)),
    "rows plus their numbers": lambda v: v.x + jnp.arange(8.0)[:, None],
    "logsumexp of a grid": lambda v: jax.nn.logsumexp(v.q, 1),
    "tile of a grid": lambda v: jnp.tile(v.q, (1, 2)),
    "outer product of rows with themselves": lambda v: jnp.einsum(
        "i,j->ij", v.x.sum(1), v.x.sum(1)
    ),
    "outer product of rows and columns": lambda v: jnp.einsum("i,j->ij", v.x.sum(1), v.y.sum(0)),
    "layer norm of a grid": lambda v: (
        (v.q - v.q.mean(1, keepdims=True)) / jnp.sqrt(v.q.var(1, keepdims=True) + 1e-5)
    ),
}


def on_mesh(names, values, expressions):
    mesh = jax.make_mesh((2,) * len(names), names, axis_types=(AxisType.Explicit,) * len(names))
    jax.set_mesh(mesh)
    held = {
        name: jax.device_put(jnp.ones(shape), NamedSharding(mesh, P(*spec)))
        for name, (shape, spec) in values.items()
    }
    return {name: answer(f, held) for name, f in expressions.items()}


def answer(f, held):
    try:
        return str(jax.typeof(jax.jit(f)(held)))
    except Exception as error:
        if "Sharding" not in type(error).__name__ and "out_sharding" not in str(error):
            raise
        return "refused"


SQUARE = (8, 8)
one = {"x": (SQUARE, ("a", None)), "z": (SQUARE, (None, None))}
two = {
    **one,
    "q": (SQUARE, ("a", "b")),
    "y": (SQUARE, (None, "b")),
    "d": (SQUARE, (("a", "b"), None)),
    "t3": ((4, 8, 8), (None, "a", "b")),
}
named = {name: (lambda f: lambda v: f(v["x"], v["z"]))(f) for name, f in EXPRESSIONS.items()}
grids = {name: (lambda f: lambda v: f(SimpleNamespace(**v)))(f) for name, f in AXES.items()}
types = {"a=2": on_mesh(("a",), one, named), "a=2,b=2": on_mesh(("a", "b"), two, grids)}
print(json.dumps(types, indent=1))
