"""Values in blocks that a plain checkpoint should save.

The result of a matmul or a convolution takes long to recompute for its size. A value that is only added or moved on its
way out of the block is not recomputed at all.
"""

from collections.abc import Sequence
from typing import Any

from rematscope import jax_compat
from rematscope.ir.cost import cost_of
from rematscope.ir.primitives import VIEWS
from rematscope.ir.program import Equation, Value, nbytes
from rematscope.jax_compat import AnyJaxpr
from rematscope.scheduling.blocks import Block, bodies
from rematscope.scheduling.fusion import HEAVY

_LINEAR = VIEWS | frozenset(
    "add sub neg add_any transpose broadcast_in_dim slice concatenate pad squeeze convert_element_type reduce_sum "
    "copy rev split unstack dynamic_slice gather cumsum psum".split()
)


def worth_saving(whole: AnyJaxpr, blocks: Sequence[Block]) -> list[tuple[Block, int]]:
    """Return the operations whose results are worth saving, with their bytes over all iterations, the most valuable
    first.

    Args:
      whole: a function without checkpoints.
      blocks: blocks of the function.
    """
    found: list[tuple[float, Block, int]] = []
    for path, iterations, body in bodies(whole):
        for *around, start, end in (block for block in blocks if block[:-2] == path):
            read: set[Any] = set()  # the values that the backward pass needs
            for i in reversed(range(start, end)):
                eqn = body.eqns[i]
                operands = [v for v in eqn.invars if not jax_compat.is_literal(v)]
                if eqn.primitive.name not in _LINEAR or not read.isdisjoint(eqn.outvars):
                    read.update(operands)
                size = sum(nbytes(v.aval) for v in eqn.outvars)
                if len(eqn.outvars) == 1 and size and not read.isdisjoint(eqn.outvars) and (cost := computes(eqn)):
                    found.append((-cost / size, (*around, i), iterations * size))
    return [(place, size) for _, place, size in sorted(found)]


def computes(eqn: Any) -> float:
    """Return the FLOPs of an equation if it is, or contains, a matmul or another heavy operation; else 0."""
    if inside := jax_compat.bodies(eqn):
        iterations = jax_compat.scan_of(eqn).length if eqn.primitive.name == "scan" else 1
        return iterations * sum(computes(e) for body in inside for e in jax_compat.body_of(body)[0].eqns)
    if eqn.primitive.name not in HEAVY:
        return 0.0
    inputs, outputs = (tuple(Value(v.aval) for v in values) for values in (eqn.invars, eqn.outvars))
    return float(cost_of(Equation(eqn.primitive.name, inputs, outputs, eqn.params, eqn)).flops)
