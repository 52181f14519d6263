"""What a case must compute: the reference."""

import functools
import inspect
from collections.abc import Callable

from grader.exercises.spec import Case, Expect


def reference_of(case: Case, expect: Expect) -> Callable:
    """A case's reference: takes what the case's function takes, and returns the result and the named values."""
    return case.transform(expect.reference if case.function is None else _with_names(case.function))


def argument_names(case: Case, expect: Expect) -> tuple[str, ...]:
    """What a case's arguments are called: the names of its reference's positional parameters."""
    parameters = inspect.signature(reference_of(case, expect)).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY)


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
