"""What is expected of an answer; only the judge reads this."""

import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, KnownMistake, Recomputes, Saves


def reference(x, W1, W2):
    """The result, and the values that an answer might save, by the names that findings give them."""
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


def sample_input(rng, argument):
    """Return values whose matmuls have root mean squares away from 1 and sums of squares that fit in float16."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    KnownMistake("this is the value without the division", lambda x, W1, W2: jnp.sin(x @ W1) @ W2),
    KnownMistake("this is the value without the sine", lambda x, W1, W2: _divided(x @ W1) @ W2),
    KnownMistake(
        "this is the value with the columns divided instead of the rows", lambda x, W1, W2: _columns(x @ W1, W2)
    ),
    KnownMistake(
        "this is the value with all rows divided by one number instead of each by its own",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.sqrt(jnp.mean((x @ W1) ** 2))) @ W2,
    ),
    KnownMistake(
        "this is the value with each row divided by its norm: the root of the sum of its squares, not of their mean",
        lambda x, W1, W2: jnp.sin(_divided(x @ W1, mean=jnp.sum)) @ W2,
        "How many times larger is the sum of the squares than their mean? And the root of the sum?",
    ),
    KnownMistake(
        "this is the value with each row divided by the mean of its squares, without the root",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.mean((x @ W1) ** 2, axis=-1, keepdims=True)) @ W2,
        "After the mean of the squares, which operation is missing in a root mean square?",
    ),
    KnownMistake(
        "this is the value with each row divided by its standard deviation, which subtracts the row's mean",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.std(x @ W1, axis=-1, keepdims=True)) @ W2,
        "Does the page's formula subtract a mean?",
    ),
    KnownMistake(
        "this is the value with rows normalized as in a layer norm, which subtracts their mean first",
        lambda x, W1, W2: jnp.sin(_divided(x @ W1 - jnp.mean(x @ W1, axis=-1, keepdims=True))) @ W2,
        "Does the page's formula subtract a mean?",
    ),
    KnownMistake(
        "this is the value with each row divided by the mean of its absolute values",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.mean(abs(x @ W1), axis=-1, keepdims=True)) @ W2,
        "A root mean square is the root of the mean of which values?",
    ),
    KnownMistake(
        "this is the value with a cosine instead of the sine",
        lambda x, W1, W2: jnp.cos(_divided(x @ W1)) @ W2,
    ),
    KnownMistake(
        "this is the value with the sine before the division",
        lambda x, W1, W2: _divided(jnp.sin(x @ W1)) @ W2,
        "In which order does the page list the steps?",
    ),
    KnownMistake(
        "this is the value with the rows of x divided instead of the rows of x @ W1",
        lambda x, W1, W2: jnp.sin(_divided(x) @ W1) @ W2,
        "Does the division come before the first matmul, or after it?",
    ),
    KnownMistake(
        "this is the value with a sine after the second matmul too",
        lambda x, W1, W2: jnp.sin(reference(x, W1, W2)[0]),
    ),
)


def _divided(y, axis=-1, mean=jnp.mean):
    return y / jnp.sqrt(mean(y**2, axis=axis, keepdims=True))


def _columns(y, W2):
    return jnp.sin(_divided(y, axis=-2)) @ W2


error_questions = (
    (r"checkpoint_name\(\)", "What does checkpoint_name take besides the value?"),
    (r"has not called", "jax.checkpoint returns a function. Where do you call it with your arguments?"),
    (
        r"unhashable type: '\w*Tracer|'function' (object has no|and)|Expected a callable",
        "jax.checkpoint takes a function and returns a function. What do you pass to it, and where do you call what it "
        "returns?",
    ),
    (
        r"checkpoint\(\) takes",
        "Which arguments does jax.checkpoint take by keyword only?",
    ),
    (
        r"remat policy should be|save_\w+\(\) got an",
        "JAX calls the policy for every operation. Do you pass policy= a policy, or a function that makes one?",
    ),
    (r"not callable", "Which value does that line call, and is it a function or what a function returned?"),
    (
        r"dot_general|matmul|contracting|einsum",
        "Which shapes do the two operands have, and in which order are they?",
    ),
)

hints = (
    Hint(
        "What does the backward pass need for the gradient of `W2`, for the sine, and for the division, which is not "
        "linear either? From which single value can it compute all of that without a matmul?"
    ),
    Hint(
        "A name alone changes nothing. Which call saves values by their names, and is the whole function inside it?",
        on_kinds=("also saved",),
        on_text="Which function marks",
    ),
    Hint(
        "The derivative of the sine is the cosine of its *input*. Do you save the sine's input, or its output?",
        on_kinds=("also saved",),
        on_text=": the sines",
    ),
    Hint(
        "Suppose that you know a row after it was divided by its root mean square. Can you compute the row before the "
        "division?",
        on_kinds=("also saved",),
        on_text=": the normalized rows",
    ),
    Hint(
        "Which values does your policy save, or your own gradient rule? Can one of them be computed from another?",
        on_kinds=("also saved",),
    ),
    Hint(
        "Is there a policy, does it ask for the name, and which value has that name? As a decorator: "
        "`@functools.partial(jax.checkpoint, policy=...)`.",
        on_kinds=("not saved",),
    ),
    Hint(
        "Follow the named value: which line computes it, and which line uses it? Does the policy have the same string?",
        on_kinds=("not saved",),
    ),
    Hint(
        "Nearly the answer: name the result of the first matmul, and use what `checkpoint_name` returns from there on. "
        "Wrap the function in `jax.checkpoint`, with a policy made by `save_only_these_names`."
    ),
    Hint(
        "Your forward pass saves more than one computed value, and the page asks for one. Which of them can be "
        "computed from another by cheap operations?",
        on_kinds=("also saved",),
        on_text=(": the sines", "x @ W1"),
    ),
    Hint(
        "Your forward pass saves what each step needs, as it would without a checkpoint. Which of JAX's policies saves "
        "only values with a certain name?",
        on_kinds=("also saved",),
        on_text=("the cosines", "without a matmul"),
    ),
    Hint(
        "How many times does your function compute `x @ W1`? Everything after it must use the one value that has the "
        "name.",
        on_kinds=("recomputes", "extra matmuls"),
    ),
    Hint(
        "Compare your steps with the page's: `x @ W1`, then `y / jnp.sqrt(jnp.mean(y**2, axis=-1, keepdims=True))`, "
        "then the sine, then `@ W2`. Which one differs?",
        on_kinds=("wrong value", "wrong gradient"),
    ),
    Hint(
        "`x` comes first in the page's table. In which order does your `def` line take the three arrays?",
        on_kinds=("argument order",),
    ),
    Hint(
        '`checkpoint_name(value, "name")` takes two arguments and returns the value. What do you pass to it, and which '
        "line uses what it returns?",
        on_kinds=("raises",),
        on_text="besides the value",
    ),
    Hint(
        "In `jax.checkpoint(inner, policy=…)(x, W1, W2)`, which parentheses contain a function, and which contain the "
        "arguments of that function?",
        on_kinds=("raises",),
        on_text="jax.checkpoint takes a function",
    ),
    Hint(
        "A decorator such as `@functools.partial(jax.checkpoint, policy=…)` is written above the `def`. A call is "
        "`jax.checkpoint(inner, policy=…)(x, W1, W2)`. Which parentheses contain what in your answer?",
        on_kinds=("wrong type",),
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    saves = Saves(
        ("x @ W1",),
        too_much="Which step computes that value? Can the backward pass compute everything that it needs from it "
        "without a matmul?",
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
