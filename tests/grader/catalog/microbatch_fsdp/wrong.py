"""Wrong answers to microbatch_fsdp, each with the finding that must name its mistake."""

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


def gathered(w):
    return jax.lax.all_gather(w, "devices", tiled=True)


def layer(up, down, rows):
    return rows + jnp.sin(checkpoint_name(rows @ up, "h")) @ down


def mapped(one, x, k):
    return jax.lax.map(one, x.reshape(k, -1, x.shape[1])).reshape(x.shape)


def right(params, x, k, whole=gathered, layer=layer):
    @jax.checkpoint
    def run(params, x):
        up, down = map(whole, params)
        return mapped(jax.checkpoint(lambda rows: layer(up, down, rows)), x, k)

    return run(params, x)


@fails_with("also saved", "the gathered up", "the gathered down", hint="forward_pass_saves_gathered_weight")
def no_checkpoint(params, x, k):
    up, down = map(gathered, params)
    return mapped(lambda rows: layer(up, down, rows), x, k)


@fails_with("also saved", "h of all microbatches", hint="forward_pass_saves_intermediate")
def h_saved_by_a_policy(params, x, k):
    save = functools.partial(jax.checkpoint, policy=policies.save_only_these_names("h"))

    @save
    def run(params, x):
        up, down = map(gathered, params)
        return mapped(save(lambda rows: layer(up, down, rows)), x, k)

    return run(params, x)


@fails_with("link bytes", "all-gathers", "Which of your all-gathers", hint="collectives_in_the_loop")
def gathered_in_the_loop(params, x, k):
    return mapped(jax.checkpoint(lambda rows: layer(*map(gathered, params), rows)), x, k)


@fails_with("link bytes", "all-reduces", "An all-reduce gives each device", hint="all_reduce")
def summed_in_place_of_gathered(params, x, k):
    """An all-reduce of shards that are padded with zeros sends twice as many bytes as an all-gather."""

    def whole(part):
        places = jnp.zeros((8, *part.shape), part.dtype)
        mine = jax.lax.dynamic_update_index_in_dim(places, part, jax.lax.axis_index("devices"), 0)
        return jax.lax.psum(mine, "devices").reshape(-1, part.shape[-1])

    return right(params, x, k, whole)


@fails_with(
    "link bytes",
    "3 all-gathers (backward)",
    "3.5 times as much",
    "more than once",
    hint="arrays_that_are_sent",
    beyond="SendsAtMost.times",
)
def up_gathered_once_more(params, x, k):
    return right(params, also_run_backward(gathered, x, params[0]), k)


@fails_with(
    "peak",
    "times the size of one microbatch's hidden layer",
    "For how many microbatches",
    hint="peak_of_all_microbatches",
    beyond="PeakAtMost.most",
)
def matmuls_of_a_microbatch_saved(params, x, k):
    """The rerun loop stacks `h` of all microbatches."""

    @jax.checkpoint
    def run(params, x):
        up, down = map(gathered, params)
        return mapped(jax.checkpoint(lambda rows: layer(up, down, rows), policy=policies.dots_saveable), x, k)

    return run(params, x)


@fails_with("link bytes", "6.0 times as much", "shapes and dtypes", hint="arrays_that_are_sent")
def weights_in_float32(params, x, k):
    """In float16, each array that is sent has twice as many bytes."""
    return right(params, x, k, lambda w: gathered(w.astype(jnp.float32)).astype(w.dtype))


@fails_with(
    "peak",
    "processes",
    "rows at once",
    "Is that one microbatch for every k",
    hint="rows_of_several_microbatches",
    beyond="InPieces.rows",
    steps=8,
)
def two_microbatches_at_a_time(params, x, k):
    return right(params, x, k // 2 if k % 2 == 0 else k)


@fails_with(
    "recomputes",
    "Which matmul of the forward pass",
    hint="count_matmuls_in_both_passes",
    beyond="Recomputes.count",
    steps=8,
)
def h_once_more(params, x, k):
    def more(up, down, rows):
        rows = also_run_backward(jnp.matmul, rows, rows, up)
        return layer(up, down, rows)

    return right(params, x, k, layer=more)


@fails_with("wrong value", "only its own shards", "Which devices store", hint="write_down_shapes_on_one_device")
def own_shard_alone(params, x, k):
    return right(params, x, k, lambda w: jnp.concatenate([w] * 8))


@fails_with("wrong value", "does not add `x`", hint="write_down_shapes_on_one_device")
def nothing_added(params, x, k):
    return right(params, x, k) - x


@fails_with("wrong value", hint="write_down_shapes_on_one_device")
def microbatches_in_reverse_order(params, x, k):
    return right(params, x, k).reshape(k, -1, x.shape[1])[::-1].reshape(x.shape)


@fails_with(
    "wrong gradient",
    "the last microbatch alone",
    "Where does your backward pass add up",
    hint="gradient_sums_over_devices_and_microbatches",
)
def gradient_of_the_last_microbatch(params, x, k):
    before = len(x) - len(x) // k
    if not before:
        return right(params, x, k)
    constant = jax.tree.map(jax.lax.stop_gradient, params)
    return jnp.concatenate([right(constant, x[:before], k - 1), right(params, x[before:], 1)])


def by_hand(collected):
    whole = jax.custom_vjp(functools.partial(jax.lax.all_gather, axis_name="devices", tiled=True))
    whole.defvjp(lambda w: (whole(w), len(w)), lambda rows, ct: (collected(ct, rows),))
    return whole


@fails_with(
    "wrong gradient", " up", "wrong: each device has", "all eight", hint="gradient_sums_over_devices_and_microbatches"
)
def gradients_sliced_and_not_summed(params, x, k):
    def own(ct, rows):
        return jax.lax.dynamic_slice_in_dim(ct, jax.lax.axis_index("devices") * rows, rows)

    return right(params, x, k, by_hand(own))


@fails_with("wrong gradient", " up", "zero everywhere", hint="gradient_sums_over_devices_and_microbatches")
def weights_stopped(params, x, k):
    return right(params, x, k, lambda w: jax.lax.stop_gradient(gathered(w)))


@fails_with("raises", "Should the gradient", hint="write_down_shapes_on_one_device")
def psum_in_place_of_psum_scatter(params, x, k):
    return right(params, x, k, by_hand(lambda ct, rows: jax.lax.psum(ct, "devices")))


@fails_with("raises", "Along which axis is each weight sharded", hint="write_down_shapes_on_one_device")
def gathered_along_a_new_axis(params, x, k):
    return right(params, x, k, lambda w: jax.lax.all_gather(w, "devices"))


@fails_with("raises", "What is the name of the mesh axis", hint="write_down_shapes_on_one_device")
def axis_of_another_mesh(params, x, k):
    return right(params, x, k, lambda w: jax.lax.all_gather(w, "d", tiled=True))


@fails_with("raises", "maps it over the mesh", hint="write_down_shapes_on_one_device")
def mapped_once_more(params, x, k):
    mesh = AbstractMesh((8,), ("devices",), axis_types=(AxisType.Auto,))
    call = functools.partial(right, k=k)
    return jax.shard_map(call, mesh=mesh, in_specs=P("devices"), out_specs=P("devices"))(params, x)


@fails_with("raises", "Which line of your code unpacks this pair", hint="write_down_shapes_on_one_device")
def three_weights(params, x, k):
    up, down, _ = params
    return right((up, down), x, k)


@fails_with("raises", "how many rows does each microbatch have", hint="write_down_shapes_on_one_device")
def k_rows_per_microbatch(params, x, k):
    return right(params, x.reshape(-1, k, 3, x.shape[1]), k)


@fails_with("wrong type", "f32[", hint="write_down_shapes_on_one_device")
def split_not_undone(params, x, k):
    return right(params, x, k).reshape(k, -1, x.shape[1])
