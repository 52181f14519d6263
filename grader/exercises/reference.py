"""What a case must compute: the reference."""

import functools
from collections.abc import Callable
from types import ModuleType

from grader.exercises.spec import Case


def right(case: Case, expect: ModuleType) -> Callable:
    """A case's reference: a function that returns the result and the values that have names."""
    return case.transform(expect.reference if case.function is None else _with_names(case.function))


def _with_names(function: Callable) -> Callable:
    """A case's function, which also returns the values that it names."""

    @functools.wraps(function)
    def both(*arguments):
        named = {}

        def name(value, called):
            named[called] = value
            return value

        return function(*arguments, name=name), named

    return both
