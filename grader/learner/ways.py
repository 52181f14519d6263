"""Ways that chapters compare before an exercise asks for one like them: what a page would give away stands here.

They take the layer, or the loss, from the page: so what they keep is found on the page's own lines.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

type Wrap = Callable[[Callable], Callable]  # jax.checkpoint, or it with a policy; or what changes nothing


def plain(f: Callable) -> Callable:
    """Where there is to be no checkpoint."""
    return f


def checkpoint_each(layer: Callable) -> Callable:
    """Three layers one after another, each in a checkpoint: takes three weights and x."""

    def each_layer(W1, W2, W3, x):
        for W in (W1, W2, W3):
            x = jax.checkpoint(layer)(W, x)
        return x

    return each_layer


def in_a_scan(layer: Callable, wrap: Wrap = plain, unroll: int = 1) -> Callable:
    """Layers in a scan, whose body is wrapped: takes stacked weights, `(layers, …)`, and x."""

    def run(Ws, x):
        @wrap
        def body(x, W):
            return layer(W, x), None

        return jax.lax.scan(body, x, Ws, unroll=unroll)[0]

    return run


def in_groups(layer: Callable, around_group: Wrap, around_layer: Wrap) -> Callable:
    """Layers in a scan within a scan: takes weights as groups, `(groups, layers of a group, …)`, and x."""

    def run(Ws, x):
        @around_layer
        def one(x, W):
            return layer(W, x), None

        @around_group
        def group(x, Ws):
            return jax.lax.scan(one, x, Ws)[0], None

        return jax.lax.scan(group, x, Ws)[0]

    return run


def in_three_scans(step: Callable) -> Callable:
    """A chain of 512 steps as three scans in each other, of eight turns each: takes x."""

    def part(x, inside):
        return jax.lax.scan(lambda x, _: (inside(x), None), x, length=8)[0]

    eight = jax.checkpoint(lambda x: part(x, step))
    sixty_four = jax.checkpoint(lambda x: part(x, eight))
    return lambda x: part(x, sixty_four)


def halves(n: int) -> str:
    """Chapter 9's plan for a chain of n steps, a power of two: one half in a checkpoint, and so in each half."""
    return "·" * n if n <= 2 else f"({halves(n // 2)}){halves(n // 2)}"


def input_named(layer: Callable, name: str, policy: Callable) -> Callable:
    """A layer of a weight and x, in a checkpoint with a policy that finds x under a name."""
    return jax.checkpoint(lambda W, x: layer(W, checkpoint_name(x, name)), policy=policy)


def accumulated(loss: Callable, parts: int) -> Callable:
    """The gradient of a mean over all rows, part by part: takes params and an array whose rows the parts divide."""

    def gradients(params: Any, rows: jax.Array) -> Any:
        def add(total, part):
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, part)), None

        nothing = jax.tree.map(jnp.zeros_like, params)
        total, _ = jax.lax.scan(add, nothing, rows.reshape(parts, -1, *rows.shape[1:]))
        return jax.tree.map(lambda gradient: gradient / parts, total)

    return gradients


def in_chunks(loss: Callable, chunks: int) -> Callable:
    """A sum over tokens, chunk by chunk: takes x `[…, width]`, a table, and labels `[…]`, which chunks divide."""

    def summed(x, table, labels):
        @jax.checkpoint
        def one(total, part):
            return total + loss(part[0], table, part[1]), None

        parts = x.reshape(chunks, -1, x.shape[-1]), labels.reshape(chunks, -1)
        return jax.lax.scan(one, jnp.float32(0), parts)[0]

    return summed
