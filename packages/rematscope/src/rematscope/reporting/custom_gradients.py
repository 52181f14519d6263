"""Find custom gradients that are nonlinear functions of the cotangents, such as clipped ones."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util

from rematscope import jax_compat
from rematscope.ir.primitives import ELEMENTWISE
from rematscope.reporting.flat_program import FlatProgram, Variable, flat_program

source_info_util.register_exclusion(__file__)

_CHECKPOINTS = frozenset({"checkpoint", "remat", "remat2"})
_LINEAR = frozenset("neg add sub add_any real imag conj complex copy convert_element_type reduce_precision".split())
_NONLINEAR = frozenset(
    "clamp square sort top_k argmax argmin reduce_max reduce_min reduce_prod reduce_and reduce_or cummax cummin "
    "cumprod cumlogsumexp".split()
)
# Whether a product, a quotient or a selection is linear, given which of its operands depend on the cotangents.
_LINEAR_IN = {
    **dict.fromkeys(("mul", "dot_general", "conv_general_dilated"), lambda reads: not all(reads)),
    "div": lambda reads: not reads[1],
    "select_n": lambda reads: not reads[0],
}


def custom_gradient(eqn: Any) -> Any:
    """Return the jaxpr of the gradients of a `custom_vjp_call`, whose last inputs are the cotangents.

    The outputs are the gradients of the floating-point operands, without the values that the function closes over.
    """
    closed_over = eqn.params.get("num_consts", 0)

    def gradients(operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        constants, given = operands[:closed_over], operands[closed_over:]
        out, pullback = jax.vjp(lambda *given: jax_compat.run(eqn, [*constants, *given]), *given)
        rest = iter(cotangents)
        found = pullback([next(rest) if is_float(v) else np.zeros(v.shape, jax.dtypes.float0) for v in out])
        return [ct for ct, v in zip(found, given, strict=True) if is_float(v)]

    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in (*eqn.invars, *eqn.outvars)]
    count = len(eqn.invars)
    return jax_compat.make_jaxpr(gradients)(shapes[:count], [each for each in shapes[count:] if is_float(each)])


def is_float(value: Any) -> bool:
    return jnp.issubdtype(getattr(value, "dtype", np.int32), np.inexact)


def has_nonlinear_gradient(jaxpr: Any) -> bool:
    """Return whether a jaxpr contains a custom gradient that is a nonlinear function of its cotangents.

    The gradient of a mean over a microbatch is larger than that over the batch. A nonlinear function, such as a limit
    on the cotangents, does not scale in proportion. A kernel counts as linear.
    """
    return any(map(_is_nonlinear, _custom_calls(jaxpr)))


def _custom_calls(jaxpr: Any) -> list[Any]:
    found = list[Any]()
    for eqn in jax_compat.body_of(jaxpr)[0].eqns:
        if eqn.primitive.name.startswith("custom_vjp_call"):
            found.append(eqn)
        else:
            found += [call for body in jax_compat.bodies(eqn) for call in _custom_calls(body)]
    return found


def _is_nonlinear(call: Any) -> bool:
    try:
        jaxpr = custom_gradient(call)
    except Exception:  # the rule cannot be traced by itself, for example because it names an axis of a mesh
        return False
    cotangents = sum(is_float(v.aval) for v in call.outvars)
    inputs = len(jax_compat.body_of(jaxpr)[0].invars)
    return depends_nonlinearly(jaxpr, [i >= inputs - cotangents for i in range(inputs)])


def depends_nonlinearly(jaxpr: Any, inputs: Sequence[bool]) -> bool:
    """Return whether an operation of a jaxpr is known to be a nonlinear function of some of the inputs."""
    return _outputs(flat_program(jaxpr, _CHECKPOINTS), inputs) is None


def _outputs(program: FlatProgram, inputs: Sequence[bool]) -> list[bool] | None:
    """Return which outputs depend on the inputs that are True; None if one is a nonlinear function of them."""
    dependent = {v for v, one in zip(program.inputs, inputs, strict=True) if one}
    for op in program.operations:
        reads = [isinstance(v, Variable) and v in dependent for v in op.invars]
        if not any(reads):
            continue
        results = _results(op.eqn, reads)
        if results is None:
            return None
        dependent |= {v for v, one in zip(op.outvars, results, strict=True) if one}
    return [isinstance(v, Variable) and v in dependent for v in program.outputs]


def _results(eqn: Any, reads: Sequence[bool]) -> list[bool] | None:
    name, every = eqn.primitive.name, [True] * len(eqn.outvars)
    if name == "scan":
        return _of_scan(eqn, reads)
    if name == "cond":
        branches = [_outputs(flat_program(body, _CHECKPOINTS), reads[1:]) for body in jax_compat.bodies(eqn)]
        return None if reads[0] or None in branches else every
    if name in _LINEAR_IN:
        return every if _LINEAR_IN[name](reads) else None
    if name == "convert_element_type" and not is_float(eqn.outvars[0].aval):
        return None
    return None if name in _NONLINEAR or name in ELEMENTWISE - _LINEAR else every


def _of_scan(eqn: Any, reads: Sequence[bool]) -> list[bool] | None:
    loop = jax_compat.scan_of(eqn)
    program, first = flat_program(loop.body, _CHECKPOINTS), loop.consts + loop.carries
    carries = list(reads[loop.consts : first])
    while (found := _outputs(program, [*reads[: loop.consts], *carries, *reads[first:]])) is not None:
        joined = [one or other for one, other in zip(carries, found, strict=False)]
        if joined == carries:
            return found
        carries = joined
    return None
