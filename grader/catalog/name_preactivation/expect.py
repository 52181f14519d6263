"""What is expected of an answer; only the judge reads this."""

import jax.numpy as jnp

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


def reference(x, W1, W2):
    """Return the result, and the values that an answer might save, by the names that findings give them."""
    y = x @ W1
    size = jnp.sqrt(jnp.mean(y**2, axis=-1, keepdims=True))
    r = y / size
    h = jnp.sin(r)
    z = h @ W2
    return z, {
        "x @ W1": y,
        "the root mean squares": size,
        "the normalized rows": r,
        "the sines": h,
        "the cosines": jnp.cos(r),
        "the result": z,
    }


# Values whose matmuls have root mean squares away from 1 and sums of squares that fit in float16.
sample_input = signed_values(0.5, 1.5)


def _rms(y, axis=-1):
    return jnp.sqrt(jnp.mean(y**2, axis=axis, keepdims=True))


def _divided_by(size, activation=jnp.sin):
    """Return the answer with another divisor, a function of `x @ W1`, or another activation."""

    def answer(x, W1, W2):
        y = x @ W1
        return activation(y / size(y)) @ W2

    return answer


def _layer_norm(x, W1, W2):
    y = x @ W1 - jnp.mean(x @ W1, axis=-1, keepdims=True)
    return jnp.sin(y / _rms(y)) @ W2


mistakes = (
    mistake("without_division", lambda x, W1, W2: jnp.sin(x @ W1) @ W2),
    mistake("without_sine", _divided_by(_rms, activation=lambda r: r)),
    mistake("columns_divided", _divided_by(lambda y: _rms(y, axis=-2))),
    mistake("one_divisor_for_all_rows", _divided_by(lambda y: jnp.sqrt(jnp.mean(y**2)))),
    mistake("divided_by_norm", _divided_by(lambda y: jnp.sqrt(jnp.sum(y**2, axis=-1, keepdims=True)))),
    mistake("divided_by_mean_square", _divided_by(lambda y: jnp.mean(y**2, axis=-1, keepdims=True))),
    mistake("divided_by_standard_deviation", _divided_by(lambda y: jnp.std(y, axis=-1, keepdims=True))),
    mistake("layer_norm", _layer_norm),
    mistake("divided_by_mean_absolute_value", _divided_by(lambda y: jnp.mean(abs(y), axis=-1, keepdims=True))),
    mistake("cosine_for_sine", _divided_by(_rms, activation=jnp.cos)),
    mistake("sine_before_division", lambda x, W1, W2: jnp.sin(x @ W1) / _rms(jnp.sin(x @ W1)) @ W2),
    mistake("rows_of_x_divided", lambda x, W1, W2: jnp.sin(x / _rms(x) @ W1) @ W2),
    mistake("sine_after_second_matmul", lambda x, W1, W2: jnp.sin(reference(x, W1, W2)[0])),
)


def requirements(case):
    saves = Saves(
        ("x @ W1",),
        too_much="From that value alone, can the backward pass compute everything that it needs without a matmul?",
        too_little="Which line names the value to save, and does the next step use what checkpoint_name returns? Is "
        "the name spelled the same in the policy?",
        unnamed=True,
    )
    recomputes = Recomputes(
        count=0, too_many="Which matmul does the backward pass recompute, and which value did you save instead?"
    )
    # If a matmul has few columns, root mean squares that are written as matmuls take as many FLOPs.
    small = min(case.structure["a"], case.structure["c"]) < 8
    return [[saves] if small else [saves, recomputes], [AdvisesBarrier()]]
