"""Find errors in an answer's results: exceptions, endless loops, wrong types, wrong values, wrong gradients."""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from grader.exercises.feedback import KnownMistake
from grader.exercises.spec import Expect, Task
from grader.judging.answer_run import AnswerRun, CaseRun
from grader.judging.comparison import ROUNDING, agree, agreeing, as_float, close, summarize_array, tensor_type_of
from grader.judging.findings import CaseFinding, group_findings
from grader.judging.reference import traced_mistakes
from grader.tracing.evidence import Evidence, FailureKind
from grader.verdicts.error_questions import OF_THE_PRIMAL, OTHERWISE, UNDIFFERENTIATED, about_exception, about_return
from grader.verdicts.verdict import Finding, FindingKind
from rematscope.extend import type_text
from rematscope.render import joined

_MEMORY_QUESTION = (
    "What does your answer remember from one call to the next: a growing list, an exhausted generator or a counter?"
)

# Python's exceptions about the text of a program, and not about its results. JAX's NameErrors are about axes of a mesh.
_NOT_RUN = re.compile(r"NameError: (name|cannot access) |(UnboundLocalError|ImportError|ModuleNotFoundError)\b")


def failures(evidence: Evidence, task: Task, expect: Expect) -> Iterator[CaseFinding]:
    """Yield findings about the cases without programs."""
    questions = expect.feedback.error_questions
    failed = [(traced, traced.failure) for traced in evidence.cases if traced.failure]
    # State comes first, because it explains why other cases failed.
    for traced, failure in sorted(failed, key=lambda each: each[1].kind is not FailureKind.CHANGED):
        if failure.kind is FailureKind.CHANGED:
            kind = FindingKind.CHANGES
            text = f"Your answer changes from call to call: {failure.text}."
            question: str | None = _MEMORY_QUESTION
        elif failure.kind is FailureKind.RETURNED:
            kind, text = FindingKind.WRONG_TYPE, failure.text
            question = about_return(failure.text, questions) or f"What should {task.signature} return?"
        else:
            kind = FindingKind.DOES_NOT_RUN if _NOT_RUN.match(failure.text) else FindingKind.RAISES
            text = f"Your answer raises {failure.text}"
            question = about_exception(failure.text, failure.source, questions)
            question = question or OTHERWISE
        # The message may contain the case's shapes, but the exception's type and the line are the same in every case.
        key = failure.kind, failure.text.split(":")[0], failure.source
        yield CaseFinding(key, traced.case, Finding(kind, text, source=failure.source, next=question))


def wrong_results(run: AnswerRun) -> list[Finding]:
    """Return findings about an answer's results; none if its residuals can be judged.

    The checks run in steps. The first step with findings is the last one that is reported.
    """
    if endless := list(_find_endless_loops(run)):
        return endless
    for step in (_wrong_types, _wrong_values, _wrong_undifferentiated_values, _wrong_gradients):
        if wrong := group_findings(step(run)):
            return wrong
    return []


def _find_endless_loops(run: AnswerRun) -> Iterator[Finding]:
    limit = getattr(run.task, "max_trip_count", None)
    if limit is not None and run.trip_count >= limit:
        yield Finding(
            FindingKind.DOES_NOT_END,
            f"The loops of your two passes were stopped after {limit:,} iterations.",
            next="Which condition ends each of your loops? Does every iteration come closer to it, also in the "
            "backward pass?",
        )


def _wrong_types(run: AnswerRun) -> Iterator[CaseFinding]:
    for case_run in run.cases:
        asked, types = tensor_type_of(case_run.wanted_output), case_run.layout.output_types
        if case_run.structure != "*" or types != (asked,):
            kinds = ", ".join(map(type_text, types))
            got = kinds if case_run.structure == "*" else f"{case_run.structure} of {kinds}"
            finding = Finding(
                FindingKind.WRONG_TYPE,
                f"Your answer returns {got} instead of {type_text(asked)}.",
                next=f"What should {run.task.signature} return?",
            )
            yield CaseFinding(case_run.structure, case_run.case.name, finding)


def _wrong_values(run: AnswerRun) -> Iterator[CaseFinding]:
    question = "Which step of the computation is missing, wrong or superfluous?"
    return _report_wrong_values(run, lambda case_run: case_run.outputs[0], "Your answer's value is wrong", question)


def _wrong_undifferentiated_values(run: AnswerRun) -> Iterator[CaseFinding]:
    def got(case_run: CaseRun) -> np.ndarray:
        return (*case_run.undifferentiated, case_run.wanted_output)[0]  # some cases have no undifferentiated outputs

    return _report_wrong_values(run, got, f"Your answer's value is wrong {UNDIFFERENTIATED}", OF_THE_PRIMAL)


def _report_wrong_values(
    run: AnswerRun, value_of: Callable[[CaseRun], np.ndarray], text: str, otherwise: str
) -> Iterator[CaseFinding]:
    """Report the cases in which a value is wrong."""
    right = agreeing(run, lambda case_run: (value_of(case_run), case_run.wanted_output))
    wrong = [(case_run, value_of(case_run)) for case_run, agrees in zip(run.cases, right, strict=True) if not agrees]
    if not wrong:
        return
    says, question = _explain_values(wrong, run) or ("", otherwise)
    if not says and all(_is_nearly_right(got, case_run.wanted_output) for case_run, got in wrong):
        says, question = _INACCURATE
    for case_run, got in wrong:
        finding = Finding(
            FindingKind.WRONG_VALUE,
            f"{text}: {says}." if says else f"{text}.",
            expected=summarize_array(case_run.wanted_output),
            got=summarize_array(got),
            next=question,
        )
        yield CaseFinding("value", case_run.case.name, finding)


def _explain_values(wrong: Sequence[tuple[CaseRun, np.ndarray]], run: AnswerRun) -> tuple[str, str] | None:
    """Return a description of wrong values and a question for the learner, if the cause is known."""
    case_run, got = wrong[0]
    if (infinite := _not_finite(got)) and np.isfinite(as_float(case_run.wanted_output)).all():
        return infinite
    mistake = _find_mistake([(case_run, [got]) for case_run, got in wrong], run, in_gradients=False)
    return (mistake.description, mistake.hint) if mistake else None


def _find_mistake(
    wrong: Sequence[tuple[CaseRun, Sequence[np.ndarray]]], run: AnswerRun, in_gradients: bool
) -> KnownMistake | None:
    """Return the known mistake that gives the answer's wrong results in every failing case, or None. In a single case,
    two mistakes may agree by chance."""
    mistakes = run.expect.mistakes
    alike = tuple(place for place, mistake in enumerate(mistakes) if mistake.check_gradient == in_gradients)
    for number, (case_run, got) in enumerate(wrong):
        if not alike:
            return None
        results = traced_mistakes(case_run.case, run.expect, alike)(case_run.inputs, case_run.cotangents[0])
        # The first case is compared with a small tolerance. In other dtypes, a mistake may round differently from the
        # answer.
        times = ROUNDING if number else 1
        alike = tuple(
            place
            for place, others in zip(alike, results, strict=True)
            if all(_same_or_both_nan(one, other, times) for one, other in zip(got, others, strict=True))
        )
    return mistakes[alike[0]] if alike else None


def _same_or_both_nan(got: np.ndarray, other: np.ndarray, times: float) -> bool:
    """Return the same as `close`, except that NaN agrees with NaN, because a mistake can also divide 0 by 0."""
    if got.shape == other.shape and (undefined := np.isnan(as_float(got))).any():
        both = (undefined == np.isnan(as_float(other))).all()
        return bool(both) and close(
            np.where(undefined, 0, got), np.where(undefined, 0, other).astype(other.dtype), times
        )
    return close(got, other, times)


def _not_finite(value: np.ndarray) -> tuple[str, str] | None:
    """Return a description of a value that is not finite, and the question to ask."""
    if np.isnan(as_float(value)).any():
        return "it is NaN", "Where could 0 be divided by 0, or infinity be subtracted from infinity?"
    if np.isinf(as_float(value)).any():
        return "it is infinite", "Where could a number be divided by 0, or an exponential overflow?"
    return None


def _wrong_gradients(run: AnswerRun) -> Iterator[CaseFinding]:
    wrong = {
        index: places
        for index, case_run in enumerate(run.cases)
        if (places := [p for p in range(len(case_run.gradients)) if not agree(run, index, _gradients_at(p))])
    }
    if not wrong:
        return
    mistake = _find_mistake([(run.cases[i], run.cases[i].gradients) for i in wrong], run, in_gradients=True)
    explained = (f"wrong: {mistake.description}", mistake.hint) if mistake else None
    pairs = [
        (case_run.gradients[place], case_run.wanted_gradients[place])
        for case_run, places in ((run.cases[index], places) for index, places in wrong.items())
        for place in places
    ]
    if explained is None and all(_is_nearly_right(got, want) for got, want in pairs):
        explained = _ROUNDED
    for index, places in wrong.items():
        case_run = run.cases[index]
        alike: dict[tuple[str, str], list[int]] = {}  # maps a description of the error and its question to positions
        for place in places:
            found = explained or _describe_gradient(case_run.gradients[place])
            alike.setdefault(found, []).append(place)
        for (how, question), of in alike.items():
            names = [case_run.argument_names[place] for place in of]
            gradients, are = ("gradients", "are") if len(names) > 1 else ("gradient", "is")
            subject = f"{gradients} with respect to {joined(names)} {are}"
            whose = f"{names[0]}: " if len(names) > 1 else ""
            finding = Finding(
                FindingKind.WRONG_GRADIENT,
                f"The value is right, but the {subject} {how}.",
                expected=f"{whose}{summarize_array(case_run.wanted_gradients[of[0]])}",
                got=f"{whose}{summarize_array(case_run.gradients[of[0]])}",
                next=question,
            )
            yield CaseFinding((*names, how), case_run.case.name, finding)


def _gradients_at(place: int) -> Callable[[CaseRun], tuple[np.ndarray, np.ndarray]]:
    return lambda case_run: (case_run.gradients[place], case_run.wanted_gradients[place])


def _is_nearly_right(got: np.ndarray, want: np.ndarray) -> bool:
    """Return whether the error of a wrong result is as small as that of rounding to a less precise dtype."""
    got, want = as_float(got), as_float(want)
    return bool((abs(got - want) <= _NEARLY * abs(want).max(initial=0.0)).all())


_NEARLY = 0.03  # bfloat16 has a relative precision of 0.4 %, and errors accumulate
_INACCURATE = (
    "it differs by less than 3 %",
    "Does your answer round a value to a dtype of lower precision, such as bfloat16?",
)
_ROUNDED = "off by less than 3 %", "Does your answer round a value of its backward pass to a dtype of lower precision?"


def _describe_gradient(gradient: np.ndarray) -> tuple[str, str]:
    """Return a description of a wrong gradient, and the question to ask."""
    if (as_float(gradient) == 0).all():
        return "zero everywhere", "What stops the gradient between the result and this argument?"
    if np.isnan(as_float(gradient)).any():
        return "NaN", "Which unused value has an infinite derivative? (Zero times infinity is NaN.)"
    return "wrong", "Which step of the computation is missing or different in the gradient?"
