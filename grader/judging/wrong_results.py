"""What stands against an answer's results: whether it ends, and its type, values and gradients."""

from collections.abc import Callable, Iterator

import numpy as np

from grader.judging.agreement import agree, agreeing
from grader.judging.compare import as_float, close, example, tensor_type_of
from grader.judging.merge import Seen, merge
from grader.judging.traced_reference import gradients_of_mistakes, values_of_mistakes
from grader.judging.trial import Trial, TriedCase
from grader.verdicts.error_questions import OF_THE_PRIMAL, UNDIFFERENTIATED
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding
from rematscope.ir.program import type_text


def wrong_results(trial: Trial) -> list[Finding]:
    """What is wrong with what an answer computes; nothing if it may be asked what it saves.

    One step at a time: what stands in the way of the next step is all that is said.
    """
    if endless := list(_endless(trial)):
        return endless
    for step in (_wrong_types, _wrong_values, _wrong_undifferentiated_values, _wrong_gradients):
        if wrong := merge(step(trial)):
            return wrong
    return []


def _endless(trial: Trial) -> Iterator[Finding]:
    limit = getattr(trial.task, "max_trip_count", None)
    if limit is not None and trial.trip_count >= limit:
        yield Finding(
            FindingKind.DOES_NOT_END,
            f"The loops of your two passes were stopped: they had taken {limit:,} turns.",
            next="What ends each of your loops, in the backward pass too? Does every turn come closer to it?",
        )


def _wrong_types(trial: Trial) -> Iterator[Seen]:
    for tried in trial.cases:
        asked, types = tensor_type_of(tried.wanted_output), tried.layout.output_types
        if tried.structure != "*" or types != (asked,):
            kinds = ", ".join(map(type_text, types))
            got = kinds if tried.structure == "*" else f"{tried.structure} of {kinds}"
            finding = Finding(
                FindingKind.WRONG_TYPE,
                f"Your answer returns {got} where {type_text(asked)} is asked for.",
                expected=type_text(asked),
                got=got,
                next=f"What should {trial.task.signature} return?",
            )
            yield Seen(tried.structure, tried.case.name, finding)


def _wrong_values(trial: Trial) -> Iterator[Seen]:
    explained, right = None, agreeing(trial, lambda tried: (tried.outputs[0], tried.wanted_output))
    for tried, agrees in zip(trial.cases, right, strict=True):
        if not agrees:
            # Looked up for the first case that is wrong, whose figures the finding has.
            says, question = explained = explained or _explained(tried, tried.outputs[0], trial, _OF_THE_VALUE)
            finding = Finding(
                FindingKind.WRONG_VALUE,
                f"Your answer computes something else: {says}.",
                expected=example(tried.wanted_output),
                got=example(tried.outputs[0]),
                next=question,
            )
            yield Seen("value", tried.case.name, finding)


_OF_THE_VALUE = "Which step of the pipeline is missing, different, or one too many?"


def _wrong_undifferentiated_values(trial: Trial) -> Iterator[Seen]:
    def both(tried: TriedCase) -> tuple[np.ndarray, np.ndarray]:
        return (*tried.undifferentiated, tried.wanted_output)[0], tried.wanted_output

    explained, right = None, agreeing(trial, both)
    for tried, agrees in zip(trial.cases, right, strict=True):
        if not agrees:
            (got,) = tried.undifferentiated
            says, question = explained = explained or _explained(tried, got, trial, OF_THE_PRIMAL)
            finding = Finding(
                FindingKind.WRONG_VALUE,
                f"Your answer computes something else {UNDIFFERENTIATED}: {says}.",
                expected=example(tried.wanted_output),
                got=example(got),
                next=question,
            )
            yield Seen("value", tried.case.name, finding)


def _explained(tried: TriedCase, got: np.ndarray, trial: Trial, otherwise: str) -> tuple[str, str]:
    """What a wrong value is, and the question that leads on, if one of the exercise's usual mistakes leads to it."""
    if (infinite := _not_finite(got)) and np.isfinite(as_float(tried.wanted_output)).all():
        return infinite
    mistakes = [mistake for mistake in trial.expect.mistakes if not mistake.in_gradient]
    values = values_of_mistakes(tried.case, trial.expect, tried.inputs)
    for mistake, value in zip(mistakes, values, strict=True):
        if close(got, value):
            return mistake.says, mistake.next
    return "its value is not the one asked for", otherwise


def _not_finite(value: np.ndarray) -> tuple[str, str] | None:
    """What a value is that has no number for an element, and the question that leads on."""
    if np.isnan(as_float(value)).any():
        return "its value is NaN", "Where can a zero be divided by zero, or infinity taken off infinity?"
    if np.isinf(as_float(value)).any():
        return "its value is infinite", "Where can a number be divided by zero, or an exponential be too large?"
    return None


def _wrong_gradients(trial: Trial) -> Iterator[Seen]:
    explained, looked_up = None, False
    for index, tried in enumerate(trial.cases):
        gradients = zip(tried.argument_names, tried.gradients, tried.wanted_gradients, strict=True)
        for place, (name, got, want) in enumerate(gradients):
            if not agree(trial, index, _gradients_at(place)):
                if not looked_up:  # for the first case that is wrong, as for values
                    explained, looked_up = _explained_gradients(tried, trial), True
                how, question = explained or _how_wrong(got)
                finding = Finding(
                    FindingKind.WRONG_GRADIENT,
                    f"The value is right, but the gradient with respect to {name} is {how}.",
                    expected=example(want),
                    got=example(got),
                    next=question,
                )
                yield Seen((name, how), tried.case.name, finding)


def _gradients_at(place: int) -> Callable[[TriedCase], tuple[np.ndarray, np.ndarray]]:
    return lambda tried: (tried.gradients[place], tried.wanted_gradients[place])


def _explained_gradients(tried: TriedCase, trial: Trial) -> tuple[str, str] | None:
    """How gradients are wrong, and the question that leads on, if one of the usual mistakes leads to them."""
    mistakes = [mistake for mistake in trial.expect.mistakes if mistake.in_gradient]
    if mistakes:
        several = gradients_of_mistakes(tried.case, trial.expect, tried.inputs, tried.cotangents[0])
        for mistake, gradients in zip(mistakes, several, strict=True):
            if all(close(got, wrong) for got, wrong in zip(tried.gradients, gradients, strict=True)):
                return f"wrong: {mistake.says}", mistake.next
    return None


def _how_wrong(gradient: np.ndarray) -> tuple[str, str]:
    """What is conspicuous about a wrong gradient, and the question that leads on."""
    if (as_float(gradient) == 0).all():
        return "zero everywhere", "What keeps a gradient from flowing from the result back to this argument?"
    if np.isnan(as_float(gradient)).any():
        return "NaN", "Which value that nobody uses has no finite derivative, so that zero times it is NaN?"
    return "wrong", "What takes part in the value but not, or differently, in the gradient?"
