"""Call policies for operations, and describe their results in words."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import Offloadable, Recompute, Saveable
from jax.extend.core.primitives import name_p

YES, NO = "yes, save it", "no, recompute it"


def checkpointed(function: Callable, policy: Any) -> Any:
    """Return `jax.checkpoint(function, policy=policy)`, or `policy` itself if it is not a policy, so that capture
    reports it.

    jax.checkpoint would accept None as "save nothing", which would hide a missing `return`.
    """
    return jax.checkpoint(function, policy=policy) if callable(policy) else policy


class Operation(NamedTuple):
    """The arguments of a policy, which is called as `policy(primitive, *operands, **parameters)`.

    Attributes:
      primitive: the operation.
      operands: the shapes and dtypes of the operands.
      parameters: the operation's parameters, by name.
    """

    primitive: Any  # jax.extend.core.Primitive
    operands: tuple[Any, ...]  # jax.core.ShapedArray
    parameters: dict[str, Any]

    def __str__(self) -> str:
        what = repr(self.parameters["name"]) if self.primitive.name == "name" else self.primitive.name
        return f"{what} of {', '.join(operand.str_short() for operand in self.operands)}"


def named(names: Sequence[str], rng: np.random.Generator) -> tuple[Operation, ...]:
    """Return operations that give these names to values with zero to four axes. The dtypes cycle through five dtypes.

    The first value is a scalar, the second is larger than any random one, and the third has four axes, like the values
    of attention (batch, heads and two more).
    """
    dtypes = itertools.cycle([jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.bool_])
    shapes = [tuple(map(int, rng.integers(1, 10, size=rank))) for rank in rng.integers(5, size=len(names))]
    shapes[:3] = (), (4096, 8192), tuple(map(int, rng.integers(2, 10, size=4)))
    # The operation that policies get. With jax_remat3, a traced program contains a different operation.
    values = map(jax.core.ShapedArray, shapes, dtypes)
    return tuple(Operation(name_p, (value,), {"name": name}) for value, name in zip(values, names, strict=True))


def unnamed(rng: np.random.Generator) -> tuple[Operation, ...]:
    """Return operations of many kinds, with one to four operands of several dtypes and random shapes."""
    n, a, b = map(int, rng.permutation([5, 6, 7, 8, 9])[:3])

    def function(x, w, half, whole, mask):
        jax.lax.dot(x, w)
        jax.lax.dot_general(half, half, (((1,), (1,)), ((0,), (0,))))
        jax.lax.conv(x[None], x[None], (1,), "SAME")
        jax.lax.sin(x)
        jax.lax.exp(half)
        jax.lax.add(half, half)
        jax.lax.select_n(mask, x, x)
        jax.lax.concatenate([whole, whole, whole, whole], 0)
        jax.lax.reduce_sum(x, [0])
        jax.lax.argmax(half, 1, jnp.int32)
        jax.lax.convert_element_type(whole, jnp.float32)
        _clip_to_itself(x)

    shapes = (n, a), (a, b), (n, a), (n,), (n, a)
    dtypes = jnp.float32, jnp.float32, [jnp.bfloat16, jnp.float16][rng.integers(2)], jnp.int32, jnp.bool_
    return _operations_of(function, *map(jax.ShapeDtypeStruct, shapes, dtypes))


@jax.custom_jvp
def _clip_to_itself(x):
    return jax.lax.max(x, x)


_clip_to_itself.defjvps(lambda tangent, value, x: tangent)


def _operations_of(function: Callable, *arguments: jax.ShapeDtypeStruct) -> tuple[Operation, ...]:
    """Return a function's operations, in order. None of them may call another function under `jax.jit`."""
    equations = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    return tuple(Operation(e.primitive, tuple(v.aval for v in e.invars), dict(e.params)) for e in equations)


def in_short(policy: Callable, operations: Sequence[Operation], among: Sequence[Operation]) -> str:
    """Return a policy's results for operations in words: one result if all are the same, otherwise one per operation.

    Args:
      policy: the policy.
      operations: the operations to report.
      among: the operations to call the policy for, in order: those to report and others, each once or several times.
    """
    answers: dict[int, list[str]] = {id(operation): [] for operation in operations}
    for operation in among:
        answer = _policy_result_text(policy(operation.primitive, *operation.operands, **operation.parameters))
        if id(operation) in answers and answer not in answers[id(operation)]:
            answers[id(operation)].append(answer)
    about: dict[str, list[str]] = {}
    for operation in operations:
        about.setdefault(", then ".join(answers[id(operation)]), []).append(str(operation))
    *few, (most, _) = sorted(about.items(), key=lambda each: len(each[1]))
    return "; ".join([f"{answer}, about {', '.join(which[:3])}" for answer, which in few] + [most])


def _policy_result_text(answer: object) -> str:
    """Return a policy's result in words. Raises TypeError for an invalid result, as JAX does."""
    if isinstance(answer, Offloadable):
        return str(answer)
    if answer is Saveable or answer is Recompute or isinstance(answer, bool):
        return YES if answer is Saveable or answer is True else NO
    raise TypeError(f"Value returned by a remat policy should be a bool or one of JAX's three objects. Got {answer!r}.")
