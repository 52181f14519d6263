"""Turn an answer into evidence: trace its forward and its backward pass and hand both over as text.

This runs a learner's code. It knows the exercise's cases and nothing of what is expected.
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
from grader.tracing.apply import applied
from grader.tracing.evidence import Evidence, Failure, FailureKind, Traced
from grader.tracing.failures import Unusable, failure_of, message_of, refuse_none
from grader.tracing.retrace import Attempt, Pass, changed, failed_once, what_changed
from grader.tracing.statefulness import may_be_stateful
from grader.util.jax_settings import as_they_come
from grader.verdicts.verdict import Verdict, not_judged
from rematscope.extend import sources_of

# A value that a function of the catalogue's makes comes from the learner's line that calls it.
source_info_util.register_exclusion(str(Path(__file__).resolve().parents[1]))


class CaptureError(Exception):
    """The answer cannot be turned into programs; the message says why, in words for the learner."""


def capture(answer: Callable, exercise: str, cases: Sequence[Case | Question], seed: int = 0) -> Evidence:
    """Trace an answer in every case, without running it on any data; and asks it every question.

    It is tried twice: in an order that no answer knows, and then in the opposite one, of many questions a quarter.
    Where it does something else the second time, it has a memory, and a `Failure` says so. What can have none is traced
    once.

    Args:
      answer: a function of arrays that returns an array, or what a case or a question makes something of.
      exercise: the exercise's name.
      cases: what to trace it for, or what to ask it.
      seed: seeds the order.

    Returns:
      The evidence, in the cases' own order. An answer that raises in a case leaves a `Failure` there instead of
      programs.

    Raises:
      CaptureError: the traced programs cannot be written down, for instance because they call back into Python.
      MemoryError: the answer took all that there is. It would do so in every case, and filling it takes seconds.
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
    second = Attempt(answer, cases, order[::-1]) if may_be_stateful(answer) else None
    again = []

    # One module for all cases: exporting costs more per module than per operation. The second attempt is traced inside
    # of the first, so that a table which the answer makes once may be used again; nothing of it is exported.
    def forward(arguments):
        results = first.forward(arguments)
        if second:
            again.append(jax.make_jaxpr(second.forward, return_shape=True)(arguments))
        # Last: what has a memory may do something else after that.
        return [(*own, value) for own, value in zip(results, first.undifferentiated(arguments), strict=True)]

    # Backward is traced apart, from residuals and cotangents alone: whatever it uses has been handed to it.
    def backward(residuals, cotangents):
        gradients = first.backward(residuals, cotangents)
        if second:
            again.append(jax.make_jaxpr(second.backward, return_shape=True)(residuals, cotangents))
        return gradients

    # keep_unused: an argument that the answer ignores is still one of the program's inputs.
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
    # Traced already, to be exported.
    traces = forward.trace(arguments), backward.trace(*handed_over)
    failures = first.failures | first.primal_failures
    if second:
        passes = [Pass.of(once.jaxpr, once.out_info, *twice) for once, twice in zip(traces, again, strict=True)]
        failures = failures | what_changed(first, second, *passes)
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
    """Return the names of an answer's positional parameters; empty where they cannot be known."""
    try:
        signature = inspect.signature(answer)
    except (ValueError, TypeError):
        return ()
    return tuple(p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY)


def _find_leaked_tracers(answer: Callable, cases: Sequence[Case]) -> tuple[Traced, ...]:
    """Return what JAX says where a custom rule uses traced values that it is not given, which it says when both passes
    are traced as one; and what it says of a value from an earlier trace, which it says when that has been compiled."""

    def gradients(case, *arguments):
        function = applied(answer, case)

        # A value from an earlier trace that is returned as it is raises nothing until something is done with it.
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
        except (Exception, SystemExit):  # which is not what has kept both passes from being written down
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
    # Where there are few each takes its time, as compiling does, and many take it together: then it is a quarter, of
    # those that came first, which have seen the most since.
    twice = order if 4 < len(order) <= 16 else order[: math.ceil(len(order) / 4)]
    again = reversed(twice) if questions and may_be_stateful(answer) else ()
    second = {place: _ask_question(answer, questions[place]) for place in again}
    replies = []
    for place, question in enumerate(questions):
        before, after = first[place], second.get(place, first[place])
        if (before.failure is None) != (after.failure is None):
            replies.append(Traced(question.name, failure=failed_once(before.failure, after.failure)))
        elif before.data != after.data:
            words = f"it returns {_shortened(before.data)}, and the second time {_shortened(after.data)}"
            replies.append(Traced(question.name, failure=changed(words)))
        else:
            replies.append(before)
    return tuple(replies)


def _shortened(data: object) -> str:
    text = json.dumps(data, ensure_ascii=False)
    return text if len(text) <= 60 else text[:60].rstrip() + " …"


def _ask_question(answer: Callable, question: Question) -> Traced:
    try:
        # Lists and dicts of its own: an answer may change them.
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

    Without locations: they hold the learner's paths, and nobody needs them. A composite, as an export makes one of an
    error function, is a call of the function that says what it computes.
    """
    with mlir.make_ir_context():
        module = exported.mlir_module(serialized=False)
        _call_composites(module)
        return str(module.operation.get_asm(enable_debug_info=False))


def _call_composites(module: ir.Module) -> None:
    found: list[ir.Operation] = []

    def look(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.composite":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    for op in found:
        with ir.InsertionPoint(op), ir.Location.unknown():
            call = func.CallOp(op.results.types, op.attributes["decomposition"], op.operands)
        for result, called in zip(op.results, call.results, strict=True):
            result.replace_all_uses_with(called)
        op.erase()


def _structure_text(output) -> str:
    return str(jax.tree.structure(output)).removeprefix("PyTreeDef(").removesuffix(")")


def _residual_sources(forward, shapes) -> list[tuple[str | None, ...]]:
    """For each case, the lines that made its residuals. Feedback only: whatever goes wrong here costs labels."""
    counts = [len(part) for case in shapes for part in case]
    try:
        lines = [None if source is None else str(source) for source in sources_of(forward)]
    except (Exception, SystemExit):
        lines = [None] * sum(counts)
    ends = itertools.accumulate(counts)
    return [tuple(lines[end - count : end]) for end, count in zip(ends, counts, strict=True)][1::3]


@as_they_come()
def traced(answer: Callable, exercise: str, cases: Sequence[Case | Question], seed: int = 0) -> Evidence | Verdict:
    """Return an answer's evidence, or the verdict that there is none to be had. This runs the answer.

    Args:
      answer: the learner's function.
      exercise: the exercise's name.
      cases: what to trace it for, or what to ask it.
      seed: seeds the order.
    """
    try:
        return capture(answer, exercise, cases, seed)
    except MemoryError as error:
        failed = tuple(Traced(case.name, failure=failure_of(error)) for case in cases)
        return Evidence(exercise, parameters(answer), "", "", failed)
    except CaptureError as error:
        return not_judged(exercise, str(error))
