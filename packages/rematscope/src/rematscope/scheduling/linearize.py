"""Split a function into two programs that share their values: the primal program and the program of cotangents.

In a trace without checkpoints, the backward program reads values of the forward program. With checkpoints, it
recomputes some of these values. This module gives both cases the same form. Every operation that depends on no
cotangent appears once, in the primal program, and the backward program reads its results from there. A schedule can
then save or recompute each value, including the residuals of `exp` or of a custom rule.

The two loops of a `scan` are split in the same way: each iteration of the backward loop reads values of an iteration
of the primal loop. A nested loop, a branch or a `shard_map` is a single operation.

The derivative as a separate program that reads values of the primal program is JAX's linearization: Radul, Paszke,
Frostig, Johnson and Maclaurin, "You Only Linearize Once", POPL 2023.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.ir.dependence import mark_dependence
from rematscope.ir.program import Equation, Literal, Program, Value, nbytes, own_values, reading, total_bytes
from rematscope.jax_compat import Policy
from rematscope.tracing.trace import Trace


@dataclasses.dataclass(eq=False)
class Linearized:
    """The primal and the backward program of a function.

    Attributes:
      trace: the trace that was split.
      primal: the program that computes the outputs, and the values that only the backward program reads.
      backward: the program that computes the cotangents of the arguments from those of the outputs. It reads values of
        `primal`, and the bodies of its loops read values of the primal loops' bodies.
      loops: maps each backward loop to the primal loop whose iterations it reverses.
      saved: the values of `primal` that the trace saves; for a stack, the value in the loop's body.
      deferred: the operations of `primal` whose results only the backward program reads. JAX runs them once, in the
        backward pass.
    """

    trace: Trace
    primal: Program
    backward: Program
    loops: dict[Equation, Equation]
    saved: frozenset[Value]
    deferred: frozenset[Equation]

    @cached_property
    def loop_of(self) -> dict[Value, Equation]:
        """The primal loop whose body computes or receives a value, if a backward loop reverses it."""
        return {v: loop for loop in dict.fromkeys(self.loops.values()) for v in own_values(loop.bodies[0])}

    @cached_property
    def maker_of(self) -> dict[Value, Equation]:
        """The operation that computes each value of the primal program; for an input of a loop's body, the loop."""
        made = {v: loop for loop in dict.fromkeys(self.loops.values()) for v in loop.bodies[0].inputs}
        levels = [self.primal, *(loop.bodies[0] for loop in dict.fromkeys(self.loops.values()))]
        return made | {v: e for level in levels for e in level.equations for v in e.defines}

    @cached_property
    def fixed_bytes(self) -> int:
        """The bytes of arguments, constants, cotangents, outputs and gradients."""
        given = [*self.trace.forward.inputs, *self.primal.constants, *self.trace.cotangents]
        returned = [*self.primal.outputs, *self.trace.backward.outputs]
        return total_bytes(given) + sum(nbytes(v.on_device) for v in returned)

    @cached_property
    def closed(self) -> bool:
        """Whether the derivative has a nested loop, branch or `shard_map`, which is a single operation here."""
        inside = (e for loop in self.loops for e in loop.bodies[0].equations)
        return any(e.bodies and e not in self.loops for e in (*self.backward.equations, *inside))

    def saved_by(self, policy: Policy) -> frozenset[Value]:
        """Return the values of `primal` that a policy saves."""
        loops = dict.fromkeys(self.loops.values())
        equations = [*self.primal.equations, *(e for loop in loops for e in loop.bodies[0].equations)]
        return frozenset(
            value
            for equation in equations
            if equation.defines and not equation.bodies
            if policy(equation.eqn.primitive, *(v.aval for v in equation.eqn.invars), **equation.eqn.params)
            for value in equation.defines
        )


def linearize(passes: Trace) -> Linearized:
    """Sort the equations of a trace into the primal and the backward program.

    Raises:
      PlanError: if the trace is that of a training step, which takes its gradient itself; or if the backward pass uses
        mutable arrays, because these cannot be saved, and their reads cannot be reordered.
    """
    if passes.step is not None:
        raise PlanError(
            f"{passes.function} takes gradients itself, so a plan for it cannot change what they save. Plan the loss "
            f"that it differentiates, and let {passes.function} differentiate the planned loss."
        )
    used = (v for equation, _ in passes.backward.walk() for v in (*equation.inputs, *equation.outputs))
    if any(jax_compat.is_mutable_array(value.aval) for value in used):
        raise PlanError(
            f"{passes.function} differentiates values in a mutable array (jax.new_ref), which auto and with_schedule "
            "do not support. Compute new arrays instead, or apply jax.lax.stop_gradient to all values that it writes "
            "to the array and reads from it."
        )
    marks = dict.fromkeys(passes.cotangents, 1)
    mark_dependence(passes.backward, marks)
    return _Sorting(passes, {value for value, mark in marks.items() if mark}).sorted()


def substitute_values(equation: Equation, stands_for: Mapping[Value, Value]) -> Equation:
    """Return an equation, including its bodies, with the values that it reads replaced as `stands_for` says."""

    def all_of(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(stands_for.get(v, v) for v in values)

    if equation.primitive == "optimization_barrier":
        fenced = tuple(v for v in all_of(equation.inputs) if not isinstance(v, Literal))
        return dataclasses.replace(equation, inputs=fenced, outputs=fenced)
    bodies = tuple(
        dataclasses.replace(
            body, equations=[substitute_values(e, stands_for) for e in body.equations], outputs=all_of(body.outputs)
        )
        for body in equation.bodies
    )
    return dataclasses.replace(equation, inputs=all_of(equation.inputs), bodies=bodies)


def _insert_early(equations: Sequence[Equation], more: Iterable[Equation]) -> list[Equation]:
    """Return equations with more equations inserted, each as soon as its operands exist, to free the operands early."""
    place = {v: i for i, e in enumerate(equations) for v in e.defines}
    behind: dict[int, list[Equation]] = {}
    for equation in more:
        after = max((place.get(v, -1) for v in reading(equation)), default=-1)
        behind.setdefault(after, []).append(equation)
        place.update(dict.fromkeys(equation.outputs, after))
    found = [*behind.get(-1, ())]
    for i, equation in enumerate(equations):
        found += equation, *behind.get(i, ())
    return found


class _Sorting:
    """Sorts the equations of a trace into the primal and the backward program."""

    def __init__(self, passes: Trace, on_cotangents: set[Value]):
        self.trace = passes
        self.on_cotangents = on_cotangents
        self.stands_for: dict[Value, Value] = {}  # maps a value of the backward pass to the equal primal value
        self.primal = list(passes.forward.equations)
        self.made = {v: e for e in self.primal for v in e.defines}
        self.deferred: dict[Equation, list[Equation]] = {}  # the equations that are added to the bodies of primal loops
        self.loops: dict[Equation, Equation] = {}
        self.only_backward: list[Equation] = []
        self.rerun: set[Value] = set()  # values for which the backward pass reruns an unrepeatable operation

    def sorted(self) -> Linearized:
        forward, backward = self.trace.forward, self.trace.backward
        top = {*forward.inputs, *forward.constants, *self.made}
        saved = frozenset(r.value for r in self.trace.residuals if r.kind == "computed")
        readable = top | backward.constants.keys()
        equations, late = self._split_by_cotangents(backward.equations, top, readable)
        longer = {loop: self._extend_primal_loop(loop) for loop in dict.fromkeys(self.loops.values())}
        for loop in longer:
            stacks = zip(loop.outputs[loop.carries :], loop.bodies[0].outputs[loop.carries :], strict=True)
            inside = {stack: value for stack, value in stacks if stack in saved and not isinstance(value, Literal)}
            saved = saved - inside.keys() | set(inside.values())
        constants = forward.constants | backward.constants
        primal = [longer.get(e, e) for e in _insert_early(self.primal, late)]
        return Linearized(
            trace=self.trace,
            primal=Program(forward.inputs, primal, forward.outputs[: len(self.trace.cotangents)], constants),
            backward=Program(self.trace.cotangents, equations, self._substituted_values(backward.outputs), constants),
            loops={loop: longer[of] for loop, of in self.loops.items()},
            saved=saved,
            deferred=frozenset(self.only_backward),
        )

    def _split_by_cotangents(
        self, equations: Iterable[Equation], known: set[Value], readable: set[Value]
    ) -> tuple[list[Equation], list[Equation]]:
        """Return the equations that depend on a cotangent, and the new equations of the primal program.

        Args:
          equations: equations of the backward program, or of the body of one of its loops.
          known: values of the primal program that these equations can read.
          readable: values that a new equation of the primal program may read.
        """
        backward, late = [], []
        readable = set(readable)
        for equation in equations:
            if equation.primitive == "optimization_barrier":
                continue  # the schedule inserts its own barriers
            if self.on_cotangents.isdisjoint(equation.outputs) and equation.outputs:
                if not jax_compat.is_repeatable(equation.eqn) or not self.rerun.isdisjoint(reading(equation)):
                    self.rerun.update(equation.outputs)  # a second run may give a different value
                same = [self.trace.forward_value_of.get(v) for v in equation.outputs]
                if known.issuperset(same) and self.rerun.isdisjoint(equation.outputs):
                    self.stands_for.update((v, s) for v, s in zip(equation.outputs, same, strict=True) if s is not None)
                    continue
                equation = substitute_values(equation, self.stands_for)
                if readable.issuperset(reading(equation)) and jax_compat.is_repeatable(equation.eqn):
                    late.append(equation)
                    readable.update(equation.outputs)
                    continue
            else:
                equation = substitute_values(equation, self.stands_for)
            if (loop := self._primal_loop(equation)) is not None:
                equation = self._pair_loop(equation, loop)
            backward.append(equation)
        self.only_backward += late
        return backward, late

    def _primal_loop(self, equation: Equation) -> Equation | None:
        """Return the primal loop that a backward loop reverses: the loop that computes most of the stacks it reads."""
        if equation.primitive != "scan":
            return None
        makers = (self.made.get(stack) for stack in equation.stacked_inputs)
        counts = Counter(e for e in makers if e is not None and e.primitive == "scan" and e.length == equation.length)
        return counts.most_common(1)[0][0] if counts else None

    def _pair_loop(self, equation: Equation, loop: Equation) -> Equation:
        """Return the backward loop with a body that reads values of the primal loop's body instead of their stacks."""
        (body,), (primal,) = equation.bodies, loop.bodies
        stacked = dict(zip(loop.outputs[loop.carries :], primal.outputs[loop.carries :], strict=True))
        others = []
        for stack, part in zip(equation.stacked_inputs, body.inputs[equation.carries :], strict=True):
            if stack in stacked:
                self.stands_for[part] = stacked[stack]
            else:
                others.append((stack, part))
        handed = zip((*equation.initial, *equation.stacked_inputs), body.inputs, strict=True)
        self.rerun.update(inner for outer, inner in handed if outer in self.rerun)
        before = self.primal[: self.primal.index(loop)]
        early = {*self.trace.forward.inputs, *self.trace.forward.constants, *self.trace.backward.constants}
        early.update(v for e in before for v in e.outputs)
        own = own_values(primal) | {v for e in self.deferred.get(loop, ()) for v in e.outputs}
        inner, late = self._split_by_cotangents(body.equations, own | early, own | early)
        self.deferred.setdefault(loop, []).extend(late)
        slices = [part for _, part in others]
        around = equation.inputs[: equation.first_carry]
        paired = dataclasses.replace(
            equation,
            inputs=(*around, *equation.initial, *(stack for stack, _ in others)),
            bodies=(
                Program((*body.inputs[: equation.carries], *slices), inner, self._substituted_values(body.outputs)),
            ),
        )
        self.loops[paired] = loop
        return paired

    def _extend_primal_loop(self, loop: Equation) -> Equation:
        """Return a primal loop that also computes the values that only the backward loop reads."""
        (body,) = loop.bodies
        equations = _insert_early(body.equations, self.deferred.get(loop, ()))
        return dataclasses.replace(loop, bodies=(dataclasses.replace(body, equations=equations),))

    def _substituted_values(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(self.stands_for.get(v, v) for v in values)
