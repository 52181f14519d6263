"""Shared expectations of exercises in which names decide what is saved; only the judge reads this."""

from collections.abc import Collection

from grader.exercises.case_functions import signed_values
from grader.exercises.spec import Case

# Values whose matmuls are large enough that sin(y) differs from y, and small enough to round little.
sample_input = signed_values(0.3, 1.2)


def twice_the_value(f, names):
    """Return a function that computes twice the value of f, which is a known mistake."""
    return lambda *arguments: 2 * f(*arguments)


too_many = "How many times does your answer run f in the forward pass, and how many times in the backward pass?"


def saving(case: Case, names: Collection[str]) -> tuple[tuple[str, ...], int]:
    """Return the keys of the values that a case's function saves if it saves these names, and how many matmuls its
    backward pass recomputes."""
    values = case.structure["values"]
    saved = [value for value in values if value.name in names]
    again = sum(value.kind == "product" for value in values if value not in saved)
    return tuple(value.key for value in saved), again + 1
