"""How many bytes of temporaries two programs take, as far as that can be said before they are compiled.

An array is there from the operation that makes it until the last one that reads it. What XLA fuses is not there at all:
an elementwise result that only elementwise operations and reductions read is computed again inside each of them, and
what it is made from has to be there instead. Outputs and gradients have room of their own, which the caller gives.
"""

from collections.abc import Collection, Iterable, Sequence

from rematscope.ir.program import Equation, Program, Value
from rematscope.scheduling.linearize import reading
from rematscope.scheduling.schedule import Schedule

# What XLA fuses into what reads it; of the second kind nothing is computed at all.
ELEMENTWISE = frozenset(
    "abs add add_any and broadcast_in_dim ceil clamp convert_element_type copy cos div eq erf exp exp2 expm1 floor "
    "ge gt integer_pow iota is_finite le log log1p logistic lt max min mul ne neg not one_minus_square or pow "
    "reduce_precision rem round rsqrt select_n sign sin sqrt square stop_gradient sub tan tanh xor".split()
)
VIEWS = frozenset({"name", "reshape", "squeeze", "expand_dims", "stop_gradient"})


# What XLA makes a kernel of its own: nothing is fused across it in time.
HEAVY = frozenset(
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
        for i, equations in enumerate(programs):
            heavy = 0
            for equation in equations:
                if equation.primitive == "optimization_barrier":
                    continue
                between[equation] = i, heavy
                heavy += equation.primitive in HEAVY
                self._made.update(dict.fromkeys(equation.outputs, equation))
                for value in reading(equation):
                    readers.setdefault(value, []).append(equation)

        def fused(value: Value, equation: Equation) -> bool:
            by = readers.get(value, ())
            places = {between[e] for e in by}
            here, _ = between[equation]
            near = all(place == between[equation] for place in places if place[0] == here)
            once = len({place for place in places if place[0] != here}) <= 1
            return equation.primitive in ELEMENTWISE and near and once and all(map(_fuses, by))

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


def temporaries(schedule: Schedule) -> int:
    """The most bytes that are there at once beside arguments, outputs, cotangents and gradients."""
    forward, backward = schedule.forward, schedule.backward
    kept = set(schedule.kept)
    until = peak(forward, (), {v for v in forward.outputs if v not in kept})
    given = [v for v in schedule.kept if v not in forward.outputs[: len(forward.outputs) - len(kept)]]
    return max(until, peak(backward, given, set(backward.outputs)))


def peak(program: Program, given: Sequence[Value], elsewhere: Collection[Value]) -> int:
    """The most bytes that are there at once.

    Args:
      program: what runs.
      given: what is there from the start, until it is read for the last time.
      elsewhere: what has room of its own.
    """
    equations = [e for e in program.equations if e.primitive != "optimization_barrier"]
    fusion = Fusion([equations], program.outputs)
    last: dict[Value, int] = {}
    for i, equation in enumerate(equations):
        for value in reading(equation):
            last.update(dict.fromkeys(fusion.stands_for(value), i))
    end = len(equations)
    for value in program.outputs:
        last.update(dict.fromkeys(fusion.stands_for(value), end))
    dying: dict[int, int] = {}  # bytes that are read for the last time at each step
    size = {value: value.device_bytes for value in given}
    now = sum(size.values())
    made = [[v for v in e.outputs if v not in fusion.unwritten and v not in elsewhere] for e in equations]
    for i, values in enumerate(made):
        for value in values:
            size[value] = value.device_bytes
            last.setdefault(value, i)
    for value, nbytes in size.items():
        dying[last.get(value, 0)] = dying.get(last.get(value, 0), 0) + nbytes
    most = now
    for i, equation in enumerate(equations):
        new = sum(size[value] for value in made[i])
        if equation.primitive in ELEMENTWISE:  # its result takes the place of what is read for the last time
            now += new - dying.get(i, 0)
            most = max(most, now)
        else:
            now += new
            most = max(most, now + (_inside(equation) if equation.bodies else 0))
            now -= dying.get(i, 0)
    return most


def _inside(equation: Equation) -> int:
    """What an iteration of a loop, or a branch, takes beside what goes in and comes out of it."""
    return max(peak(body, (), set(body.outputs[equation.carries :])) for body in equation.bodies)
