"""Wrong answers to fsdp_layers, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
saving = policies.save_only_these_names
SAVING_H = saving("h")
saving_h = functools.partial(jax.checkpoint, policy=SAVING_H)


def constrained(array, mesh, *axes):
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, P(*axes)))


def gathered(weight, mesh):
    return checkpoint_name(constrained(constrained(weight, mesh, "devices"), mesh), "weight")


def plain(x, up, down):
    return x + jnp.sin(checkpoint_name(x @ up, "h")) @ down


def scanned(layer, params, x):
    return jax.lax.scan(lambda x, weights: (layer(x, *weights), None), x, params)[0]


def right(params, x, mesh, whole=gathered, policy=SAVING_H, layer=plain):
    def one(x, *weights):
        return layer(x, *(whole(w, mesh) for w in weights))

    return scanned(jax.checkpoint(one, policy=policy), params, x)


@fails_with(
    "also saved", "a copy of up", "a copy of down", "every layer's cosine of h", hint="forward_pass_saves_weights"
)
def no_checkpoint(params, x, mesh):
    return scanned(lambda x, *weights: plain(x, *(gathered(w, mesh) for w in weights)), params, x)


@fails_with("also saved", "every layer's cosine of h", hint="forward_pass_saves_extra_value")
def sine_outside(params, x, mesh):
    product = jax.checkpoint(lambda x, w: x @ gathered(w, mesh))
    return scanned(lambda x, up, down: x + product(jnp.sin(product(x, up)), down), params, x)


@fails_with("also saved", "a copy of up", "in float16", hint="forward_pass_saves_weights")
def no_checkpoint_in_float16(params, x, mesh):
    return (no_checkpoint if x.dtype == jnp.float16 else right)(params, x, mesh)


@fails_with("also saved", "intermediate values", hint="separate_arrays_for_each_layer")
def unrolled(params, x, mesh):
    layer = jax.checkpoint(lambda x, *w: plain(x, *gathered(w, mesh)), policy=SAVING_H)
    for weights in zip(*params, strict=True):
        x = layer(x, *weights)
    return x


@fails_with("not saved", "every layer's h", hint="forward_pass_not_save_h")
def no_policy(params, x, mesh):
    return right(params, x, mesh, policy=None)


@fails_with("gathers", "at once", "inside or outside the loop over layers", hint="several_layers_at_once")
def all_layers_gathered_in_a_checkpoint(params, x, mesh):
    """The backward pass gathers the stacks of all layers again, before its loop."""
    save = functools.partial(jax.checkpoint, policy=saving("h", "x"))

    @save
    def layers(params, x):
        whole = jax.tree.map(lambda w: constrained(constrained(w, mesh, None, "devices"), mesh), params)
        return scanned(save(lambda x, *w: plain(checkpoint_name(x, "x"), *w)), whole, x)

    return layers(params, x)


@fails_with("gathers", "backward pass gather", "makes each weight whole", hint="count_gathers_per_pass")
def gathered_in_the_forward_pass_alone(params, x, mesh):
    """A rule of its own multiplies by the shards in the backward pass."""

    @jax.custom_vjp
    def product(x, w):
        return x @ gathered(w, mesh)

    def backward(saved, ct):
        x, w = saved
        return ct @ w.T, constrained(x.T @ ct, mesh, "devices")

    product.defvjp(lambda x, w: (product(x, w), (x, w)), backward)

    @saving_h
    def layer(x, up, down):
        return x + product(jnp.sin(checkpoint_name(product(x, up), "h")), down)

    return scanned(layer, params, x)


@fails_with("gathers", "forward pass gather", "although it is not a weight", hint="count_gathers_per_pass")
def rows_gathered_too(params, x, mesh):
    return right(params, x, mesh, layer=lambda x, up, down: plain(constrained(x, mesh), up, down))


@fails_with(
    "gathers", "backward pass gather", "gather twice", hint="count_gathers_per_pass", beyond="GathersLayers.times"
)
def up_gathered_once_more(params, x, mesh):
    def one(x, up, down):
        x = also_run_backward(lambda w: gathered(w, mesh), x, up)
        return plain(x, gathered(up, mesh), gathered(down, mesh))

    return scanned(jax.checkpoint(one, policy=SAVING_H), params, x)


@fails_with(
    "recomputes",
    "Which matmul does the backward pass recompute",
    hint="count_matmuls_of_a_layer",
    beyond="Recomputes.count",
    steps=12,
)
def h_once_more(params, x, mesh):
    def more(x, up, down):
        return plain(also_run_backward(jnp.matmul, x, x, up), up, down)

    return right(params, x, mesh, layer=more)


@fails_with("gathers", "whole gradient of up and down", "the last one on the gradient's path", hint="gradient_is_whole")
def constrained_to_whole_weights_alone(params, x, mesh):
    return right(params, x, mesh, whole=lambda w, mesh: constrained(w, mesh))


@fails_with("gathers", "whole gradient of down", hint="gradient_is_whole")
def gradient_of_down_is_whole(params, x, mesh):
    def one(x, up, down):
        return plain(x, gathered(up, mesh), constrained(down, mesh))

    return scanned(jax.checkpoint(one, policy=SAVING_H), params, x)


@fails_with("gathers", "forward pass gather 0 B", "Which matmul uses its result", hint="count_gathers_per_pass")
def sharded_again_before_the_matmul(params, x, mesh):
    return right(params, x, mesh, whole=lambda w, mesh: constrained(gathered(w, mesh), mesh, "devices"))


@fails_with("wrong value", "does not add `x`", hint="results_do_not_depend_on_sharding")
def nothing_added(params, x, mesh):
    return right(params, x, mesh, layer=lambda x, up, down: plain(x, up, down) - x)


@fails_with("wrong value", "runs the last layer first", hint="results_do_not_depend_on_sharding")
def last_layer_first(params, x, mesh):
    return right(jax.tree.map(lambda w: w[::-1], params), x, mesh)


@fails_with("wrong value", "first layer's weights in every layer", hint="results_do_not_depend_on_sharding")
def first_layer_each_time(params, x, mesh):
    first = jax.tree.map(lambda w: w[0], params)
    layer = saving_h(lambda x: plain(x, *(gathered(w, mesh) for w in first)))
    return jax.lax.scan(lambda x, _: (layer(x), None), x, None, length=len(params[0]))[0]


@fails_with("wrong value", "does not run the last layer", hint="results_do_not_depend_on_sharding")
def without_the_last_layer(params, x, mesh):
    return right(jax.tree.map(lambda w: w[:-1], params), x, mesh)


@fails_with("wrong gradient", " up", "zero everywhere", hint="gradients_do_not_depend_on_sharding")
def weights_stopped(params, x, mesh):
    return right(params, x, mesh, whole=lambda w, mesh: jax.lax.stop_gradient(gathered(w, mesh)))


@fails_with("wrong type", "f32[", hint="results_do_not_depend_on_sharding")
def all_carries_returned(params, x, mesh):
    layer = saving_h(lambda x, *weights: plain(x, *(gathered(w, mesh) for w in weights)))

    def body(x, weights):
        y = layer(x, *weights)
        return y, y

    return jax.lax.scan(body, x, params)[1]


@fails_with("raises", "Which function states the sharding of an array", hint="results_do_not_depend_on_sharding")
def all_gather_outside_of_shard_map(params, x, mesh):
    return right(params, x, mesh, whole=lambda w, mesh: jax.lax.all_gather(w, "devices", tiled=True))


@fails_with("raises", "which dimension is sharded", hint="results_do_not_depend_on_sharding")
def axis_of_another_mesh(params, x, mesh):
    return right(params, x, mesh, whole=lambda w, mesh: constrained(constrained(w, mesh, "fsdp"), mesh))


@fails_with("raises", "Does your answer make another mesh", hint="results_do_not_depend_on_sharding")
def mesh_of_sixteen_devices(params, x, mesh):
    return right(params, x, jax.make_mesh((16,), ("devices",)))


@fails_with("raises", "What is the new carry", hint="results_do_not_depend_on_sharding")
def result_without_a_pair(params, x, mesh):
    return jax.lax.scan(lambda x, w: plain(x, *(gathered(each, mesh) for each in w)), x, params)[0]


@fails_with("raises", "Which line of your code unpacks this pair", hint="results_do_not_depend_on_sharding")
def three_weights(params, x, mesh):
    up, down, _ = params
    return right((up, down), x, mesh)


@fails_with("raises", "still have an axis for the layers", hint="results_do_not_depend_on_sharding")
def no_loop(params, x, mesh):
    return jax.checkpoint(plain, policy=SAVING_H)(x.T, *(gathered(w, mesh) for w in params))
