"""What is expected of answers where names decide what is saved; only the judge reads this."""

from collections.abc import Collection

import numpy as np

from grader.exercises.hints import Hint
from grader.exercises.requirements import Mistake
from grader.exercises.spec import Case


def draw(rng: np.random.Generator, argument: np.ndarray) -> np.ndarray:
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    Mistake(
        "this is the value of f called twice over",
        lambda f, names: lambda *arguments: 2 * f(*arguments),
        "How often does what you return run f, and what becomes of each result?",
    ),
)


asked_about_names = Hint(
    "Print what your policy is asked, as the page does. Which operations have an entry `name` among their "
    "parameters, and what should it say to all others?",
    after=("raises",),
    says="besides names",
)
run_once = Hint(
    "Each call of what you return should run `f` once. How often is `f`, or what you have made of it, called "
    "there, and what is done with the results?",
    after=("recomputes", "wrong value"),
)
gradients_handed_on = Hint(
    "`jax.checkpoint` hands every gradient on. What else stands between `f` and what you return, and does a "
    "gradient get through that?",
    after=("wrong gradient",),
)

too_many = "How often does your answer run f in the forward pass, and how often again?"


def saving(case: Case, names: Collection[str]) -> tuple[tuple[str, ...], int]:
    """What a case's function saves if it saves what has one of these names: the values, by their keys, and how many
    products it computes again."""
    values = case.structure["values"]
    saved = [value for value in values if value.name in names]
    again = sum(value.kind == "product" for value in values if value not in saved)
    return tuple(value.key for value in saved), again + 1
