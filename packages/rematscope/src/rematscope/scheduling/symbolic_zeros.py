"""Check that a plan's gradient is JAX's if custom rules may depend on what is differentiated.

A plan is traced once, with all planned arguments and all outputs differentiated. If a call differentiates only some of
them, JAX calls only the custom rules whose outputs have cotangents, and a rule may return a constant. With
`symbolic_zeros=True`, a rule knows which of its operands are differentiated and which of its outputs have cotangents,
so it may return another gradient. Most rules only skip work then, and the gradients are equal.

JAX evaluates a traced program that calls such a rule correctly only if it traces the rule again each time; see
`jax_compat.forget_forward_rule`.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.ir.inline import Inliner
from rematscope.ir.program import Value
from rematscope.ir.value_numbering import ValueNumbering
from rematscope.scheduling.differentiable import jvp_of_some, select_outputs, vjp_of_some
from rematscope.scheduling.zeros import without_cotangents
from rematscope.tracing.arguments import callable_name
from rematscope.tracing.checkpoints import CalledOnce


def retracing_rules(f: Callable[..., Any], whole: Any) -> Callable[..., Any]:
    """Return `f`, which evaluates a jaxpr, so that each call makes JAX trace its custom rules with symbolic zeros
    again."""
    rules = [eqn for eqn, _ in jax_compat.walk_equations(whole) if eqn.params.get("symbolic_zeros")]

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        for eqn in rules:
            jax_compat.forget_forward_rule(eqn)
        return f(*args, **kwargs)

    return run if rules else f


def sees_symbolic_zeros(whole: Any) -> bool:
    """Return whether a function, a jaxpr, calls a custom rule that may depend on what is differentiated."""
    return any(_is_such_rule(eqn) for eqn, _ in jax_compat.walk_equations(whole))


def _is_such_rule(eqn: Any) -> bool:
    if eqn.params.get("symbolic_zeros") or jax_compat.primitive_name(eqn).startswith("call_hi_primitive"):
        return True
    inexact = [v for v in eqn.outvars if jnp.issubdtype(getattr(v.aval, "dtype", np.int32), np.inexact)]
    if eqn.primitive.name != "custom_jvp_call" or len(inexact) < 2:
        return False

    # A rule without symbolic zeros may call a function that has one. Then missing cotangents reach its gradient.
    def differentiated(*operands: Any) -> Any:
        places = [i for i, x in enumerate(operands) if jnp.issubdtype(x.dtype, np.inexact)]
        moving = [operands[i] for i in places]
        return jvp_of_some(lambda *given: jax_compat.run(eqn, list(given)), operands, places, moving)

    rule = jax.make_jaxpr(differentiated)(*(v.aval for v in eqn.invars))
    return any(inner.params.get("symbolic_zeros") for inner, _ in jax_compat.walk_equations(rule))


def needs_zero_arrays(once: CalledOnce, planned: Sequence[int], asked: Sequence[int], given: Sequence[bool]) -> bool:
    """Return how a planned gradient, restricted to a call, becomes the gradient that JAX computes for this call.

    JAX's gradient is traced and compared, operation by operation, with two forms of the planned one: without the
    operations that compute only symbolic zeros, and with an array of zeros for each missing cotangent.

    Args:
      once: the planned function.
      planned: the indices of the arguments that the plan differentiates.
      asked: the indices of the arguments that the call differentiates.
      given: whether the call has a cotangent for each output.

    Returns:
      False if the first form is JAX's gradient, True if the second one is.

    Raises:
      PlanError: if neither is shown to be equal.
    """
    whole: Any = once.jaxpr
    plain, count = retracing_rules(jaxpr_as_fun(whole), whole), len(whole.in_avals)
    flows = [jnp.issubdtype(aval.dtype, np.inexact) for aval in whole.out_avals]
    flowing = [aval for aval, flow in zip(whole.out_avals, flows, strict=True) if flow]
    is_given = [one for one, flow in zip(given, flows, strict=True) if flow]
    selected = [one and flow for one, flow in zip(given, flows, strict=True)]  # an integer has no cotangent
    places = [tuple(planned).index(i) for i in asked]

    def all_forms(*operands: Any) -> tuple[list[Any], ...]:
        arguments, cotangents = operands[:count], list(operands[count:])
        outputs, pull = vjp_of_some(select_outputs(plain, flows), arguments, planned)
        outputs = list(itertools.compress(outputs, is_given))
        zeros = [ct if one else jnp.zeros_like(ct) for ct, one in zip(cotangents, is_given, strict=True)]
        # Before the next forward rule, since JAX stores one tree of residuals per rule.
        forms = [[*outputs, *(gradients[i] for i in places)] for gradients in (pull(cotangents), pull(zeros))]
        same, pull_some = vjp_of_some(select_outputs(plain, selected), arguments, asked)
        return *forms, [*same, *pull_some(list(itertools.compress(cotangents, is_given)))]

    try:
        traced = jax.make_jaxpr(all_forms)(*whole.in_avals, *flowing)
        symbolic, arrays, of_jax = _numbers_of_thirds(traced, is_given)
    except AssertionError:  # before JAX 0.10, a rule that returns None for other arguments fails in its second trace
        symbolic, arrays, of_jax = [0], [0], [1]
    if of_jax not in (symbolic, arrays):
        raise PlanError(
            f"this call differentiates some of the arguments and outputs of {callable_name(once.function)}. Its plan "
            "differentiates all of them, and a custom gradient in it may depend on that. Wrap the other arguments and "
            "outputs in jax.lax.stop_gradient in the planned function, or select the arguments with argnums= in auto."
        )
    return symbolic != of_jax


def _numbers_of_thirds(traced: Any, is_given: Sequence[bool]) -> list[list[int]]:
    """Return the value numbers of the three thirds of a jaxpr's results.

    Args:
      is_given: for each of the last operands, the cotangents, whether it is not a symbolic zero.
    """
    inputs = [Value(v.aval) for v in jax_compat.body_of(traced)[0].invars]
    program = Inliner().program(traced, inputs)
    cotangents = inputs[len(inputs) - len(is_given) :]
    program = without_cotangents(
        program, cotangents, {v for v, one in zip(cotangents, is_given, strict=True) if not one}
    )
    numbering = ValueNumbering(set())
    numbering.program(program)
    numbers = [*map(numbering.number, program.outputs)]
    size = len(numbers) // 3
    return [numbers[i * size : (i + 1) * size] for i in range(3)]
