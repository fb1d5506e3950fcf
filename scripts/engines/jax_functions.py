"""Functions of JAX that sort by several operands, pool with gradients, transform, factor and draw, as texts and as run on one device.

stdout: {"jax", "functions": {name: {"stablehlo", "jaxpr", "inputs": [{"shape", "dtype", "data"}], "types": [{"shape", "dtype"}], "outputs": [...]}}}
Values are flat lists; numbers that JSON cannot hold are strings.
"""

import json
import math
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def few(*shape):
    """Numbers with ties, zeros of both signs and NaNs."""
    return RNG.choice(np.array([-1.0, -0.0, 0.0, 1.5, np.nan, np.inf], np.float32), shape)


def digits(*shape):
    return RNG.integers(0, 3, shape, np.int32)


def key(impl="threefry2x32"):
    return np.asarray(jax.random.key_data(jax.random.key(7, impl=impl)))


def pooled(reduce, start, window, strides, padding):
    return jax.grad(lambda x: (lax.reduce_window(x, start, reduce, window, strides, padding) ** 2).sum())


def dropout(words, x):
    keep = jax.random.bernoulli(words, 0.7, x.shape)
    return jnp.where(keep, x / 0.7, 0) @ x.T


def noise(words, x):
    """A key for each row, and one for each number of a step."""
    keys = jax.random.split(jax.random.wrap_key_data(words), x.shape[0])
    rows = jax.vmap(lambda k: jax.random.normal(k, x.shape[1:], jnp.float32))(keys)
    folded = jax.vmap(lambda k, i: jax.random.uniform(jax.random.fold_in(k, i), (), jnp.float32))(keys, jnp.arange(x.shape[0]))
    return x + rows, folded


def other_keys(impl):
    def f(words):
        k = jax.random.wrap_key_data(words, impl=impl)
        a, b = jax.random.split(k)
        return jax.random.bits(a, (4, 8)), jax.random.bits(jax.random.fold_in(b, 3), (4,), "uint8"), jax.random.normal(k, (8,), jnp.float32)

    return f


def spectrum(x):
    return jnp.abs(jnp.fft.rfft(x)) ** 2, jnp.fft.irfft(jnp.fft.rfft(x) * 2), jnp.fft.ifft2(jnp.fft.fft2(x)).real


def solved(a, b):
    square = a @ jnp.swapaxes(a, -1, -2) + 8 * jnp.eye(a.shape[-1], dtype=a.dtype)
    return lax.linalg.cholesky(square), lax.linalg.triangular_solve(square, b, left_side=True, lower=True)


WINDOWS = lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,))
POINTS = lax.ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0, 1), scatter_dims_to_operand_dims=(1, 0))


def read_outside(x, i):
    """Reads at indices of which some lie outside, in every mode that says what they mean."""
    rows = [jnp.take(x, i, axis=0), jnp.take(x, i, axis=1, mode="clip"), jnp.take(x.astype(jnp.int32), i, axis=0)]
    return *rows, x.at[i, i].get(mode="fill", fill_value=-1), jnp.take_along_axis(x, i[:, None], axis=1)


def write_outside(x, i, y):
    """Writes of single numbers and of windows, of which some lie outside or hang over."""
    pairs, flat = jnp.stack([i, -i], axis=1), x[0]
    modes = [lax.scatter_add(flat, i[:, None], y, WINDOWS, mode=mode) for mode in ("drop", "clip")]
    points = [lax.scatter(x, pairs, y[:, 0], POINTS, mode=mode) for mode in ("drop", "clip")]
    return *modes, *points


FUNCTIONS = {
    "argsort": (lambda x: jnp.argsort(x, axis=-1), [few(4, 8)]),
    "argsort descending": (lambda x: jnp.argsort(x, axis=0, descending=True), [few(8, 4)]),
    "sort by two keys with a payload": (lambda i, x, y: lax.sort((i, x, y), num_keys=2), [digits(4, 8), few(4, 8), floats(4, 8)]),
    "lexsort": (lambda x, y: jnp.lexsort((x, y), axis=-1), [few(4, 8), few(4, 8)]),
    "gradient of max pooling": (pooled(lax.max, -jnp.inf, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), [floats(4, 7, 8, 2)]),
    "gradient of min pooling": (pooled(lax.min, jnp.inf, (1, 2), (1, 2), "VALID"), [floats(4, 8)]),
    "Fourier transforms": (spectrum, [floats(4, 6, 8)]),
    "reads outside": (read_outside, [floats(8, 8), np.array([0, 9, -1, 3, 7, 8, -9, -30], np.int32)]),
    "writes outside": (write_outside, [floats(8, 8), np.array([0, 9, 5, 7], np.int32), floats(4, 2)]),
    "factors and triangles": (solved, [floats(4, 6, 6), floats(4, 6, 3)]),
    "dropout": (dropout, [key(), floats(8, 8)]),
    "noise from keys of rows": (noise, [key(), floats(4, 8)]),
    "keys of rbg": (other_keys("rbg"), [key("rbg")]),
    "keys of unsafe_rbg": (other_keys("unsafe_rbg"), [key("unsafe_rbg")]),
}


def plain(value):
    flat = np.asarray(value).ravel()
    if np.iscomplexobj(flat):
        flat = flat.view(np.float64)
    return [v if not isinstance(v, float) or math.isfinite(v) else str(v) for v in flat.tolist()]


def written(function, inputs):
    outputs = jax.tree.leaves(jax.jit(function)(*inputs))
    return {
        "stablehlo": jax.jit(function).lower(*inputs).as_text(),
        "jaxpr": str(jax.make_jaxpr(function)(*inputs)),
        "inputs": [{"shape": list(x.shape), "dtype": str(x.dtype), "data": plain(x)} for x in inputs],
        "types": [{"shape": list(x.shape), "dtype": str(x.dtype)} for x in outputs],
        "outputs": [plain(x) for x in outputs],
    }


json.dump({"jax": jax.__version__, "functions": {name: written(*of) for name, of in FUNCTIONS.items()}}, sys.stdout)
