"""What is expected of an answer; only the judge reads this."""

import functools

import jax
import jax.numpy as jnp

from grader.catalog.read_oom.task import compute_layer
from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.peaks import InPieces
from grader.exercises.requirements import Recomputes, SavesAtMost, StillSaves

feedback = read_feedback(__file__)
mistake = feedback.mistake

# Small enough that no softmax is one-hot.
sample_input = signed_values(0.1, 0.6)


def _make_loss(layer):
    def loss(params, x, pairs, targets):
        x, _ = jax.lax.scan(lambda x, w: (layer(w, x, pairs)[0], None), x, params)
        return jnp.mean((x - targets) ** 2)

    return loss


def _make_variant(**parts):
    return _make_loss(functools.partial(compute_layer, **parts))


mistakes = (
    mistake("without_bias", _make_variant(use_bias=False)),
    mistake("without_activation", _make_variant(activation=lambda scaled: scaled)),
    mistake("tokens_of_edges_swapped", _make_variant(activation=lambda s: jnp.swapaxes(jax.nn.silu(s), 1, 2))),
    mistake("without_first_normalization", _make_variant(first=lambda x: x)),
)


def requirements(case):
    weights = [f"layer {number + 1}'s attention weights" for number in range(case.structure["L"])]
    return [
        [
            SavesAtMost(
                "the edges of all layers",
                count=1,
                parts="large arrays",
                extra_parts=-1,  # less than one such array
                too_much="Which shape do the largest rows of the report have? Which line of the model computes an "
                "array of that shape, and which operation still uses this array outside your checkpoint?",
            )
        ],
        [
            InPieces(
                1,
                of=1,
                pieces="iterations of the scan",
                counts="layers",
                too_large="Which function does your answer call for all layers at once? How large are its "
                "intermediates together when the backward pass recomputes them?",
            )
        ],
        [
            StillSaves(
                (("the attention weights of all layers",), tuple(weights)),
                too_little="How much of the report's memory do the attention weights take? Does one of your "
                "checkpoints or policies drop them?",
            ),
            Recomputes(
                0,
                too_many="Which matmul is inside your checkpoint although the large arrays do not need it?",
            ),
        ],
    ]
