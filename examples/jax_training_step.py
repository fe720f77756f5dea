"""A training step in JAX through the attention of regard, one compiled program: two layers learn to repeat a text.

Tiny, with random weights and data: nothing is downloaded. Needs ``pip install jax``.
"""

from typing import Any

import jax
import jax.numpy as jnp

import regard.jax

VOCABULARY, WIDTH, HEADS, LAYERS, PERIOD, LENGTH, BATCH = 16, 32, 4, 2, 8, 24, 16


def draw_parameters(key: jax.Array) -> Any:
    """Return embeddings of tokens and positions, and the layers, stacked so that they can be scanned."""
    shapes = {
        "tokens": (VOCABULARY, WIDTH),
        "positions": (LENGTH, WIDTH),
        "layers": {
            "qkv": (LAYERS, WIDTH, 3 * WIDTH),
            "out": (LAYERS, WIDTH, WIDTH),
            "up": (LAYERS, WIDTH, 4 * WIDTH),
            "down": (LAYERS, 4 * WIDTH, WIDTH),
        },
    }
    leaves, tree = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, shape) * shape[-2] ** -0.5 for k, shape in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, drawn)


def normalize(x: jax.Array) -> jax.Array:
    """Return x with a mean square of 1."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def layer(x: jax.Array, weights: Any) -> tuple[jax.Array, None]:
    """Return the next layer's embeddings of one text, T E."""
    q, k, v = jnp.split(normalize(x) @ weights["qkv"], 3, axis=-1)
    q, k, v = (jnp.swapaxes(y.reshape(len(x), HEADS, -1), 0, 1) for y in (q, k, v))  # H T D
    context = regard.jax.attention(q, k, v, causal=True)
    x = x + jnp.swapaxes(context, 0, 1).reshape(x.shape) @ weights["out"]
    return x + jax.nn.gelu(normalize(x) @ weights["up"]) @ weights["down"], None


def loss_of(parameters: Any, ids: jax.Array) -> jax.Array:
    """Return the mean loss of the next tokens that repeat an earlier one, of one text."""
    x = parameters["tokens"][ids] + parameters["positions"]
    x, _ = jax.lax.scan(jax.checkpoint(layer), x, parameters["layers"])
    logs = jax.nn.log_softmax(normalize(x) @ parameters["tokens"].T)
    return -jnp.take_along_axis(logs[PERIOD - 1 : -1], ids[PERIOD:, None], axis=-1).mean()


@jax.jit  # type: ignore[untyped-decorator]
def step(parameters: Any, momentum: Any, key: jax.Array) -> tuple[Any, Any, jax.Array]:
    """Return parameters and momentum after a step of Adam without its first moment, and the loss before it."""
    texts = jnp.tile(jax.random.randint(key, (BATCH, PERIOD), 0, VOCABULARY), (1, LENGTH // PERIOD))
    loss, gradients = jax.value_and_grad(lambda p: jax.vmap(loss_of, (None, 0))(p, texts).mean())(parameters)
    momentum = jax.tree.map(lambda m, g: 0.95 * m + 0.05 * g * g, momentum, gradients)
    parameters = jax.tree.map(lambda p, g, m: p - 3e-3 * g / (jnp.sqrt(m) + 1e-8), parameters, gradients, momentum)
    return parameters, momentum, loss


def main() -> None:
    """Train, and print how the loss falls."""
    parameters = draw_parameters(jax.random.key(0))
    momentum = jax.tree.map(jnp.ones_like, parameters)
    losses = []
    for key in jax.random.split(jax.random.key(1), 300):
        parameters, momentum, loss = step(parameters, momentum, key)
        losses.append(float(loss))
    print(f"loss: {losses[0]:.3f} at first, {sum(losses[-10:]) / 10:.3f} after {len(losses)} steps")


if __name__ == "__main__":
    main()
