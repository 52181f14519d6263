"""A function with a planned gradient, valid for calls with the signature of the planned call."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from rematscope.errors import PlanError
from rematscope.ir.program import Program, Value
from rematscope.jax_compat import is_mutable_array, is_repeatable_program, primitive_name, walk_equations
from rematscope.scheduling.argnums import guarded
from rematscope.scheduling.differentiable import differentiable
from rematscope.scheduling.schedule import Schedule
from rematscope.scheduling.symbolic_zeros import needs_zero_arrays, retracing_rules, sees_symbolic_zeros
from rematscope.scheduling.zeros import without_cotangents
from rematscope.tracing.arguments import PartlyDifferentiable, callable_name, check_call
from rematscope.tracing.checkpoints import CalledOnce
from rematscope.tracing.signature import Signature
from rematscope.tracing.static_values import has_static, unwrap_static, with_static


class Constant:
    """An immutable object, which `copy` returns unchanged."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Planned(Constant, PartlyDifferentiable):
    """A function with a plan for its gradient.

    Value, `jvp`, gradient and second order come from the program that was traced when the plan was made.

    Args:
      once: the function as it was traced.
      signature: the call that it was traced for.
      run: the function with the planned gradient.
      grad_mask: which leaves of a call get a gradient; None for all.
    """

    def __init__(
        self,
        once: CalledOnce,
        signature: Signature,
        run: Callable[..., Any],
        grad_mask: Sequence[bool] | None = None,
    ):
        functools.update_wrapper(self, once.function, updated=())
        self._function = once.function
        self.__name__ = callable_name(once.function)  # a partial has no name
        self._signature, self._grad_mask = signature, grad_mask
        self._run = retracing_rules(run, once.jaxpr)

    @property
    def function(self) -> Self:
        """The planned function, as of an `Auto`."""
        return self

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given, named = with_static(args, kwargs, self._signature.is_static)
        self._signature.check(given, named)
        check_call(self._function, given, named, "use jax.eval_shape for the shape of the result")
        returned = self.call(given, named)
        return returned if has_static((args, kwargs)) else unwrap_static(returned)

    def gradient_mask(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[bool] | None:
        return self._grad_mask

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function with arguments that are known to match the planned ones."""
        args, kwargs = guarded(self._function, args, kwargs, self._grad_mask)
        return with_arrays(self._run(*args, **kwargs))

    def __reduce__(self) -> NoReturn:
        raise PlanError(
            f"the planned function {self.__name__} contains traced programs, which cannot be pickled. Pickle the plan "
            "instead, or write its schedule with plan.save('schedule.json') and load it with "
            "load_schedule('schedule.json', f)."
        )

    def __repr__(self) -> str:
        return f"<{self.__name__} with a planned gradient>"


def with_arrays(results: Any) -> Any:
    """Return the results of a program with an array in place of each number, as `jax.jit` returns them."""
    return jax.tree.map(lambda v: jnp.asarray(v) if isinstance(v, bool | int | float | complex) else v, results)


def _is_rule(eqn: Any) -> bool:
    """Return whether an operation may have a custom gradient that is not linear in the cotangents."""
    return bool(eqn.params.get("symbolic_zeros")) or primitive_name(eqn).startswith(
        ("custom_vjp_call", "call_hi_primitive")
    )


def _run_with_zeros(
    backward: Program, cotangents: Sequence[Value], zero: Sequence[bool], *operands: Any
) -> Sequence[Any]:
    """Run a backward program with an array of zeros for each missing cotangent."""
    given = zero.count(False)
    rest = iter(operands[len(operands) - given :])
    found = [jnp.zeros(v.shape, v.dtype) if no else next(rest) for v, no in zip(cotangents, zero, strict=True)]
    result: Sequence[Any] = backward(*operands[: len(operands) - given], *found)
    return result


def _refuse_rerun(function: str, *_: Any) -> NoReturn:
    raise PlanError(
        f"{function} has an operation whose second run may give a different result, such as a callback. Forward mode "
        f"and second derivatives of the planned {function} would run it twice. Move it out of {function}, and pass its "
        "result as an argument."
    )


def scheduled_function(once: CalledOnce, programs: Schedule, grad_mask: Sequence[bool] | None) -> Callable[..., Any]:
    """Return a traced function whose derivative is given by both programs of a schedule.

    Args:
      grad_mask: which arguments the schedule differentiates; None for all.
    """
    cotangents = programs.backward.inputs[-len(once.jaxpr.out_avals) :]
    equations = [eqn for eqn, _ in walk_equations(once.jaxpr)]
    calls_rule = any(map(_is_rule, equations))
    forward = jax.jit(programs.forward.__call__)

    plain = retracing_rules(jaxpr_as_fun(once.jaxpr), once.jaxpr)
    differentiated = tuple(
        i
        for i, aval in enumerate(once.jaxpr.in_avals)
        if jnp.issubdtype(aval.dtype, np.inexact) and (grad_mask is None or grad_mask[i])
    )
    sees_zeros = functools.cache(lambda: sees_symbolic_zeros(once.jaxpr))

    @functools.cache
    def backward(zero: tuple[bool, ...], asked: tuple[int, ...]) -> Callable[..., Any]:
        is_zero = {cotangent for cotangent, none in zip(cotangents, zero, strict=True) if none}
        is_partial = bool(is_zero) or asked != differentiated
        if ((is_zero and calls_rule) or (is_partial and sees_zeros())) and needs_zero_arrays(
            once, differentiated, asked, [not none for none in zero]
        ):
            return jax.jit(functools.partial(_run_with_zeros, programs.backward, cotangents, zero))
        program = without_cotangents(programs.backward, cotangents, is_zero) if is_zero else programs.backward
        return jax.jit(program.__call__)

    can_rerun = is_repeatable_program(once.jaxpr, prints=True)
    rerun = plain if can_rerun else functools.partial(_refuse_rerun, callable_name(once.function))
    has_mutable_arrays = any(is_mutable_array(v.aval) for eqn in equations for v in eqn.outvars)
    if has_mutable_arrays and not is_repeatable_program(once.jaxpr, prints=False):
        raise PlanError(
            f"{callable_name(once.function)} has a mutable array (jax.new_ref), and prints or calls back into Python. "
            "Its gradient would do so twice. Remove one of them, or pass the array's values as arguments."
        )
    flat = differentiable(plain, forward, backward, once.jaxpr.out_avals, rerun, has_mutable_arrays)

    def run(*args: Any, **kwargs: Any) -> Any:
        # Some operations of a jaxpr read the shapes of their operands, and Python numbers have none.
        return once.returning(flat(*map(jnp.asarray, jax.tree.leaves((args, kwargs)))))

    return run
