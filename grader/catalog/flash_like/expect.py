"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that no two keys get about the same weight."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _scores(q, k):
    return q @ k.T * q.shape[-1] ** -0.5


def _with_weights(weights):
    return lambda q, k, v: weights(q, k) @ v


def _softmax(q, k):
    return jax.nn.softmax(_scores(q, k))


def _exponentials(q, k):
    return jnp.exp(_scores(q, k) - jnp.max(_scores(q, k), -1, keepdims=True))


def _with_rule(weights=_softmax, delta=1.0, scale=1.0, of_v=1.0):
    """Attention whose backward pass has other weights, or factors at these places."""

    @jax.custom_vjp
    def attention(q, k, v):
        return _softmax(q, k) @ v

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


_SCALE = "By what are the products of queries and keys divided, and in how many places does that stand in your answer?"

mistakes = (
    Mistake("the scores are not divided by √d", _with_weights(lambda q, k: jax.nn.softmax(q @ k.T)), _SCALE),
    Mistake(
        "the scores are divided by d, not by its root",
        _with_weights(lambda q, k: jax.nn.softmax(q @ k.T / q.shape[-1])),
        _SCALE,
    ),
    Mistake(
        "the softmax goes over queries, not over keys",
        _with_weights(lambda q, k: jax.nn.softmax(_scores(q, k), axis=0)),
        "A query's weights add up to 1. Along which axis of the scores do the keys lie?",
    ),
    Mistake(
        "the scores themselves are the weights",
        _with_weights(_scores),
        "What is done with the scores before they weigh the values?",
    ),
    Mistake(
        "the weights of a query do not add up to 1",
        _with_weights(lambda q, k: jnp.exp(_scores(q, k))),
        "By what is each exponential divided, or what is subtracted from each score?",
    ),
    Mistake(
        "the weights of a query do not add up to 1",
        _with_weights(_exponentials),
        "By what is each exponential divided, or what is subtracted from each score?",
    ),
    *(
        Mistake(
            "the weights of the backward pass do not add up to 1 in a row",
            _with_rule(weights),
            "What turns a score into a weight: which number of its row is subtracted before the exponential?",
            in_gradient=True,
        )
        for weights in (_exponentials, lambda q, k: jnp.exp(_scores(q, k)))
    ),
    Mistake(
        "nothing is subtracted from the gradient of the weights, as if lse were constant",
        _with_rule(delta=0.0),
        "A softmax's row adds up to 1. Which number a row does the page subtract from `dp`, and does yours?",
        in_gradient=True,
    ),
    Mistake(
        "a row's number is added to the gradient of the weights, not subtracted",
        _with_rule(delta=-1.0),
        "Which sign has `delta` in the gradient of the scores?",
        in_gradient=True,
    ),
    *(
        Mistake(
            says,
            lambda q, k, v, power=power: _with_rule(scale=q.shape[-1] ** power)(q, k, v),
            "The scores are q @ k.T / √d. What does the chain rule say of that division in the backward pass?",
            in_gradient=True,
        )
        for says, power in (
            ("the division by √d is missing in the backward pass", 0.5),
            ("the division by √d comes twice in the backward pass", -0.5),
        )
    ),
    Mistake(
        "v gets no gradient",
        _with_rule(of_v=0.0),
        "By what is v multiplied in the forward pass, and what does its gradient look like then?",
        in_gradient=True,
    ),
)

error_questions = (
    (
        r"[Ll]inearization|No VJP defined|defvjp",
        "Which two functions does `defvjp` get, and in which order?",
    ),
    (
        r"must produce|fwd|bwd|tree structure|cotangent",
        "What does the forward rule return, in which order, and what does the backward rule: one gradient for each of "
        "q, k and v?",
    ),
    (
        r"dot_general|matmul|contracting|broadcast|incompatible shapes|add got",
        "q is (n, d), k is (m, d), v is (m, e): which shape has each product, and which of them need a transpose?",
    ),
    (r"positional argument|unpack", "What does JAX call each of the two rules with?"),
    (r"reshape|divide", "Into how many blocks do m keys go, and is m what you think it is?"),
    (r"Tracer|Concret|UnexpectedTracer", "Which value does a rule use that it was not handed?"),
)

hints = (
    Hint(
        "Three values of the forward pass have a row for each query: the weights, `out` and `lse`. Which of them is as "
        "long as there are keys, and can it be made from the others?"
    ),
    Hint(
        "Print `residual_table` of your function without a checkpoint. What is there that has a number for each query "
        "*and* each key, and which line of yours hands it on?",
        after=("also saved",),
    ),
    Hint(
        "Nothing as large as the scores is kept, but more than `out` and `lse`. Can what is left over be made from "
        "`q`, `k`, `v` and these two, at the price of no product?",
        after=("also saved",),
        says=": the rows' largest",
    ),
    Hint(
        "Under the checkpoint, the policy looks for two names. Which *two* values have yours, and does the rule hand "
        "on what `checkpoint_name` returned, or what it was given?",
        after=("not saved",),
    ),
    Hint(
        "How many products make a score? Count where your backward rule makes them, and see whether the forward pass "
        "runs again under the checkpoint: what does the backward rule ask for that has no name?",
        after=("recomputes", "extra matmuls"),
    ),
    Hint(
        "Try two queries and three keys, and print the weights: does each row add up to 1, and what went into the "
        "exponential?",
        after=("wrong value",),
    ),
    Hint(
        "Take your backward rule apart: for random arrays, compare `p` with the softmax, then each of the three "
        "gradients with what `jax.grad` says of the plain function. Which is the first that differs?",
        after=("wrong gradient",),
    ),
    Hint(
        "Write down the shape of everything that the two rules take and return. Which one does not fit?",
        after=("raises", "wrong type"),
    ),
    Hint(
        "From which two values does the mini-example make its exponentials once more, and what plays that part here? "
        "In which function does chapter 14 call `checkpoint_name`?"
    ),
    Hint(
        "Nearly the answer: the forward rule names `out` and `lse`, and returns `out, (q, k, v, out, lse)` with the "
        "named ones. The backward rule begins with `p = jnp.exp(scores - lse[:, None])`. What are the names called?"
    ),
    Hint(
        "The weights are kept. Without a rule of your own JAX decides that, whatever has a name; with one, your "
        "forward rule does. Which of the two is it here?",
        after=("also saved",),
        says="the weights",
    ),
    Hint(
        "`out` is kept twice: the layer keeps one, and the rule another. On which of the two does the name stand, and "
        "would one do for both?",
        after=("also saved",),
        says=": out,",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return [
        [
            Saves(
                ("out", "lse"),
                too_much="What does your forward rule hand to the backward rule, besides its arguments, out and lse?",
                too_little="Which values does the backward rule get, and what are they called where they are made?",
                by_hand=True,
            ),
            Recomputes(
                1,
                too_many="Besides the scores, what is made again, and which value without a name is it for?",
                elsewhere="Which product do your rules make twice?",
            ),
        ]
    ]
