"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Large enough that the sines of their matmuls differ from the matmuls, and small enough that rounding errors are small.
sample_input = signed_values(0.2, 0.6)


def gather_weight(w):
    return jax.lax.all_gather(w, "devices", tiled=True)


def _make_layer(of_weight, of_result=lambda x, y: x + y):
    return lambda params, x: of_result(x, jnp.sin(x @ of_weight(params[0])) @ of_weight(params[1]))


def without_sum(w):
    """Return the gathered weight; its gradient is each device's part of its own gradient, without the sum."""
    here = jax.lax.axis_index("devices") * len(w)
    whole = jnp.zeros((8 * len(w), *w.shape[1:]), w.dtype)
    mine = jax.lax.dynamic_update_slice_in_dim(whole, w, here, 0)
    others = jax.lax.dynamic_update_slice_in_dim(gather_weight(w), jnp.zeros_like(w), here, 0)
    return mine + jax.lax.stop_gradient(others)


mistakes = (
    mistake("uses_own_shard_of_weights", _make_layer(lambda w: jnp.concatenate([w] * 8))),
    mistake("sum_of_shards", _make_layer(lambda w: jnp.concatenate([jax.lax.psum(w, "devices")] * 8))),
    mistake("does_not_add_x", _make_layer(gather_weight, lambda x, y: y)),
    mistake("gradient_of_own_rows_alone", _make_layer(without_sum)),
)


def requirements(case):
    return [
        [
            Saves(
                ("h",),
                too_much="Does a policy save values other than `h`? Which values are computed outside a checkpoint?",
                too_little="Does your checkpoint have a policy that saves `h`? Does `h` have the name in that policy?",
                by_hand=True,
            )
        ],
        [
            Recomputes(
                count=0, too_many="Which matmul does the backward pass recompute? With `h` saved, it recomputes none."
            )
        ],
    ]
