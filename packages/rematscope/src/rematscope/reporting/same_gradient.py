"""Check that microbatches give the gradient of a step, by a proof or else by a numerical comparison."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rematscope.errors import PlanError
from rematscope.jax_compat.vjp_hook import outside_traces
from rematscope.reporting.averages import why_not_averaged
from rematscope.reporting.microbatches import divided_values
from rematscope.tracing.trace import Trace, trace_call

_DRAWS = 5  # several random batches, because in one batch a mask may select equally many examples of each part
_CHECKED_FLOPS = 1e10  # the most FLOPs of a step to compare; more would take longer than some seconds on a CPU
_CHECKED_BYTES = 2**29  # the most bytes of the arguments of a step to compare
_SCALES = 1.0, 0.1, 0.01
_LATE_STEP = 10**6
_TOLERANCE = {False: 2e-3, True: 3e-2}  # by whether some values have fewer than 32 bits


def why_gradient_differs(
    flat: Callable[..., Any], leaves: Sequence[Any], axes: Sequence[int | None], count: int, function: str
) -> str:
    """Return a sentence on why microbatches might not give a step's results; "" if they do.

    The equality is proved from the step's program (`rematscope.reporting.averages`). If there is no proof, gradients on
    random data of the same shapes are compared, unless the model is too large.

    Args:
      flat: the step as a function of flat arrays.
      leaves: its arguments: arrays, tracers or shapes.
      axes: the batch axis of each leaf; None for a leaf without a batch axis.
      count: the number of microbatches.
      function: the name of the step.
    """
    leaves = [_shape(leaf) if isinstance(leaf, jax.core.Tracer) else leaf for leaf in leaves]
    try:
        why = why_not_averaged(flat, leaves, axes, count, function)
        if not why:
            return ""
        with outside_traces():
            step = trace_call(flat, [_shape(leaf) for leaf in leaves], {}, False)
            nbytes = sum(math.prod(jnp.shape(leaf)) * jax.typeof(leaf).dtype.itemsize for leaf in leaves)
            if step.cost.flops <= _CHECKED_FLOPS and nbytes <= _CHECKED_BYTES:
                return _computed_difference(flat, leaves, axes, count, step, function)
    except PlanError as error:
        return str(error)
    except Exception as error:  # any error that the step raises for another batch size
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return f"{function} cannot run with another batch size: {reason:.200}"
    return (
        f"It is not proved that microbatches give the gradient of {function}. {why} The model is too large to compare "
        "gradients numerically. Split the batch in the step itself, with jax.lax.scan."
    )


def _computed_difference(
    flat: Callable[..., Any],
    leaves: Sequence[Any],
    axes: Sequence[int | None],
    count: int,
    step: Trace,
    function: str,
) -> str:
    """Return a sentence on why microbatches change the gradient on random data; "" if they do not."""

    def values(*leaves: Any) -> list[list[Any]]:
        return [divided_values(flat, leaves, axes, parts, function) for parts in (1, count)]

    both = jax.jit(values)
    found = list[tuple[list[Any], list[Any]]]()
    for scale in _SCALES:  # random weights may overflow
        for seed in range(_DRAWS):
            rng = np.random.default_rng(seed)
            drawn = [_drawn(leaf, axis, scale, rng, not seed) for leaf, axis in zip(leaves, axes, strict=True)]
            whole, parts = ([np.asarray(v, np.float64) for v in values] for values in both(*drawn))
            if all(np.isfinite(v).all() for v in whole):
                found.append((whole, parts))
        if 2 * len(found) > _DRAWS:
            break
    else:
        return f"The gradient of {function} is not finite for random data, so microbatches could not be checked."
    made = (v.dtype for equation, _ in step.forward.walk() for v in equation.outputs if hasattr(v.aval, "dtype"))
    narrow = any(jnp.issubdtype(dtype, np.floating) and dtype.itemsize < 4 for dtype in made)
    if all(_agree(whole, parts, _TOLERANCE[narrow]) for whole, parts in found):
        return ""
    if all(_is_sum(whole, parts, count, _TOLERANCE[narrow]) for whole, parts in found):
        return (
            f"The loss of {function} is a sum over the examples, and microbatches= averages. Divide the sum inside the "
            "loss, by a number that does not depend on the data, and not after the gradient."
        )
    return (
        f"Averaged over microbatches, the gradient or the loss of {function} differs: its loss is not an average over "
        "the examples. (Batch normalization, a weighted mean and a sum are not.)"
    )


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(leaf), jax.typeof(leaf).dtype)


def _drawn(leaf: Any, axis: int | None, scale: float, rng: Any, is_own: bool) -> Any:
    """Return an array to use as an argument: random values for a shape or the batch, else its own values or near them.

    Weights that are 0 now, such as that of an auxiliary loss at the start of training, hide what they multiply.

    Args:
      leaf: the argument, or its shape.
      axis: its batch axis; None for an argument without one.
      scale: the scale of random weights.
      rng: NumPy's generator.
      is_own: whether an argument without a batch axis keeps its own values.
    """
    shape, dtype = tuple(jnp.shape(leaf)), jax.typeof(leaf).dtype
    has_value = axis is None and not isinstance(leaf, jax.ShapeDtypeStruct)
    if has_value and not shape and not is_own:  # a flag or a counter of steps may select another loss later
        if dtype == np.bool_:
            return jnp.asarray(rng.choice([False, True]))
        if jnp.issubdtype(dtype, np.integer):
            return jnp.asarray(rng.choice([int(leaf), min(_LATE_STEP, jnp.iinfo(dtype).max)]), dtype)
    if has_value and (is_own or not jnp.issubdtype(dtype, np.floating)):
        return leaf
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), shape) if shape else jax.random.key(0)
    if jnp.issubdtype(dtype, np.inexact):
        drawn = rng.standard_normal(shape)
        if axis is None:  # a matrix of weights, or a scale or a variance, which is positive
            drawn = drawn * scale * shape[-2] ** -0.5 if len(shape) > 1 else abs(drawn) * scale
        return jnp.asarray(leaf + drawn if has_value else drawn, dtype)
    if not isinstance(leaf, jax.ShapeDtypeStruct) and np.size(leaf):
        return jnp.asarray(rng.choice(np.ravel(leaf), shape), dtype)  # a mask may depend on values such as -100
    return jnp.asarray(rng.integers(0, 2, shape), dtype)


def _agree(whole: Sequence[Any], parts: Sequence[Any], tolerance: float) -> bool:
    """Return whether two lists of arrays differ only by rounding.

    The tolerance includes a share of the largest array's norm, to accept rounding errors in arrays that should be 0.
    """
    norm: Any = np.linalg.norm
    least = 1e-3 * tolerance * max(map(norm, whole), default=0.0)
    return all(norm(one - other) <= tolerance * norm(one) + least for one, other in zip(whole, parts, strict=True))


def _is_sum(whole: Sequence[Any], parts: Sequence[Any], count: int, tolerance: float) -> bool:
    """Return whether most arrays for the whole batch are the sums, not the averages, of those for `count` parts."""
    pairs = [*zip(whole, parts, strict=True)]
    summed = [_agree([a], [count * b], tolerance) and not _agree([a], [b], tolerance) for a, b in pairs]
    return 2 * sum(summed) > len(summed)
