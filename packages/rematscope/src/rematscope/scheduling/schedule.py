"""Both passes anew for a choice of what to keep: what is not kept is computed again as late as it may be.

A checkpoint computes all that it goes around again before it reads any of it, so all of that is in memory at once. Here
each operation that comes again stands directly before the first one that reads it. XLA would take it for the one of the
forward pass, or do it early, if nothing hindered it: what it reads of the forward pass goes through an optimization
barrier together with the newest cotangent, so that it is there no sooner. So does what came again before the latest
matrix product, or what else takes long, and is read now to compute more again, unless XLA would rather compute it there
than write it down; and so does whatever such a product reads, for XLA copies operands to turn them around. On a TPU,
which computes elementwise operations with the products around them, such a product's operands alone do. Cotangents that
are read behind the next such operation go through the barrier too: XLA would add those of all layers up in each place
that reads their sum, and keep the summands for that until the end. And a weight's gradient goes through one with the
cotangent that the next such operation reads: XLA would compute it when all else is done, and keep what it is made of
until then.

What is moved to the host's memory goes there as soon as it is made, each iteration's part of a loop's stack in that
iteration, and is fetched where it would else be computed again.

What came again may come once more: a backward pass may let go of it at some stops, where it says what is to be there.
So a long chain is gone back through with few values in memory (`rematscope.scheduling.chain`). On a TPU all that is
read before the next stop comes again at once, behind one barrier (`rematscope.scheduling.tpu_blocks`).

The emitted program is JAX's own gradient program, only reordered and recomputed: JAX's operations, in JAX's
association, on the same operands. These are all the changes between JAX's trace and the emitted program, and why each
is exact:

* Inlining (`ir/inline.py`) puts the bodies of jit, checkpoints and custom rules where they are called. The operations
  are the same. A name, an optimization barrier and a rounding to a type's own precision return their operand. A
  library's primitive that is lowered as a function written in JAX becomes the operations of that function.
* Dead-code removal (`without_dead_code`) drops operations that have no effect and whose results nothing reads.
* Substitution (`linearize.py`): where the backward pass recomputes a value of the forward pass, it reads that value.
  Two values count as equal (`ir/value_numbering.py`) if the same primitive makes them with the same parameters from
  equal operands. Literals are compared by their bits, so 0 and -0 differ; parameters that are floats by their text. The
  operands of `add`, `mul` and logical operations may be swapped, which IEEE 754 rounds alike; those of `max` and `min`
  may not, for XLA's maximum of 0 and -0 is the first one. A transfer between memories keeps all bits. In loops, values
  of the same iteration are compared. An operation that is not repeatable makes values that equal no others.
* Deferral (`linearize.py`): an operation of the backward pass that depends on no cotangent counts as one of the primal
  program, and runs where its result is needed. It reads the same operands. One that is not repeatable stays.
* Loops (`linearize.py`, `ScheduleBuilder._loop`): an iteration of a backward loop reads values of the primal loop's
  iteration with the same index, from stacks or recomputed from the same carries and slices. The order of iterations,
  and of the sums that they carry, is JAX's.
* Segments of loops (`divided.py`) cut a loop into loops whose iterations, and carried sums, are in the same order.
* Recomputation (`_Making.late`) repeats an operation on the same operands. What is not repeatable
  (`jax_compat.is_repeatable`: effects, callbacks, `rng_uniform`) runs once, and its results are saved.
* Barriers return their operands. Transfers to the host and back keep all bits.
* Absent cotangents (`zeros.py`) are symbolic zeros, as in JAX.

`tests/scheduling/test_gradient_program.py` compares JAX's program and the emitted one operation by operation, bit for
bit. XLA may fuse the two differently, so compiled results may differ by rounding, as between any two compilations.

Where `auto` chooses plain checkpoints (`checkpoint_placement.py`, `blocks.py`) nothing is emitted here: the gradient is
JAX's of the same function with `jax.checkpoint` around these operations. JAX then adds up the cotangents that a value
gets inside a checkpoint before it adds those from outside.
"""

import dataclasses
from collections import deque
from collections.abc import Collection, Iterable, Sequence

import jax
import jax.numpy as jnp

from rematscope import jax_compat
from rematscope.ir.inline import without_dead_code
from rematscope.ir.primitives import MATMULS
from rematscope.ir.program import Equation, Literal, Program, Value
from rematscope.memory.fused import is_fused, is_tpu
from rematscope.scheduling.fusion import ELEMENTWISE
from rematscope.scheduling.linearize import Linearized, free_values, reading, substituted


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The recomputed values that are live at one point of the backward program, in addition to the saved ones.

    Attributes:
      at: the number of operations of the backward program that run before this point.
      live: values of the primal program. Those that are not live yet are recomputed here, one after the other. All
        other recomputed values are dropped, and recomputed where they are read; on a TPU, if that is before the next
        snapshot, here.
    """

    at: int
    live: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """The two programs of a choice.

    Attributes:
      forward: from the arguments to the outputs and `kept`.
      backward: from `kept`, the arguments and the cotangents to the arguments' cotangents.
      kept: what is handed from one to the other, of a loop the stacks of all iterations; what was moved to the host as
        a value there.
      copies: of what is computed again more than once each further value, and which one of the primal program it is.
      values: the same as values of the primal program, of a loop those of each iteration.
    """

    forward: Program
    backward: Program
    kept: tuple[Value, ...]
    copies: dict[Value, Value]
    values: tuple[Value, ...]

    @property
    def saved_bytes(self) -> int:
        """Bytes of what is kept on the device."""
        return sum(value.nbytes for value in self.kept if value.memory == "device")

    @property
    def host_bytes(self) -> int:
        """Bytes of what is kept in the host's memory."""
        return sum(value.nbytes for value in self.kept if value.memory == "host")


def schedule(
    linearized: Linearized,
    kept: Collection[Value],
    snapshots: Sequence[Snapshot] = (),
    moved: Collection[Value] = (),
    target: str = "cpu",
) -> Schedule:
    """Both passes, if these values are kept.

    Args:
      linearized: the function.
      kept: values of its primal program; one in the body of a loop stands for those of all iterations. What the
        backward pass has no use for is not kept, and of what cannot be computed again (what an iteration is handed by
        the one before, what has effects) all that it needs is.
      stops: where the backward pass lets go of what it computed again, in its order.
      moved: those of what is kept that wait in the host's memory.
      target: what it is compiled for.
    """
    builder = ScheduleBuilder(linearized, frozenset(kept).difference(moved), frozenset(moved), target)
    primal, backward = linearized.primal, linearized.backward
    equations, used = builder.emit_backward(
        backward, primal, [c for c in backward.inputs if _flows(c)], snapshots=snapshots
    )
    inputs = (*used, *primal.inputs, *backward.inputs)
    outputs = tuple(builder.latest.get(v, v) for v in backward.outputs)
    stacked = {stack: value for stacks in builder.stacks.values() for value, stack in stacks.items()}
    return Schedule(
        forward=_program(primal.inputs, builder.stacking(), (*primal.outputs, *used), primal.constants),
        backward=_program(inputs, equations, outputs, primal.constants),
        kept=tuple(used),
        copies=builder.copies,
        values=tuple(builder.sent.get(v, v) for v in (stacked.get(v, v) for v in used)),
    )


def _program(
    inputs: tuple[Value, ...], equations: list[Equation], outputs: tuple[Value, ...], constants: dict[Value, jax.Array]
) -> Program:
    program = Program(inputs, without_dead_code(equations, outputs), outputs)
    used = set(free_values(program))
    program.constants = {value: array for value, array in constants.items() if value in used}
    return program


class ScheduleBuilder:
    """Both passes as they are made."""

    def __init__(self, linearized: Linearized, kept: frozenset[Value], moved: frozenset[Value], target: str):
        self.linearized = linearized
        self.on_tpu = is_tpu(target)
        moves = [_moves(v, linearized) for v in moved]
        self.sends = {e.inputs[0]: e for e, _ in moves}
        self.fetches = {e.outputs[0]: e for _, e in moves}
        self.sent = {e.outputs[0]: e.inputs[0] for e, _ in moves}  # a value on the host → what it is
        self.stacks: dict[Equation, dict[Value, Value]] = {}  # of each primal loop what it stacks, and as what
        for loop in linearized.loops.values():
            pairs = zip(loop.bodies[0].outputs, loop.outputs, strict=True)
            self.stacks[loop] = dict([*pairs][loop.carries :])
        whole = (stacks[v] for stacks in self.stacks.values() for v in stacks if v in kept)
        self.kept = kept.union(whole)
        self.always: set[Value] = set()  # stacks that backward loops read: the loop does not run again for them
        self.latest: dict[Value, Value] = {}  # of what is computed again more than once its latest copy
        self.copies: dict[Value, Value] = {}

    def emit_backward(
        self,
        backward: Program,
        primal: Program,
        newest: Iterable[Value],
        handed: Collection[Value] = (),
        snapshots: Sequence[Snapshot] = (),
    ) -> tuple[list[Equation], list[Value]]:
        """A backward program with what it computes again, each operation before the first one that reads it.

        Args:
          backward, primal: two programs of which the first reads values of the second.
          newest: the cotangents that it begins with.
          handed: what the primal program cannot compute: of a loop's body its inputs.
          stops: where what came again is let go.

        Returns:
          The equations, barriers among them, and what is used of what is kept or handed in.
        """
        made = {v: e for e in primal.equations if e.primitive != "optimization_barrier" for v in e.outputs}
        made |= {v: e for v, e in self.fetches.items() if v in made or v in handed}
        leaves = {*primal.inputs, *primal.constants}
        used: dict[Value, None] = {}
        there: set[Equation] = set()
        ran: set[Equation] = set()  # those that came again at all
        held: Collection[Value] = ()  # what the latest stop holds
        since: dict[Value, int] = {}  # after how many heavy operations a value came again, or went through a barrier
        heavy = 0
        equations: list[Equation] = []
        newest = list(newest)
        flowing = {*newest, *(v for e in backward.equations for v in e.outputs if _flows(v))}
        last = next(iter(newest), None)
        crossing = _crossing(backward)
        gradients = _gradients(backward)
        done: list[Value] = []  # those since the last heavy operation
        waiting = [v for v in newest if v in crossing]  # cotangents that no barrier has held since they were made

        at_once = self.on_tpu and bool(snapshots)

        def is_given(value: Value) -> bool:
            """Whether a value is there without being computed again; notes that it is used."""
            if (
                value in self.always
                or value in self.sent
                or (value in handed and value not in self.fetches)
                or (value in made and (value in self.kept or self._once(made[value])))
            ):
                used[value] = None
                return True
            return value not in made or made[value] in there

        def is_early(value: Value, reader: Equation) -> bool:
            """Whether a value was there, or last held by a barrier, before the latest heavy operation."""
            given = value in used or value in leaves or value in held
            if value not in since:
                return given
            if value in made and made[value].primitive == "iota":
                return since[value] < 0
            if given or since[value] >= heavy:
                return since[value] < heavy
            if self.on_tpu:  # what a barrier holds is written, and its products write what is made of their results
                return _is_heavy(reader) and made[value].primitive not in ELEMENTWISE
            return not is_fused(made[value])

        def is_light(value: Value) -> bool:
            """Whether a value is kept that XLA would rather compute where it is read, and keep more that it is of.

            What a loop stacks is written in any case.
            """
            if handed or value not in used or value in since or value not in made:
                return False
            if made[value].primitive not in ELEMENTWISE:
                return False
            others = (v for v in reading(made[value]) if v not in self.kept and v not in leaves)
            return sum(v.device_bytes for v in others) > value.device_bytes

        def write(equation: Equation) -> None:
            if asked := tuple(v for v in reading(equation) if is_light(v) and _fences(v)):
                since.update(dict.fromkeys(asked, heavy))
                equations.append(Equation("optimization_barrier", asked, asked, {}, equation.eqn))

        def fence(equation: Equation) -> None:
            asked = [v for v in reading(equation) if not at_once and is_early(v, equation) and _fences(v)]
            if asked and last is not None:
                since.update(dict.fromkeys(asked, heavy))
                flown = [v for v in waiting if v is not last and crossing[v] > heavy]
                together = (*asked, last, *flown)
                waiting.clear()
                add(Equation("optimization_barrier", together, together, {}, equation.eqn))

        def add(equation: Equation) -> None:
            equations.append(substituted(equation, self.latest) if self.latest else equation)

        def demand(values: Iterable[Value]) -> None:
            pending: list[tuple[Iterable[Value], Equation | None]] = [(iter(values), None)]
            while pending:
                step, equation = pending[-1]
                for value in step:
                    if not is_given(value):
                        again = made[value]
                        there.add(again)
                        pending.append((iter(reading(again)), again))
                        break
                else:
                    pending.pop()
                    if equation is not None:
                        fence(equation)
                        add(equation)
                        if equation in ran or at_once:
                            equations[-1] = self._copied(equations[-1])
                        ran.add(equation)
                        # XLA would take numbers that depend on nothing from the forward pass, with all made of them.
                        since.update(dict.fromkeys(equation.outputs, -1 if equation.primitive == "iota" else heavy))

        def again(stretch: Sequence[Equation], start: int) -> None:
            """Has all come again that a stretch reads, and what came since a start behind one barrier."""
            demand(v for e in stretch for v in reading(e))
            read = dict.fromkeys(v for e in (*equations[start:], *stretch) for v in reading(e))
            asked = tuple(v for v in read if (v in used or v in leaves) and _fences(v))
            if asked and last is not None:
                together = (*asked, last)
                equations.insert(start, Equation("optimization_barrier", together, together, {}, stretch[0].eqn))

        coming = deque(snapshots)
        opened = dict[Equation, Equation]()
        for i, equation in enumerate(backward.equations):
            start = len(equations)
            stopped = at_once and not i
            while coming and coming[0].at <= i:
                held = coming.popleft().live
                demand(held)
                there.intersection_update(made[v] for v in held)
                stopped = at_once
            if stopped:
                stretch = backward.equations[i : coming[0].at if coming else None]
                opened |= {e: self._loop(e) for e in stretch if e in self.linearized.loops}
                again([opened.get(e, e) for e in stretch], start)
            if equation in self.linearized.loops:
                equation = opened.get(equation) or self._loop(equation)
            demand(reading(equation))
            if at_once:
                pass
            elif _is_heavy(equation):
                fence(equation)  # XLA turns its operands around, and would do that early
            else:
                write(equation)
            if at_once:
                pass
            elif equation in gradients:
                done += [v for v in equation.outputs if _flows(v)]
            elif _is_heavy(equation):
                behind = [v for v in reading(equation) if v in flowing]
                if done and behind:
                    together = (*behind, *done)
                    add(Equation("optimization_barrier", together, together, {}, equation.eqn))
                done.clear()
            add(equation)
            heavy += _is_heavy(equation)
            waiting += [v for v in equation.outputs if v in crossing]
            last = next((v for v in equation.outputs if _flows(v)), last)
        demand(v for v in backward.outputs if not isinstance(v, Literal))
        return equations, list(used)

    def _copied(self, equation: Equation) -> Equation:
        """The same operation with results of its own."""
        outputs = []
        for value in equation.outputs:
            copy = Value(value.aval, value.name)
            copy.sharding = value.sharding
            self.latest[value] = copy
            self.copies[copy] = value
            outputs.append(copy)
        return dataclasses.replace(equation, outputs=tuple(outputs))

    def _loop(self, equation: Equation) -> Equation:
        """A backward loop that reads stacks of what its body uses, and computes the rest again."""
        loop = self.linearized.loops[equation]
        (body,), (primal,) = equation.bodies, loop.bodies
        newest = [v for v in body.inputs[: equation.carries] if _flows(v)]
        equations, used = self.emit_backward(body, primal, newest, primal.inputs)
        slices = dict(zip(primal.inputs[loop.carries :], loop.stacked_inputs, strict=True))
        stacks = [slices[v] if v in slices else self._stack(loop, v) for v in used]
        inside = Program((*body.inputs, *used), equations, body.outputs)
        around = free_values(inside)
        return dataclasses.replace(
            equation,
            inputs=(*around, *equation.initial, *equation.stacked_inputs, *stacks),
            first_carry=len(around),
            bodies=(inside,),
        )

    def _stack(self, loop: Equation, value: Value) -> Value:
        """The stack of a value of a loop's body."""
        shape = loop.length, *value.shape
        like = value.aval.update(shape=shape) if value in self.sent else jax.ShapeDtypeStruct(shape, value.dtype)
        stack = self.stacks[loop].setdefault(value, Value(like))
        self.always.add(stack)
        return stack

    def stacking(self) -> list[Equation]:
        """The equations of the primal program, whose loops stack all that is used."""
        equations = [self._stacking(e) if e in self.stacks else e for e in self.linearized.primal.equations]
        return self._sending(equations)

    def _sending(self, equations: Iterable[Equation], handed: Iterable[Value] = ()) -> list[Equation]:
        """Equations that send what waits on the host there, each as soon as it is made; first what is handed in."""
        found = [self.sends[v] for v in handed if v in self.sends]
        for equation in equations:
            found.append(equation)
            if equation.primitive != "optimization_barrier":
                found += [self.sends[v] for v in equation.outputs if v in self.sends]
        return found

    def _stacking(self, loop: Equation) -> Equation:
        (body,) = loop.bodies
        present = set(loop.outputs)
        new = {v: stack for v, stack in self.stacks[loop].items() if stack not in present}
        equations = self._sending(body.equations, body.inputs)
        longer = dataclasses.replace(body, equations=equations, outputs=(*body.outputs, *new))
        return dataclasses.replace(loop, outputs=(*loop.outputs, *new.values()), bodies=(longer,))

    def _once(self, equation: Equation) -> bool:
        """Whether an operation must not run again."""
        return not jax_compat.is_repeatable(equation.eqn)


def _moves(value: Value, linearized: Linearized) -> tuple[Equation, Equation]:
    """What moves a value to the host, and what fetches it from there."""
    space, source = jax.memory.Space, linearized.maker_of[value].eqn.source_info
    both = jax.make_jaxpr(lambda x: jax.device_put(jax.device_put(x, space.Host), space.Device))(value.aval)
    there, back = (eqn.replace(source_info=source) for eqn in both.eqns)
    host = Value(there.outvars[0].aval, value.name)
    host.sharding = value.sharding
    return (
        Equation("device_put", (value,), (host,), there.params, there),
        Equation("device_put", (host,), (value,), back.params, back),
    )


def _is_heavy(equation: Equation) -> bool:
    """Whether an operation takes so long that what is needed behind it had better come behind it."""
    return equation.primitive in MATMULS or equation.primitive == "scan"


def _gradients(backward: Program) -> set[Equation]:
    """Products and sums behind which nothing heavy comes: the gradients of weights, biases and scales."""
    leading: set[Value] = set()
    found: set[Equation] = set()
    for equation in reversed(backward.equations):
        leads = not leading.isdisjoint(equation.outputs)
        if not leads and (_is_heavy(equation) or equation.primitive == "reduce_sum"):
            found.add(equation)
        if leads or _is_heavy(equation):
            leading.update(reading(equation))
    return found


def _crossing(backward: Program) -> dict[Value, int]:
    """The cotangents that are read behind a heavy operation, and how many of these come before the last reader."""
    heavy, made, last = 0, dict.fromkeys(backward.inputs, 0), dict[Value, int]()
    for equation in backward.equations:
        last.update((v, heavy) for v in reading(equation) if v in made)
        heavy += _is_heavy(equation)
        made.update(dict.fromkeys(equation.outputs, heavy))
    return {v: count for v, count in last.items() if count > made[v] and _flows(v)}


def _flows(value: Value) -> bool:
    """Whether a value can be a cotangent that something waits for."""
    return not isinstance(value, Literal) and jnp.issubdtype(value.dtype, jnp.inexact)


def _fences(value: Value) -> bool:
    """Whether a value can go through a barrier."""
    return not jnp.issubdtype(value.dtype, jax.dtypes.extended)
