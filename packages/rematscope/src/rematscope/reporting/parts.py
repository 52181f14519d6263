"""Running an equation on a part of the batch, with its part of the positions and random bits of the whole batch."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import source_info_util

from rematscope import jax_compat
from rematscope.reporting.batch_axis import OPENED, batch_axis, makes_batch, run_part
from rematscope.reporting.flat_program import flat_program, value_of
from rematscope.scheduling.blocks import run_scan

source_info_util.register_exclusion(__file__)


def run_equation_part(whole: Any, part: Any, operands: Sequence[Any], which: Any, count: int) -> list[Any]:
    """Run an equation on a part of the batch.

    Args:
      whole: the equation for the whole batch.
      part: the same equation for one of `count` parts.
      operands: the operands for this part.
      which: the number of the part, a traced integer.
      count: the number of parts.
    """
    if makes_batch(whole, part, count):
        axis = batch_axis(whole.outvars[0].aval, part.outvars[0].aval, count) or 0
        length = part.outvars[0].aval.shape[axis]
        return [run_part(whole, operands, axis, which * length, length)]
    if whole.primitive.name in OPENED and makes_inside(whole, part, count):
        (body,), (smaller,) = jax_compat.bodies(whole), jax_compat.bodies(part)

        def run(_: Any, given: Sequence[Any]) -> list[Any]:
            return _run_program_part(body, smaller, given, which, count)

        if whole.primitive.name == "scan":
            return run_scan(part, operands, run)
        if jax_compat.is_differentiated(whole):  # recomputes in a backward pass: behind a barrier, as JAX lowers it
            behind = jax.lax.optimization_barrier(list(operands)) if jax_compat.prevents_cse(whole) else operands
            return run(None, behind)
        checkpointed = jax.checkpoint(
            lambda *given: run(None, given),
            policy=jax_compat.policy_of(whole),
            prevent_cse=jax_compat.prevents_cse(whole),
        )
        return list(checkpointed(*operands))
    return jax_compat.run(part, list(operands))


def makes_inside(whole: Any, part: Any, count: int) -> bool:
    """Whether an equation in the bodies of an equation makes positions or random bits of a batch."""
    for body, smaller in zip(jax_compat.bodies(whole), jax_compat.bodies(part), strict=True):
        pairs = zip(jax_compat.body_of(body)[0].eqns, jax_compat.body_of(smaller)[0].eqns, strict=True)
        if any(makes_batch(a, b, count) or makes_inside(a, b, count) for a, b in pairs):
            return True
    return False


def _run_program_part(whole: Any, part: Any, operands: Sequence[Any], which: Any, count: int) -> list[Any]:
    program, smaller = flat_program(whole), flat_program(part)
    env = {**smaller.constants, **dict(zip(smaller.inputs, operands, strict=True))}
    for larger, op in zip(program.operations, smaller.operations, strict=True):
        results = run_equation_part(larger.eqn, op.eqn, [value_of(v, env) for v in op.invars], which, count)
        env.update(zip(op.outvars, results, strict=True))
    return [value_of(v, env) for v in smaller.outputs]
