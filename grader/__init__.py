"""The grader: `check(answer)` says what an answer's backward pass really saves and recomputes."""

import sys
from collections.abc import Callable

__all__ = ["check"]


def check(answer: Callable):
    """Checks an answer to the exercise that has its name.

    Args:
      answer: the function that you wrote, under the name that the exercise's page gives it.

    Returns:
      A `Verdict`, which shows itself: what was found, with the sizes (bytes, FLOPs) of the first case that shows it.
    """
    from grader import exercise, grading, verdict  # importing JAX takes its time: not before there is something to do

    # What is bound to an exercise's name is the answer to it, whatever it calls itself: jax.checkpoint(f) is called f.
    bound = sys._getframe(1).f_globals
    own = getattr(answer, "__name__", None)
    name = next((exercise_ for exercise_ in exercise.names() if bound.get(exercise_) is answer), own)
    if not callable(answer):
        problem = f"check takes the function itself, not what it returns: this is {_kind(answer)}."
        hint = "Leave out the parentheses: check(my_answer), not check(my_answer(…))."
    elif name not in exercise.names():
        called = f"is called {name}" if name else "has no name"
        problem = f"This function {called}, which is not an exercise; {exercise.closest(name or '')}"
        hint = "Give your answer the name that the exercise's page gives it, then check that."
    else:
        return grading.grade(answer, name)
    finding = verdict.Finding("could not be judged", problem, next=hint)
    return verdict.Verdict(name if isinstance(name, str) else "?", verdict.NOT_JUDGED, (finding,))


def _kind(value) -> str:
    return (
        f"an array, {value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else f"of type {type(value).__name__}"
    )
