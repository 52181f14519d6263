"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, KnownMistake, Recomputes, Saves


def reference(w1, w2, x):
    """The result, and the values that an answer might save, by the names that findings give them."""
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
    """Small integers, scaled by a power of two, that leave the same remainder when they are divided by some number.

    Sums of products of them are exact in float32, so that values are the same bits in whatever order an answer adds.
    And no element of x @ w1, a sum of d products with remainder 1, is 0 if d is no multiple of that number: there relu
    has its kink, and right answers differ.

    Sums over many rows are not exact, and squares of such numbers would all round one way. So these rows hold any
    numbers, and grow: most are added while the sum is small, and its rounding too.
    """
    width = argument.shape[-1]
    if argument.shape[0] > 100:
        size = rng.uniform(0.5, 1.5, argument.shape) * np.geomspace(1 / 64, 1, argument.shape[0])[:, None]
        return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)
    modulus = next(number for number in (2, 3, 4, 5, 7) if width % number)
    numbers = {1: [-5, -3, 3, 5]}.get(width, [1 - modulus, 1, 1 + modulus, 1 - 2 * modulus])
    # Near 1: silu is relu far from 0, and relu6 is relu below 6. Less in float16, whose sums of squares are bounded,
    # and less still where there are more of them.
    scale = (1 / 8 if width <= 8 else 1 / 16) if argument.dtype == "float16" else 2.0 ** rng.integers(-1, 1)
    return (scale * rng.choice(numbers, size=argument.shape)).astype(argument.dtype)


mistakes = (
    KnownMistake("this is the value without relu", lambda w1, w2, x: jnp.sum((x @ w1 @ w2) ** 2)),
    KnownMistake("this is the value without the square", lambda w1, w2, x: jnp.sum(jax.nn.relu(x @ w1) @ w2)),
    KnownMistake(
        "this is the mean of the squares, not their sum", lambda w1, w2, x: jnp.mean((jax.nn.relu(x @ w1) @ w2) ** 2)
    ),
    KnownMistake("this is the value with w1 and w2 swapped", lambda w1, w2, x: reference(w2, w1, x)[0]),
    KnownMistake(
        "this is the value with relu after the second matmul too",
        lambda w1, w2, x: jnp.sum(jax.nn.relu(jax.nn.relu(x @ w1) @ w2) ** 2),
    ),
    KnownMistake("this is the value with w1 transposed", lambda w1, w2, x: reference(w1.T, w2, x)[0]),
    KnownMistake("this is the value with w2 transposed", lambda w1, w2, x: reference(w1, w2.T, x)[0]),
)

error_questions = (
    (r"has not called", "jax.checkpoint returns a function. Where do you call it, and with which arguments?"),
    (
        r"missing \d+ required positional argument: 'prim'",
        "JAX calls the policy itself, once for every operation. Do you pass policy= the policy or what it returned?",
    ),
    (
        r"remat policy should be|save_\w+\(\) got an",
        "JAX calls the policy for every operation and expects True or False. Do you pass policy= a policy, or a "
        "function that makes one?",
    ),
    (
        r"not callable",
        "A policy is a function. What do you pass as policy=, and what is the function in jax.checkpoint_policies "
        "called?",
    ),
    (
        r"positional argument",
        "Which arguments does the page's signature have, and which arguments of jax.checkpoint are passed by keyword?",
    ),
    (
        r"dot_general|matmul|contracting|einsum",
        "Which shapes do the two operands have? w1 and w2 are (d, d) and x is (N, d), and the order of the arguments "
        "is w1, w2, x.",
    ),
)

hints = (
    Hint(
        "Write the five steps as a plain function first, and check it: the finding lists the values that should not be "
        "saved. Which function turns a plain function into one that saves less?"
    ),
    Hint(
        "Your forward pass saves matmuls that have a batch dimension. Look at the page's table of four policies: which "
        "row recomputes no matmul for `f`, but one for `vmap(f)`?",
        on_kinds=("also saved",),
        on_text="Under vmap",
    ),
    Hint(
        "Is the pipeline inside a `jax.checkpoint`, and do you return what the checkpointed function returns? If you "
        "wrote a gradient rule instead, which residuals does that rule save?",
        on_kinds=("also saved",),
        on_text="Which function marks",
    ),
    Hint(
        "The mask is a result of relu. If you have a policy, what does it return for the operations of relu?",
        on_kinds=("also saved",),
        on_text="relu's mask, bool",
    ),
    Hint(
        "Is the whole pipeline inside one `jax.checkpoint`? If each step has its own, which values are passed from one "
        "step to the next, and are those saved?",
        on_kinds=("also saved",),
        on_text="Which operation computes that value",
    ),
    Hint(
        "Does your policy look at shapes? Under `jax.vmap` an operand can have three dimensions, and none of them is a "
        "batch dimension of the matmul. `dimension_numbers` in chapter 6 says which are, and one of the page's four "
        "policies checks just that.",
        on_kinds=("not saved",),
        on_text="bf16[",
    ),
    Hint(
        "What does `jax.checkpoint` save without a policy? What does the page's table of four policies show for "
        "`nothing_saveable`?",
        on_kinds=("not saved", "recomputes"),
    ),
    Hint(
        "What do you pass as `policy=`? It must be a function, such as one of the page's four policies: without "
        "quotes, and without parentheses after it.",
        on_kinds=("raises",),
        on_text="policy=",
    ),
    Hint(
        "`jax.checkpoint` takes a function and returns a function. How do you get a number from the function that it "
        "returns?",
        on_kinds=("wrong type",),
        on_text="has not called",
    ),
    Hint(
        "Which of the page's four policies return True for a matmul? Which of those returns False for it under `vmap`, "
        "as the problem asks?"
    ),
    Hint(
        "Nearly the answer: define the pipeline as an inner function of `w1`, `w2` and `x`. Wrap it in "
        "`jax.checkpoint` with `policy=jax.checkpoint_policies.…`, call the wrapped function with the arguments, and "
        "return the result."
    ),
    Hint(
        "The grader calls your answer with `w1`, `w2` and `x`, in this order. In which order does your `def` line take "
        "them?",
        on_kinds=("argument order",),
    ),
    Hint(
        "Take two small matrices and an `x`, and compute the five steps one at a time: matmul, relu, matmul, square, "
        "sum. At which step does your answer differ?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "The page asks for a single number of the arguments' dtype. What does your `return` give: an array that is not "
        "summed, another dtype, several values, nothing?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "`jax.checkpoint` changes neither the value nor the gradient. Which part of your answer does: your own "
        "gradient rule, a `stop_gradient`, a constant instead of the cotangent?",
        on_kinds=("wrong gradient",),
    ),
    Hint(
        "`jax.checkpoint` takes one function, and everything else by keyword. Your answer takes three arrays. Which "
        "call on that line gets more arguments, or fewer?",
        on_kinds=("raises",),
        on_text="positional argument",
    ),
    Hint(
        "Type `jax.checkpoint_policies.` in a cell and press Tab. Which names do you see?",
        on_kinds=("raises",),
        on_text="has no attribute",
    ),
    Hint(
        "Does your answer work for all shapes, and for arrays without values, as JAX passes them while it traces? Try "
        "it with `jax.make_jaxpr` and two different shapes.",
        on_kinds=("raises",),
    ),
    Hint(
        "Two of the page's four policies save matmuls. Which of them checks whether a matmul has a batch dimension, "
        "whatever its size?",
        on_kinds=("also saved",),
        on_text="Under vmap",
    ),
    Hint(
        "Which of the page's four policies return True for a matmul? Does the policy that you pass to "
        "`jax.checkpoint`, for every shape and dtype?",
        on_kinds=("not saved",),
    ),
    Hint(
        "Count the matmuls in your forward pass, and those that your backward pass recomputes. Which line runs one "
        "more than the five steps need?",
        on_kinds=("extra matmuls",),
    ),
    Hint(
        "Your forward pass saves the right values, but in host memory. Which of the page's four policies save values "
        "on the device, and is yours one of them?",
        on_kinds=("wrong memory",),
    ),
    *ABOUT_ERRORS,
)

_VALUES = ("x @ w1", "relu(x @ w1) @ w2")


def requirements(case):
    """Each matmul without a batch dimension is saved: one whose operands have no mapped axis in common."""
    vmaps = case.structure["vmaps"]
    batched = [
        any({"x", "w1"} <= set(names) for names in vmaps),
        any("w2" in names and {"x", "w1"} & set(names) for names in vmaps),
    ]
    saved = tuple(name for name, has_batch in zip(_VALUES, batched, strict=True) if not has_batch)
    plain = [
        Saves(
            saved,
            too_much="Which operation computes that value, and what does your policy return for that operation? Is the "
            "whole pipeline inside one jax.checkpoint?",
            too_little="What does jax.checkpoint save if it is given no policy? For which operations should yours "
            "return True, whatever the shapes of their operands?",
        ),
        Recomputes(count=0, too_many="Which results must be saved so that the backward pass recomputes no matmul?"),
    ]
    under_vmap = [
        Saves(
            saved,
            too_much="Under vmap over two or three arguments, which dimension do the matmuls have that they did not "
            "have before? Which of the page's four policies returns False for those?",
            too_little="Under vmap over two of the arguments, which of the two matmuls has a batch dimension, that is, "
            "one that both of its operands have? What does your policy return for the other matmul?",
        ),
        Recomputes(count=sum(batched), too_many="Which matmul does the backward pass run more than once?"),
    ]
    if case.structure["d"] < 8:  # a sum of squares that is written as a matmul takes as many FLOPs as these
        plain = plain[:1]
    return [[], under_vmap, [AdvisesBarrier()]] if any(batched) else [plain, [], [AdvisesBarrier()]]
