"""Right answers to gather_again, spelled in many ways."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies


def gathered(w):
    return jax.lax.all_gather(w, "devices", tiled=True)


@passes
@functools.partial(jax.checkpoint, policy=policies.dots_saveable)
def products_saved_by_kind(params, x):
    return x + jnp.sin(x @ gathered(params[0])) @ gathered(params[1])


@passes
@functools.partial(jax.checkpoint, policy=policies.save_only_these_names("product"))
def other_names_not_saved(params, x):
    up, down = (checkpoint_name(gathered(part), "weight") for part in params)
    return x + jnp.sin(checkpoint_name(x @ up, "product")) @ down


@passes
def one_checkpoint_a_product(params, x):
    up, down = params
    h = jax.checkpoint(lambda up, x: x @ gathered(up))(up, x)
    return x + jax.checkpoint(lambda down, h: jnp.sin(h) @ gathered(down))(down, h)


@passes
@functools.partial(jax.checkpoint, policy=lambda operation, *_, **__: operation.name == "dot_general")
def policy_of_ones_own(params, x):
    up, down = params
    whole = [jnp.reshape(jax.lax.all_gather(part, "devices"), (-1, part.shape[1])) for part in (up, down)]
    return x + jnp.sin(jnp.einsum("nd,dm->nm", x, whole[0])) @ whole[1]


@passes
def by_hand(params, x):
    @jax.custom_vjp
    def layer(up, down, x):
        return x + jnp.sin(x @ gathered(up)) @ gathered(down)

    def forward(up, down, x):
        h = x @ gathered(up)
        return x + jnp.sin(h) @ gathered(down), (up, down, x, h)

    def backward(kept, ct):
        up, down, x, h = kept
        of_h = jnp.cos(h) * (ct @ gathered(down).T)
        parts = (jax.lax.psum_scatter(whole, "devices", tiled=True) for whole in (x.T @ of_h, jnp.sin(h).T @ ct))
        return *parts, ct + of_h @ gathered(up).T

    layer.defvjp(forward, backward)
    return layer(*params, x)


@passes
def round_in_a_ring(params, x):
    to_the_left = [(device, (device - 1) % 8) for device in range(8)]

    def gathered(part):
        parts = [part]
        while len(parts) < 8:
            parts.append(jax.lax.ppermute(parts[-1], "devices", to_the_left))
        return jnp.roll(jnp.concatenate(parts), jax.lax.axis_index("devices") * len(part), axis=0)

    def layer(params, x):
        up, down = map(gathered, params)
        return x + jnp.sin(checkpoint_name(x @ up, "h")) @ down

    return jax.checkpoint(layer, policy=policies.save_only_these_names("h"))(params, x)


@passes
def nnx_remat(params, x):
    @nnx.remat(policy=policies.save_only_these_names("kept"))
    def layer(up, down, x):
        return x + jnp.sin(checkpoint_name(x @ gathered(up), "kept")) @ gathered(down)

    return layer(*params, x)


@passes
def a_sum_of_what_each_has_put_in_its_place(params, x):
    def whole(part):
        places = jnp.zeros((8, *part.shape), part.dtype)
        mine = jax.lax.dynamic_update_index_in_dim(places, part, jax.lax.axis_index("devices"), 0)
        return jax.lax.psum(mine, "devices").reshape(-1, part.shape[-1])

    def layer(params, x):
        h = checkpoint_name(x @ whole(params[0]), "h")
        return x + jnp.sin(h) @ whole(params[1])

    return jax.checkpoint(layer, policy=policies.save_only_these_names("h"))(params, x)


@passes
def never_one_weight(params, x):
    """The devices' shards stay separate, along an axis that the matmuls contract."""

    def layer(params, x):
        up, down = (jax.lax.all_gather(part, "devices") for part in params)
        h = checkpoint_name(jnp.einsum("ndu,dum->nm", x.reshape(len(x), 8, -1), up), "h")
        return x + jnp.einsum("ndv,dvm->nm", jnp.sin(h).reshape(len(x), 8, -1), down)

    return jax.checkpoint(layer, policy=policies.save_only_these_names("h"))(params, x)
