"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.catalog.ring_attention.task import most_blocks, weights
from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.peaks import InLoops, PeakAtMost
from grader.exercises.requirements import Recomputes, Saves, SendsAtMost

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Large enough that the keys' weights differ, and small enough that no weight is close to 1.
sample_input = signed_values(0.5, 1.5)

_MATMULS_PER_STEP = 7  # two in the forward pass; the scores and four gradients in the backward pass


def _attention(steps=range, of_block=lambda a, step: a, weights=weights, scale=lambda d: d**-0.5):
    """Return attention to the blocks of the steps `steps(p)`, with other blocks, weights or scores than the page's.

    Args:
      steps: returns the numbers of the steps, given the number of devices. In step `i`, each device has the block of
        the device that is `i` to its left.
      of_block: returns what takes the place of a block in a step.
      weights: the function of the scores and the number of all keys.
      scale: the factor of the scores, given the width.
    """

    def attention(q, k, v):
        p, out = jax.lax.axis_size("devices"), 0.0
        for step in steps(p):
            own_k, own_v = (of_block(_shifted(a, step), step) for a in (k, v))
            out += weights(q @ own_k.T * scale(q.shape[-1]), p * len(k)) @ own_v
        return out

    return attention


def _shifted(a, step):
    p = jax.lax.axis_size("devices")
    return jax.lax.ppermute(a, "devices", [(device, (device + step) % p) for device in range(p)])


def _zeros_from_other_end(a, step):
    return jnp.where(jax.lax.axis_index("devices") >= step, a, 0)


def _stopped_after_first_step(a, step):
    return jax.lax.stop_gradient(a) if step else a


def _with_gradient_of(other):
    """Return a function that returns a block whose gradient goes to another block."""

    def of_block(a, step):
        instead = other(a, step)
        return jax.lax.stop_gradient(a - instead) + instead

    return of_block


mistakes = (
    mistake("own_block_alone", _attention(steps=lambda p: [0])),
    mistake("without_last_block", _attention(steps=lambda p: range(p - 1))),
    mistake("without_last_block", _attention(steps=lambda p: [0, *range(2, p)])),
    mistake("without_own_block", _attention(steps=lambda p: range(1, p))),
    mistake("open_ring", _attention(of_block=_zeros_from_other_end)),
    mistake("keys_of_one_device", _attention(weights=lambda s, n: weights(s, n // jax.lax.axis_size("devices")))),
    mistake("without_log", _attention(weights=lambda s, n: jax.nn.sigmoid(s))),
    mistake("scores_not_divided", _attention(scale=lambda d: 1.0)),
    mistake("softmax_of_each_block", _attention(weights=lambda s, n: jax.nn.softmax(s))),
    mistake("gradient_of_own_queries", _attention(of_block=_stopped_after_first_step)),
    mistake("gradients_stay", _attention(of_block=_with_gradient_of(lambda a, step: _shifted(a, -step)))),
    mistake("gradients_one_device_off", _attention(of_block=_with_gradient_of(lambda a, step: _shifted(a, 1)))),
    mistake("gradients_one_device_off", _attention(of_block=_with_gradient_of(lambda a, step: _shifted(a, -1)))),
)


def requirements(case):
    p, c, d, e = (case.structure[symbol] for symbol in "pcde")
    arrays = (
        "Write down which arrays travel around the ring in each pass. How many times does each of them move by one "
        "device?"
    )
    return [
        [
            Saves(
                (),
                too_much="Which of your saved values arrived from another device, or was computed from a block that "
                "did? What does jax.checkpoint, or your forward rule, save of each step?",
                by_hand=True,
            )
        ],
        [
            SendsAtMost(
                3,
                p * c * (d + e) * 4,
                weights=2,
                in_loop=arrays,
                all_reduced="An all-reduce gives each device the sum of an array over all devices. Which collective "
                "moves a block to one device only?",
                too_many=arrays,
                too_large=arrays,
                transfer="send every block of keys and values once around the ring",
            ),
            Recomputes(
                p,
                too_many="For one block, which matmuls of the forward pass do the gradients need? How many times does "
                "your backward pass run each of them?",
            ),
        ],
        [
            PeakAtMost(
                most_blocks(c, d, e),
                unit="one device's keys and values",
                too_high="When the backward pass reaches the last step, which received blocks are in memory? Which "
                "part of your answer stacks or gathers them?",
            ),
            InLoops(
                4 * _MATMULS_PER_STEP,
                steps="steps",
                too_many="Which loop in your answer is a Python loop over the devices?",
            ),
        ],
    ]
