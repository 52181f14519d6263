"""`check`, `hint`, `failing_case` and `solution` in a notebook: find the exercise and the answer's text, and remember
the last verdict."""

import inspect
import secrets
from collections.abc import Callable
from types import ModuleType

from grader.answers import find, submission_file
from grader.exercises import registry
from grader.isolation import in_process
from grader.judging.findings import first_case
from grader.learner import assistance, hand_in, pages
from grader.learner.failing_case import FailingCase
from grader.learner.next_steps import NextSteps
from grader.learner.panel import Checked, dimmed_while_checking
from grader.learner.progress import Progress
from grader.util.words import with_article
from grader.verdicts.verdict import Outcome, Verdict, not_judged
from grader.verdicts.views import Note, WithNotes
from rematscope.render import View

# The verdict of each exercise's last check in this kernel. Progress contains only the texts of its views.
last_verdicts: dict[str, Verdict] = {}
_last_checks: dict[str | None, Checked] = {}
_failing_seeds: dict[str, int] = {}  # the seed of the cases that an exercise's last check failed


def check(answer: object, bound: dict) -> Checked:
    """Check an answer; `bound` are the caller's global names."""
    name = _exercise_name(answer, bound)
    with dimmed_while_checking(_last_checks.get(name)):
        checked = _check_named(name, answer, bound)
    _last_checks[name] = checked
    return checked


def _exercise_name(answer: object, bound: dict) -> str | None:
    # The value bound to an exercise's name is the answer, whatever its own name is: the name of jax.checkpoint(f) is f.
    own = getattr(answer, "__name__", None)
    return next((exercise for exercise in registry.names() if bound.get(exercise) is answer), own)


def _check_named(name: str | None, answer: object, bound: dict) -> Checked:
    if not callable(answer):
        problem = f"check takes the function itself, but got {_kind_of(answer)}."
        return _not_judged(name, problem, "Leave out the parentheses: check(my_answer), not check(my_answer(…)).")
    if name not in registry.names():
        called = f"is called {name}" if name else "has no name"
        problem = f"This function {called}, which is not an exercise; {registry.closest(name or '')}"
        return _not_judged(name, problem, "Name your function as on the exercise's page, then check it again.")
    verdict = _grade_on_failing_cases(answer, name)
    last_verdicts.pop(name, None)  # so that the exercise that was checked last comes last
    last_verdicts[name] = verdict
    progress = Progress()
    if verdict.outcome != Outcome.NOT_ATTEMPTED:
        progress.record(name, verdict, _answer_text(answer, name))
    verbs = {
        "Check again": lambda: _check_named(name, bound.get(name, answer), bound),
        "Hint": lambda: hint(name, bound),
        "Failing case": lambda: _show_failing_case(name, bound),
        "Solution": lambda: solution(name, False, bound),
        "Submit": _submit_answers,
    }
    return Checked(verdict, progress.notices, verbs, NextSteps(name) if verdict.passed else None)


def _grade_on_failing_cases(answer: Callable, name: str) -> Verdict:
    """Grade an answer on the cases that its last check failed, so that a learner can compare the figures of two checks.

    An answer that passes these cases is also graded on new ones.
    """
    kept = _failing_seeds.pop(name, None)
    for seed in (kept, secrets.randbits(64)):
        if seed is None:
            continue
        verdict = in_process.grade(answer, name, seed)
        if not verdict.passed:
            _failing_seeds[name] = seed
            break
    return verdict


def hint(exercise: str | int | None, bound: dict) -> View:
    """Return the next hint for the given or current exercise. `bound` contains the caller's global names."""
    return _say_about_exercise(exercise, bound, assistance.hint)


def solution(exercise: str | int | None, anyway: bool, bound: dict) -> View:
    """Return the worked answer to the given or current exercise, or what the learner must do to see it."""
    return _say_about_exercise(
        exercise,
        bound,
        lambda name, progress: assistance.solution(name, progress, anyway, last=last_verdicts.get(name)),
    )


def failing_case(exercise: str | int | None, bound: dict) -> FailingCase:
    """Return the first case that the last check of the given or current exercise failed, with the answer that `bound`
    contains now.

    Raises:
      LookupError: if there is no such case.
    """
    name = _exercise_meant(exercise, bound)
    seed, answer = _failing_seeds.get(name), bound.get(name)
    failed = [each for each in last_verdicts[name].findings if each.cases] if name in last_verdicts else []
    if seed is None or not failed or not callable(answer):
        raise LookupError(
            f"The last check of {name} in this session failed no case. Run check({name}), and then failing_case()."
        )
    shapes, inputs = in_process.seeds_of(seed)
    case = first_case(failed[0], registry.cases(name, shapes))
    return FailingCase(name, answer, case, failed[0], inputs)


def _show_failing_case(exercise: str, bound: dict) -> View:
    try:
        return failing_case(exercise, bound)
    except LookupError as error:
        return Note("No failing case", str(error))


def _say_about_exercise(exercise: str | int | None, bound: dict, say: Callable[[str, Progress], View]) -> View:
    """Return a view about an exercise: the given one, or else the exercise of the page's answer or stub."""
    try:
        name = _exercise_meant(exercise, bound)
    except LookupError as error:
        return Note("Which exercise?", str(error))
    progress = Progress()
    return WithNotes(say(name, progress), progress.notices)


def _exercise_meant(exercise: str | int | None, bound: dict) -> str:
    """Return the name of the given exercise, or else of the exercise of the page's answer or stub.

    Raises:
      LookupError: if there is none, with the next step.
    """
    if exercise is not None:
        return pages.find(exercise).name
    here = [name for name in registry.names() if callable(bound.get(name)) and not isinstance(bound[name], ModuleType)]
    if meant := [name for name in last_verdicts if name in here] or here:
        return meant[-1]
    raise LookupError(
        "This notebook does not define an answer yet. Run the cell that defines it, or name the exercise, as in "
        f"`hint({registry.names()[0]!r})`."
    )


def _submit_answers() -> View:
    try:
        path = hand_in.submit()
    except submission_file.HandInError as error:
        return Note("Nothing was written", str(error))
    written = Note("Ready to hand in", f"All your answers are in `{path}`: give that file to your instructor.")
    return WithNotes(written, hand_in.unchecked())


def _not_judged(name, problem: str, advice: str) -> Checked:
    return Checked(not_judged(name if isinstance(name, str) else "?", problem, advice))


def _kind_of(value) -> str:
    if hasattr(value, "dtype"):
        return f"an array, {value.dtype}{list(value.shape)}"
    return with_article(type(value).__name__)


def _answer_text(answer: Callable, exercise: str) -> str:
    """Return the text of the answer and its dependencies, from the notebook's cells or else from its file; "" if
    unknown."""
    try:
        from IPython import get_ipython

        if shell := get_ipython():
            return find.of_cells(shell.history_manager.input_hist_raw, exercise).text
        return inspect.getsource(answer)
    except (ImportError, KeyError, OSError, TypeError, find.NoAnswer):
        return ""
