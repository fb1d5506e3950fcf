"""Training steps as people write them in JAX: each a step, its state, and a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

WIDTH, ROWS, LENGTH, WORDS = 16, 8, 8, 32


class Program(NamedTuple):
    """A step; its arguments; how many of them it replaces, which are the first; where they are in what it returns."""

    step: Callable[..., Any]
    state: tuple[Any, ...]
    batch: tuple[Any, ...]
    new_state: Callable[[Any], tuple[Any, ...]]
    loss: Callable[[Any], Any]


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape) / 4


def optimizer() -> Any:
    import optax

    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 5, 100)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3))


def trained(loss_of: Callable[[Any, Any], Any], params: Any) -> tuple[Callable[..., Any], tuple[Any, Any]]:
    """A step of parameters, state of the optimizer and batch, which returns them with the loss last."""
    import optax

    chain = optimizer()

    def step(params: Any, opt_state: Any, batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, batch)
        updates, opt_state = chain.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return step, (params, chain.init(params))


def last(loss_of: Callable[[Any, Any], Any], params: Any, batch: Any, donate: bool = True) -> Program:
    step, state = trained(loss_of, params)
    jitted = jax.jit(step, donate_argnums=(0, 1)) if donate else step
    return Program(jitted, state, (batch,), lambda out: out[:2], lambda out: out[2])


def mlp() -> Program:
    """One state, a pair, and no jit around the step."""

    def loss_of(params: Any, batch: Any) -> Any:
        x, y = batch
        hidden = jnp.tanh(x @ params["l1"]["w"] + params["l1"]["b"])
        return jnp.mean((hidden @ params["l2"]["w"] + params["l2"]["b"] - y) ** 2)

    params = {"l1": {"w": normal(1, WIDTH, 32), "b": jnp.zeros(32)}, "l2": {"w": normal(2, 32, WIDTH), "b": jnp.zeros(WIDTH)}}
    inner, pair = trained(loss_of, params)

    def step(state: Any, batch: Any) -> Any:
        *state, loss = inner(*state, batch)
        return tuple(state), {"loss": loss}

    batch = (normal(3, ROWS, WIDTH), normal(4, ROWS, WIDTH))
    return Program(step, (pair,), (batch,), lambda out: out[:1], lambda out: out[1]["loss"])


def regression() -> Program:
    """So many rows that a plan sums gradients over them."""

    def loss_of(params: Any, batch: Any) -> Any:
        return jnp.mean((batch[0] @ params["w"] - batch[1]) ** 2)

    return last(loss_of, {"w": normal(1, WIDTH, 4)}, (normal(3, 65536, WIDTH), normal(4, 65536, 4)))


def norm(x: Any, gain: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * gain


def block(x: Any, layer: Any, mask: Any = None) -> Any:
    h = norm(x, layer["g1"])
    q, k, v = (jnp.einsum("bsd,dhc->bshc", h, layer[name]) for name in "qkv")
    scores = jnp.einsum("bqhc,bkhc->bhqk", q, k) / 2.0
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    seen = causal if mask is None else causal & mask[:, None, None, :]
    x = x + jnp.einsum("bhqk,bkhc,hcd->bqd", jax.nn.softmax(jnp.where(seen, scores, -1e9), -1), v, layer["o"])
    return x + jax.nn.gelu(norm(x, layer["g2"]) @ layer["up"]) @ layer["down"]


def layers(count: int) -> Any:
    def one(seed: int) -> Any:
        heads = {name: normal(seed + n, WIDTH, 4, 4) for n, name in enumerate("qkv")}
        rest = {"o": normal(seed + 3, 4, 4, WIDTH), "up": normal(seed + 4, WIDTH, 32), "down": normal(seed + 5, 32, WIDTH)}
        return {**heads, **rest, "g1": jnp.ones(WIDTH), "g2": jnp.ones(WIDTH)}

    return [one(10 * n) for n in range(1, count + 1)]


def cross_entropy(logits: Any, labels: Any) -> Any:
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def words(seed: int = 0) -> dict[str, Any]:
    key = jax.random.key(seed)
    tokens = jax.random.randint(key, (ROWS, LENGTH + 1), 0, WORDS)
    return {"x": tokens[:, :-1], "y": tokens[:, 1:]}


def unrolled() -> Program:
    params = {"embed": normal(7, WORDS, WIDTH), "layers": layers(2), "head": normal(8, WIDTH, WORDS)}

    def loss_of(params: Any, batch: Any) -> Any:
        x = params["embed"][batch["x"]]
        for layer in params["layers"]:
            x = block(x, layer)
        return cross_entropy(x @ params["head"], batch["y"])

    return last(loss_of, params, words())


def stacked() -> Any:
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers(2))
    return {"embed": normal(7, WORDS, WIDTH), "layers": together, "head": normal(8, WIDTH, WORDS)}


def scanned_loss(params: Any, batch: Any, remat: bool = False) -> Any:
    body = jax.checkpoint(block) if remat else block
    x, _ = jax.lax.scan(lambda x, layer: (body(x, layer), None), params["embed"][batch["x"]], params["layers"])
    return cross_entropy(x @ params["head"], batch["y"])


def scanned() -> Program:
    """The loss comes first."""
    inner, state = trained(scanned_loss, stacked())

    def step(params: Any, opt_state: Any, batch: Any) -> Any:
        params, opt_state, loss = inner(params, opt_state, batch)
        return loss, params, opt_state

    return Program(jax.jit(step, donate_argnums=(0, 1)), state, (words(),), lambda out: out[1:], lambda out: out[0])


def rematerialised() -> Program:
    return last(lambda params, batch: scanned_loss(params, batch, remat=True), stacked(), words())


def masters() -> Program:
    """Products in bfloat16, weights and their update in float32."""

    def loss_of(params: Any, batch: Any) -> Any:
        low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
        return scanned_loss(low, batch).astype(jnp.float32)

    return last(loss_of, stacked(), words())


def masked() -> Program:
    """Padding as an input of booleans; nothing is donated."""
    params = {"embed": normal(7, WORDS, WIDTH), "layer": layers(1)[0], "head": normal(8, WIDTH, WORDS)}

    def loss_of(params: Any, batch: Any) -> Any:
        x = block(params["embed"][batch["x"]], params["layer"], batch["mask"])
        each = jnp.where(batch["mask"], -jnp.take_along_axis(jax.nn.log_softmax(x @ params["head"]), batch["y"][..., None], -1)[..., 0], 0)
        return each.sum() / batch["mask"].sum()

    mask = jnp.arange(LENGTH)[None, :] < 3 + jnp.arange(ROWS)[:, None] % 5
    return last(loss_of, params, {**words(), "mask": mask}, donate=False)


def dropout() -> Program:
    """A typed key in the state, split in each step."""
    params = {"up": normal(1, WIDTH, 32), "down": normal(2, 32, WIDTH)}

    def loss_of(params: Any, batch: Any) -> Any:
        x, y, key = batch
        hidden = jax.nn.relu(x @ params["up"])
        kept = jax.random.bernoulli(key, 0.8, hidden.shape)
        return jnp.mean((jnp.where(kept, hidden / 0.8, 0) @ params["down"] - y) ** 2)

    inner, (params, opt_state) = trained(loss_of, params)

    def step(state: Any, batch: Any) -> Any:
        key, now = jax.random.split(state["key"])
        params, opt_state, loss = inner(state["params"], state["opt_state"], (*batch, now))
        return {"params": params, "opt_state": opt_state, "key": key}, loss

    state = {"params": params, "opt_state": opt_state, "key": jax.random.key(5)}
    batch = (normal(3, ROWS, WIDTH), normal(4, ROWS, WIDTH))
    return Program(jax.jit(step, donate_argnums=0), (state,), (batch,), lambda out: out[:1], lambda out: out[1])


def experts() -> Program:
    """Each token goes to its best two of four experts, by a table of weights."""
    params = {"gate": normal(1, WIDTH, 4), "up": normal(2, 4, WIDTH, 32), "down": normal(3, 4, 32, WIDTH)}

    def loss_of(params: Any, batch: Any) -> Any:
        x, y = batch
        scores, chosen = jax.lax.top_k(x @ params["gate"], 2)
        share = (jax.nn.softmax(scores)[..., None] * jax.nn.one_hot(chosen, 4)).sum(-2)
        hidden = jax.nn.gelu(jnp.einsum("bd,edf->ebf", x, params["up"]))
        out = jnp.einsum("ebf,efd,be->bd", hidden, params["down"], share)
        return jnp.mean((out - y) ** 2)

    return last(loss_of, params, (normal(5, ROWS, WIDTH), normal(6, ROWS, WIDTH)))


def accumulated() -> Program:
    """Plain gradients, summed over two pieces of the batch by a scan; the update is written out."""
    params = {"w": normal(1, WIDTH, 32), "v": normal(2, 32, WIDTH)}

    def loss_of(params: Any, piece: Any) -> Any:
        x, y = piece
        return jnp.mean((jnp.sin(x @ params["w"]) @ params["v"] - y) ** 2)

    def step(params: Any, batch: Any) -> Any:
        def add(total: Any, piece: Any) -> Any:
            loss, gradients = jax.value_and_grad(loss_of)(params, piece)
            return jax.tree.map(jnp.add, total, gradients), loss

        gradients, losses = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), batch)
        return jax.tree.map(lambda p, g: p - 0.05 * g, params, gradients), losses.mean()

    batch = (normal(3, 2, ROWS, WIDTH), normal(4, 2, ROWS, WIDTH))
    return Program(jax.jit(step, donate_argnums=0), (params,), (batch,), lambda out: out[:1], lambda out: out[1])


def images() -> tuple[Any, Any]:
    return normal(3, ROWS, 8, 8, 2), jnp.arange(ROWS) % 4


def linen() -> Program:
    """Convolution, batch norm with running statistics, and pooling, under Flax's TrainState."""
    from flax import linen as nn
    from flax.training.train_state import TrainState

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(4, (3, 3))(x)
            x = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9)(x))
            x = nn.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
            return nn.Dense(4)(x)

    class State(TrainState):
        batch_stats: Any

    net = Net()
    batch = images()
    made = net.init(jax.random.key(0), batch[0])
    state = State.create(apply_fn=net.apply, params=made["params"], batch_stats=made["batch_stats"], tx=optimizer())

    def step(state: Any, batch: Any) -> Any:
        def loss_of(params: Any) -> Any:
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, changed = state.apply_fn(variables, batch[0], mutable=["batch_stats"])
            return cross_entropy(logits, batch[1]), changed["batch_stats"]

        (loss, stats), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        return state.apply_gradients(grads=gradients, batch_stats=stats), loss

    return Program(jax.jit(step, donate_argnums=0), (state,), (batch,), lambda out: out[:1], lambda out: out[1])


def nnx() -> Program:
    """The modules of Flax nnx, split into their state and merged in the step."""
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            # A bias before batch norm has rounding for a gradient, which Adam scales to whole steps.
            self.conv = nnx.Conv(2, 4, (3, 3), use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(4, momentum=0.9, rngs=rngs)
            self.head = nnx.Linear(4 * 4 * 4, 4, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = nnx.relu(self.norm(self.conv(x)))
            return self.head(nnx.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1))

    net = Net(nnx.Rngs(0))
    graph, state = nnx.split((net, nnx.Optimizer(net, optimizer(), wrt=nnx.Param)))

    def step(state: Any, batch: Any) -> Any:
        net, chain = nnx.merge(graph, state)
        loss, gradients = nnx.value_and_grad(lambda net: cross_entropy(net(batch[0]), batch[1]))(net)
        chain.update(net, gradients)
        return nnx.state((net, chain)), loss

    return Program(jax.jit(step, donate_argnums=0), (state,), (images(),), lambda out: out[:1], lambda out: out[1])


def equinox() -> Program:
    """A module of Equinox as it is, with its activation functions among the leaves."""
    import equinox as eqx

    chain = optimizer()
    model = eqx.nn.MLP(WIDTH, WIDTH, 32, 2, key=jax.random.key(0))

    @eqx.filter_jit
    def step(model: Any, opt_state: Any, batch: Any) -> Any:
        x, y = batch
        loss, gradients = eqx.filter_value_and_grad(lambda model: jnp.mean((jax.vmap(model)(x) - y) ** 2))(model)
        updates, opt_state = chain.update(gradients, opt_state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), opt_state, loss

    state = (model, chain.init(eqx.filter(model, eqx.is_inexact_array)))
    batch = (normal(3, ROWS, WIDTH), normal(4, ROWS, WIDTH))
    return Program(step, state, (batch,), lambda out: out[:2], lambda out: out[2])


PROGRAMS: dict[str, Callable[[], Program]] = {
    "mlp": mlp,
    "transformer, unrolled": unrolled,
    "transformer, scanned, loss first": scanned,
    "transformer, rematerialised": rematerialised,
    "transformer, float32 masters": masters,
    "padding masks": masked,
    "dropout": dropout,
    "mixture of experts": experts,
    "accumulated gradients": accumulated,
    "Flax linen": linen,
    "Flax nnx": nnx,
    "Equinox": equinox,
}
NEEDS = {"Flax linen": "flax", "Flax nnx": "flax", "Equinox": "equinox"}
