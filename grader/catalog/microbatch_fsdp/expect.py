"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.catalog.gather_again import expect as without_microbatches
from grader.catalog.gather_again.expect import gather_weight, without_sum
from grader.catalog.microbatch_fsdp.task import is_wide, most_hidden
from grader.exercises.feedback import read_feedback
from grader.exercises.peaks import InPieces, PeakAtMost
from grader.exercises.requirements import Recomputes, Requirement, Saves, SendsAtMost

feedback = read_feedback(__file__)
mistake = feedback.mistake
sample_input = without_microbatches.sample_input


def _make_layer(of_weight, of_result=lambda x, y: x + y):
    return lambda params, x, k: of_result(x, jnp.sin(x @ of_weight(params[0])) @ of_weight(params[1]))


def _of_last_microbatch(params, x, k):
    """Return the layer's output; the weights' gradients are those of the last microbatch alone."""
    layer, before = _make_layer(gather_weight), len(x) - len(x) // k
    constant = jax.tree.map(jax.lax.stop_gradient, params)
    return jnp.concatenate([layer(constant, x[:before], k), layer(params, x[before:], k)])


mistakes = (
    mistake("uses_own_shard_of_weights", _make_layer(lambda w: jnp.concatenate([w] * 8))),
    mistake("does_not_add_x", _make_layer(gather_weight, lambda x, y: y)),
    mistake("gradient_of_own_rows_alone", _make_layer(without_sum)),
    mistake("gradient_of_last_microbatch", _of_last_microbatch),
)


def requirements(case):
    r, k = case.structure["r"], case.structure["k"]
    (d, m), itemsize = case.arguments[0].shape, case.arguments[0].dtype.itemsize
    one_transfer = 2 * d * m * itemsize * 7 // 8
    memory: list[Requirement] = [
        InPieces(
            r,
            of=r,
            pieces="microbatches",
            too_large="How many rows does your answer pass to the layer at once? Is that one microbatch for every k?",
        )
    ]
    if is_wide(r, k, d, m):
        memory.append(
            PeakAtMost(
                most_hidden(r, k, d, m),
                unit="one microbatch's hidden layer",
                too_high="When the backward pass reaches this layer, it recomputes the intermediates. For how many "
                "microbatches are these in memory at the same time?",
            )
        )
    return [
        [
            Saves(
                (),
                too_much="Which values does your backward pass need: the shards, or values computed from them? "
                "Is each all-gather inside or outside your checkpoints?",
            )
        ],
        [
            SendsAtMost(
                3,
                one_transfer,
                weights=2,
                in_loop="Which of your all-gathers are inside the loop over microbatches? In which loop does the "
                "backward pass run their reduce-scatters?",
                all_reduced="An all-reduce gives each device the whole array. Does each device need the whole array, "
                "or which collective sends only what it needs?",
                too_many="Which array does your answer gather more than once in a pass, or gather although it is not "
                "a weight?",
                too_large="Which arrays do your collectives send? Compare their shapes and dtypes with the shards'.",
            ),
            Recomputes(
                k,
                too_many="Which matmul of the forward pass is needed by no gradient? How many times does your backward "
                "pass run each of the other matmuls?",
            ),
        ],
        memory,
    ]
