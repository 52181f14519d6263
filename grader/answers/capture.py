"""Turn an answer into evidence: trace its forward and its backward pass and hand both over as text.

This runs a learner's code. It knows the exercise's cases and nothing of what is expected.
"""

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util
from jax.interpreters import mlir

from grader.answers.apply import applied
from grader.answers.evidence import Evidence, Failure, Traced
from grader.answers.failures import Unusable, failure_of, message_of, refuse_none
from grader.exercises.plain_data import plain
from grader.exercises.spec import Case, Question
from grader.verdicts.kinds import FindingKind, Outcome
from grader.verdicts.verdict import Finding, Verdict
from rematscope.tracing.trace import sources_of

# A value that a function of the catalogue's makes comes from the learner's line that calls it.
source_info_util.register_exclusion(str(Path(__file__).resolve().parents[1]))


class CaptureError(Exception):
    """The answer cannot be turned into programs; the message says why, in words for the learner."""


def capture(answer: Callable, exercise: str, cases: Sequence[Case | Question]) -> Evidence:
    """Traces an answer in every case, without running it on any data; and asks it every question.

    Args:
      answer: a function of arrays that returns an array, or what a case or a question makes something of.
      exercise: the exercise's name.
      cases: what to trace it for, or what to ask it.

    Returns:
      The evidence. An answer that raises in a case leaves a `Failure` there instead of programs.

    Raises:
      CaptureError: the traced programs cannot be written down, for instance because they call back into Python.
    """
    asked = tuple(_asked(answer, case) for case in cases if isinstance(case, Question))
    if not (differentiated := [case for case in cases if isinstance(case, Case)]):
        return Evidence(exercise, _parameters(answer), "", "", asked)
    evidence = _two_programs(answer, exercise, differentiated)
    return dataclasses.replace(evidence, cases=(*evidence.cases, *asked))


def _two_programs(answer: Callable, exercise: str, cases: Sequence[Case]) -> Evidence:
    failures: dict[int, Failure] = {}
    outputs: dict[int, Any] = {}
    trees: dict[int, Any] = {}

    # One module for all cases: exporting costs more per module than per operation.
    def forward(arguments):
        results: list[tuple[list, list]] = []
        for index, case in enumerate(cases):
            try:
                output, pullback = jax.vjp(_returning_arrays(applied(answer, case)), *arguments[index])
            except (Exception, SystemExit) as error:
                failures[index] = failure_of(error)
                results.append(([], []))
                continue
            # The leaves of the function that jax.vjp returns are the residuals: what the forward pass keeps.
            residuals, trees[index] = jax.tree.flatten(pullback)
            outputs[index] = output
            results.append((jax.tree.leaves(output), residuals))
        return results

    # Backward is traced apart, from residuals and cotangents alone: whatever it uses has been handed to it.
    def backward(residuals, cotangents):
        gradients = []
        for index in sorted(trees):
            try:
                pullback = jax.tree.unflatten(trees[index], residuals[index])
                gradients.append(pullback(jax.tree.unflatten(jax.tree.structure(outputs[index]), cotangents[index])))
            except (Exception, SystemExit) as error:
                failures[index] = failure_of(error)
        return gradients

    # keep_unused: an argument that the answer ignores is still one of the program's inputs.
    forward, arguments = jax.jit(forward, keep_unused=True), [case.arguments for case in cases]
    try:
        exported_forward = _export(forward, arguments)
        shapes = jax.tree.unflatten(exported_forward.out_tree, exported_forward.out_avals)
        exported_backward = _export(
            jax.jit(backward, keep_unused=True), [kept for _, kept in shapes], [out for out, _ in shapes]
        )
    except CaptureError:
        if not (leaks := _leaks(answer, cases)):
            raise
        return Evidence(exercise, _parameters(answer), "", "", leaks)
    sources = _sources(forward, arguments, shapes)
    return Evidence(
        exercise=exercise,
        parameters=_parameters(answer),
        forward=program_text(exported_forward),
        backward=program_text(exported_backward),
        cases=tuple(
            Traced(
                case=case.name,
                output=_structure(outputs.get(index)),
                outputs=len(shapes[index][0]),
                sources=sources[index] if index not in failures else (),
                failure=failures.get(index),
            )
            for index, case in enumerate(cases)
        ),
    )


def _parameters(answer: Callable) -> tuple[str, ...]:
    """The names of an answer's positional parameters; empty where they cannot be known."""
    try:
        signature = inspect.signature(answer)
    except (ValueError, TypeError):
        return ()
    return tuple(p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY)


def _leaks(answer: Callable, cases: Sequence[Case]) -> tuple[Traced, ...]:
    """What JAX says where a custom rule uses traced values that it is not given, which it says when both passes are
    traced as one."""

    def gradients(case, *arguments):
        output, pullback = jax.vjp(applied(answer, case), *arguments)
        return pullback(output)

    leaks = []
    for case in cases:
        try:
            jax.eval_shape(functools.partial(gradients, case), *case.arguments)
        except jax.errors.UnexpectedTracerError as error:
            leaks.append(Traced(case.name, failure=failure_of(error)))
    return tuple(leaks)


def _asked(answer: Callable, question: Question) -> Traced:
    try:
        returned = question.data(answer)
        refuse_none(answer, returned)
        try:
            return Traced(question.name, data=plain(returned))
        except TypeError as error:
            raise Unusable(f"Your answer returns a {error}, which is no plain data.") from None
    except (Exception, SystemExit) as error:
        return Traced(question.name, failure=failure_of(error))


def _export(function, *arguments) -> jax.export.Exported:
    try:
        return jax.export.export(function, platforms=["cpu"])(*arguments)
    except Exception as error:
        raise CaptureError(
            f"Your answer cannot be written down as two programs ({message_of(error)}): does it call back into Python, "
            "as jax.debug.print does, or keep a traced value outside of the function? Take that out, then check again."
        ) from error


def program_text(exported: jax.export.Exported) -> str:
    """An exported program as StableHLO text.

    Without locations: they hold the learner's paths, and nobody needs them.
    """
    with mlir.make_ir_context():
        module = mlir.ir.Module.parse(exported.mlir_module())
        return str(module.operation.get_asm(enable_debug_info=False))


def _structure(output) -> str:
    return str(jax.tree.structure(output)).removeprefix("PyTreeDef(").removesuffix(")")


def _returning_arrays(function: Callable) -> Callable:
    def checked(*arguments):
        output = function(*arguments)
        refuse_none(function, output)
        for leaf in jax.tree.leaves(output):
            if callable(leaf):
                raise Unusable("Your answer returns a function, which it has not called.")
            if not isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float | complex):
                raise Unusable(f"Your answer returns a {type(leaf).__name__}, not an array.")
            if not jnp.issubdtype(dtype := jnp.asarray(leaf).dtype, jnp.inexact):
                raise Unusable(f"Your answer returns {dtype}, which has no gradient.")
        return jax.tree.map(jnp.asarray, output)

    return checked


def _sources(forward, arguments, shapes) -> list[tuple[str | None, ...]]:
    """For each case, the lines that made its residuals. Feedback only: whatever goes wrong here costs labels."""
    counts = [len(part) for case in shapes for part in case]
    try:
        # Traced already, to be exported.
        found = sources_of(forward.trace(arguments).jaxpr)
        lines = [None if source is None else str(source) for source in found]
    except (Exception, SystemExit):
        lines = [None] * sum(counts)
    ends = itertools.accumulate(counts)
    return [tuple(lines[end - count : end]) for end, count in zip(ends, counts, strict=True)][1::2]


def traced(answer: Callable, exercise: str, cases: Sequence[Case | Question]) -> Evidence | Verdict:
    """An answer's evidence, or the verdict that there is none to be had. This runs the answer."""
    try:
        return capture(answer, exercise, cases)
    except CaptureError as error:
        return Verdict(exercise, Outcome.NOT_JUDGED, (Finding(FindingKind.NOT_JUDGED, str(error)),))
