"""Small JAX and flax programs, as StableHLO or jaxpr text: rows (family, package, what it is, build, format)."""

import numpy as np

BATCH, LENGTH, WIDTH, VOCABULARY = 8, 16, 64, 256


def arrays(*shapes):
    import jax

    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes)


F32 = np.float32
I32 = np.int32


def mlir(make):
    """The StableHLO text of a function on abstract arguments."""

    def build():
        import jax

        fn, args = make()
        return jax.jit(fn).lower(*args).as_text()

    return build


def jaxpr(make):
    def build():
        import jax

        fn, args = make()
        return str(jax.make_jaxpr(fn)(*args))

    return build


def grad_of(model, *inputs, loss=lambda out: (out.astype(F32) ** 2).mean()):
    """Loss and gradients of a flax.linen model on abstract inputs."""
    import jax

    variables = jax.eval_shape(lambda *xs: model.init(jax.random.key(0), *xs), *inputs)
    params = variables["params"]
    rest = {k: v for k, v in variables.items() if k != "params"}

    def f(p, *xs):
        out = model.apply({"params": p, **rest_values(rest)}, *xs, mutable=list(rest) or False)
        return loss(out[0] if rest else out)

    def rest_values(shapes):
        return jax.tree.map(lambda s: jax.numpy.ones(s.shape, s.dtype), shapes)

    return jax.value_and_grad(f), (params, *inputs)


def cnn():
    from flax import linen as nn

    class Cnn(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.max_pool(nn.relu(nn.Conv(16, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.avg_pool(nn.relu(nn.Conv(32, (3, 3))(x)), (2, 2), (2, 2))
            return nn.Dense(16)(x.reshape(x.shape[0], -1))

    return grad_of(Cnn(), *arrays(((BATCH, 16, 16, 3), F32)))


def resnet():
    from flax import linen as nn

    class Block(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            y = nn.relu(nn.BatchNorm(use_running_average=False)(nn.Conv(self.width, (3, 3), use_bias=False)(x)))
            y = nn.BatchNorm(use_running_average=False)(nn.Conv(self.width, (3, 3), use_bias=False)(y))
            return nn.relu((x if x.shape == y.shape else nn.Conv(self.width, (1, 1))(x)) + y)

    class Resnet(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.max_pool(nn.Conv(16, (7, 7), (2, 2))(x), (3, 3), (2, 2), "SAME")
            return nn.Dense(16)(Block(32)(Block(16)(x)).mean((1, 2)))

    return grad_of(Resnet(), *arrays(((BATCH, 32, 32, 3), F32)))


def vit():
    from flax import linen as nn

    class Vit(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Conv(WIDTH, (8, 8), (8, 8))(x)
            x = x.reshape(x.shape[0], -1, WIDTH)
            for _ in range(2):
                x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x))
                x = x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(128)(nn.LayerNorm()(x))))
            return nn.Dense(16)(x.mean(1))

    return grad_of(Vit(), *arrays(((BATCH, 32, 32, 3), F32)))


def decoder():
    from flax import linen as nn

    class Decoder(nn.Module):
        @nn.compact
        def __call__(self, ids):
            x = nn.Embed(VOCABULARY, WIDTH)(ids) + self.param("pos", nn.initializers.normal(), (LENGTH, WIDTH))
            mask = nn.make_causal_mask(ids)
            for _ in range(2):
                x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x), mask=mask)
                x = x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(128)(nn.RMSNorm()(x))))
            return nn.log_softmax(nn.Dense(VOCABULARY)(x))

    return grad_of(Decoder(), *arrays(((BATCH, LENGTH), I32)))


def lstm():
    from flax import linen as nn

    class Lstm(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(16)(nn.RNN(nn.LSTMCell(WIDTH))(x))

    return grad_of(Lstm(), *arrays(((BATCH, LENGTH, 32), F32)))


def gru():
    from flax import linen as nn

    class Gru(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(16)(nn.RNN(nn.GRUCell(WIDTH))(x))

    return grad_of(Gru(), *arrays(((BATCH, LENGTH, 32), F32)))


def fnet():
    """FNet: token mixing by a Fourier transform (Lee-Thorp et al., 2021)."""
    from flax import linen as nn
    from jax import numpy as jnp

    class Fnet(nn.Module):
        @nn.compact
        def __call__(self, ids):
            x = nn.Embed(VOCABULARY, WIDTH)(ids)
            for _ in range(2):
                x = nn.LayerNorm()(x + jnp.fft.fft(jnp.fft.fft(x, axis=-1), axis=-2).real)
                x = nn.LayerNorm()(x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(128)(x))))
            return nn.Dense(VOCABULARY)(x)

    return grad_of(Fnet(), *arrays(((BATCH, LENGTH), I32)))


def nnx_mlp():
    import jax
    from flax import nnx

    model = nnx.eval_shape(lambda: nnx.Sequential(nnx.Linear(32, 128, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(128, 16, rngs=nnx.Rngs(0))))
    graph, state = nnx.split(model)
    state = nnx.to_pure_dict(state)

    def loss(s, x):
        return (nnx.merge(graph, nnx.State(s))(x) ** 2).mean()

    return jax.value_and_grad(loss), (state, *arrays(((BATCH, 32), F32)))


FAMILIES = [
    ("flax-cnn", "flax", "convolutions with max and average pooling, with gradients", mlir(cnn), "mlir"),
    ("flax-cnn-jaxpr", "flax", "the same as jaxpr", jaxpr(cnn), "jaxpr"),
    ("flax-resnet", "flax", "residual convolutions with batch norms, with gradients", mlir(resnet), "mlir"),
    ("flax-vit", "flax", "vision transformer, with gradients", mlir(vit), "mlir"),
    ("flax-decoder", "flax", "causal decoder, with gradients", mlir(decoder), "mlir"),
    ("flax-decoder-jaxpr", "flax", "the same as jaxpr", jaxpr(decoder), "jaxpr"),
    ("flax-lstm", "flax", "LSTM over a scan, with gradients", mlir(lstm), "mlir"),
    ("flax-gru", "flax", "GRU over a scan, with gradients", jaxpr(gru), "jaxpr"),
    ("flax-fnet", "flax", "FNet, with gradients", mlir(fnet), "mlir"),
    ("flax-fnet-jaxpr", "flax", "the same as jaxpr", jaxpr(fnet), "jaxpr"),
    ("flax-nnx-mlp", "flax", "nnx MLP, with gradients", mlir(nnx_mlp), "mlir"),
]
