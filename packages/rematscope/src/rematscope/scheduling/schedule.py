"""Build both programs of a choice: the backward program recomputes each value that is not saved just before its use.

A checkpoint recomputes all values inside it before it uses any of them, so all of them are in memory at the same time.
Here, each recomputed operation directly precedes its first reader. XLA would merge the operation with that of the
forward pass, or run it early, so optimization barriers delay its operands:

* Values of the forward pass go through a barrier together with the newest cotangent, so they are not available sooner.
* So do values that were recomputed before the latest heavy operation (a matmul, a convolution, a loop) and are read to
  recompute others, unless XLA would rather fuse than write them.
* So do the operands of a heavy operation, since XLA copies operands to transpose them. For a TPU, which computes
  elementwise operations with its matmuls, only these operands do.
* Cotangents that are read after the next heavy operation go through the same barrier. XLA would otherwise sum them over
  all layers wherever the sum is read, and keep all summands until the end.
* A weight's gradient goes through a barrier with the cotangent that the next heavy operation reads. XLA would otherwise
  compute it last, and keep its operands until then.

Offloaded values move to the host as soon as they exist, in loops each iteration's slice in that iteration, and are
fetched where they would otherwise be recomputed.

Values may be recomputed more than once: at a snapshot, the backward pass drops all recomputed values except those that
the snapshot names. So a long chain is reversed with few values in memory (`rematscope.scheduling.chain`). For a TPU,
all that is read before the next snapshot is recomputed together, behind one barrier
(`rematscope.scheduling.tpu_blocks`).

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
* Loops (`linearize.py`, `ScheduleBuilder._emit_loop`): an iteration of a backward loop reads values of the primal
  loop's iteration with the same index, from stacks or recomputed from the same carries and slices. The order of
  iterations, and of the sums that they carry, is JAX's.
* Segments of loops (`divided.py`) cut a loop into loops whose iterations, and carried sums, are in the same order.
* Recomputation (`BackwardEmitter._demand_values`) repeats an operation on the same operands. What is not repeatable
  (`jax_compat.is_repeatable`: effects, callbacks, `rng_uniform`) runs once, and its results are saved.
* Barriers return their operands. Transfers to the host and back keep all bits.
* Absent cotangents (`zeros.py`) are symbolic zeros, as in JAX; `symbolic_zeros.py` checks this for custom rules.

`tests/scheduling/test_gradient_program.py` compares JAX's program and the emitted one operation by operation, bit for
bit. XLA may fuse the two differently, so compiled results may differ by rounding, as between any two compilations.

If `auto` chooses plain checkpoints (`checkpoint_placement.py`, `blocks.py`), this module emits no program: the gradient
is JAX's gradient of the same function with `jax.checkpoint` around these operations. For a value that is used both
inside and outside a checkpoint, JAX then first sums the cotangents of the uses inside.
"""

import dataclasses
from collections.abc import Collection, Iterable, Sequence

import jax

from rematscope.errors import PlanError
from rematscope.ir.inline import without_dead_code
from rematscope.ir.program import Equation, Program, Value, free_values
from rematscope.jax_compat import misreads_offloaded_stacks
from rematscope.scheduling.backward_emitter import BackwardEmitter, EmissionState, Snapshot, is_cotangent
from rematscope.scheduling.linearize import Linearized
from rematscope.seconds.devices import is_tpu


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """The two programs of a choice.

    Attributes:
      forward: the program that computes the outputs and `saved` from the arguments.
      backward: the program that computes the cotangents of the arguments from `saved`, the arguments and the cotangents
        of the outputs.
      saved: the saved values; for a loop, the stacks of all iterations; for an offloaded value, the value in host
        memory.
      copies: for values that are recomputed more than once, maps each further copy to the value of the primal program.
      values: the saved values as values of the primal program, for a loop those of each iteration.
    """

    forward: Program
    backward: Program
    saved: tuple[Value, ...]
    copies: dict[Value, Value]
    values: tuple[Value, ...]

    @property
    def saved_bytes(self) -> int:
        """The bytes that are saved on the device."""
        return sum(value.nbytes for value in self.saved if value.memory == "device")

    @property
    def host_bytes(self) -> int:
        """The bytes that are saved in host memory."""
        return sum(value.nbytes for value in self.saved if value.memory == "host")


def check_offloading(target: str, what: str, instead: str) -> None:
    """Raise PlanError if XLA would read the offloaded residuals of a loop in the wrong order.

    Args:
      target: the device to compile for.
      what: what offloads them, for the message.
      instead: what to do with this version of JAX, for the message.
    """
    if misreads_offloaded_stacks(target):
        raise PlanError(
            f"{what} would give wrong gradients: on a GPU, XLA of JAX {jax.__version__} reads offloaded residuals of a "
            f"scan in the wrong order. Install JAX 0.11.1 or later, or {instead}."
        )


def schedule(
    linearized: Linearized,
    saved: Collection[Value],
    snapshots: Sequence[Snapshot] = (),
    moved: Collection[Value] = (),
    target: str = "cpu",
) -> Schedule:
    """Return both programs for a choice of values to save.

    Args:
      saved: values of its primal program to save; one in the body of a loop stands for those of all iterations. Values
        that the backward pass does not use are not saved. Of values that cannot be recomputed, such as carries and
        results of effects, all that it needs are saved.
      snapshots: the points at which the backward pass drops recomputed values, in order.
      moved: the saved values that are offloaded to the host.

    Raises:
      PlanError: if this version of XLA would read the offloaded values in the wrong order.
    """
    if moved:
        check_offloading(target, linearized.trace.function, "plan without host=")
    builder = ScheduleBuilder(linearized, frozenset(saved).difference(moved), frozenset(moved), target)
    primal, backward = linearized.primal, linearized.backward
    equations, used = builder.emit_backward(
        backward, primal, [c for c in backward.inputs if is_cotangent(c)], snapshots=snapshots
    )
    inputs = (*used, *primal.inputs, *backward.inputs)
    outputs = tuple(builder.state.latest.get(v, v) for v in backward.outputs)
    stacked = {stack: value for stacks in builder.stacks.values() for value, stack in stacks.items()}
    return Schedule(
        forward=_pruned_program(primal.inputs, builder.emit_forward(), (*primal.outputs, *used), primal.constants),
        backward=_pruned_program(inputs, equations, outputs, primal.constants),
        saved=tuple(used),
        copies=builder.state.copies,
        values=tuple(builder.sent.get(v, v) for v in (stacked.get(v, v) for v in used)),
    )


def _pruned_program(
    inputs: tuple[Value, ...], equations: list[Equation], outputs: tuple[Value, ...], constants: dict[Value, jax.Array]
) -> Program:
    program = Program(inputs, without_dead_code(equations, outputs), outputs)
    used = set(free_values(program))
    program.constants = {value: array for value, array in constants.items() if value in used}
    return program


class ScheduleBuilder:
    """Builds both programs of a schedule."""

    def __init__(self, linearized: Linearized, saved: frozenset[Value], moved: frozenset[Value], target: str):
        self._linearized = linearized
        moves = [_host_transfers(v, linearized) for v in moved]
        self._sends = {e.inputs[0]: e for e, _ in moves}
        # Maps a value in host memory to the value that it copies.
        self.sent = {e.outputs[0]: e.inputs[0] for e, _ in moves}
        self.stacks: dict[Equation, dict[Value, Value]] = {}  # for each primal loop, maps its values to their stacks
        for loop in linearized.loops.values():
            pairs = zip(loop.bodies[0].outputs, loop.outputs, strict=True)
            self.stacks[loop] = dict([*pairs][loop.carries :])
        whole = (stacks[v] for stacks in self.stacks.values() for v in stacks if v in saved)
        fetches = {e.outputs[0]: e for _, e in moves}
        self.state = EmissionState(saved.union(whole), is_tpu(target), fetches, self.sent.keys())

    def emit_backward(
        self,
        backward: Program,
        primal: Program,
        newest: Iterable[Value],
        body_inputs: Collection[Value] = (),
        snapshots: Sequence[Snapshot] = (),
    ) -> tuple[list[Equation], list[Value]]:
        """Emit a backward program; see `BackwardEmitter`."""
        emitter = BackwardEmitter(
            backward, primal, newest, self.state, emit_loop=self._emit_loop,
            is_loop=self._linearized.loops.__contains__, body_inputs=body_inputs, snapshots=snapshots,
        )  # fmt: skip
        return emitter.emit()

    def _emit_loop(self, equation: Equation) -> Equation:
        """Return a backward loop that reads stacks of the saved values, and recomputes the others."""
        loop = self._linearized.loops[equation]
        (body,), (primal,) = equation.bodies, loop.bodies
        newest = [v for v in body.inputs[: equation.carries] if is_cotangent(v)]
        equations, used = self.emit_backward(body, primal, newest, primal.inputs)
        slices = dict(zip(primal.inputs[loop.carries :], loop.stacked_inputs, strict=True))
        stacks = [slices[v] if v in slices else self._stack_of(loop, v) for v in used]
        inside = Program((*body.inputs, *used), equations, body.outputs)
        around = free_values(inside)
        return dataclasses.replace(
            equation,
            inputs=(*around, *equation.initial, *equation.stacked_inputs, *stacks),
            first_carry=len(around),
            bodies=(inside,),
        )

    def _stack_of(self, loop: Equation, value: Value) -> Value:
        """Return the stack of a value of a loop's body."""
        shape = loop.length, *value.shape
        like = value.aval.update(shape=shape) if value in self.sent else jax.ShapeDtypeStruct(shape, value.dtype)
        stack = self.stacks[loop].setdefault(value, Value(like))
        self.state.read_stacks.add(stack)
        return stack

    def emit_forward(self) -> list[Equation]:
        """Return the equations of the primal program, whose loops stack the values that the backward loops read."""
        equations = [self._with_stacks(e) if e in self.stacks else e for e in self._linearized.primal.equations]
        return self._with_sends(equations)

    def _with_sends(self, equations: Iterable[Equation], handed: Iterable[Value] = ()) -> list[Equation]:
        """Return equations with transfers to the host, each as soon as its value exists; those of inputs first."""
        found = [self._sends[v] for v in handed if v in self._sends]
        for equation in equations:
            found.append(equation)
            found += [self._sends[v] for v in equation.defines if v in self._sends]
        return found

    def _with_stacks(self, loop: Equation) -> Equation:
        (body,) = loop.bodies
        present = set(loop.outputs)
        new = {v: stack for v, stack in self.stacks[loop].items() if stack not in present}
        equations = self._with_sends(body.equations, body.inputs)
        longer = dataclasses.replace(body, equations=equations, outputs=(*body.outputs, *new))
        return dataclasses.replace(loop, outputs=(*loop.outputs, *new.values()), bodies=(longer,))


def _host_transfers(value: Value, linearized: Linearized) -> tuple[Equation, Equation]:
    """Return the operations that move a value to the host, and fetch it from there."""
    space, source = jax.memory.Space, linearized.maker_of[value].eqn.source_info
    both = jax.make_jaxpr(lambda x: jax.device_put(jax.device_put(x, space.Host), space.Device))(value.aval)
    there, back = (eqn.replace(source_info=source) for eqn in both.eqns)
    host = Value(there.outvars[0].aval, value.name)
    host.sharding = value.sharding
    return (
        Equation("device_put", (value,), (host,), there.params, there),
        Equation("device_put", (host,), (value,), back.params, back),
    )
