"""Which values a compiler writes to memory, and which it computes again inside each operation that reads them.

An elementwise result that only elementwise operations and reductions read is not there at all, and what it is made from
has to be there instead.
"""

from collections.abc import Collection, Iterable

from rematscope.ir.attention_costs import ATTENTION_KERNELS
from rematscope.ir.program import Equation, Value
from rematscope.scheduling.linearize import reading

# What XLA fuses into what reads it; of the second kind nothing is computed at all.
ELEMENTWISE = frozenset(
    "abs add add_any and broadcast_in_dim ceil clamp convert_element_type copy cos div eq erf exp exp2 expm1 floor "
    "ge gt integer_pow iota is_finite le log log1p logistic lt max min mul ne neg not one_minus_square or pow "
    "reduce_precision rem round rsqrt select_n sign sin sqrt square stop_gradient sub tan tanh xor".split()
)
VIEWS = frozenset({"name", "reshape", "squeeze", "expand_dims", "stop_gradient"})


# What XLA makes a kernel of its own: nothing is fused across it in time.
HEAVY = ATTENTION_KERNELS.union(
    "dot_general conv_general_dilated ragged_dot_general scan while cond custom_call shard_map pallas_call".split()
)


class Fusion:
    """Which values of some programs are in memory, and until when.

    Attributes:
      unwritten: values that stand for others: they are views, or fused into all that reads them.
    """

    def __init__(self, programs: Iterable[Iterable[Equation]], outputs: Collection[Value]):
        """Args:
        programs: the equations of each, in order; a program may read values of others.
        outputs: what is written because somebody gets it.
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
                if equation.primitive in ELEMENTWISE and all(v in numbers for v in reading(equation)):
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
            return equation.primitive in ELEMENTWISE and (number or (near and once)) and all(map(_fuses, by))

        self.unwritten = {
            value
            for value, equation in self._made.items()
            if value not in outputs and (equation.primitive in VIEWS or fused(value, equation))
        }

    def stands_for(self, value: Value) -> list[Value]:
        """The values that have to be in memory where this one is read."""
        found, pending, seen = [], [value], {value}
        while pending:
            value = pending.pop()
            if value not in self.unwritten:
                found.append(value)
                continue
            new = [v for v in reading(self._made[value]) if v not in seen]
            seen.update(new)
            pending += new
        return found


def _fuses(reader: Equation) -> bool:
    return reader.primitive in ELEMENTWISE or reader.primitive in VIEWS or reader.primitive.startswith("reduce")
