"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.catalog.repaired_loss.task import compute_layer, z_loss
from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake

_MATMULS = 9  # of a layer's forward pass

# What the backward pass of the squared error may use.
_OF_THE_ERROR = (
    "the last layer's output",
    *("the error", "twice the error", "the negative error", "twice the negative error"),
)

# Small enough that no softmax is one-hot.
sample_input = signed_values(0.1, 0.6)


def _make_loss(penalty):
    def loss(params, x, targets):
        def body(x, weights):
            x, scores, _ = compute_layer(weights, x)
            return x, penalty(scores)

        x, penalties = jax.lax.scan(body, x, params)
        return jnp.mean((x - targets) ** 2) + 0.1 * jnp.mean(penalties)

    return loss


mistakes = (
    mistake("without_z_loss", _make_loss(lambda scores: jnp.zeros(()))),
    mistake("z_loss_without_weight", _make_loss(lambda scores: 10 * z_loss(scores))),
    mistake(
        "z_loss_summed",
        lambda params, *arguments: _make_loss(lambda scores: len(params["up"]) * z_loss(scores))(params, *arguments),
    ),
    mistake("z_loss_without_gradient", _make_loss(lambda scores: z_loss(jax.lax.stop_gradient(scores)))),
)


def requirements(case):
    layers = case.structure["L"]
    return [
        [
            Saves(
                ("the layers' inputs",),
                too_much="Does the line that computes this value run inside your checkpoint? If it does, which line "
                "outside the checkpoint uses the value?",
                too_little="Does your checkpoint contain one layer, or the whole scan?",
                by_hand=True,  # the page's checkpoint has no effect, so that there is no barrier
                optional=_OF_THE_ERROR,
            )
        ],
        [
            Recomputes(
                count=_MATMULS * layers,
                too_many="Is one of your checkpoints inside another, so that a layer is recomputed twice?",
            )
        ],
    ]
