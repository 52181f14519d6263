"""Apply an answer to a case; the resulting function is differentiated."""

from collections.abc import Callable

from grader.exercises.spec import Case
from grader.tracing.failures import Unusable, refuse_none
from grader.util.words import with_article


def applied(answer: Callable, case: Case) -> Callable:
    """Return the function that the case differentiates, after checking what the answer returns.

    Raises:
      Unusable: if the answer does not return a function where it should. Other exceptions come from the answer itself.
    """
    function = case.apply(answer)
    refuse_none(answer, function)
    if not callable(function):
        raise Unusable(f"Your answer returns {with_article(type(function).__name__)}, not a function.")
    return case.transform(function)
