"""Trace an answer in every case, and detect whether a second attempt behaves differently."""

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.spec import Case
from grader.tracing.apply import applied
from grader.tracing.evidence import Failure, FailureKind
from grader.tracing.failures import Unusable, failure_of, refuse_none
from grader.tracing.same_jaxpr import Trace, same_programs
from grader.util.words import with_article
from grader.verdicts.error_questions import UNDIFFERENTIATED
from rematscope.extend import AnyJaxpr, type_text


class Attempt:
    """One attempt to trace an answer in every case.

    Attributes:
      failures: maps the index of a case to its failure.
      primal_failures: the same for calls of the answer without differentiation.
      outputs: maps the index of a case to the answer's output.
    """

    def __init__(self, answer: Callable, cases: Sequence[Case], order: Sequence[int]):
        self._answer, self._cases, self._order = answer, cases, order
        self._trees: dict[int, Any] = {}
        self.failures: dict[int, Failure] = {}
        self.primal_failures: dict[int, Failure] = {}
        self.outputs: dict[int, Any] = {}

    def forward(self, arguments: Sequence[Sequence[jax.Array]]) -> list[tuple[list, list]]:
        """Return each case's outputs and residuals; empty lists for a case in which the answer raises."""
        results: list[tuple[list, list]] = [([], [])] * len(self._cases)
        for index in self._order:
            try:
                function = _returning_arrays(applied(self._answer, self._cases[index]))
                output, pullback = jax.vjp(function, *arguments[index])
            except MemoryError:
                raise
            except (Exception, SystemExit) as error:
                self.failures[index] = failure_of(error)
                continue
            # The leaves of the function that jax.vjp returns are the residuals.
            residuals, self._trees[index] = jax.tree.flatten(pullback)
            self.outputs[index] = output
            results[index] = jax.tree.leaves(output), residuals
        return results

    def backward(
        self, residuals: Sequence[Sequence[jax.Array]], cotangents: Sequence[Sequence[jax.Array]]
    ) -> list[Sequence[jax.Array]]:
        """Return each case's gradients, computed only from the residuals and the cotangents."""
        gradients: list[Sequence[jax.Array]] = [()] * len(self._cases)
        for index in self._order:
            if index in self._trees:
                try:
                    pullback = jax.tree.unflatten(self._trees[index], residuals[index])
                    output = jax.tree.unflatten(jax.tree.structure(self.outputs[index]), cotangents[index])
                    gradients[index] = _typed_as_arguments(pullback(output), self._cases[index])
                except (Exception, SystemExit) as error:
                    self.failures[index] = failure_of(error)
        return gradients

    def undifferentiated(self, arguments: Sequence[Sequence[jax.Array]]) -> list[list[jax.Array]]:
        """Return each case's outputs without differentiation, which may differ from those of `forward`, because a
        function with a custom rule may return a different result."""
        outputs: list[list[jax.Array]] = [[] for _ in self._cases]
        for index in self._order:
            if index in self.outputs and index not in self.failures:
                try:
                    function = _returning_arrays(applied(self._answer, self._cases[index]))
                    output = function(*arguments[index])
                    _refuse_others(output, self.outputs[index])
                    outputs[index] = jax.tree.leaves(output)
                except MemoryError:
                    raise
                except (Exception, SystemExit) as error:
                    self.primal_failures[index] = _primal_failure(failure_of(error))
        for index, failure in self.failures.items():
            # Under jax.jit, JAX traces the function itself before its custom rules. The rules worked, so this is not a
            # stub.
            if self.outputs and failure.kind is FailureKind.NOT_ATTEMPTED:
                self.primal_failures[index] = _primal_failure(failure)
        return outputs


def _typed_as_arguments(gradients: Sequence[jax.Array], case: Case) -> Sequence[jax.Array]:
    """Return the gradients; raise Unusable if one has another type than its argument, which JAX allows in the backward
    rule of a `custom_vjp`."""
    for gradient, argument in zip(gradients, case.arguments, strict=True):
        got, asked = type_text(gradient), type_text(argument)
        if got != asked:
            raise Unusable(f"Your backward rule returns a gradient of type {got} for an argument of type {asked}.")
    return gradients


def _refuse_others(returned: Any, differentiated: Any) -> None:
    """Raise Unusable if an answer returns arrays of other types with and without differentiation, which JAX allows."""
    got, asked = (jax.tree.map(type_text, each) for each in (returned, differentiated))
    if got != asked:
        raise Unusable(f"Your answer returns {got} instead of {asked}".replace("'", ""))


def _primal_failure(failure: Failure) -> Failure:
    """Return the failure of an answer that fails only when it is called without jax.grad."""
    text, kind = failure.text.rstrip("."), failure.kind
    if kind is FailureKind.NOT_ATTEMPTED:
        text, kind = "Your answer is still a stub", FailureKind.RETURNED
    return dataclasses.replace(failure, kind=kind, text=f"{text} {UNDIFFERENTIATED}.")


class Pass(NamedTuple):
    """The traces of one pass (forward or backward) in both attempts, with the results of each trace by case."""

    first: Trace
    results: Any
    second: Trace
    second_results: Any

    @classmethod
    def of(cls, first: AnyJaxpr, shapes: Any, second: AnyJaxpr, second_shapes: Any) -> "Pass":
        """Return the pass from two jaxprs. The shapes are those of the traced functions' results, with their
        structure."""
        one, other = Trace(first), Trace(second)
        results, second_results = (
            jax.tree.unflatten(jax.tree.structure(kinds), trace.results)
            for kinds, trace in ((shapes, one), (second_shapes, other))
        )
        return cls(one, results, other, second_results)

    def same(self, *place: int) -> bool:
        """Return whether both traces compute the results at this position with the same operations."""
        here, there = (functools.reduce(operator.getitem, place, each) for each in (self.results, self.second_results))
        return len(here) == len(there) and same_programs(self.first, self.second, zip(here, there, strict=True))


def changed_cases(first: Attempt, second: Attempt, forward: Pass, backward: Pass) -> dict[int, Failure]:
    """Return a failure for each case, by index, in which the second attempt differs from the first."""
    changes = {}
    for index in range(len(forward.results)):
        traced = index in first.outputs and index in second.outputs
        before, after = first.failures.get(index), second.failures.get(index)
        if traced and not forward.same(index, 0):
            changes[index] = changed_failure("it computes its result differently the second time")
        elif traced and not forward.same(index, 1):
            changes[index] = changed_failure("it saves other values the second time")
        elif (before is None) != (after is None):
            changes[index] = failed_once(before, after)
        elif before is None and not backward.same(index):
            changes[index] = changed_failure("it computes its gradients differently the second time")
    return changes


def changed_failure(words: str, source: str | None = None) -> Failure:
    """Return the failure of an answer that keeps state; `words` describe the difference."""
    return Failure(FailureKind.CHANGED, words, source)


def failed_once(before: Failure | None, after: Failure | None) -> Failure:
    """Return the failure of an answer that raised an exception, or returned no valid result, in only one attempt."""
    failure = before or after
    assert failure is not None
    if failure.kind is FailureKind.RAISED:
        words = f"it raises {failure.text}"
    else:
        words = re.sub(r"^Your answer ", "it ", failure.text).rstrip(".")
    return changed_failure(f"{words}, but only the {'first' if before else 'second'} time", failure.source)


def _returning_arrays(function: Callable) -> Callable:
    def checked(*arguments):
        output = function(*arguments)
        refuse_none(function, output)
        for leaf in jax.tree.leaves(output):
            if callable(leaf):
                of_array = isinstance(getattr(leaf, "__wrapped__", None), jax.Array)
                why = "; jax.checkpoint got the array that a function returned, not the function" if of_array else ""
                raise Unusable(f"Your answer returns a function that it has not called{why}.")
            if not isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float | complex):
                raise Unusable(f"Your answer returns {with_article(type(leaf).__name__)}, not an array.")
            if not jnp.issubdtype(dtype := jnp.asarray(leaf).dtype, jnp.inexact):
                among = "" if leaf is output else f"{with_article(type(output).__name__)} that contains "
                raise Unusable(f"Your answer returns {among}{with_article(f'{dtype} array')}, which has no gradient.")
        return jax.tree.map(jnp.asarray, output)

    return checked
