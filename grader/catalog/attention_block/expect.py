"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


def sample_input(rng, argument):
    """Return values whose projections are so large that no two keys get about the same weight."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    if argument.shape[0] == argument.shape[-2] * argument.shape[-1] and argument.ndim == 3:  # a projection (h, a, d)
        size *= 1.5 / argument.shape[0] ** 0.5
    return np.asarray(size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _make_block(scale=lambda q: q.shape[-1] ** -0.5, axis=-1, residual=True, causal=False):
    def block(wq, wk, wv, wo, x):
        q, k, v = (jnp.einsum("sh,had->sad", x, w) for w in (wq, wk, wv))
        scores = jnp.einsum("qad,kad->aqk", q, k) * scale(q)
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones(scores.shape[1:], bool)), scores, -jnp.inf)
        context = jnp.einsum("aqk,kad->qad", jax.nn.softmax(scores, axis), v)
        out = jnp.einsum("sad,adh->sh", context, wo)
        return x + out if residual else out

    return block


mistakes = (
    mistake("scores_not_divided", _make_block(lambda q: 1)),
    mistake("scores_divided_by_width", _make_block(lambda q: (q.shape[1] * q.shape[2]) ** -0.5)),
    mistake("softmax_over_queries", _make_block(axis=1)),
    mistake("without_residual_connection", _make_block(residual=False)),
    mistake("causal_mask", _make_block(causal=True)),
)


def requirements(case):
    """Require the choice that leaves fewer FLOPs to recompute: context avoids 2 s² h, and q, k and v avoid 6 s h²."""
    structure = case.structure
    is_long = structure["s"] > 3 * structure["a"] * structure["d"]
    return [
        [
            Saves(
                ("context",) if is_long else ("q", "k", "v"),
                too_much="Does the page allow each value that you save? If the value leaves your checkpoint, which "
                "operation outside uses it? For this shape, how many FLOPs does saving q, k and v avoid, and how many "
                "does saving context avoid?",
                too_little="For this shape, how many FLOPs does saving q, k and v avoid, and how many does saving "
                "context avoid? Is each value named inside the checkpoint, and does the policy list its name?",
            ),
            Recomputes(
                4 if is_long else 2,
                too_many="Which matmuls lie between the saved values and the values that the backward pass needs? "
                "Count each matmul once.",
            ),
            AdvisesBarrier(),
        ]
    ]
