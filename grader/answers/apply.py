"""The function that an answer makes of a case, which is what is differentiated."""

import inspect
from collections.abc import Callable

from grader.answers.failures import Failure, Unusable, refuse_none
from grader.exercises.spec import Case


def parameters(answer: Callable) -> tuple[str, ...]:
    """The names of a function's positional parameters; empty where they cannot be known."""
    try:
        signature = inspect.signature(answer)
    except (ValueError, TypeError):
        return ()
    return tuple(p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY)


def applied(answer: Callable, case: Case) -> Callable:
    """The function that is differentiated."""
    function = case.apply(answer)
    refuse_none(answer, function)
    if not callable(function):
        raise Unusable(Failure("returned", f"Your answer returns a {type(function).__name__}, not a function."))
    return case.transform(function)
