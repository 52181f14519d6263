"""A function with a derivative that consists of two given programs.

Its derivative is one operation of JAX that is linear in the tangents. The transpose of this operation, which reverse
mode uses, is the given backward program. Its value, which forward mode uses, and its own derivative, for second order,
are those of the function itself. Under `vmap` both are batched together.

The two programs are not differentiated: their operations are inlined, so they have lost the custom rules that JAX uses
in a second derivative. This derivative is that of JAX's own value and gradient.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from rematscope.jax_compat import is_named_axis

Arrays = Sequence[Any]
_Back = Callable[[tuple[bool, ...]], Callable[..., Arrays]]


def differentiable(
    f: Callable[..., Arrays],
    forward: Callable[..., Arrays],
    backward: Callable[[tuple[bool, ...], tuple[int, ...]], Callable[..., Arrays]],
    outputs: Sequence[Any],
    rerun: Callable[..., Arrays],
    has_mutable_arrays: bool,
) -> Callable[..., Arrays]:
    """Return `f` with another derivative.

    Args:
      f: a function of arrays that returns a list of arrays.
      forward: computes the same outputs, and then the saved values.
      backward: given a truth value for each output, whether its cotangent is zero, and the places of the arguments that
        are differentiated, returns a function of the saved values, the arguments and the other cotangents. That returns
        a cotangent for each argument, a float0 for an integer.
      outputs: the types of the outputs of `f`.
      rerun: `f`, or a function that raises. Forward mode and second derivatives differentiate it, which runs `f` again.
      has_mutable_arrays: whether `f` creates mutable arrays.
    """
    flows = [bool(jnp.issubdtype(o.dtype, jnp.inexact)) for o in outputs]
    zeros = [np.zeros(o.shape, jax.dtypes.float0) for o in outputs]

    @functools.cache  # so that JAX's caches apply
    def forward_for(asked: tuple[int, ...]) -> Callable[..., Arrays]:
        """Return `forward` for derivatives with respect to some of the arguments."""
        return _with_derivative_of(lambda *given: vjp_of_some(rerun, given, asked)[0], forward, has_mutable_arrays)

    @functools.cache
    def backward_for(asked: tuple[int, ...], none: tuple[bool, ...], count: int) -> Callable[..., Arrays]:
        """Return the cotangents of some of the arguments where some cotangents of the outputs are zero."""
        flown, given_cotangents = iter(none), none.count(False)
        zero = tuple(flow and next(flown) for flow in flows)
        is_given = [flow and not no for flow, no in zip(flows, zero, strict=True)]

        def of_jax(*operands: Any) -> Arrays:
            given, _, cotangents = _split_operands(operands, count, given_cotangents)
            pull = vjp_of_some(select_outputs(rerun, is_given), given, asked)[1]
            return tuple(pull(list(cotangents)))

        def pulled(*operands: Any) -> Arrays:
            given, saved, rest = _split_operands(operands, count, given_cotangents)
            flowing, pairs = iter(rest), zip(flows, zero, zeros, strict=True)
            cotangents = [next(flowing) if flow else nothing for flow, no, nothing in pairs if not no]
            found = backward(zero, asked)(*saved, *given, *cotangents)
            return tuple(found[i] for i in asked)

        return _with_derivative_of(of_jax, pulled, has_mutable_arrays)

    def jvp_rule(primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        asked = tuple(i for i, t in enumerate(tangents) if not isinstance(t, SymbolicZero))
        results, saved, _ = _split_operands(forward_for(asked)(*primals), len(outputs), 0)
        count, fixed = len(primals), len(primals) + len(saved)  # what follows must hold no value of the trace

        def straight(*operands: Any) -> Arrays:
            given, _, dots = _split_operands(operands, count, len(asked))
            return tuple(jvp_of_some(select_outputs(rerun, flows), given, asked, dots))

        def back(none: tuple[bool, ...]) -> Callable[..., Arrays]:
            return backward_for(asked, none, count)

        if not asked or not any(flows):
            return tuple(results), tuple(map(_zero_tangent, results))
        types = tuple(jax.typeof(o) for o, flow in zip(results, flows, strict=True) if flow)
        dots = iter(
            _tangent.bind(
                *primals,
                *saved,
                *(tangents[i] for i in asked),
                straight=straight,
                back=back,
                fixed=fixed,
                types=types,
            )
        )
        return tuple(results), tuple(next(dots) if flow else zero for flow, zero in zip(flows, zeros, strict=True))

    return _with_rule(f, jvp_rule, has_mutable_arrays)


def _split_operands(operands: Arrays, first: int, last: int) -> tuple[Arrays, Arrays, Arrays]:
    """Return the first operands, those in the middle, and the last ones."""
    end = len(operands) - last
    return operands[:first], operands[first:end], operands[end:]


def select_outputs(f: Callable[..., Arrays], mask: Sequence[bool]) -> Callable[..., Arrays]:
    """Return `f` with the outputs in a mask only."""
    return lambda *leaves: [o for o, one in zip(f(*leaves), mask, strict=True) if one]


def _of_some(f: Callable[..., Any], given: Arrays, places: Sequence[int]) -> Callable[..., Any]:
    """Return `f` as a function of its arguments at some places; the others are constants."""

    def of(*some: Any) -> Any:
        full = list(given)
        for i, x in zip(places, some, strict=True):
            full[i] = x
        return f(*full)

    return of


def jvp_of_some(f: Callable[..., Any], given: Arrays, places: Sequence[int], dots: Arrays) -> Any:
    """Return the tangents of the outputs of `f` for tangents of its arguments at some places."""
    return jax.jvp(_of_some(f, given, places), [given[i] for i in places], list(dots))[1]


def vjp_of_some(f: Callable[..., Any], given: Arrays, places: Sequence[int]) -> tuple[Any, Any]:
    """Return `jax.vjp` of a function with respect to its arguments at some places."""
    result: tuple[Any, Any] = jax.vjp(_of_some(f, given, places), *(given[i] for i in places))
    return result


def _with_derivative_of(
    f: Callable[..., Arrays], other: Callable[..., Arrays], has_mutable_arrays: bool
) -> Callable[..., Arrays]:
    """Return `other` with the derivative of `f`, whose outputs are its first ones; further outputs have none."""

    def jvp_rule(primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        moving = [i for i, t in enumerate(tangents) if not isinstance(t, SymbolicZero)]
        dots = jvp_of_some(f, primals, moving, [tangents[i] for i in moving])
        results = replaced(*primals)
        return results, (*dots, *map(_zero_tangent, results[len(dots) :]))

    # Under vmap, a bare custom_jvp does not accept NumPy arrays.
    replaced: Callable[..., Arrays] = jax.jit(_with_rule(other, jvp_rule, has_mutable_arrays))
    return replaced


def _with_rule(
    f: Callable[..., Arrays], jvp_rule: Callable[[Arrays, Arrays], tuple[Any, Any]], has_mutable_arrays: bool
) -> Callable[..., Arrays]:
    """Return `f` with a rule for its derivative, as for `jax.custom_jvp` with symbolic zeros.

    JAX does not lower a function that has such a rule and creates a mutable array. For such an `f`, the rule belongs to
    an identity function of its results, so differentiation runs `f` too.
    """
    if not has_mutable_arrays:
        custom = jax.custom_jvp(lambda *operands: tuple(f(*operands)))
        custom.defjvp(jvp_rule, symbolic_zeros=True)
        return custom

    @jax.custom_jvp
    def attached(results: Arrays, operands: Arrays) -> Arrays:
        return results

    attached.defjvp(lambda primals, tangents: jvp_rule(primals[1], tangents[1]), symbolic_zeros=True)
    return lambda *operands: attached(tuple(f(*map(jax.lax.stop_gradient, operands))), operands)


def _zero_tangent(x: Any) -> Any:
    return jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.inexact) else np.zeros(x.shape, jax.dtypes.float0)


# `tangent(*fixed, *tangents)` is linear in the tangents; the saved values in `fixed` are for its transpose only.
_tangent = Primitive("scheduled_tangent")
_tangent.multiple_results = True


@_tangent.def_impl
def _run_forward(*operands: Any, straight: Callable[..., Arrays], **_: Any) -> list[Any]:
    return list(straight(*operands))


@_tangent.def_abstract_eval
def _output_types(*_: Any, types: tuple[Any, ...], **__: Any) -> list[Any]:
    return list(types)


def _jvp_rule(primals: Arrays, dots: Arrays, **params: Any) -> tuple[list[Any], list[Any]]:
    fixed, straight = params["fixed"], params["straight"]
    zero = [type(dot) is ad.Zero for dot in dots]
    results = _tangent.bind(*primals, **params)
    if all(zero[:fixed]):
        given = [ad.instantiate_zeros(dot) for dot in dots[fixed:]]
        return results, _tangent.bind(*primals[:fixed], *given, **params)
    moving = [i for i, none in enumerate(zero) if not none]
    return results, list(jvp_of_some(straight, primals, moving, [dots[i] for i in moving]))


def _transpose_rule(cotangents: Arrays, *operands: Any, back: _Back, fixed: int, **_: Any) -> list[Any]:
    none = tuple(type(ct) is ad.Zero for ct in cotangents)
    given = [ct for ct, zero in zip(cotangents, none, strict=True) if not zero]
    return [None] * fixed + list(back(none)(*operands[:fixed], *given))


def _batching_rule(
    axis: Any, operands: Arrays, dims: Sequence[Any], **params: Any
) -> tuple[list[Any], list[int] | list[None]]:
    if all(d is None for d in dims) and not is_named_axis(axis.name):
        results = _tangent.bind(*operands, **params)
        return results, [None] * len(results)
    fixed, types, size = params["fixed"], params["types"], axis.size
    # Both programs run after this vmap has ended, and their collectives over its axis need the axis again.
    mapped = functools.partial(jax.vmap, axis_name=axis.name, axis_size=size, spmd_axis_name=axis.spmd_name)
    axes = tuple(dims[:fixed])
    tangents = [
        jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(operands[fixed:], dims[fixed:], strict=True)
    ]
    params["straight"] = mapped(params["straight"], (*axes, *[0] * len(tangents)))
    params["back"] = functools.partial(_mapped_back, mapped, params["back"], axes)
    params["types"] = tuple(aval.update(shape=(size, *aval.shape)) for aval in types)
    return _tangent.bind(*operands[:fixed], *tangents, **params), [0] * len(types)


def _mapped_back(
    mapped: Callable[..., Any], back: _Back, axes: tuple[Any, ...], none: tuple[bool, ...]
) -> Callable[..., Arrays]:
    batched: Callable[..., Arrays] = mapped(back(none), (*axes, *[0] * none.count(False)))
    return batched


ad.primitive_jvps[_tangent] = _jvp_rule
ad.primitive_transposes[_tangent] = _transpose_rule
batching.fancy_primitive_batchers[_tangent] = _batching_rule
mlir.register_lowering(_tangent, mlir.lower_fun(_run_forward, multiple_results=True))
