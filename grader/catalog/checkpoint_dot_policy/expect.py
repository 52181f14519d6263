"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


def reference(w1, w2, x):
    """Return the result, and the values that an answer might save, by the names that findings give them."""
    y = x @ w1
    h = jax.nn.relu(y)
    z = h @ w2
    result = jnp.sum(z**2)
    return result, {
        "x @ w1": y,
        "relu(x @ w1)": h,
        "relu's mask": y > 0,
        "relu's mask, inverted": y <= 0,
        "relu(x @ w1) @ w2": z,
        "2 * (relu(x @ w1) @ w2)": 2 * z,
        "(relu(x @ w1) @ w2) ** 2": z**2,
        "the result": result,
    }


def sample_input(rng, argument):
    """Return small integers, scaled by a power of two, that all have the same remainder modulo some number.

    Sums of their products are exact in float32, so values are bitwise identical for every order of summation. If d is
    not a multiple of the number, no element of x @ w1, a sum of d products with remainder 1, is 0. At 0, relu is not
    differentiable, and right answers differ.

    Sums over many rows are not exact, and squares of such numbers would all be rounded in the same direction. So many
    rows contain arbitrary numbers of increasing size: most of them are added while the sum and its rounding error are
    small.
    """
    width = argument.shape[-1]
    if argument.shape[0] > 100:
        size = rng.uniform(0.5, 1.5, argument.shape) * np.geomspace(1 / 64, 1, argument.shape[0])[:, None]
        return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)
    modulus = next(number for number in (2, 3, 4, 5, 7) if width % number)
    numbers = {1: [-5, -3, 3, 5]}.get(width, [1 - modulus, 1, 1 + modulus, 1 - 2 * modulus])
    # Near 1, because silu equals relu far from 0, and relu6 equals relu below 6. Smaller in float16, whose range limits
    # sums of squares, especially of many numbers.
    scale = (1 / 8 if width <= 8 else 1 / 16) if argument.dtype == "float16" else 2.0 ** rng.integers(-1, 1)
    return (scale * rng.choice(numbers, size=argument.shape)).astype(argument.dtype)


mistakes = (
    mistake("without_relu", lambda w1, w2, x: jnp.sum((x @ w1 @ w2) ** 2)),
    mistake("without_square", lambda w1, w2, x: jnp.sum(jax.nn.relu(x @ w1) @ w2)),
    mistake("mean_of_squares", lambda w1, w2, x: jnp.mean((jax.nn.relu(x @ w1) @ w2) ** 2)),
    mistake("weights_swapped", lambda w1, w2, x: reference(w2, w1, x)[0]),
    mistake("relu_after_second_matmul", lambda w1, w2, x: jnp.sum(jax.nn.relu(jax.nn.relu(x @ w1) @ w2) ** 2)),
    mistake("w1_transposed", lambda w1, w2, x: reference(w1.T, w2, x)[0]),
    mistake("w2_transposed", lambda w1, w2, x: reference(w1, w2.T, x)[0]),
)


_VALUES = ("x @ w1", "relu(x @ w1) @ w2")


def requirements(case):
    """Require that matmuls without a batch dimension are saved: their operands have no mapped axis in common."""
    vmaps = case.structure["vmaps"]
    batched = [
        any({"x", "w1"} <= set(names) for names in vmaps),
        any("w2" in names and {"x", "w1"} & set(names) for names in vmaps),
    ]
    saved = tuple(name for name, has_batch in zip(_VALUES, batched, strict=True) if not has_batch)
    plain = [
        Saves(
            saved,
            too_much="Which operation computes that value, and what does your policy return for that operation? Are "
            "all five steps inside one jax.checkpoint?",
            too_little="What does jax.checkpoint save without a policy? For which operations should your policy "
            "return True, whatever the shapes of the operands?",
        ),
        Recomputes(count=0, too_many="Which results must be saved so that the backward pass recomputes no matmul?"),
    ]
    under_vmap = [
        Saves(
            saved,
            too_much="Under vmap over two or three arguments, which dimension do the matmuls gain? What does your "
            "policy return for a matmul with such a dimension?",
            too_little="Under vmap over two of the arguments, which of the two matmuls has a batch dimension, that is, "
            "a mapped dimension that both of its operands have? What does your policy return for the other matmul?",
        ),
        Recomputes(count=sum(batched), too_many="Which matmul does the backward pass run more than once?"),
    ]
    if case.structure["d"] < 8:  # a sum of squares that is written as a matmul takes as many FLOPs as these
        plain = plain[:1]
    return [[], under_vmap, [AdvisesBarrier()]] if any(batched) else [plain, [], [AdvisesBarrier()]]
