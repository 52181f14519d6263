"""Running an equation on a part of the batch, with its part of the positions and random bits of the whole batch."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from rematscope import jax_compat
from rematscope.reporting.arrays import as_type
from rematscope.reporting.batch_axis import OPENED, batch_axis, makes_batch, paired_bodies, run_part
from rematscope.reporting.flat_program import Operation, Variable, evaluate, flat_program
from rematscope.scheduling.blocks import run_checkpoint, run_scan


@dataclasses.dataclass(frozen=True)
class Part:
    """One of several parts of the batch.

    Attributes:
      which: its number, a traced integer.
      count: the number of parts.
      positions: as for `needs_number`.
      blocks: the number of blocks of the batch axis, each of which a part has rows of; see `device_blocks`.
    """

    which: Any
    count: int
    positions: bool = True
    blocks: int = 1


def run_equation_part(whole: Any, smaller: Any, operands: Sequence[Any], part: Part) -> list[Any]:
    """Run an equation on a part of the batch.

    Args:
      whole, smaller: the equation for the whole batch and for a part.
      operands: the operands for this part.
      part: the part.
    """
    if not needs_number(whole, smaller, part.count, part.positions):
        return jax_compat.run(smaller, list(operands))
    if makes_batch(whole, smaller, part.count):
        aval = smaller.outvars[0].aval
        axis = batch_axis(whole.outvars[0].aval, aval, part.count) or 0
        with whole.ctx.manager:  # the mesh of the equation may be another one, such as in jax.random
            made = run_part(whole, operands, axis, _on_mesh(part.which), aval.shape[axis], part.blocks)
            return [as_type(made, aval)]
    program, own = (flat_program(jax_compat.bodies(each)[0]) for each in (whole, smaller))
    whole_of = dict(zip(own.operations, program.operations, strict=True))
    is_scan = whole.primitive.name == "scan"
    inside = dataclasses.replace(part, positions=part.positions or is_scan)

    def run(*given: Any) -> list[Any]:
        env = own.environment(given)
        evaluate_part(own.operations, whole_of, env, inside)
        return own.results(env)

    if is_scan:
        return run_scan(smaller, operands, lambda _, given: run(*given))
    return run_checkpoint(whole, operands, run)


def evaluate_part(
    operations: Sequence[Operation], whole: Mapping[Operation, Operation], env: dict[Variable, Any], part: Part
) -> None:
    """Run operations on a part of the batch, and add their results to the values of an environment.

    Args:
      operations: the operations for a part.
      whole: the operations for the whole batch, by those for a part that may need the number of the part.
      env: the environment.
      part: the part.
    """

    def run(op: Operation, given: list[Any]) -> list[Any]:
        larger = whole.get(op)
        return jax_compat.run(op.eqn, given) if larger is None else run_equation_part(larger.eqn, op.eqn, given, part)

    evaluate(operations, env, run)


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
    inside = positions or name == "scan"
    return any(
        len(a) == len(b) and any(needs_number(one, other, count, inside) for one, other in zip(a, b, strict=True))
        for a, b in paired_bodies(whole, part)
    )
