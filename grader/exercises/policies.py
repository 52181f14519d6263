"""Asking a policy: about operations as JAX tells of them, and what its answers mean."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.ad_checkpoint import Offloadable, Recompute, Saveable

YES, NO = "yes, keep it", "no, compute it again"


class Operation(NamedTuple):
    """What a policy is told: it is called as `policy(primitive, *operands, **parameters)`.

    Attributes:
      primitive: the operation.
      operands: shapes and dtypes of what goes in.
      parameters: the operation's own, by name.
    """

    primitive: Any  # jax.extend.core.Primitive
    operands: tuple[Any, ...]  # jax.core.ShapedArray
    parameters: dict[str, Any]

    def __str__(self) -> str:
        what = repr(self.parameters["name"]) if self.primitive.name == "name" else self.primitive.name
        return f"{what} of {', '.join(operand.str_short() for operand in self.operands)}"


def operations_of(function: Callable, *arguments: jax.ShapeDtypeStruct) -> tuple[Operation, ...]:
    """A function's operations, in their order. It is traced, not run, and calls none that is under `jax.jit`."""
    equations = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    return tuple(Operation(e.primitive, tuple(v.aval for v in e.invars), dict(e.params)) for e in equations)


def meaning(answer: object) -> str:
    """What a policy's answer means, in words. Raises TypeError for what is none, as JAX does."""
    if isinstance(answer, Offloadable):
        return str(answer)
    if answer is Saveable or answer is Recompute or isinstance(answer, bool):
        return YES if answer is Saveable or answer is True else NO
    raise TypeError(f"Value returned by a remat policy should be a bool or one of JAX's three objects. Got {answer!r}.")


def answers(policy: Callable, operations: Sequence[Operation], order: Sequence[int]) -> list[str]:
    """What a policy means to say about each operation.

    Args:
      policy: the policy.
      operations: what it is asked about.
      order: positions of them, in the order in which it is asked; each once or more often.
    """
    said: list[dict[str, None]] = [{} for _ in operations]
    for place in order:
        primitive, operands, parameters = operations[place]
        said[place][meaning(policy(primitive, *operands, **parameters))] = None
    return [" at one time, ".join(each) + " at another" * (len(each) > 1) for each in said]
