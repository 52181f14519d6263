"""The grader: `check(answer)` says what an answer's backward pass really saves and recomputes.

`hint()` and `solution()` help on, and `board()` shows how far one is. `predict(…)` asks before a page answers.
"""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # views take their time too
    from rematscope.render import View

__all__ = ["board", "check", "hint", "predict", "solution"]

if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()):
    from grader.learner import unrun_cells

    unrun_cells.explain_in(_shell)

# Each function imports what it needs when it is called: JAX takes its time, and in the sandbox, where an answer's page
# imports these names, there is neither a judge nor a learner.


def check(answer: Callable) -> "View":
    """Check an answer to the exercise that has its name, and write the attempt down.

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


def solution(exercise: str | int | None = None, anyway: bool = False) -> "View":
    """Show the worked answer next to your own, after you pass or after three different attempts.

    Args:
      exercise: an exercise's name, number or page; None for the exercise of this page.
      anyway: True shows it in any case.
    """
    from grader.learner import session

    return session.solution(exercise, anyway, sys._getframe(1).f_globals)


def board() -> "View":
    """Show chapters and exercises, how far you are, and what to do next."""
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
