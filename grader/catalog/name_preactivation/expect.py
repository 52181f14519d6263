"""What is expected of an answer; only the judge reads this."""

import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
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
    """Numbers whose products are so large that a root mean square is not about 1, and so small that the sum of their
    squares is a float16."""
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
        "this is the value with each row divided by its norm, the root of the sum of its squares and not of their mean",
        lambda x, W1, W2: jnp.sin(_divided(x @ W1, mean=jnp.sum)) @ W2,
        "How many times larger is a sum of squares than their mean, and so its root?",
    ),
    Mistake(
        "this is the value with each row divided by the mean of its squares, without the root",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.mean((x @ W1) ** 2, axis=-1, keepdims=True)) @ W2,
        "Mean of the squares, and then? Read the three words from the last to the first.",
    ),
    Mistake(
        "this is the value with each row divided by its standard deviation, from which the row's mean is taken off",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.std(x @ W1, axis=-1, keepdims=True)) @ W2,
        "Is a mean subtracted anywhere in what the page asks for?",
    ),
    Mistake(
        "this is the value with rows normalised as in a layer norm, their mean subtracted first",
        lambda x, W1, W2: jnp.sin(_divided(x @ W1 - jnp.mean(x @ W1, axis=-1, keepdims=True))) @ W2,
        "Is a mean subtracted anywhere in what the page asks for?",
    ),
    Mistake(
        "this is the value with each row divided by the mean of its absolute values",
        lambda x, W1, W2: jnp.sin(x @ W1 / jnp.mean(abs(x @ W1), axis=-1, keepdims=True)) @ W2,
        "Of what is the mean taken in a root mean square?",
    ),
    Mistake(
        "this is the value with a cosine in place of the sine",
        lambda x, W1, W2: jnp.cos(_divided(x @ W1)) @ W2,
    ),
    Mistake(
        "this is the value with the sine before the division",
        lambda x, W1, W2: _divided(jnp.sin(x @ W1)) @ W2,
        "In which order does the page name the steps?",
    ),
    Mistake(
        "this is the value with the rows of x divided, and not those of x @ W1",
        lambda x, W1, W2: jnp.sin(_divided(x) @ W1) @ W2,
        "Is the division before the first product, or behind it?",
    ),
    Mistake(
        "this is the value with a sine after the second product too",
        lambda x, W1, W2: jnp.sin(reference(x, W1, W2)[0]),
    ),
)


def _divided(y, axis=-1, mean=jnp.mean):
    return y / jnp.sqrt(mean(y**2, axis=axis, keepdims=True))


def _columns(y, W2):
    return jnp.sin(_divided(y, axis=-2)) @ W2


error_questions = (
    (r"checkpoint_name\(\)", "What does checkpoint_name take besides the value?"),
    (r"has not called", "What jax.checkpoint returns is a function. What becomes of your arguments?"),
    (
        r"unhashable type: '\w*Tracer|'function' (object has no|and)|Expected a callable",
        "jax.checkpoint takes a function and returns one: what do you give it, and who calls what comes back?",
    ),
    (
        r"checkpoint\(\) takes",
        "Which arguments does jax.checkpoint take by keyword only?",
    ),
    (
        r"remat policy should be|save_\w+\(\) got an",
        "JAX calls the policy for every operation: is what you give as policy= a policy, or a function that makes one?",
    ),
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
        says=": the sines",
    ),
    Hint(
        "You know a row that has been divided by its root mean square. Can you tell what the row was before?",
        after=("also saved",),
        says=": the divided rows",
    ),
    Hint(
        "Which values may your policy keep, and can one of them be had from another?",
        after=("also saved",),
    ),
    Hint(
        "Is there a policy, does it ask for the name, and which value has that? As a decorator: "
        "`@functools.partial(jax.checkpoint, policy=...)`.",
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
    Hint(
        "Two names are kept in your answer, or as many as your policy allows. The page asks for one computed value: "
        "which of them can be had from another by cheap operations?",
        after=("also saved",),
        says=(": the sines", "x @ W1"),
    ),
    Hint(
        "Your policy keeps what each step wants, as without a checkpoint. Which of JAX's policies keeps only what has "
        "a certain name?",
        after=("also saved",),
        says=("the cosines", "without a matrix product"),
    ),
    Hint(
        "How often does `x @ W1` stand in your function? All that follows must use the one value that has the name.",
        after=("recomputes", "extra matmuls"),
    ),
    Hint(
        "Put your steps beside the page's line: `x @ W1`, then `y / jnp.sqrt(jnp.mean(y**2, axis=-1, keepdims=True))`, "
        "then the sine, then `@ W2`. Which one differs?",
        after=("wrong value", "wrong gradient"),
    ),
    Hint(
        "`x` comes first, as the page's table has it: in which order does your `def` name the three?",
        after=("argument order",),
    ),
    Hint(
        '`checkpoint_name(value, "name")` takes two, and returns the value: what do you give it, and who uses what '
        "comes back?",
        after=("raises",),
        says="besides the value",
    ),
    Hint(
        "As a decorator, `@functools.partial(jax.checkpoint, policy=…)` stands above the `def`. Or call it: "
        "`jax.checkpoint(inner, policy=…)(x, W1, W2)`. Which of the brackets hold what in your answer?",
        after=("wrong type",),
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    saves = Saves(
        ("x @ W1",),
        too_much="Which step made that value? Can all that the backward pass needs be had from it without a matrix "
        "product?",
        too_little="Which value is to be kept, which line names it, and does the next step use what checkpoint_name "
        "returns? Is the name spelled alike where it is given and where the policy asks?",
        unnamed=True,
    )
    recomputes = Recomputes(
        dots=0, too_many="Which product does the backward pass need again, and what was saved instead?"
    )
    # Where a product has few columns, root mean squares are as much work as it is, if they are spelled as products.
    small = min(case.structure["a"], case.structure["c"]) < 8
    return [[saves] if small else [saves, recomputes], [AdvisesBarrier()]]
