"""Apply an answer to a case; the resulting function is differentiated."""

from collections.abc import Callable

from grader.exercises.spec import Case
from grader.tracing.failures import Unusable, refuse_none
from grader.util.words import with_article


def applied(answer: Callable, case: Case) -> Callable:
    """As `case.differentiated(answer)`, of an answer that may be no good.

    Raises:
      Unusable: what the answer makes is no function. Whatever the answer raises besides is its own.
    """
    function = case.apply(answer)
    refuse_none(answer, function)
    if not callable(function):
        raise Unusable(f"Your answer returns {with_article(type(function).__name__)}, not a function.")
    return case.transform(function)
