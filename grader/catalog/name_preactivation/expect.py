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


mistakes = (
    mistake("without_division", lambda x, W1, W2: jnp.sin(x @ W1) @ W2),
    mistake("without_sine", lambda x, W1, W2: _divide_by_rms(x @ W1) @ W2),
    mistake("columns_divided", lambda x, W1, W2: jnp.sin(_divide_by_rms(x @ W1, axis=-2)) @ W2),
    mistake("one_divisor_for_all_rows", lambda x, W1, W2: jnp.sin(x @ W1 / jnp.sqrt(jnp.mean((x @ W1) ** 2))) @ W2),
    mistake("divided_by_norm", lambda x, W1, W2: jnp.sin(_divide_by_rms(x @ W1, mean=jnp.sum)) @ W2),
    mistake(
        "divided_by_mean_square",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.mean((x @ W1) ** 2, axis=-1, keepdims=True)) @ W2,
    ),
    mistake(
        "divided_by_standard_deviation",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.std(x @ W1, axis=-1, keepdims=True)) @ W2,
    ),
    mistake(
        "layer_norm",
        lambda x, W1, W2: jnp.sin(_divide_by_rms(x @ W1 - jnp.mean(x @ W1, axis=-1, keepdims=True))) @ W2,
    ),
    mistake(
        "divided_by_mean_absolute_value",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.mean(abs(x @ W1), axis=-1, keepdims=True)) @ W2,
    ),
    mistake("cosine_for_sine", lambda x, W1, W2: jnp.cos(_divide_by_rms(x @ W1)) @ W2),
    mistake("sine_before_division", lambda x, W1, W2: _divide_by_rms(jnp.sin(x @ W1)) @ W2),
    mistake("rows_of_x_divided", lambda x, W1, W2: jnp.sin(_divide_by_rms(x) @ W1) @ W2),
    mistake("sine_after_second_matmul", lambda x, W1, W2: jnp.sin(reference(x, W1, W2)[0])),
)


def _divide_by_rms(y, axis=-1, mean=jnp.mean):
    return y / jnp.sqrt(mean(y**2, axis=axis, keepdims=True))


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
