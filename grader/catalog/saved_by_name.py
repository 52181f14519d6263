"""What is expected of answers where names decide what is saved; only the judge reads this."""

from collections.abc import Collection

import numpy as np

from grader.exercises.spec import Case


def sample_input(rng: np.random.Generator, argument: np.ndarray) -> np.ndarray:
    """Return values whose matmuls are large enough that sin(y) differs from y, and small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def twice_the_value(f, names):
    """Return what a known mistake returns: twice the value of f."""
    return lambda *arguments: 2 * f(*arguments)


too_many = "How many times does your answer run f in the forward pass, and how many times in the backward pass?"


def saving(case: Case, names: Collection[str]) -> tuple[tuple[str, ...], int]:
    """Return the keys of the values that a case's function saves if it saves these names, and how many matmuls its
    backward pass recomputes."""
    values = case.structure["values"]
    saved = [value for value in values if value.name in names]
    again = sum(value.kind == "product" for value in values if value not in saved)
    return tuple(value.key for value in saved), again + 1
