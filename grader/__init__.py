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
    """Check an answer, and save the attempt.

    Args:
      answer: the function that you wrote, with the name from the exercise's page.

    Returns:
      A `Checked`, which displays the verdict, and in a notebook also buttons for the next steps. Its `verdict` contains
      the findings, each with the figures (bytes, FLOPs) of the first case that shows it; `passed` is True or False.
    """
    from grader.learner import session

    return session.check(answer, sys._getframe(1).f_globals)


def hint(exercise: str | int | None = None) -> "View":
    """Give the next hint: a question about the findings of the last check.

    Args:
      exercise: an exercise's name, number or page; None for the exercise of this page.
    """
    from grader.learner import session

    return session.hint(exercise, sys._getframe(1).f_globals)


def failing_case(exercise: str | int | None = None) -> "FailingCase":
    """Return the first case that your answer failed in the last check.

    Args:
      exercise: an exercise's name, number or page; None for the exercise of this page.

    Returns:
      A `FailingCase`, which displays its arguments and what your current answer saves or returns. Call your answer in
      this case with `case.function(*case.arguments)`. Functions of rematscope, such as `print_fwd_bwd`, take the same
      function and arguments.

    Raises:
      LookupError: if the last check in this session failed no case.
    """
    from grader.learner import session

    return session.failing_case(exercise, sys._getframe(1).f_globals)


def solution(exercise: str | int | None = None, anyway: bool = False) -> "View":
    """Show the worked answer next to your own, after you passed or made three different attempts.

    Args:
      exercise: an exercise's name, number or page; None for the exercise of this page.
      anyway: whether to show the worked answer before that.
    """
    from grader.learner import session

    return session.solution(exercise, anyway, sys._getframe(1).f_globals)


def board() -> "View":
    """Show the chapters and exercises with your progress, and what to do next."""
    from grader.learner import board

    return board.board()


def predict(question: str, answer: Callable[[], object], choices: Iterable[str] = ()) -> "View":
    """Ask the reader to predict a result before the page shows it.

    In a notebook, the view has a button for each choice, or a field for a number, and says immediately whether the
    prediction is right.

    Args:
      question: the question, with code in backquotes.
      answer: a function that computes the right result: a number, or one of the choices. A prediction of an integer
        must be exact, and a prediction of another number may be off by 5 %.
      choices: the possible answers; empty if the question asks for a number.

    Example:
      >>> predict("How many values are saved?", lambda: len(trace(f, x).residuals))  # doctest: +SKIP
    """
    from grader.learner.prediction import Prediction

    return Prediction(question, answer, choices)
