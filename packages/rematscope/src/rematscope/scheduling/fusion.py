"""Predict which values a compiler writes to memory, and which it recomputes inside each reader.

An elementwise result is not written to memory if only elementwise operations and reductions read it. Its operands have
to be in memory instead.
"""

from collections.abc import Collection, Iterable

from rematscope.ir import primitives
from rematscope.ir.dependence import reachable
from rematscope.ir.primitives import FUSED_ATTENTION, MATMULS, REDUCTIONS, VIEWS
from rematscope.ir.program import Equation, Value, reading

# Operations that XLA fuses into their readers. The estimate of the compiled peak has a longer list, with its own
# conditions (`FUSED_LIKE_ELEMENTWISE` of `hlo_rewrites.py`). Here, slices, pads and reversals count as written.
FUSED_INTO_READERS = primitives.ELEMENTWISE | {"broadcast_in_dim", "copy", "iota"}

# Operations that XLA does not fuse and that take long, so that fusions do not extend from before to after them.
HEAVY = MATMULS | FUSED_ATTENTION | frozenset("cond scan shard_map while ffi_call pallas_call".split())


class Fusion:
    """Predict which values of some programs are written to memory, and which are fused.

    Attributes:
      unwritten: the values that are views, or fused into all operations that read them.
    """

    def __init__(self, programs: Iterable[Iterable[Equation]], outputs: Collection[Value]):
        """Args:
        programs: the equations of each program, in order. A program may read values of the others.
        outputs: values that are written because they are returned.
        """
        self._made: dict[Value, Equation] = {}
        between: dict[Equation, tuple[int, int]] = {}  # the program, and how many heavy operations came before in it
        readers: dict[Value, list[Equation]] = {}
        numbers = set[Value]()
        for i, equations in enumerate(programs):
            heavy = 0
            for equation in equations:
                if equation.primitive == "optimization_barrier":
                    continue
                between[equation] = i, heavy
                heavy += equation.primitive in HEAVY
                if equation.primitive in FUSED_INTO_READERS and all(v in numbers for v in reading(equation)):
                    numbers.update(v for v in equation.outputs if not v.shape)
                self._made.update(dict.fromkeys(equation.outputs, equation))
                for value in reading(equation):
                    readers.setdefault(value, []).append(equation)

        def fused(value: Value, equation: Equation) -> bool:
            by = readers.get(value, ())
            places = {between[e] for e in by}
            here, _ = between[equation]
            near = all(place == between[equation] for place in places if place[0] == here)
            once = len({place for place in places if place[0] != here}) <= 1
            number = all(v in numbers for v in reading(equation))  # which costs nothing to have anywhere
            fuses = all(reader.primitive in FUSED_INTO_READERS | VIEWS | REDUCTIONS for reader in by)
            return equation.primitive in FUSED_INTO_READERS and (number or (near and once)) and fuses

        self.unwritten = {
            value
            for value, equation in self._made.items()
            if value not in outputs and (equation.primitive in VIEWS or fused(value, equation))
        }

    def stands_for(self, value: Value) -> list[Value]:
        """Return the values that have to be in memory if this value is read."""
        reached = reachable([value], lambda v: reading(self._made[v]) if v in self.unwritten else ())
        return [v for v in reached if v not in self.unwritten]
