"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Numbers whose matmuls are so large that no two keys get about the same weight.
sample_input = signed_values(0.5, 1.5)


def _attention_scores(q, k):
    return q @ k.T * q.shape[-1] ** -0.5


def _with_weights(weights):
    return lambda q, k, v: weights(q, k) @ v


def _attention_weights(q, k):
    return jax.nn.softmax(_attention_scores(q, k))


def _attention_exponentials(q, k):
    return jnp.exp(_attention_scores(q, k) - jnp.max(_attention_scores(q, k), -1, keepdims=True))


def _with_rule(weights=_attention_weights, delta=1.0, scale=1.0, of_v=1.0):
    """Return attention with other weights or additional factors in its backward pass."""

    @jax.custom_vjp
    def attention(q, k, v):
        return _attention_weights(q, k) @ v

    def forward(q, k, v):
        return attention(q, k, v), (q, k, v)

    def backward(kept, ct):
        q, k, v = kept
        p = weights(q, k)
        rows = delta * jnp.sum(ct * attention(q, k, v), axis=-1, keepdims=True)
        of_scores = p * (ct @ v.T - rows) * scale * q.shape[-1] ** -0.5
        return of_scores @ k, of_scores.T @ q, of_v * (p.T @ ct)

    attention.defvjp(forward, backward)
    return attention


def _with_scale(power):
    return lambda q, k, v: _with_rule(scale=q.shape[-1] ** power)(q, k, v)


mistakes = (
    mistake("scores_not_divided", _with_weights(lambda q, k: jax.nn.softmax(q @ k.T))),
    mistake("scores_divided_by_d", _with_weights(lambda q, k: jax.nn.softmax(q @ k.T / q.shape[-1]))),
    mistake("softmax_over_queries", _with_weights(lambda q, k: jax.nn.softmax(_attention_scores(q, k), axis=0))),
    mistake("scores_as_weights", _with_weights(_attention_scores)),
    mistake("weights_not_normalized", _with_weights(lambda q, k: jnp.exp(_attention_scores(q, k)))),
    mistake("weights_not_normalized", _with_weights(_attention_exponentials)),
    *(
        mistake("weights_not_normalized_in_backward_pass", _with_rule(weights))
        for weights in (_attention_exponentials, lambda q, k: jnp.exp(_attention_scores(q, k)))
    ),
    mistake("delta_not_subtracted", _with_rule(delta=0.0)),
    mistake("delta_added", _with_rule(delta=-1.0)),
    mistake("backward_pass_without_division", _with_scale(0.5)),
    mistake("backward_pass_divides_twice", _with_scale(-0.5)),
    mistake("without_gradient_of_v", _with_rule(of_v=0.0)),
)


def requirements(case):
    return [
        [
            Saves(
                ("out", "lse"),
                too_much="Which saved values are neither arguments nor out or lse? With jax.custom_vjp, your "
                "forward rule decides what to save.",
                too_little="Does your forward rule return out and lse as residuals, and are they the named values?",
                by_hand=True,
            ),
            Recomputes(
                1,
                too_many="Which matmul other than that of the scores does the backward pass recompute? Does the "
                "backward rule use a residual without a name?",
                elsewhere="Which matmul do your two rules compute twice?",
            ),
        ]
    ]
