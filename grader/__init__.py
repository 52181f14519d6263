"""The grader: `check(answer)` shows what an answer's backward pass saves and recomputes.

`hint()`, `failing_case()` and `solution()` help with an answer that did not pass. `board()` shows your progress.
`predict(…)` asks a question before a page answers it.
"""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing views is slow
    from grader.learner.failing_case import FailingCase
    from rematscope.render import View

__all__ = ["board", "check", "failing_case", "hint", "predict", "solution"]

if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()):
    from grader.learner import unrun_cells

    unrun_cells.explain_in(_shell)

# Each function imports what it needs when it is called, because importing JAX is slow, and because an answer's page
# imports these names in the sandbox, which contains neither the judge nor the learner's side of the grader.


def check(answer: Callable) -> "View":
    """Check an answer to the exercise that has its name, and save the attempt.

    Args:
      answer: the function that you wrote, under the name that the exercise's page gives it.

    Returns:
      A `Checked`, which shows itself: the verdict, and in a notebook buttons for what comes next. Its `verdict` has the
      findings, with the sizes (bytes, FLOPs) of the first case that shows each; `passed` is True or False.
    """
    from grader.learner import session

    return session.check(answer, sys._getframe(1).f_globals)


def hint(exercise: str | int | None = None) -> "View":
    """Give the next hint: a question that fits what the last check found.

    Args:
      exercise: an exercise's name, number or page; None for the exercise of this page.
    """
    from grader.learner import session

    return session.hint(exercise, sys._getframe(1).f_globals)


def failing_case(exercise: str | int | None = None) -> "FailingCase":
    """Return the first case that the last check failed, to see what your answer does in it and to run it yourself.

    Args:
      exercise: an exercise's name, number or page; None for the exercise of this page.

    Returns:
      A `FailingCase`, which shows its arguments and what your current answer saves or returns. Call your answer in this
      case with `case.function(*case.arguments)`; a function of rematscope, such as `print_fwd_bwd`, takes the same.

    Raises:
      LookupError: if the last check in this session failed no case.
    """
    from grader.learner import session

    return session.failing_case(exercise, sys._getframe(1).f_globals)


def solution(exercise: str | int | None = None, anyway: bool = False) -> "View":
    """Show the worked answer next to your own, after you pass or after three different attempts.

    Args:
      exercise: an exercise's name, number or page; None for the exercise of this page.
      anyway: True shows it in any case.
    """
    from grader.learner import session

    return session.solution(exercise, anyway, sys._getframe(1).f_globals)


def board() -> "View":
    """Show the chapters and exercises with your progress, and what to do next."""
    from grader.learner import board

    return board.board()


def predict(question: str, answer: Callable[[], object], choices: Iterable[str] = ()) -> "View":
    """Ask what a reader expects, before the page shows it.

    In a notebook it has a button for each choice, or a field for a number, and says at once whether that is right.

    Args:
      question: the question, with code in backquotes.
      answer: computes what is right from the thing that is asked about, so that it cannot be wrong: a number, or one of
        the choices. A whole number is right exactly, another one within 5 %.
      choices: what a reader may choose from; none asks for a number.

    Example:
      >>> predict("How many values are saved?", lambda: len(trace(f, x).residuals))  # doctest: +SKIP
    """
    from grader.learner.prediction import Prediction

    return Prediction(question, answer, choices)
