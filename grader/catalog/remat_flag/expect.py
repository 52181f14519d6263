"""What is expected of an answer; only the judge reads this."""

from grader.hints import Hint
from grader.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    Mistake(
        "this is what f computes for the other value of the flag",
        lambda f: lambda *arguments: f(*arguments[:-1], not arguments[-1]),
        next="Where does your answer learn the flag, and does it learn it anew in each call?",
    ),
    Mistake(
        "this is what f computes for True both times",
        lambda f: lambda *arguments: f(*arguments[:-1], True),
        next="Where does your answer learn the flag, and does it learn it anew in each call?",
    ),
)

error_questions = (
    (
        r"^TracerBoolConversionError",
        "Inside jax.checkpoint an argument is a tracer, which has no value that `if` could look at, unless it is named "
        "as static, by position. How does the flag get in, in your answer, and at which position?",
    ),
    (
        r"static_argnums",
        "static_argnums counts the arguments that are passed by position. How many are those in this call, and is the "
        "flag one of them?",
    ),
    (
        r"Non-hashable static",
        "Which of the two gets the flag first, jax.checkpoint or jax.jit, and which of them knows that it is static?",
    ),
    (r"keyword argument", "Is there such a keyword? The flag is the last argument, and f may call it what it likes."),
    (r"missing \d+ required", "What is given to remat_flag: f and its arguments, or f alone?"),
)

hints = (
    Hint(
        "Inside `jax.checkpoint` every argument is a tracer, the flag too. Which parameter of `jax.checkpoint` says "
        "that an argument stays a Python value? Or could the flag get in without being an argument at all?",
    ),
    Hint(
        "`static_argnames` looks right, but on JAX's default path nobody reads it. What is there besides names to say "
        "which argument is meant?",
        after=("raises",),
    ),
    Hint(
        "The functions have different numbers of arrays before the flag. How do you count from the end, in Python?",
        after=("raises",),
    ),
    Hint(
        "When is the flag known: when `remat_flag(f)` is called, or when what it returns is called?",
        after=("wrong value",),
    ),
    Hint(
        "Does your answer trace `f` once a call, for the flag at hand, or for both values?",
        after=("extra matmuls", "recomputes"),
    ),
    Hint(
        "Nearly the answer: `static_argnums` takes positions, and -1 is the last one. Or return a function of "
        "`*arguments` that takes the flag off the end, wraps a function of the other arguments that passes it on, and "
        "calls that.",
    ),
)

requirements = (
    (
        ("the flag is True", "the flag is False", "True, then False", "vmap over x"),
        (
            Saves(
                (),
                too_much="Is all of f inside jax.checkpoint, for both values of the flag, and without a policy?",
            ),
            Recomputes(dots=2, too_many="How often does your answer run f, for a flag that has one value?"),
            AdvisesBarrier(),
        ),
    ),
)
