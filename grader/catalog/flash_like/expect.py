"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake, Recomputes, Saves


def sample_input(rng, argument):
    """Draw numbers whose matmuls are so large that no two keys get about the same weight."""
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
    """Return attention with other weights or additional factors in its backward pass."""

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


_SCALE = "What are the scores divided by, and in how many places does your answer divide?"
_SUM = "What is each exponential divided by, or what is subtracted from each score?"

mistakes = (
    KnownMistake("it does not divide the scores by √d", _with_weights(lambda q, k: jax.nn.softmax(q @ k.T)), _SCALE),
    KnownMistake(
        "it divides the scores by d, not by √d",
        _with_weights(lambda q, k: jax.nn.softmax(q @ k.T / q.shape[-1])),
        _SCALE,
    ),
    KnownMistake(
        "its softmax goes over queries, not over keys",
        _with_weights(lambda q, k: jax.nn.softmax(_scores(q, k), axis=0)),
        "The weights of one query add up to 1. Which axis of the scores belongs to the keys?",
    ),
    KnownMistake(
        "it uses the scores themselves as weights",
        _with_weights(_scores),
        "Which function turns the scores into weights before they multiply the values?",
    ),
    KnownMistake(
        "the weights of a query do not add up to 1",
        _with_weights(lambda q, k: jnp.exp(_scores(q, k))),
        _SUM,
    ),
    KnownMistake("the weights of a query do not add up to 1", _with_weights(_exponentials), _SUM),
    *(
        KnownMistake(
            "the weights of a query in the backward pass do not add up to 1",
            _with_rule(weights),
            "Which number does your backward rule subtract from the scores before the exponential? With `lse`, each "
            "row adds up to 1.",
            check_gradient=True,
        )
        for weights in (_exponentials, lambda q, k: jnp.exp(_scores(q, k)))
    ),
    KnownMistake(
        "`delta` is not subtracted from `dp`",
        _with_rule(delta=0.0),
        "Which value does the page subtract from `dp` to compute `dscores`, and does your backward rule subtract it?",
        check_gradient=True,
    ),
    KnownMistake(
        "`delta` is added to `dp`, not subtracted",
        _with_rule(delta=-1.0),
        "Which sign does `delta` have in the page's formula for `dscores`?",
        check_gradient=True,
    ),
    *(
        KnownMistake(
            says,
            lambda q, k, v, power=power: _with_rule(scale=q.shape[-1] ** power)(q, k, v),
            "The scores are `q @ k.T / √d`. Where does the chain rule put the factor `1 / √d` in the gradients of "
            "`q` and `k`?",
            check_gradient=True,
        )
        for says, power in (
            ("the backward pass does not divide by √d", 0.5),
            ("the backward pass divides by √d twice", -0.5),
        )
    ),
    KnownMistake(
        "`v` gets no gradient",
        _with_rule(of_v=0.0),
        "What is `v` multiplied by in the forward pass, and which gradient of `v` follows from that?",
        check_gradient=True,
    ),
)

error_questions = (
    (
        r"[Ll]inearization|No VJP defined|defvjp",
        "Which two functions does `defvjp` take, and in which order?",
    ),
    (
        r"must produce|fwd|bwd|tree structure|cotangent",
        "The forward rule returns the result and the residuals. The backward rule returns one gradient for each of "
        "q, k and v. What do your rules return?",
    ),
    (
        r"dot_general|matmul|contracting|broadcast|incompatible shapes|add got",
        "q is (n, d), k is (m, d), v is (m, e). Which shape should each matmul have, and which operands need a "
        "transpose?",
    ),
    (
        r"positional argument|unpack",
        "Which arguments does JAX pass to the forward rule, and which to the backward rule?",
    ),
    (r"reshape|divide", "How many blocks do you cut the m keys into, and does their number divide m?"),
    (
        r"Tracer|Concret|UnexpectedTracer",
        "Which value does one of your rules use that is neither an argument nor a residual?",
    ),
)

hints = (
    Hint(
        "The attention weights have an element for each query and key, `out` and `lse` are smaller. How can the "
        "backward pass recompute the weights from `q`, `k` and `lse`?"
    ),
    Hint(
        "Print `residual_table` of your function without a checkpoint. Which residuals are neither arguments nor `out` "
        "nor `lse`, and which line of yours computes them?",
        on_kinds=("also saved",),
    ),
    Hint(
        "Your forward pass saves another number per query. The sum of the exponentials and the largest score are not "
        "both needed: `lse`, which combines them, is enough for the weights.",
        on_kinds=("also saved",),
        on_text="the rows' largest scores",
    ),
    Hint(
        "The policy finds a value only if it gets its name inside the forward rule. Does that rule name `out` and "
        "`lse`, and does it return the values that `checkpoint_name` returned?",
        on_kinds=("not saved",),
    ),
    Hint(
        "The backward pass may recompute only the matmul of the scores. Does your backward rule run another matmul of "
        "the forward pass? Or does it use a residual without a name, which the checkpoint must recompute?",
        on_kinds=("recomputes", "extra matmuls"),
    ),
    Hint(
        "Test your function with two queries and three keys, and print the scores and the weights. Are the scores "
        "`q @ k.T / √d`, and does each row of the weights add up to 1?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "Run your backward rule on random arrays. Compare `p` with the softmax, then each of the three gradients with "
        "`jax.grad` of plain attention. Which one differs first?",
        on_kinds=("wrong gradient",),
    ),
    Hint(
        "Write down the shapes of everything that your two rules take and return. Which shape or which number of "
        "values does not fit?",
        on_kinds=("raises", "wrong type"),
    ),
    Hint(
        "In the mini-example, the backward rule recomputes the exponentials from `x` and `total`. Which values play "
        "these roles in attention? In which function does chapter 15 call `checkpoint_name`?"
    ),
    Hint(
        'Nearly the answer: in the forward rule, name `out` with `"out"` and `lse` with `"lse"`, and return '
        "`out, (q, k, v, out, lse)` with the named values. The backward rule starts with "
        "`p = jnp.exp(scores - lse[:, None])` and follows the page's table."
    ),
    Hint(
        "Your forward pass saves the attention weights. Without a `jax.custom_vjp` rule, JAX saves them, whatever has "
        "a name. With one, your forward rule returns them as a residual. Which is it in your answer?",
        on_kinds=("also saved",),
        on_text="the weights",
    ),
    Hint(
        "`out` is saved twice: once for the layer's matmul and once for your rule. Return the same named value as the "
        "result and as a residual.",
        on_kinds=("also saved",),
        on_text=": out,",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return [
        [
            Saves(
                ("out", "lse"),
                too_much="Which values are saved that are neither arguments nor out nor lse? With jax.custom_vjp, your "
                "forward rule decides.",
                too_little="Does your forward rule return out and lse as residuals, and are they the named values?",
                by_hand=True,
            ),
            Recomputes(
                1,
                too_many="Which matmul other than that of the scores does the backward pass recompute? Does it use a "
                "residual without a name?",
                elsewhere="Which matmul do your two rules compute twice?",
            ),
        ]
    ]
