"""Wrong answers to gather_again, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
keeping = policies.save_only_these_names


def gathered(w):
    return checkpoint_name(jax.lax.all_gather(w, "devices", tiled=True), "gathered")


def layer(params, x, whole=gathered):
    up, down = map(whole, params)
    return x + jnp.sin(checkpoint_name(x @ up, "h")) @ down


def right(params, x, whole=gathered):
    return jax.checkpoint(functools.partial(layer, whole=whole), policy=keeping("h"))(params, x)


@fails_with("also saved", "the gathered up", "the gathered down", hint="forward_pass_saves_gathered_weight")
def no_checkpoint(params, x):
    return layer(params, x)


@fails_with("also saved", "the cosine of h", hint="forward_pass_saves_extra_value")
def sine_outside(params, x):
    up, down = params
    product = jax.checkpoint(lambda w, x: x @ gathered(w))
    return x + product(down, jnp.sin(product(up, x)))


@fails_with("not saved", "h, f32[", hint="forward_pass_not_save_so")
def misspelled(params, x):
    return jax.checkpoint(layer, policy=keeping("H"))(params, x)


@fails_with("wrong value", "only its own shards", "store the rows of `up` that", hint="write_down_shape_values_one")
def own_part_alone(params, x):
    return right(params, x, lambda w: jnp.concatenate([w] * 8))


@fails_with("wrong value", "the sum of all devices' shards", "Which collective", hint="write_down_shape_values_one")
def added_up(params, x):
    return right(params, x, lambda w: jnp.concatenate([jax.lax.psum(w, "devices")] * 8))


@fails_with("wrong value", "does not add `x`", hint="write_down_shape_values_one")
def nothing_added(params, x):
    return right(params, x) - x


@fails_with("wrong value", hint="write_down_shape_values_one")
def parts_in_the_opposite_order(params, x):
    return right(params, x, lambda w: gathered(w)[::-1])


@fails_with("raises", "Along which axis is each weight sharded", hint="write_down_shape_values_one")
def gathered_along_the_wrong_axis(params, x):
    return right(params, x, lambda w: jax.lax.all_gather(w, "devices", axis=1, tiled=True))


@fails_with("raises", "What is the name of the mesh axis", hint="write_down_shape_values_one")
def an_axis_of_another_mesh(params, x):
    return right(params, x, lambda w: jax.lax.all_gather(w, "d", tiled=True))


def by_hand(collected):
    """Weights that are gathered, with a backward pass of the answer's own."""
    whole = jax.custom_vjp(functools.partial(jax.lax.all_gather, axis_name="devices", tiled=True))
    whole.defvjp(lambda w: (whole(w), len(w)), lambda rows, ct: (collected(ct, rows),))
    return whole


@fails_with("wrong gradient", " up", "wrong: each device has", "all eight", hint="backward_pass_all_gather_adds")
def gradients_sliced_and_not_summed(params, x):
    def own(ct, rows):
        return jax.lax.dynamic_slice_in_dim(ct, jax.lax.axis_index("devices") * rows, rows)

    return right(params, x, by_hand(own))


@fails_with("raises", "Should the gradient", hint="write_down_shape_values_one")
def psum_in_place_of_psum_scatter(params, x):
    return right(params, x, by_hand(lambda ct, rows: jax.lax.psum(ct, "devices")))


@fails_with("wrong gradient", " up", "zero everywhere", hint="backward_pass_all_gather_adds")
def weights_stopped(params, x):
    return right(params, x, lambda w: jax.lax.stop_gradient(gathered(w)))


@fails_with("raises", "How many axes does your result have", hint="write_down_shape_values_one")
def summed(params, x):
    return jnp.sum(right(params, x))


@fails_with("wrong type", "f32[8,1]", hint="write_down_shape_values_one")
def one_sum_a_device(params, x):
    return jnp.sum(right(params, x), keepdims=True)


@fails_with("raises", "maps it over the mesh", hint="write_down_shape_values_one")
def mapped_once_more(params, x):
    mesh = AbstractMesh((8,), ("devices",), axis_types=(AxisType.Auto,))
    return jax.shard_map(right, mesh=mesh, in_specs=P("devices"), out_specs=P("devices"))(params, x)


@fails_with("raises", "Which line of your code unpacks this pair", hint="write_down_shape_values_one")
def three_arguments(params, x):
    up, down, _ = params
    return right((up, down), x)


@fails_with("also saved", "the gathered up", "in float16", hint="forward_pass_saves_gathered_weight")
def kept_in_float16(params, x):
    return (layer if x.dtype == jnp.float16 else right)(params, x)


@fails_with(
    "recomputes",
    "Which matmul does the backward pass recompute",
    hint="count_often_matmul_runs_both",
    beyond="Recomputes.count",
)
def first_product_once_more(params, x):
    x = also_run_backward(lambda x, up: x @ jnp.concatenate([up] * 8), x, x, params[0])
    return right(params, x)
