"""Right answers to fsdp_layers, spelled in many ways."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies
saving_h = functools.partial(jax.checkpoint, policy=policies.save_only_these_names("h"))


def constrained(array, mesh, *axes):
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, P(*axes)))


def gathered(weight, mesh):
    return constrained(constrained(weight, mesh, "devices"), mesh)


def plain(x, up, down):
    return x + jnp.sin(checkpoint_name(x @ up, "h")) @ down


def scanned(layer, params, x, **options):
    return jax.lax.scan(lambda x, weights: (layer(x, *weights), None), x, params, **options)[0]


@passes
def no_barrier_in_the_scan(params, x, mesh):
    def body(x, weights):
        return plain(x, *(gathered(w, mesh) for w in weights)), ()

    policy = policies.save_only_these_names("h")
    return jax.lax.scan(jax.checkpoint(body, policy=policy, prevent_cse=False), x, params)[0]


@passes
def matmuls_saved_by_kind(params, x, mesh):
    def layer(x, up, down):
        return x + jnp.sin(x @ gathered(up, mesh)) @ gathered(down, mesh)

    return scanned(jax.checkpoint(layer, policy=policies.dots_saveable), params, x)


@passes
def specs_for_the_mesh_in_context(params, x, mesh):
    def whole(weight):
        return jax.lax.with_sharding_constraint(jax.lax.with_sharding_constraint(weight, P("devices")), P())

    return scanned(saving_h(lambda x, *weights: plain(x, *map(whole, weights))), params, x)


@passes
def stacks_sharded_before_the_loop(params, x, mesh):
    """The transpose of the constraint on the stack shards the gradients of all layers."""
    params = constrained(params, mesh, None, "devices")
    return scanned(saving_h(lambda x, *weights: plain(x, *constrained(weights, mesh))), params, x)


@passes
def rows_sharded_in_each_layer(params, x, mesh):
    def layer(x, *weights):
        x = constrained(x, mesh, "devices")
        return constrained(plain(x, *gathered(weights, mesh)), mesh, "devices", None)

    return scanned(saving_h(layer), params, constrained(x, mesh, "devices"))


@passes
def one_checkpoint_per_matmul(params, x, mesh):
    def layer(x, up, down):
        h = jax.checkpoint(lambda x, up: x @ gathered(up, mesh))(x, up)
        return x + jax.checkpoint(lambda h, down: jnp.sin(h) @ gathered(down, mesh))(h, down)

    return scanned(layer, params, x)


@passes
def gathered_as_columns(params, x, mesh):
    """The weights are transposed before they are gathered."""

    def layer(x, up, down):
        up, down = (constrained(constrained(w.T, mesh, None, "devices"), mesh) for w in (up, down))
        h = checkpoint_name(jnp.einsum("nd,md->nm", x, up), "h")
        return x + jnp.einsum("nm,dm->nd", jnp.sin(h), down)

    return scanned(saving_h(layer), params, x)


@passes
def one_gather_of_both_weights(params, x, mesh):
    def layer(x, up, down):
        both = gathered(jnp.concatenate([up.ravel(), down.ravel()]), mesh)
        return plain(x, both[: up.size].reshape(up.shape), both[up.size :].reshape(down.shape))

    return scanned(saving_h(layer), params, x)


@passes
def two_layers_per_iteration(params, x, mesh):
    layer = saving_h(lambda x, *weights: plain(x, *gathered(weights, mesh)))
    return scanned(layer, params, x, unroll=2)


@passes
def layers_by_number(params, x, mesh):
    """The loop runs over the layers' numbers, and the checkpointed function selects a layer."""

    @saving_h
    def layer(x, params, i):
        return plain(x, *(gathered(stack[i], mesh) for stack in params))

    return jax.lax.scan(lambda x, i: (layer(x, params, i), None), x, jnp.arange(len(params[0])))[0]


@passes
def by_hand(params, x, mesh):
    @jax.custom_vjp
    def layer(x, up, down):
        return plain(x, gathered(up, mesh), gathered(down, mesh))

    def forward(x, up, down):
        h = x @ gathered(up, mesh)
        return x + jnp.sin(h) @ gathered(down, mesh), (x, h, up, down)

    def backward(saved, ct):
        x, h, up, down = saved
        of_h = jnp.cos(h) * (ct @ gathered(down, mesh).T)
        gradients = (constrained(g, mesh, "devices") for g in (x.T @ of_h, jnp.sin(h).T @ ct))
        return ct + of_h @ gathered(up, mesh).T, *gradients

    layer.defvjp(forward, backward)
    return scanned(layer, params, x)


@passes
def gradient_constrained_by_hand(params, x, mesh):
    """A rule for the gradient takes the place of the first constraint."""

    @jax.custom_vjp
    def whole(weight):
        return constrained(weight, mesh)

    whole.defvjp(lambda weight: (whole(weight), None), lambda _, ct: (constrained(ct, mesh, "devices"),))
    return scanned(saving_h(lambda x, *weights: plain(x, *map(whole, weights))), params, x)


@passes
def nnx_remat(params, x, mesh):
    @nnx.remat(policy=policies.save_only_these_names("h"))
    def layer(x, up, down):
        return plain(x, gathered(up, mesh), gathered(down, mesh))

    return scanned(layer, params, x)


@passes
def jit_around_one_layer(params, x, mesh):
    layer = jax.jit(lambda x, *weights: plain(x, *gathered(weights, mesh)))
    return scanned(saving_h(layer), params, x)
