"""A loop over parts of a batch, with a checkpoint around each iteration, whose gradients are added up in place."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

Arrays = list[Any]


def checkpointed_loop(
    compute: Callable[[Any, Arrays, Arrays], Arrays], count: int, fixed: Arrays, stacks: Arrays
) -> tuple[Arrays, Arrays]:
    """Run `compute(number, fixed, slices)` for each part, and save only its arguments for the backward pass.

    The backward pass adds the gradients of `fixed` to the cotangents of the returned `fixed`. If the next loop reads
    these, one sum per array is enough for all loops. With `jax.checkpoint` in a `lax.scan`, JAX starts a sum of zeros
    for each loop, and XLA for a CPU allocates all of them before the first loop of the backward pass.

    Args:
      compute: returns a list of arrays. Its derivative is taken in reverse mode only.
      count: the number of parts.
      fixed: arrays that all parts read.
      stacks: arrays whose leading axis has the length `count`; each part gets one slice of each.

    Returns:
      The results of all parts, stacked along a leading axis, and `fixed`.
    """

    def run(fixed: Arrays, stacks: Arrays) -> tuple[Arrays, Arrays]:
        numbered = (jnp.arange(count), stacks)
        return lax.scan(lambda _, xs: (None, compute(xs[0], fixed, xs[1])), None, numbered)[1], fixed

    def forward(*operands: list[CustomVJPPrimal]) -> tuple[Any, Any]:
        values = [[each.value for each in group] for group in operands]
        # Trees of None and () instead of booleans, which JAX would make arrays.
        varied = [[() if _has_gradient(each) else None for each in group] for group in operands]
        return run(*values), (values, varied)

    def backward(residuals: Any, cotangents: tuple[Arrays, Arrays]) -> tuple[Arrays, Arrays]:
        (fixed, stacks), varied = residuals
        of_fixed, of_stacks = ([i for i, each in enumerate(group) if each is not None] for group in varied)
        of_results = [i for i, each in enumerate(cotangents[0]) if _is_cotangent(each)]
        # The barrier makes sums of zeros start here, too.
        sums, given = lax.optimization_barrier(
            ([_as_array(cotangents[1][i]) for i in of_fixed], [cotangents[0][i] for i in of_results])
        )

        def add_gradients(sums: Arrays, xs: Any) -> tuple[Arrays, Arrays]:
            number, slices, given = xs

            def results(*differentiated: Arrays) -> Arrays:
                found = compute(
                    number,
                    _with(fixed, of_fixed, differentiated[0]),
                    _with(slices, of_stacks, differentiated[1]),
                )
                return [found[i] for i in of_results]

            _, pullback = jax.vjp(results, [fixed[i] for i in of_fixed], [slices[i] for i in of_stacks])
            terms, gradients = pullback(given)
            return [total + term for total, term in zip(sums, terms, strict=True)], gradients

        sums, gradients = lax.scan(add_gradients, sums, (jnp.arange(count), stacks, given), reverse=True)
        return _with([None] * len(fixed), of_fixed, sums), _with([None] * len(stacks), of_stacks, gradients)

    loop = jax.custom_vjp(run)
    loop.defvjp(forward, backward, symbolic_zeros=True)
    return loop(fixed, stacks)


def _has_gradient(primal: CustomVJPPrimal) -> bool:
    return primal.perturbed and jnp.issubdtype(jnp.result_type(primal.value), jnp.inexact)


def _is_cotangent(cotangent: Any) -> bool:
    return not isinstance(cotangent, SymbolicZero) and cotangent.dtype != jax.dtypes.float0


def _as_array(cotangent: Any) -> Any:
    return jnp.zeros(cotangent.shape, cotangent.dtype) if isinstance(cotangent, SymbolicZero) else cotangent


def _with(values: Arrays, positions: Sequence[int], replacements: Arrays) -> Arrays:
    found = list(values)
    for i, value in zip(positions, replacements, strict=True):
        found[i] = value
    return found
