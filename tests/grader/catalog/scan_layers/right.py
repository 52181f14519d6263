"""Right answers to scan_layers, spelled in many ways."""

import functools

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def layer(w, x):
    return x + jnp.sin(w @ jnp.sin(x))


@passes
def checkpointed_layer(ws, x):
    return jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(w, x), None), x, ws)[0]


@passes
def checkpointed_body(ws, x):
    @jax.jit
    @functools.partial(jax.remat, prevent_cse=False)
    def body(x, w):
        x = x + jnp.sin(jnp.einsum("ij,j->i", w, jnp.sin(x)))
        return x, x.sum()

    return jax.lax.scan(body, x, ws)[0]


@passes
def weights_by_number(ws, x):
    return jax.lax.fori_loop(0, len(ws), lambda i, x: jax.checkpoint(lambda x: layer(ws[i], x))(x), x)


@passes
def last_of_all_outputs(ws, x):
    return jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(w, x),) * 2, x, ws)[1][-1]


@passes
def inputs_named(ws, x):
    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names("input"))
    def net(ws, x):
        return jax.lax.scan(lambda x, w: (layer(w, checkpoint_name(x, "input")), None), x, ws)[0]

    return net(ws, x)


@passes
def by_hand(ws, x):
    @jax.custom_vjp
    def net(ws, x):
        return jax.lax.scan(lambda x, w: (layer(w, x), None), x, ws)[0]

    def forward(ws, x):
        x, inputs = jax.lax.scan(lambda x, w: (layer(w, x), x), x, ws)
        return x, (ws, inputs)

    def backward(kept, ct):
        def back(ct, w_x):
            dw, dx = jax.vjp(layer, *w_x)[1](ct)
            return dx, dw

        return jax.lax.scan(back, ct, kept, reverse=True)[::-1]

    net.defvjp(forward, backward)
    return net(ws, x)


@passes
def linen_modules(ws, x):
    class Layer(nn.Module):
        def __call__(self, x, w):
            return layer(w, x), None

    layers = nn.scan(nn.remat(Layer, prevent_cse=False), variable_broadcast=False, split_rngs={})
    return layers().apply({}, x, ws)[0]


@passes
def equinox_modules(ws, x):
    class Layer(eqx.Module):
        w: jax.Array

        def __call__(self, x):
            return layer(self.w, x)

    arrays, others = eqx.partition(Layer(ws), eqx.is_array)
    return jax.lax.scan(lambda x, own: (eqx.filter_checkpoint(eqx.combine(own, others))(x), None), x, arrays)[0]


@passes
def columns(ws, x):
    return jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(w, x), None), x[:, None], ws)[0].squeeze(1)


@passes
def products_in_float32(ws, x):
    @jax.checkpoint
    def body(x, w):
        product = jnp.dot(w, jnp.sin(x), preferred_element_type=jnp.float32)
        return x + jnp.sin(product).astype(x.dtype), None

    return jax.lax.scan(body, x, ws)[0]
