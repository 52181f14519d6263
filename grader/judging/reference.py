"""Trace and run the reference, which defines an answer's right results and the values that it may save."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.spec import Case, Expect
from grader.stablehlo import reader
from grader.stablehlo.execution import Arrays, Function
from grader.stablehlo.program import Matmul
from grader.stablehlo.types import TensorType


def reference_of(case: Case, expect: Expect) -> Callable[..., Any]:
    """Return a case's reference: a function of the case's arguments that returns the result and the named values."""
    return case.transform(expect.reference if case.function is None else _return_named_values(case.function))


def argument_names(case: Case, expect: Expect) -> tuple[str, ...]:
    """Return the names of a case's arguments, which are the positional parameters of its reference."""
    parameters = inspect.signature(reference_of(case, expect)).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY)


def _return_named_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a case's function, extended to also return the values that it names."""

    @functools.wraps(function)
    def both(*arguments: Any) -> Any:
        named: dict[str, jax.Array] = {}

        def name(value: jax.Array, called: str) -> jax.Array:
            named[called] = value
            return value

        return function(*arguments, name=name), named

    return both


@dataclass(frozen=True)
class TracedReference:
    """The reference of all cases of an exercise.

    Attributes:
      function: a function of every case's arguments and cotangents. It returns each case's output, its gradients (one
        per argument) and its named values (arrays by name).
      matmul_flops: for each case, the FLOPs of each matmul of both passes, which save everything.
      forward_flops: the same for the forward pass alone.
      negligible: for each case, the FLOPs of the smallest matmul; 1 if there is none.
      forward_products: for each case, the positions of the matmuls that the output is computed from, and the FLOPs of
        one run of each.
    """

    function: Function
    matmul_flops: tuple[tuple[int, ...], ...]
    forward_flops: tuple[tuple[int, ...], ...]
    negligible: tuple[int, ...]
    forward_products: tuple[dict[int, int], ...]

    def products(self, inputs: Arrays, cotangents: Arrays) -> list[np.ndarray]:
        """Return for each case fingerprints of the forward pass's matmuls, as rows that end with the matmul's FLOPs.

        `grader.stablehlo.value_fingerprints` defines the other columns.
        """
        places = {place for flops in self.forward_products for place in flops}
        rows = self.function.value_fingerprints(places, inputs, cotangents)
        cases = []
        for flops in self.forward_products:
            own = rows[np.isin(rows[:, 0], list(flops))]
            cases.append(np.column_stack([own, [flops[int(place)] for place in own[:, 0]]]))
        return cases


@functools.lru_cache(maxsize=32)
def traced_reference(
    cases: tuple[Case, ...], expect: Expect, returned: tuple[tuple[TensorType, ...], ...]
) -> TracedReference:
    """Trace the reference.

    Args:
      cases: the exercise's cases.
      expect: its `expect` module.
      returned: for each case, the shapes and dtypes of the answer's outputs, which are those of the cotangents.
    """

    def reference(inputs: Sequence[Sequence[jax.Array]], cotangents: Sequence[Sequence[jax.Array]]) -> list[Any]:
        results = []
        for case, arguments, given in zip(cases, inputs, cotangents, strict=True):
            output, pullback, named = jax.vjp(reference_of(case, expect), *arguments, has_aux=True)
            # If the shapes differ, no cotangent fits; the answer then fails on its type before gradients are compared.
            fits = jax.tree.map(jnp.shape, [output]) == jax.tree.map(jnp.shape, given)
            results.append((output, pullback(given[0].astype(output.dtype) if fits else output), named))
        return results

    # Arrays of zeros define the shapes and dtypes.
    cotangents = [[np.zeros(kind.shape, kind.dtype) for kind in kinds] for kinds in returned]
    function = Function(reference, [list(case.arguments) for case in cases], cotangents)
    program = reader.read(function.text)
    values = jax.tree.unflatten(function.tree, program.outputs)
    needed = [program.needed_for([output, *gradients]) for output, gradients, _ in values]
    places = dict(program.places)
    for_output = [program.needed_for([output]) for output, _, _ in values]
    matmuls = [[matmul for matmul in program.matmuls if matmul.value in case] for case in needed]
    return TracedReference(
        function,
        matmul_flops=tuple(tuple(flops_of_each(own)) for own in matmuls),
        forward_flops=tuple(
            tuple(flops_of_each(matmul for matmul in own if matmul.value in before))
            for own, before in zip(matmuls, for_output, strict=True)
        ),
        forward_products=tuple(
            {places[m.value]: m.flops // m.trip_count for m in own if m.value in before and not m.spelled_out}
            for own, before in zip(matmuls, for_output, strict=True)
        ),
        negligible=tuple(
            min(flops_of_each(matmul for matmul in own if not matmul.spelled_out), default=1) for own in matmuls
        ),
    )


@functools.lru_cache(maxsize=32)
def traced_mistakes(case: Case, expect: Expect, places: tuple[int, ...]) -> Function:
    """Trace known mistakes in a case.

    Args:
      case: the case.
      expect: the exercise's `expect` module.
      places: the positions of the mistakes among `expect.mistakes`.

    Returns:
      A function of a list of the case's arguments and of the output's cotangent. It returns a list for each mistake:
      its gradients if the mistake shows in the gradients alone, otherwise its value.
    """

    def run(arguments: Sequence[jax.Array], cotangent: jax.Array) -> list[Sequence[jax.Array]]:
        results: list[Sequence[jax.Array]] = []
        for mistake in (expect.mistakes[place] for place in places):
            function = case.differentiated(mistake.wrong_reference)
            if mistake.check_gradient:
                results.append(jax.vjp(function, *arguments)[1](cotangent))
            else:
                results.append([function(*arguments)])
        return results

    output = jax.eval_shape(reference_of(case, expect), *case.arguments)[0]
    return Function(run, list(case.arguments), output)


def flops_of_each(matmuls: Iterable[Matmul]) -> Iterator[int]:
    """Return the FLOPs of each run of each matmul. A matmul in a loop runs as many times as the loop's trip count."""
    return (matmul.flops // matmul.trip_count for matmul in matmuls for _ in range(matmul.trip_count))
