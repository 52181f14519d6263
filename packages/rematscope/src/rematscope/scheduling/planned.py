"""A function with a plan for its gradient, which is good for calls like the one that it was planned for."""

import functools
from collections.abc import Callable
from typing import Any, NoReturn, Self

import jax
import jax.numpy as jnp
from jax.extend import source_info_util
from jax.extend.core import jaxpr_as_fun

from rematscope.errors import PlanError
from rematscope.scheduling.differentiable import differentiable
from rematscope.scheduling.plain import Plain, checkpointed
from rematscope.scheduling.schedule import Schedule
from rematscope.scheduling.zeros import without
from rematscope.tracing.arguments import called
from rematscope.tracing.checkpoints import CalledOnce
from rematscope.tracing.signature import Signature

source_info_util.register_exclusion(__file__)


class Unpickled:
    """What holds traced programs: its copy is itself, for nothing in it changes, and it is not pickled."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise PlanError(
            "a plan holds traced programs, which cannot be pickled. Write its choice to a file, "
            "result.save('choice.json'), and read it where you need it, load_schedule('choice.json', f, *args)."
        )


class Planned(Unpickled):
    """A function with a plan for its gradient.

    Value, `jvp`, gradient and second order come from the program that was traced when the plan was made.

    Args:
      once: the function as it was traced.
      signature: the call that it was traced for.
      run: computes and differentiates as was planned.
    """

    def __init__(self, once: CalledOnce, signature: Signature, run: Callable[..., Any]):
        functools.update_wrapper(self, once.function, updated=())
        self.__name__ = called(once.function)  # which a partial has not
        self._signature, self._run = signature, run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._signature.check(args, kwargs)
        return self._run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.__name__} with a planned gradient>"


def scheduled_as(once: CalledOnce, signature: Signature, programs: Schedule) -> Planned:
    """The function whose backward pass keeps some values and computes the others again late."""
    return Planned(once, signature, keeping(once, programs))


def keeping(once: CalledOnce, programs: Schedule) -> Callable[..., Any]:
    """A function as it was traced, differentiated by both programs of a schedule."""
    cotangents = programs.backward.inputs[-len(once.jaxpr.out_avals) :]
    forward = jax.jit(programs.forward.__call__)

    @functools.cache
    def backward(zero: tuple[bool, ...]) -> Callable[..., Any]:
        is_zero = {cotangent for cotangent, none in zip(cotangents, zero, strict=True) if none}
        program = without(programs.backward, cotangents, is_zero) if is_zero else programs.backward
        return jax.jit(program.__call__)

    flat = differentiable(jaxpr_as_fun(once.jaxpr), forward, backward, len(once.jaxpr.out_avals))

    def run(*args: Any, **kwargs: Any) -> Any:
        # Of a Python number some operations in a jaxpr want to know the shape.
        return once.returning(flat(*map(jnp.asarray, jax.tree.leaves((args, kwargs)))))

    return run


def with_checkpoints(once: CalledOnce, signature: Signature, plain: Plain) -> Planned:
    """The function with plain checkpoints."""
    return Planned(once, signature, checkpointed(once, plain))
