"""Functions that are planned at the first call with new shapes, as `jax.jit` compiles."""

import abc
import functools
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import jax
from jax.sharding import AxisType

from rematscope.errors import PlanError
from rematscope.jax_compat.vjp_hook import outside_traces
from rematscope.scheduling.argnums import ArgNums, check_argnums, gradient_mask
from rematscope.scheduling.planned import Constant, Planned
from rematscope.tracing.arguments import PartlyDifferentiable, callable_name, check_call, flattened, shapes_of
from rematscope.tracing.signature import Signature
from rematscope.tracing.static_values import StaticRule, call_with_static, unwrap_static
from rematscope.tracing.trace import Trace, trace_call

_MOST_PLANS = 128  # of one function; the least recently used plan is dropped


class GradientCall(NamedTuple):
    """A call that a plan is made for.

    Attributes:
      grad_mask: which leaves of the arguments get a gradient; None for all.
    """

    f: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    grad_mask: Sequence[bool] | None = None

    def trace(self, variant: Callable[..., Any]) -> Trace:
        """Return the trace of a variant of the function, called like the function."""
        return trace_call(variant, self.args, self.kwargs, grad_mask=self.grad_mask)


class CallPlan(Protocol):
    """A plan for calls with one signature."""

    @property
    def function(self) -> Planned: ...


P = ParamSpec("P")
R = TypeVar("R")
_Plan = TypeVar("_Plan", bound=CallPlan)


class PlannedPerCall(Constant, PartlyDifferentiable, Generic[P, R, _Plan]):
    """A function with one plan per combination of shapes, dtypes, pytrees and static values of its arguments.

    The plans live as long as this object.
    """

    def __init__(self, f: Callable[P, R], argnums: ArgNums):
        flattened(f, (), {})
        functools.update_wrapper(self, f, updated=())
        self.__name__ = callable_name(f)  # a partial has no name
        self.__wrapped__ = f
        self.argnums = check_argnums(argnums)
        self._plans: dict[Signature, _Plan] = {}
        self._rule = StaticRule(f)
        self._one = threading.RLock()

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        check_call(self.__wrapped__, args, kwargs, "call .plan with shapes to plan without arrays")
        f, given, named = call_with_static(self.__wrapped__, args, kwargs, self._rule)
        return cast(R, unwrap_static(self._plan_for_call(f, given, named).function.call(given, named)))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def gradient_mask(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[bool] | None:
        return gradient_mask(self.__wrapped__, args, kwargs, self.argnums)

    def _plan_for_call(self, f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Plan:
        """Return the plan for calls like this one, and make it if there is none.

        Args:
          f, args, kwargs: the function and its arguments, from `call_with_static`.
        """
        __tracebackhide__ = True
        signature = Signature(f, args, kwargs)
        with self._one:
            found = self._plans.pop(signature, None)
            if found is None:
                _check_place(self.__name__, signature)
                grad_mask = self.gradient_mask(args, kwargs)
                call = GradientCall(f, *shapes_of(args, kwargs), grad_mask)
                with outside_traces():
                    found = self._make_plan(call)
            self._plans[signature] = found
            while len(self._plans) > _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
        return found

    @abc.abstractmethod
    def _make_plan(self, call: GradientCall) -> _Plan:
        """Return a plan for calls like this one, whose arguments are shapes.

        `AutoFunction` searches for a plan, and `LoadedFunction` reads one from a file.
        """


def _check_place(function: str, signature: Signature) -> None:
    """Raise PlanError inside a `shard_map` for which a plan for one device is wrong."""
    mesh = jax.sharding.get_abstract_mesh()
    if AxisType.Manual not in mesh.axis_types:
        return
    advice = f"Put the shard_map into the function that is planned, instead of calling {function} inside the shard_map"
    if axes := ", ".join(map(repr, sorted(signature.varies))):
        raise PlanError(
            f"{function} is called inside a shard_map over {axes} with check_vma=True, which checks what varies over "
            f"devices, but a plan does not specify that. {advice}, or pass check_vma=False to the shard_map."
        )
    sizes = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    if rest := ", ".join(repr(name) for name, size, kind in sizes if kind != AxisType.Manual and size > 1):
        raise PlanError(
            f"{function} is called inside a shard_map that leaves the mesh axis {rest} to the compiler, but a plan is "
            f"for one device there. {advice}."
        )
