"""What is expected of an answer; only the judge reads this."""

import jax.numpy as jnp

from grader.exercises.hints import Hint
from grader.exercises.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


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
        "the divided rows": r,
        "the sines": h,
        "the cosines": jnp.cos(r),
        "the result": z,
    }


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    Mistake("this is the value without the division", lambda x, W1, W2: jnp.sin(x @ W1) @ W2),
    Mistake("this is the value without the sine", lambda x, W1, W2: _divided(x @ W1) @ W2),
    Mistake("this is the value with the columns divided, not the rows", lambda x, W1, W2: _columns(x @ W1, W2)),
    Mistake(
        "this is the value with all rows divided by one number, not each by its own",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.sqrt(jnp.mean((x @ W1) ** 2))) @ W2,
    ),
    Mistake(
        "this is the value with a sine after the second product too",
        lambda x, W1, W2: jnp.sin(reference(x, W1, W2)[0]),
    ),
)


def _divided(y, axis=-1):
    return y / jnp.sqrt(jnp.mean(y**2, axis=axis, keepdims=True))


def _columns(y, W2):
    return jnp.sin(_divided(y, axis=-2)) @ W2


error_questions = (
    (r"checkpoint_name\(\)", "What does checkpoint_name take besides the value?"),
    (r"has not called", "What jax.checkpoint returns is a function. What becomes of your arguments?"),
    (r"not callable", "Which of the values in that line is a function, and which is what a function returned?"),
    (
        r"dot_general|matmul|contracting|einsum",
        "Which shapes do the two operands have, and in which order are they?",
    ),
)

hints = (
    Hint(
        "Write down what the way back needs: for the gradient of `W2`, for the sine, and for the division, which is no "
        "linear operation either. From which single value do all of these follow, without a matrix product?"
    ),
    Hint(
        "A name alone changes nothing. What asks for it, and is all of the function inside of that?",
        after=("also saved",),
        says="Which function marks",
    ),
    Hint(
        "The sine's derivative is the cosine of what went *in*. Did you save what goes in, or what comes out?",
        after=("also saved",),
        says="saves the sines",
    ),
    Hint(
        "You know a row that has been divided by its root mean square. Can you tell what the row was before?",
        after=("also saved",),
        says="saves the divided rows",
    ),
    Hint(
        "Which values may your policy keep, and can one of them be had from another?",
        after=("also saved",),
    ),
    Hint(
        "Is there a policy, and does it ask for the name? As a decorator: `@functools.partial(jax.checkpoint, "
        "policy=...)`.",
        after=("not saved",),
    ),
    Hint(
        "Follow the named value: which line makes it, and which uses it? And does the policy have the same string?",
        after=("not saved",),
    ),
    Hint(
        "Nearly the answer: write the function with a name on the product that goes into the division, and use what "
        "`checkpoint_name` returns from there on. Wrap it in `jax.checkpoint`, with a policy made by "
        "`save_only_these_names`."
    ),
)

_REQUIREMENTS = (
    (
        ("float32", "float16", "vmap over x"),
        (
            Saves(
                ("x @ W1",),
                too_much="Which step made that value? Can all that the backward pass needs be had from it without a "
                "matrix product?",
                too_little="Which value is to be kept, which line names it, and does the next step use what "
                "checkpoint_name returns? Is the name spelled alike where it is given and where the policy asks?",
                unnamed=True,
            ),
            Recomputes(dots=0, too_many="Which product does the backward pass need again, and what was saved instead?"),
            AdvisesBarrier(),
        ),
    ),
)


def requirements(case):
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]
