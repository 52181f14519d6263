"""Divide the program of a training step into loops over its microbatches, and operations outside of these loops.

A loop computes one or more gradients, and whatever they depend on. A step that takes a gradient at parameters that it
updated with another gradient, such as those of a GAN, has a loop for each of them. Gradients per example, which
`jax.vmap` of `jax.grad` takes, stay in the loop until they are added up. Gradients that do not depend on the batch are
computed once, outside of the loops.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.jax_compat.vjp_hook import Mark
from rematscope.reporting.batch_axis import is_float
from rematscope.reporting.flat_program import FlatProgram, Operation, Variable, has_mutable_arrays, variables_of


@dataclasses.dataclass
class Loop:
    """Operations that run once per microbatch, and the operations that follow them.

    Attributes:
      each: the operations of the loop, in the order of the program.
      after: the operations outside of loops that run after this loop and before the next one.
      crossing: the variables that `each` defines, and that later operations read or the step returns; first `gradients`
        and `totals`.
      gradients: the variables in `crossing` that are gradients of a mean.
      totals: the variables in `crossing` that are sums over gradients per example.
      same: the variables in `crossing` that do not depend on the batch, and the operations that define them.
    """

    each: list[Operation]
    after: list[Operation]
    crossing: list[Variable] = dataclasses.field(default_factory=list)
    gradients: frozenset[Variable] = frozenset()
    totals: frozenset[Variable] = frozenset()
    same: tuple[frozenset[Variable], list[Operation]] = (frozenset(), [])


@dataclasses.dataclass(frozen=True)
class Divided:
    """The program of a step in loops over its microbatches.

    Attributes:
      program: the program, whose first input is the number of the microbatch.
      once: operations before all loops, which do not depend on the batch.
      loops: the loops, in their order.
      axes: the batch axis of each variable that has one, as far as it is known.
      of_examples: the operations of both passes of gradients per example.
    """

    program: FlatProgram
    once: list[Operation]
    loops: Sequence[Loop]
    axes: Mapping[Variable, int]
    of_examples: Collection[Operation]

    @property
    def crossing(self) -> list[Variable]:
        """The crossing variables of all loops."""
        return [v for loop in self.loops for v in loop.crossing]


def mark_of(operation: Operation) -> Mark | None:
    """Return the mark of a gradient that an operation gives its operand; None if it is another operation.

    The runs of a jitted gradient share its marks, so the calls that contain the operation are part of the number.
    """
    mark = Mark.read(operation.value_name) if operation.value_name else None
    return mark and mark._replace(gradient=(mark.gradient, operation.calls))


def _marks_of(program: FlatProgram) -> dict[Operation, Mark]:
    return {op: mark for op in program.operations if (mark := mark_of(op)) is not None}


def gradient_marks(program: FlatProgram) -> list[tuple[Any, Variable]]:
    """Return the number of the gradient and the variable of each gradient that a program takes."""
    return [(mark.gradient, op.outvars[0]) for op, mark in _marks_of(program).items() if mark.what == "gradient"]


def in_passes(program: FlatProgram) -> set[Operation]:
    """Return the operations of the forward and backward passes of a program's gradients.

    They are between the marks of what a loss is differentiated with respect to and of its value, and between those of
    the cotangents and of the gradients. The step may compute other values between the two passes.
    """
    running, found = set[Any](), set[Operation]()
    for op in program.operations:
        mark = mark_of(op)
        if mark is not None and mark.what in ("differentiated", "cotangent"):
            running.add(mark.gradient)
        if running or mark is not None:
            found.add(op)
        if mark is not None and mark.what in ("value", "gradient"):
            running.discard(mark.gradient)
    return found


def per_example(program: FlatProgram, axes: Mapping[Variable, int]) -> set[Any]:
    """Return the numbers of the gradients of which all have a batch axis."""
    found = gradient_marks(program)
    return {number for number, _ in found} - {number for number, v in found if v not in axes}


def without_batch(
    program: FlatProgram,
    divided_inputs: Collection[Variable],
    draws: Collection[Operation],
    axes: Mapping[Variable, int],
) -> set[Any]:
    """Return the numbers of the gradients that do not depend on the batch, such as that of a weight decay alone.

    A gradient of a mean over the batch may be among the parameters of such a gradient: it is known after its loop.

    Args:
      program: the step.
      divided_inputs: its inputs that have a batch axis, and the number of the microbatch.
      draws: the operations that make random numbers of the batch.
      axes: the batch axis of each variable that has one, as far as it is known.
    """
    marks = _marks_of(program)
    each_example = per_example(program, axes)
    on_batch = {*divided_inputs, *axes}
    for op in program.operations:
        mark = marks.get(op)
        is_known = mark is not None and mark.what == "gradient" and mark.gradient not in each_example
        if not is_known and (op in draws or not on_batch.isdisjoint(variables_of(op.invars))):
            on_batch.update(op.outvars)
    numbers = {mark.gradient for mark in marks.values()}
    for op, around in _passes_around(program, marks).items():
        if op in draws or not on_batch.isdisjoint(variables_of([*op.invars, *op.outvars])):
            numbers.difference_update(around)
    return numbers


def outside_passes(program: FlatProgram) -> list[Operation]:
    """Return the other operations of a program than `in_passes`."""
    inside = in_passes(program)
    return [op for op in program.operations if op not in inside]


def operations_in_passes(program: FlatProgram) -> list[list[Operation]]:
    """Return the operations between the first and the last mark of each gradient."""
    found = dict[Any, list[Operation]]()
    for op, around in _passes_around(program, _marks_of(program)).items():
        for number in around:
            found.setdefault(number, []).append(op)
    return [*found.values()]


def _passes_around(program: FlatProgram, marks: Mapping[Operation, Mark]) -> dict[Operation, list[Any]]:
    """Return the numbers of the gradients between whose first and last mark an operation is, for each one inside."""
    first, last = dict[Any, int](), dict[Any, int]()
    for i, op in enumerate(program.operations):
        if op in marks:
            first.setdefault(marks[op].gradient, i)
            last[marks[op].gradient] = i
    found = dict[Operation, list[Any]]()
    for number, start in first.items():
        for op in program.operations[start : last[number] + 1]:
            found.setdefault(op, []).append(number)
    return found


def _used_operations(program: FlatProgram, marks: Mapping[Operation, Mark]) -> list[Operation]:
    """Return the operations that the outputs of a program, its marks or its effects depend on."""
    roots = set(variables_of(program.outputs))
    roots.update(v for op in program.operations if op in marks or op.eqn.effects for v in op.outvars)
    without_results = [op for op in program.operations if op.eqn.effects and not op.outvars]
    roots.update(v for op in without_results for v in variables_of(op.invars))
    used = {*operations_before(roots, program.operations), *without_results}
    return [op for op in program.operations if op in used]


def without_scale(program: FlatProgram, numbers: Collection[Any]) -> FlatProgram:
    """Return a program whose gradients of these numbers have the cotangents that the step gives them.

    Args:
      program: a step for a microbatch, whose cotangents are multiplied by a factor just after their marks.
      numbers: the numbers of the gradients.
    """
    marked = dict[Variable, Operation]()
    operations = list[Operation]()
    for op in program.operations:
        mark = mark_of(op)
        if mark is not None and mark.what == "cotangent" and mark.gradient in numbers:
            marked[op.outvars[0]] = op
        elif op.name == "mul" and not jax_compat.is_literal(op.invars[0]) and op.invars[0] in marked:
            op = Operation(marked[op.invars[0]].eqn, op.invars[:1], op.outvars, calls=op.calls)
        operations.append(op)
    return program._replace(operations=operations)


class NotDivided(Exception):
    """The passes of two gradients overlap, and one depends on the other."""


class _Division:
    """The places of the operations of a step: in a loop, or outside of loops."""

    def __init__(
        self,
        program: FlatProgram,
        divided_inputs: Collection[Variable],
        draws: Collection[Operation],
        draws_in_passes: Collection[Operation],
        axes: Mapping[Variable, int],
        once: Collection[Any],
    ):
        self.program, self._axes = program, axes
        self._random = {*draws, *draws_in_passes}
        self._batch = {program.inputs[0], *divided_inputs}
        self._marks = {op: mark for op, mark in _marks_of(program).items() if mark.gradient not in once}
        self._each_example = per_example(program, axes)
        self._gradients = {v for number, v in gradient_marks(program) if number not in self._each_example | {*once}}
        self._passes = _passes_around(program, self._marks)
        read = (v for op in self._passes for v in op.outvars)
        self._for_gradients = set(operations_before(read, program.operations))
        self._used = _used_operations(program, self._marks)
        self._first = dict.fromkeys((mark.gradient for mark in self._marks.values()), 0)  # the loop of each gradient
        for _ in range(len(self._first) + 1):
            self._place_all()
            loops = dict.fromkeys(self._first, 0)
            for op, place in self.places.items():
                loops.update((number, max(loops[number], place)) for number in self._passes.get(op, ()))
            if loops == self._first:
                break
            self._first = loops
        else:
            raise NotDivided
        self._move_to_later_loops()

    def _place_all(self) -> None:
        """Place each operation in the first possible loop, or outside of loops; both passes are in the same loop."""
        self._totals = set[Variable]()
        self._loop = dict[Variable, int]()  # the loops of the variables that loops define
        self._ready = dict[Variable, int]()  # how many loops run before each of the other variables is known
        self._of_example = set[Variable]()  # variables that depend on gradients per example before they are added up
        self.places = dict[Operation, int]()  # the loops of operations in loops
        for op in self._used:
            self._place_operation(op)

    def ready(self, v: Variable) -> int:
        """Return how many loops run before a variable is known outside of loops."""
        return self._loop[v] + 1 if v in self._loop else self._ready.get(v, 0)

    def _is_in_loop(self, v: Variable) -> bool:
        """Return whether a loop has its own value of a variable for each part, which its other operations may read."""
        return v in self._loop and v not in self._gradients and v not in self._totals

    def is_divided(self, v: Variable, loop: int) -> bool:
        """Return whether an operation of a loop reads a part of a variable, and not all of it."""
        if v in self._loop:
            return (self._loop[v] == loop and self._is_in_loop(v)) or (self._loop[v] < loop and v in self._axes)
        return v in self._batch or (self._ready.get(v, 0) > 0 and v in self._axes)

    def _place_operation(self, op: Operation) -> None:
        operands = variables_of(op.invars)
        start = max((self._first[number] for number in self._passes.get(op, ())), default=0)
        first = max((self.ready(v) - self._is_in_loop(v) for v in operands), default=0)
        first = max(first, start)
        reads_part = any(self.is_divided(v, first) for v in operands)
        of_example = any(v in self._of_example for v in operands)
        may_loop = first == 0 or of_example or op in self._for_gradients
        if not may_loop or not (reads_part or op in self._random or op in self._marks):
            self._ready.update(dict.fromkeys(op.outvars, max(map(self.ready, operands), default=0)))
            return
        self.places[op] = first
        self._loop.update(dict.fromkeys(op.outvars, first))
        mark = self._marks.get(op)
        if mark is not None and mark.what == "gradient" and mark.gradient in self._each_example:
            self._of_example.update(op.outvars)
        elif of_example and op not in self._passes:
            has_axis = any(v in self._axes for v in op.outvars)
            (self._of_example if has_axis else self._totals).update(op.outvars)

    def _move_to_later_loops(self) -> None:
        """Move operations into the loop that reads their results first, if no operation outside of loops does.

        Only values with a batch axis move: another one, such as a mean, would be that of a part, and not of all parts.
        """
        latest = dict.fromkeys(variables_of(self.program.outputs), 0)
        for op in reversed(self._used):
            place = self.places.get(op)
            may_move = self._gradients.isdisjoint(op.outvars) and self._axes.keys() >= {*op.outvars}
            if place is not None and may_move:
                last = min((latest[v] for v in op.outvars if v in latest), default=place)
                place = self.places[op] = max(place, last)
                self._loop.update(dict.fromkeys(op.outvars, place))
            limit = place if place is not None else max((self._ready.get(v, 0) for v in op.outvars), default=0) - 1
            for v in variables_of(op.invars):
                latest[v] = min(latest.get(v, limit), limit)

    def made(self) -> tuple[list[Operation], list[Loop]]:
        """Return the operations before all loops, and the loops."""
        count = max(self.places.values(), default=0) + 1
        loops = [Loop([], []) for _ in range(count)]
        for op, place in self.places.items():
            loops[place].each.append(op)
        late = dict[Operation, int]()
        for i, loop in enumerate(loops):
            divided = {v for op in loop.each for v in variables_of([*op.invars, *op.outvars]) if self.is_divided(v, i)}
            moved = self._operations_on_results(loop.each, divided)
            loop.each = [op for op in loop.each if op not in moved]
            late.update(dict.fromkeys(moved, i + 1))
        once = list[Operation]()
        for op in self._used:
            if op in late:
                loops[late[op] - 1].after.append(op)
            elif op not in self.places:
                ready = max((self._ready.get(v, 0) for v in op.outvars), default=0)
                (loops[ready - 1].after if ready else once).append(op)
        for i, loop in enumerate(loops):
            self._add_crossing(i, loop, loops)
        return once, loops

    def _operations_on_results(self, operations: Sequence[Operation], on_batch: Collection[Variable]) -> set[Operation]:
        """Return the operations that depend on the batch only by results of losses without a batch axis.

        Examples are a perplexity, and the quotient of two means that the loss returns. They run once, after the
        gradient, because such a function of means is not the mean of the function. Operations that the gradient depends
        on are not among them.

        Args:
          operations: the operations of a loop.
          on_batch: all variables that depend on the batch.
        """
        results, candidates = set[Variable](), set[Operation]()
        for operation in operations:
            mark = self._marks.get(operation)
            operands = [v for v in variables_of(operation.invars) if v in on_batch]
            if mark is not None and mark.what == "value":
                results.update(operation.outvars)
            elif operation in self._passes:
                results.update(v for v in operation.outvars if v not in self._axes and is_float(v.aval))
            elif operands and all(v in results for v in operands):
                results.update(operation.outvars)
                candidates.add(operation)
        needed, found = set[Variable](), set[Operation]()
        for operation in reversed(operations):
            if operation in candidates and needed.isdisjoint(operation.outvars):
                found.add(operation)
            else:
                needed.update(variables_of(operation.invars))
        return found

    def _add_crossing(self, number: int, loop: Loop, loops: Sequence[Loop]) -> None:
        made = {v for op in loop.each for v in op.outvars}
        later = [*(op for each in loops[number:] for op in each.after)]
        later += [op for each in loops[number + 1 :] for op in each.each]
        read_later = {v for op in later for v in variables_of(op.invars)}.union(variables_of(self.program.outputs))
        ordered = [v for op in loop.each for v in op.outvars]
        loop.gradients = frozenset(v for v in ordered if v in self._gradients)
        loop.totals = frozenset(v for v in ordered if v in self._totals and v in read_later)
        sums = loop.gradients | loop.totals
        loop.crossing = [v for v in ordered if v in sums] + [v for v in ordered if v in read_later and v not in sums]
        on_data = set[Variable]()
        for op in loop.each:
            read = variables_of(op.invars)
            if op in self._random or any(v in on_data or (v not in made and self.is_divided(v, number)) for v in read):
                on_data.update(op.outvars)
        same = frozenset(v for v in loop.crossing if v not in on_data and v not in sums)
        loop.same = same, operations_before(same, loop.each)


def divided(
    program: FlatProgram,
    input_axes: Sequence[int | None],
    function: str,
    draws: Collection[Operation],
    axes: Mapping[Variable, int],
    draws_in_passes: Collection[Operation] = (),
) -> Divided:
    """Divide the program of a step into loops over its microbatches.

    Args:
      program: the step, with marks at its gradients; see `rematscope.reporting.flat_step.FlatStep.jaxpr`.
      input_axes: the batch axis of each leaf of the arguments; None for one without.
      function: the name of the step.
      draws: operations that make random numbers of the batch; see `rematscope.reporting.microbatches`.
      axes: the batch axis of each other variable that has one. It may miss variables between the marks of a gradient.
      draws_in_passes: such operations between the marks of a gradient, unless they read the number of the microbatch.

    Raises:
      PlanError: if the step takes no gradient, or takes it inside a loop or a `shard_map`, or if it uses mutable
        arrays.
    """
    if has_mutable_arrays(program):
        raise PlanError(
            f"{function} uses mutable arrays (jax.new_ref), which microbatches= does not support. Pass their values as "
            "arguments, and return the new ones."
        )
    if not gradient_marks(program):
        raise PlanError(
            f"{function} takes no gradient outside loops and transformations, but microbatches= needs one at the top "
            "level of the step. Pass the step that takes the gradient, or split the batch in the step itself, with "
            "jax.lax.scan."
        )
    inputs = [v for v, axis in zip(program.inputs[1:], input_axes, strict=True) if axis is not None]
    single = without_batch(program, [program.inputs[0], *inputs], {*draws, *draws_in_passes}, axes)
    if single == {mark.gradient for mark in _marks_of(program).values()}:
        raise PlanError(
            f"No gradient of {function} depends on its batch, so microbatches= does not lower its peak. If its code "
            "states the batch size as a number, take this number from the shape of an argument instead."
        )
    program = without_scale(program, single)
    try:
        once, loops = _Division(program, inputs, draws, draws_in_passes, axes, single).made()
    except NotDivided:
        raise PlanError(
            f"{function} computes a gradient between the forward and the backward pass of another one, which "
            "microbatches= does not support. Compute them one after the other."
        ) from None
    numbers = per_example(program, axes)
    marks = {op: mark for op, mark in _marks_of(program).items() if mark.gradient in numbers}
    of_examples = _passes_around(program, marks).keys()
    return Divided(program, once, loops, axes, of_examples)


def operations_before(values: Iterable[Any], operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations that the given values depend on, in order."""
    needed, found = set(values), list[Operation]()
    for operation in reversed(operations):
        if not needed.isdisjoint(operation.outvars):
            found.append(operation)
            needed.update(v for v in operation.invars if isinstance(v, Variable))
    return found[::-1]
