"""Turn an answer into evidence: trace its forward and its backward pass, and write both as text.

This module runs a learner's code. It knows the cases of the exercise, but not the expected results.
"""

import dataclasses
import functools
import inspect
import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.export
import numpy as np
from jax.extend import source_info_util
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func
from jax.interpreters import mlir

from grader.exercises.spec import Case, Question, plain
from grader.stablehlo.bindings import walk_operations
from grader.tracing.apply import applied
from grader.tracing.evidence import Evidence, Failure, FailureKind, Traced
from grader.tracing.failures import Unusable, failure_of, message_of, refuse_none
from grader.tracing.retrace import Attempt, Pass, changed_cases, changed_failure, failed_once
from grader.util.jax_settings import default_settings
from grader.verdicts.verdict import Verdict, not_judged
from rematscope.extend import sources_of

# The source of a value that a function of the catalog computes is the learner's line that calls the function.
source_info_util.register_exclusion(str(Path(__file__).resolve().parents[1]))


class CaptureError(Exception):
    """The answer cannot be turned into programs. The message tells the learner why."""


def capture(answer: Callable, exercise: str, cases: Sequence[Case | Question], seed: int = 0) -> Evidence:
    """Trace an answer in every case, without running it on data, and ask it every question.

    The answer is tried twice: in a random order, and then in the opposite order; of many questions, a quarter is asked
    again. If its behavior differs the second time, it keeps state, which a `Failure` reports.

    Args:
      answer: the answer, a function of arrays that returns an array, or another value that a case or a question can
        use.
      exercise: the name of the exercise.
      cases: the cases to trace the answer in, and the questions to ask it.
      seed: the seed of the order.

    Returns:
      The evidence, in the order of `cases`. If the answer raises in a case, the evidence of this case is a `Failure`
      instead of programs.

    Raises:
      CaptureError: if the traced programs cannot be exported, for instance because they call back into Python.
      MemoryError: if the answer exhausted the memory. It would do so in every case, and each attempt takes seconds.
    """
    rng = np.random.default_rng([seed, 1])
    asked = _ask_in_two_orders(answer, [case for case in cases if isinstance(case, Question)], rng)
    if not (differentiated := [case for case in cases if isinstance(case, Case)]):
        return Evidence(exercise, parameters(answer), "", "", asked)
    evidence = _capture_two_programs(answer, exercise, differentiated, rng)
    return dataclasses.replace(evidence, cases=(*evidence.cases, *asked))


def _capture_two_programs(answer: Callable, exercise: str, cases: Sequence[Case], rng: np.random.Generator) -> Evidence:
    order = _draw_order(cases, rng)
    first = Attempt(answer, cases, order)
    second = Attempt(answer, cases, order[::-1])
    again = []

    # One module for all cases, because exporting costs more per module than per operation. The second attempt is traced
    # inside the first, so that the answer can reuse a table that it computes once. The second attempt is not exported.
    def forward(arguments):
        results = first.forward(arguments)
        again.append(jax.make_jaxpr(second.forward, return_shape=True)(arguments))
        # This comes last, because an answer that keeps state may behave differently afterwards.
        values = first.undifferentiated(arguments)
        return [(*own, value) for own, value in zip(results, values, strict=True)]

    # The backward program is traced separately, from residuals and cotangents alone, so these are all that it can use.
    def backward(residuals, cotangents):
        gradients = first.backward(residuals, cotangents)
        again.append(jax.make_jaxpr(second.backward, return_shape=True)(residuals, cotangents))
        return gradients

    # keep_unused, because an argument that the answer ignores is still an input of the program.
    forward, backward = (jax.jit(function, keep_unused=True) for function in (forward, backward))
    arguments = [case.arguments for case in cases]
    try:
        exported_forward = _export_program(forward, arguments)
        shapes = jax.tree.unflatten(exported_forward.out_tree, exported_forward.out_avals)
        handed_over = [kept for _, kept, _ in shapes], [out for out, _, _ in shapes]
        exported_backward = _export_program(backward, *handed_over)
    except CaptureError as error:
        leaks = _find_leaked_tracers(answer, cases)
        if not leaks and isinstance(error.__cause__, jax.errors.UnexpectedTracerError):
            leaks = tuple(Traced(case.name, failure=failure_of(error.__cause__)) for case in cases)
        if not leaks:
            raise
        return Evidence(exercise, parameters(answer), "", "", leaks)
    # These return the cached traces of the export.
    traces = forward.trace(arguments), backward.trace(*handed_over)
    passes = [Pass.of(once.jaxpr, once.out_info, *twice) for once, twice in zip(traces, again, strict=True)]
    failures = first.failures | first.primal_failures | changed_cases(first, second, *passes)
    sources = _residual_sources(traces[0].jaxpr, shapes)
    return Evidence(
        exercise=exercise,
        parameters=parameters(answer),
        forward=program_text(exported_forward),
        backward=program_text(exported_backward),
        cases=tuple(
            Traced(
                case=case.name,
                output=_structure_text(first.outputs.get(index)),
                outputs=len(shapes[index][0]),
                undifferentiated=len(shapes[index][2]),
                sources=sources[index] if index not in failures else (),
                failure=failures.get(index),
            )
            for index, case in enumerate(cases)
        ),
    )


def parameters(answer: Callable) -> tuple[str, ...]:
    """Return the names of an answer's positional parameters; empty if they are unknown."""
    try:
        signature = inspect.signature(answer)
    except (ValueError, TypeError):
        return ()
    return tuple(p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY)


def _find_leaked_tracers(answer: Callable, cases: Sequence[Case]) -> tuple[Traced, ...]:
    """Return JAX's errors about leaked tracers, by case.

    JAX reports a custom rule that uses traced values other than its arguments only if both passes are traced as one
    function. It reports a value from an earlier trace only after that trace has been compiled.
    """

    def gradients(case, *arguments):
        function = applied(answer, case)

        # A value from an earlier trace that is returned unchanged raises no error until an operation uses it.
        def used(*arguments):
            return jax.tree.map(lambda leaf: leaf * 1, function(*arguments))

        output, pullback = jax.vjp(used, *arguments)
        return pullback(output)

    leaks = []
    for case in cases:
        try:
            traced = jax.make_jaxpr(functools.partial(gradients, case))(*case.arguments)
        except jax.errors.UnexpectedTracerError as error:
            leaks.append(Traced(case.name, failure=failure_of(error)))
        except (Exception, SystemExit):  # another error, which did not prevent the export
            continue
        else:
            if kept := [constant for constant in traced.consts if isinstance(constant, jax.core.Tracer)]:
                text = f"UnexpectedTracerError: it uses {kept[0].aval.str_short()}, which was traced in an earlier call"
                leaks.append(Traced(case.name, failure=Failure(FailureKind.RAISED, text)))
    return tuple(leaks)


def _draw_order(cases: Sequence[Case | Question], rng: np.random.Generator) -> list[int]:
    return [int(place) for place in rng.permutation(len(cases))]


def _ask_in_two_orders(answer: Callable, questions: Sequence[Question], rng: np.random.Generator) -> tuple[Traced, ...]:
    order = _draw_order(questions, rng)
    first = {place: _ask_question(answer, questions[place]) for place in order}
    # Up to 4 questions are slow (they compile), and more than 16 are slow in total: ask a quarter of these again, those
    # that came first, because most calls happened since.
    twice = order if 4 < len(order) <= 16 else order[: math.ceil(len(order) / 4)]
    second = {place: _ask_question(answer, questions[place]) for place in reversed(twice)}
    replies = []
    for place, question in enumerate(questions):
        before, after = first[place], second.get(place, first[place])
        if (before.failure is None) != (after.failure is None):
            replies.append(Traced(question.name, failure=failed_once(before.failure, after.failure)))
        elif json.dumps(before.data, sort_keys=True) != json.dumps(after.data, sort_keys=True):  # NaN != NaN
            words = f"it returns {_data_text(before.data)} the first time and {_data_text(after.data)} the second time"
            replies.append(Traced(question.name, failure=changed_failure(words)))
        else:
            replies.append(before)
    return tuple(replies)


def _data_text(data: object) -> str:
    text = json.dumps(data, ensure_ascii=False)
    return text if len(text) <= 60 else text[:60].rstrip() + " …"


def _ask_question(answer: Callable, question: Question) -> Traced:
    try:
        # A copy, because an answer may change lists and dicts.
        own = dataclasses.replace(question, arguments=jax.tree.map(lambda leaf: leaf, question.arguments))
        returned = own.data(answer)
        refuse_none(answer, returned)
        try:
            return Traced(question.name, data=plain(returned))
        except TypeError as error:
            raise Unusable(
                f"Your answer returns {error}, not plain data: numbers, strings, lists, tuples or dicts of them."
            ) from None
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        return Traced(question.name, failure=failure_of(error))


def _export_program(function, *arguments) -> jax.export.Exported:
    try:
        return jax.export.export(function, platforms=["cpu"])(*arguments)
    except MemoryError:
        raise
    except Exception as error:
        raise CaptureError(
            f"Your answer cannot be exported as a forward and a backward program ({message_of(error)}). Does it call "
            "back into Python, as jax.debug.print does, or store a traced value outside the function? Remove that, "
            "then check again."
        ) from error


def program_text(exported: jax.export.Exported) -> str:
    """Return an exported program as StableHLO text.

    The text has no locations, because they contain the learner's paths. A composite, which exporting creates for an
    error function, is replaced by a call of the function that defines it.
    """
    with mlir.make_ir_context():
        module = exported.mlir_module(serialized=False)
        _call_composites(module)
        return str(module.operation.get_asm(enable_debug_info=False))


def _call_composites(module: ir.Module) -> None:
    for op in [op for op in walk_operations(module.operation) if op.name == "stablehlo.composite"]:
        with ir.InsertionPoint(op), ir.Location.unknown():
            call = func.CallOp(op.results.types, op.attributes["decomposition"], op.operands)
        for result, called in zip(op.results, call.results, strict=True):
            result.replace_all_uses_with(called)
        op.erase()


def _structure_text(output) -> str:
    return str(jax.tree.structure(output)).removeprefix("PyTreeDef(").removesuffix(")")


def _residual_sources(forward, shapes) -> list[tuple[str | None, ...]]:
    """Return the source lines of the residuals of each case. They are only for feedback, so an error here only loses
    labels.
    """
    counts = [len(part) for case in shapes for part in case]
    try:
        lines = [None if source is None else str(source) for source in sources_of(forward)]
    except (Exception, SystemExit):
        lines = [None] * sum(counts)
    ends = itertools.accumulate(counts)
    return [tuple(lines[end - count : end]) for end, count in zip(ends, counts, strict=True)][1::3]


@default_settings()
def evidence_of(answer: Callable, exercise: str, cases: Sequence[Case | Question], seed: int = 0) -> Evidence | Verdict:
    """Run an answer, and return its evidence, or a verdict if there is no evidence.

    Args:
      answer: the learner's function.
      exercise: the name of the exercise.
      cases: the cases to trace the answer in, and the questions to ask it.
      seed: the seed of the order.
    """
    try:
        return capture(answer, exercise, cases, seed)
    except MemoryError as error:
        failed = tuple(Traced(case.name, failure=failure_of(error)) for case in cases)
        return Evidence(exercise, parameters(answer), "", "", failed)
    except CaptureError as error:
        return not_judged(exercise, str(error))
