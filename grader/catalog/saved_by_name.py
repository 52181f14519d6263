"""What is expected of answers where names decide what is saved; only the judge reads this."""

from collections.abc import Collection

import numpy as np

from grader.exercises.hints import Hint
from grader.exercises.requirements import KnownMistake
from grader.exercises.spec import Case


def sample_input(rng: np.random.Generator, argument: np.ndarray) -> np.ndarray:
    """Return values whose matmuls are large enough that sin(y) differs from y, and small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    KnownMistake(
        "this is twice the value of f",
        lambda f, names: lambda *arguments: 2 * f(*arguments),
        "How many times does the function that you return call f, and what does it do with each result?",
    ),
)


asked_about_names = Hint(
    "Print what your policy is called with, as the page does. Which operations have a parameter called `name`, and "
    "what should the policy return for all others?",
    on_kinds=("raises",),
    on_text="not only for names",
)
run_once = Hint(
    "Each call of the function that you return should run `f` once. How many times does it call `f`, or the "
    "checkpointed `f`? What does it do with each result?",
    on_kinds=("recomputes", "wrong value"),
)
other_operations = Hint(
    "`jax.checkpoint` changes no gradient. Which other operations does your answer apply before or after `f`, and "
    "does the gradient flow through each of them?",
    on_kinds=("wrong gradient",),
)

too_many = "How many times does your answer run f in the forward pass, and how many times in the backward pass?"
without_name = (
    r"^KeyError: 'name'",
    "JAX calls a policy for every operation, not only for names. Which operations have a parameter `name`?",
)


def saving(case: Case, names: Collection[str]) -> tuple[tuple[str, ...], int]:
    """Return the keys of the values that a case's function saves if it saves these names, and how many matmuls its
    backward pass recomputes."""
    values = case.structure["values"]
    saved = [value for value in values if value.name in names]
    again = sum(value.kind == "product" for value in values if value not in saved)
    return tuple(value.key for value in saved), again + 1
