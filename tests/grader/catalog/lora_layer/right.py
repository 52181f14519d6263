"""Right answers to lora_layer, spelled in many ways."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.lax import stop_gradient
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies
keeping = policies.save_only_these_names


@passes
def checkpoint_after_h_without_names(frozen, adapters, x):
    """No names: `h` is an argument of the checkpoint, and the narrow values are results of matmuls."""
    frozen = jax.tree.map(stop_gradient, frozen)
    h = x @ frozen["up"]
    if "up" in adapters:
        h = h + x @ adapters["up"][0] @ adapters["up"][1]
    if "down" not in adapters:
        return jax.checkpoint(lambda h: jax.nn.silu(h) @ frozen["down"])(h)
    wide, narrow = jax.checkpoint(lambda h, a: (jax.nn.silu(h) @ frozen["down"], jax.nn.silu(h) @ a))(
        h, adapters["down"][0]
    )
    return wide + narrow @ adapters["down"][1]


@passes
def names_for_each_adapter(frozen, adapters, x):
    @functools.partial(jax.checkpoint, policy=keeping("h", "up_narrow", "down_narrow"))
    def layer(adapters, x):
        def multiply(x, which):
            y = x @ frozen[which]
            if which in adapters:
                a, b = adapters[which]
                y += jnp.einsum("nr,rm->nm", checkpoint_name(jnp.einsum("nd,dr->nr", x, a), f"{which}_narrow"), b)
            return y

        return multiply(nn.silu(checkpoint_name(multiply(x, "up"), "h")), "down")

    frozen = stop_gradient(frozen)
    return layer(adapters, x)


@passes
def no_gradient_by_a_rule(frozen, adapters, x):
    @jax.custom_jvp
    def constant(w):
        return w

    constant.defjvp(lambda primals, tangents: (primals[0], jnp.zeros_like(primals[0])))

    @functools.partial(jax.checkpoint, policy=keeping("keep"))
    def layer(frozen, adapters, x):
        for which in ("up", "down"):
            y = x @ constant(frozen[which])
            for a, b in [adapters[which]] if which in adapters else []:
                y = y + checkpoint_name(x @ a, "keep") @ b
            x = jax.nn.silu(checkpoint_name(y, "keep")) if which == "up" else y
        return x

    return layer(frozen, adapters, x)


@passes
def silu_spelled_out(frozen, adapters, x):
    @functools.partial(jax.checkpoint, policy=keeping("h", "r"))
    def layer(frozen, adapters, x):
        def of(x, which):
            y = x @ jax.lax.stop_gradient(frozen[which])
            return y + checkpoint_name(x @ adapters[which][0], "r") @ adapters[which][1] if which in adapters else y

        h = checkpoint_name(of(x, "up"), "h")
        return of(h * jax.nn.sigmoid(h), "down")

    return layer(frozen, adapters, x)


@passes
def two_checkpoints(frozen, adapters, x):
    def of(x, which):
        y = x @ stop_gradient(frozen[which])
        return y + checkpoint_name(x @ adapters[which][0], "low") @ adapters[which][1] if which in adapters else y

    h = of(x, "up")
    return jax.checkpoint(lambda h, adapters: of(jax.nn.silu(h), "down"), policy=keeping("low"))(h, adapters)


@passes
def matmuls_and_names(frozen, adapters, x):
    """The policy returns True for the matmul `x @ up` too; with `h` saved, no gradient needs it, so JAX drops it."""
    both = policies.save_from_both_policies(policies.dots_with_no_batch_dims_saveable, keeping("h"))

    @functools.partial(jax.checkpoint, policy=both)
    def layer(adapters, x):
        def of(x, which):
            y = x @ stop_gradient(frozen[which])
            return y + x @ adapters[which][0] @ adapters[which][1] if which in adapters else y

        return of(jax.nn.silu(checkpoint_name(of(x, "up"), "h")), "down")

    return layer(adapters, x)


@passes
def linen_module(frozen, adapters, x):
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, frozen, adapters, x):
            def of(x, which):
                y = jnp.dot(x, stop_gradient(frozen[which]))
                if which not in adapters:
                    return y
                return y + jnp.dot(checkpoint_name(jnp.dot(x, adapters[which][0]), "low"), adapters[which][1])

            return of(nn.silu(checkpoint_name(of(x, "up"), "h")), "down")

    return nn.remat(Layer, policy=keeping("h", "low"))().apply({}, frozen, adapters, x)


@passes
def nnx_remat(frozen, adapters, x):
    @nnx.remat(policy=keeping("h", "low"))
    def layer(adapters, x):
        def of(x, which):
            y = x @ stop_gradient(frozen[which])
            return y + checkpoint_name(x @ adapters[which][0], "low") @ adapters[which][1] if which in adapters else y

        return of(jax.nn.silu(checkpoint_name(of(x, "up"), "h")), "down")

    return layer(adapters, x)


@passes
def by_hand(frozen, adapters, x):
    @jax.custom_vjp
    def layer(frozen, adapters, x):
        return forward(frozen, adapters, x)[0]

    def forward(frozen, adapters, x):
        narrow = {}

        def of(x, which):
            y = x @ frozen[which]
            if which in adapters:
                narrow[which] = x @ adapters[which][0]
                y = y + narrow[which] @ adapters[which][1]
            return y

        h = of(x, "up")
        return of(jax.nn.silu(h), "down"), (frozen, adapters, x, h, narrow)

    def backward(kept, ct):
        frozen, adapters, x, h, narrow = kept
        grads = {}

        def of(ct, which, x):
            gradient = ct @ frozen[which].T
            if which in adapters:
                a, b = adapters[which]
                low = ct @ b.T
                grads[which] = (x.T @ low, narrow[which].T @ ct)
                gradient = gradient + low @ a.T
            return gradient

        activated, pullback = jax.vjp(jax.nn.silu, h)
        (ct,) = pullback(of(ct, "down", activated))
        return jax.tree.map(jnp.zeros_like, frozen), grads, of(ct, "up", x)

    layer.defvjp(forward, backward)
    return layer(frozen, adapters, x)
