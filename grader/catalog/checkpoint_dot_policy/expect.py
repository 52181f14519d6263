"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


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


def draw(rng, argument):
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
    Mistake("this is the value without relu", lambda w1, w2, x: jnp.sum((x @ w1 @ w2) ** 2)),
    Mistake("this is the value without the square", lambda w1, w2, x: jnp.sum(jax.nn.relu(x @ w1) @ w2)),
    Mistake(
        "this is the mean of the squares, not their sum", lambda w1, w2, x: jnp.mean((jax.nn.relu(x @ w1) @ w2) ** 2)
    ),
    Mistake("this is the value with w1 and w2 swapped", lambda w1, w2, x: reference(w2, w1, x)[0]),
    Mistake(
        "this is the value with relu after the second matmul too",
        lambda w1, w2, x: jnp.sum(jax.nn.relu(jax.nn.relu(x @ w1) @ w2) ** 2),
    ),
    Mistake("this is the value with w1 transposed", lambda w1, w2, x: reference(w1.T, w2, x)[0]),
    Mistake("this is the value with w2 transposed", lambda w1, w2, x: reference(w1, w2.T, x)[0]),
)

error_questions = (
    (r"has not called", "What jax.checkpoint returns is a function. Who calls it, and with which arguments?"),
    (
        r"missing \d+ required positional argument: 'prim'",
        "JAX calls the policy itself, once for every operation: what do you give it as policy=, the policy or what it "
        "returned?",
    ),
    (
        r"remat policy should be|save_\w+\(\) got an",
        "JAX calls the policy for every operation and wants yes or no: is what you give as policy= a policy, or a "
        "function that makes one?",
    ),
    (
        r"not callable",
        "A policy is a function: what do you give as policy=, and what is the function called under "
        "jax.checkpoint_policies?",
    ),
    (
        r"positional argument",
        "Which arguments does the page's signature have, and which arguments of jax.checkpoint go by keyword?",
    ),
    (
        r"dot_general|matmul|contracting|einsum",
        "Which shapes do the two operands have? w1 and w2 are (d, d), x is (N, d), and they come in this order.",
    ),
)

hints = (
    Hint(
        "Can you write the five steps as a plain function first, and check that? The findings will tell which values "
        "are saved that should not be. What turns a plain function into one that saves less?"
    ),
    Hint(
        "You save products that have a batch dimension. Look at the table of the four policies: which row has no "
        "product computed again for `f`, but one for `vmap(f)`?",
        after=("also saved",),
        says="Under vmap",
    ),
    Hint(
        "Is there a `jax.checkpoint` around it, and does your function return what that one returns?",
        after=("also saved",),
        says="Which function marks",
    ),
    Hint(
        "Relu's mask and its result are made by relu. What does your policy, if there is one, say to relu?",
        after=("also saved",),
        says="relu's mask, bool",
    ),
    Hint(
        "Is the whole pipeline inside one `jax.checkpoint`? If you wrap each step by itself, what is handed from one "
        "step to the next, and is that saved?",
        after=("also saved",),
        says="Which operation made that value",
    ),
    Hint(
        "Does a policy of yours count dimensions? Under `jax.vmap` an operand may have three, and none of them a batch "
        "dimension of the product. `dimension_numbers` in chapter 4 tells which are, and one of the page's four "
        "policies asks for just that.",
        after=("not saved",),
        says="bf16[",
    ),
    Hint(
        "What does `jax.checkpoint` save if it is given no policy? What did the page's table of four policies say of "
        "`nothing_saveable`?",
        after=("not saved", "recomputes"),
    ),
    Hint(
        "What stands behind `policy=`? It has to be a function, one of those in `jax.checkpoint_policies`: without "
        "quotes, and without brackets behind it.",
        after=("raises",),
        says="policy=",
    ),
    Hint(
        "`jax.checkpoint` takes a function and returns a function. What do you do with that one, to get a number?",
        after=("wrong type",),
        says="has not called",
    ),
    Hint(
        "Which of the page's four policies say yes to a product, and which of those says no to it under `vmap`, as the "
        "problem asks?"
    ),
    Hint(
        "Nearly the answer: define the pipeline as an inner function of `w1`, `w2` and `x`. Wrap it in "
        "`jax.checkpoint` with `policy=jax.checkpoint_policies.…`, call the wrapped function on the arguments, and "
        "return what it returns."
    ),
    Hint(
        "The checker calls your answer with `w1`, `w2` and `x`, in this order. What does your `def` line say, and "
        "which of them stands where in your products?",
        after=("argument order",),
    ),
    Hint(
        "Take two small matrices and an `x`, and compute the five steps one by one beside your answer: the first "
        "product, relu, the second product, the square, the sum. Where do the two part?",
        after=("wrong value",),
    ),
    Hint(
        "What does the page ask for: a single number, of the arguments' dtype. What does your `return` hand out: is"
        " it summed, of another dtype, several things?",
        after=("wrong type",),
    ),
    Hint(
        "`jax.checkpoint` changes neither value nor gradient. Which part of your answer does: a rule of your own, a"
        " `stop_gradient`, a constant in place of the cotangent?",
        after=("wrong gradient",),
    ),
    Hint(
        "`jax.checkpoint` takes one function, and all else by keyword; your answer takes three arrays. Which call "
        "in that line gets more, or fewer?",
        after=("raises",),
        says="positional argument",
    ),
    Hint(
        "Put the cursor behind `jax.checkpoint_policies.` in a cell and press Tab: which names are there?",
        after=("raises",),
        says="has no attribute",
    ),
    Hint(
        "Does your answer work for all shapes, and for numbers that are not there yet while JAX traces? Try it in "
        "`jax.make_jaxpr`, with two different shapes.",
        after=("raises",),
    ),
    Hint(
        "Of the page's four policies two keep products. Which of these two asks whether a product has a batch "
        "dimension, whatever its size?",
        after=("also saved",),
        says="Under vmap",
    ),
    Hint(
        "`jax.checkpoint(f, policy=…)`: which of the page's four policies say yes to a product, and does yours, for"
        " every shape and dtype?",
        after=("not saved",),
    ),
    Hint(
        "Count the products in your forward pass, and those that your backward pass runs again. Which line runs one"
        " more than the five steps need?",
        after=("extra matmuls",),
    ),
    Hint(
        "Right values, in the wrong place: the host's memory. Which of the page's four policies keep what they save"
        " on the device, and is yours one of these?",
        after=("wrong memory",),
    ),
    *ABOUT_ERRORS,
)

_VALUES = ("x @ w1", "relu(x @ w1) @ w2")


def requirements(case):
    """Saved is each product that has no batch dimension: none that both of its operands bring along."""
    vmaps = case.structure["vmaps"]
    batched = [
        any({"x", "w1"} <= set(names) for names in vmaps),
        any("w2" in names and {"x", "w1"} & set(names) for names in vmaps),
    ]
    saved = tuple(name for name, has_batch in zip(_VALUES, batched, strict=True) if not has_batch)
    plain = [
        Saves(
            saved,
            too_much="Which operation made that value, and what does your policy say to that operation? Is all of the "
            "pipeline inside one jax.checkpoint?",
            too_little="What does jax.checkpoint keep if it is given no policy, and to which operations should yours "
            "say yes, whatever the shapes of their operands?",
        ),
        Recomputes(dots=0, too_many="Of which operations must the results be saved, so that none is run again?"),
    ]
    under_vmap = [
        Saves(
            saved,
            too_much="Under vmap over all three arguments, or two, which dimensions have the matmuls that they did not "
            "have before, and which of the page's four policies says no to those?",
            too_little="Under vmap over two of the arguments, which of the two matmuls has a dimension that both of "
            "its operands bring along, and which has none? What does your policy say to the latter?",
        ),
        Recomputes(dots=sum(batched), too_many="Which matmul does the backward pass run more than once?"),
    ]
    if case.structure["d"] < 8:  # a sum of squares that is spelled as a product is no less work than these
        plain = plain[:1]
    return [[], under_vmap, [AdvisesBarrier()]] if any(batched) else [plain, [], [AdvisesBarrier()]]
