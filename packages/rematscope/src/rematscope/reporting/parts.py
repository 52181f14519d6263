"""Running an equation on a part of the batch, with its part of the positions and random bits of the whole batch."""

from collections.abc import Sequence
from typing import Any

import jax

from rematscope import jax_compat
from rematscope.reporting.arrays import as_type
from rematscope.reporting.batch_axis import OPENED, batch_axis, makes_batch, run_part
from rematscope.reporting.flat_program import flat_program, value_of
from rematscope.scheduling.blocks import run_scan


def run_equation_part(
    whole: Any, part: Any, operands: Sequence[Any], which: Any, count: int, positions: bool = True, blocks: int = 1
) -> list[Any]:
    """Run an equation on a part of the batch.

    Args:
      whole: the equation for the whole batch.
      part: the same equation for one of `count` parts.
      operands: the operands for this part.
      which: the number of the part, a traced integer.
      count: the number of parts.
      positions: as for `needs_number`.
      blocks: the number of blocks of the batch axis, each of which a part has rows of; see `device_blocks`.
    """
    if not needs_number(whole, part, count, positions):
        return jax_compat.run(part, list(operands))
    if makes_batch(whole, part, count):
        axis = batch_axis(whole.outvars[0].aval, part.outvars[0].aval, count) or 0
        length = part.outvars[0].aval.shape[axis]
        with whole.ctx.manager:  # the mesh of the equation may be another one, such as in jax.random
            made = run_part(whole, operands, axis, _on_mesh(which), length, blocks)
            return [as_type(made, part.outvars[0].aval)]
    (body,), (smaller,) = jax_compat.bodies(whole), jax_compat.bodies(part)
    is_scan = whole.primitive.name == "scan"

    def run(_: Any, given: Sequence[Any]) -> list[Any]:
        return _run_program_part(body, smaller, given, which, count, positions or is_scan, blocks)

    if is_scan:
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


def _on_mesh(number: Any) -> Any:
    """Return a number with a type on the current mesh, whose axes may be of another kind than those of its type."""
    mesh, own = jax.sharding.get_abstract_mesh(), jax.typeof(number).sharding.mesh
    if own.empty or mesh.empty or own.axis_types == mesh.axis_types:
        return number
    return jax.sharding.reshard(number, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))


def needs_number(whole: Any, part: Any, count: int, positions: bool = True) -> bool:
    """Return whether an equation on a part of the batch needs the number of this part.

    Args:
      whole, part, count: as for `makes_batch`.
      positions: whether positions outside of scans count the examples of the whole batch, and not those of the part.
    """
    if makes_batch(whole, part, count):
        return positions or whole.primitive.name != "iota"
    name = jax_compat.primitive_name(whole)
    if name not in OPENED | jax_compat.JITS:
        return False
    bodies = zip(jax_compat.bodies(whole), jax_compat.bodies(part), strict=True)
    pairs = [(jax_compat.body_of(a)[0].eqns, jax_compat.body_of(b)[0].eqns) for a, b in bodies]
    inside = positions or name == "scan"
    return any(
        len(a) == len(b) and any(needs_number(one, other, count, inside) for one, other in zip(a, b, strict=True))
        for a, b in pairs
    )


def _run_program_part(
    whole: Any, part: Any, operands: Sequence[Any], which: Any, count: int, positions: bool, blocks: int
) -> list[Any]:
    program, smaller = flat_program(whole), flat_program(part)
    env = {**smaller.constants, **dict(zip(smaller.inputs, operands, strict=True))}
    for larger, op in zip(program.operations, smaller.operations, strict=True):
        given = [value_of(v, env) for v in op.invars]
        results = run_equation_part(larger.eqn, op.eqn, given, which, count, positions, blocks)
        env.update(zip(op.outvars, results, strict=True))
    return [value_of(v, env) for v in smaller.outputs]
