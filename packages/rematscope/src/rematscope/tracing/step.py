"""Training steps: functions that take gradients themselves, analyzed as written."""

import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from jax.extend.core import ClosedJaxpr

from rematscope import jax_compat
from rematscope.ir.dependence import mark_dependence, union_of_marks
from rematscope.ir.inline import without_dead_code
from rematscope.ir.primitives import VIEWS
from rematscope.ir.program import BOOKKEEPING, Equation, Literal, Program, Value, free_values
from rematscope.jax_compat.vjp_hook import Mark


@dataclasses.dataclass(frozen=True, eq=False)
class Gradient:
    """A gradient that a training step takes.

    Attributes:
      differentiated: the values that the gradient is taken with respect to, as the loss takes them.
      values: the outputs of the differentiated function, such as the loss.
      cotangents: the inputs of the pullback; for a loss, the value 1.0.
      gradients: the outputs of the pullback, one for each of `differentiated`.
    """

    differentiated: tuple[Value, ...]
    values: tuple[Value, ...]
    cotangents: tuple[Value, ...]
    gradients: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Halves:
    """The two passes of a gradient inside a program.

    Attributes:
      body: the program that contains both passes: that of the step, or of a loop in the step.
      forward, backward: the programs of the passes, with equations of `body`.
      values: the outputs of the differentiated function that the rest of the step uses.
      crossing: the inputs of the backward pass other than the cotangents.
      times: how many times the passes run: once per microbatch.
    """

    gradient: Gradient
    body: Program
    forward: Program
    backward: Program
    values: tuple[Value, ...]
    crossing: tuple[Value, ...]
    times: int


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A training step, which takes gradients itself, as one program.

    Attributes:
      jaxpr: the jaxpr of the step as a function of the leaves of its arguments, with marks at its gradients.
      program: the program of the whole step, on one device of a mesh.
      gradients: the gradients that the step takes, in order. Of nested gradients, only the outer one.
      shown: the gradient whose passes `Trace` shows.
      parameters: the arguments that a gradient is taken with respect to, also after a cast or a reshape.
      state: the arguments that the step returns a new version of, such as the moments of an optimizer.
      donated: the arguments whose buffers the step may reuse, from `donate_argnums` of a `jax.jit` around the step.
      aliased: maps each result that reuses the buffer of a donated argument to this argument.
      times: how many times the passes in `Trace` run: once per microbatch.
    """

    jaxpr: ClosedJaxpr
    program: Program
    gradients: tuple[Gradient, ...]
    shown: Gradient
    parameters: frozenset[Value]
    state: frozenset[Value]
    donated: frozenset[Value]
    aliased: dict[Value, Value]
    times: int


def gradients_of(marks: Iterable[tuple[Mark, Value]]) -> list[Gradient]:
    """Return the gradients that the marks describe, in the order of their backward passes."""
    found: list[tuple[int, dict[str, list[Value]]]] = []
    given: dict[tuple[int, str], list[Value]] = {}
    before: Mark | None = None
    for mark, value in marks:
        if mark.what in ("differentiated", "value"):
            if mark != before:
                given[mark] = []
            given[mark].append(value)
        elif mark.what == "cotangent" and mark == before:
            found[-1][1]["cotangent"].append(value)
        elif mark.what == "cotangent":
            kinds = {what: given.get(Mark(mark.gradient, what), []) for what in ("differentiated", "value")}
            found.append((mark.gradient, {**kinds, "cotangent": [value], "gradient": []}))
        else:
            kinds = next(kinds for number, kinds in reversed(found) if number == mark.gradient)
            kinds["gradient"].append(value)
        before = mark
    return [Gradient(*map(tuple, kinds.values())) for _, kinds in found]


def halves_of(program: Program, gradients: Sequence[Gradient]) -> list[Halves]:
    """Return the passes of each gradient in a program, except for unused gradients."""
    found = []
    end: dict[Program, int] = {}  # the end of the last gradient in each program
    for gradient in gradients:
        for body, place, times in reversed(list(_cotangent_places(program, gradient))):
            halves = _split_at_gradient(program, body, place, gradient, end.get(body, 0), times)
            end[body] = place + len(halves.backward.equations)
            # A loss inside one checkpoint may have no forward pass except the values that it is differentiated with
            # respect to.
            own = {v for equation in body.equations for v in equation.outputs}
            computes = any(equation.primitive not in BOOKKEEPING for equation in halves.forward.equations)
            if computes or not own.isdisjoint(gradient.differentiated):
                found.append(halves)
                break  # otherwise, the forward pass is outside of the loop that calls the pullback
    return found


def _cotangent_places(program: Program, gradient: Gradient, times: int = 1) -> Iterator[tuple[Program, int, int]]:
    """Yield the programs that contain the gradient's cotangent, outermost first, with its place and the number of runs
    of each."""
    for place, equation in enumerate(program.equations):
        if not any(e.primitive == "name" and e.outputs[0] in gradient.cotangents for e in equation.nested()):
            continue  # no cotangent of the gradient enters here
        yield program, place, times
        for body in equation.bodies:
            yield from _cotangent_places(body, gradient, times * equation.length)
        return


def _split_at_gradient(whole: Program, body: Program, place: int, gradient: Gradient, start: int, times: int) -> Halves:
    def read_in(equations: list[Equation], outputs: Sequence[Value] = ()) -> list[Value]:
        return free_values(Program((), equations, tuple(outputs), {}))

    equations = body.equations
    made = {v: i for i, equation in enumerate(equations) for v in equation.defines}
    ends = [made[v] for v in gradient.gradients if v in made]
    stop = max([place, *ends]) + 1
    marks = {v for v in gradient.cotangents if v in made}
    backward = [e for e in equations[place:stop] if marks.isdisjoint(e.defines)]
    crossing = tuple(v for v in read_in(backward, gradient.gradients) if v not in marks and v not in whole.constants)
    values = tuple(v for v in gradient.values if start <= made.get(v, -1) < place)
    forward = without_dead_code(equations[start:place], [*values, *crossing])
    needed = dict.fromkeys(v for v in read_in(forward, (*values, *crossing)) if v not in whole.constants)
    inputs = dict.fromkeys([*(v for v in (*whole.inputs, *body.inputs) if v in needed), *needed])

    def constants(equations: list[Equation]) -> dict[Value, object]:
        read = set(read_in(equations))
        return {v: array for v, array in whole.constants.items() if v in read}

    first = Program(tuple(inputs), forward, (*values, *crossing), constants(forward))
    second = Program((*crossing, *gradient.cotangents), backward, gradient.gradients, constants(backward))
    return Halves(gradient, body, first, second, values, crossing, times)


def step_of(
    jaxpr: ClosedJaxpr, program: Program, halves: Sequence[Halves], donated: Collection[Value], shown: Halves
) -> Step:
    """Return the training step of a program.

    Args:
      jaxpr, program: the jaxpr of the step, and its program.
      halves: the passes of its gradients.
      donated: the arguments whose buffers it may reuse.
      shown: the passes that `Trace` shows.
    """
    source = _source_finder(program)
    gradients = [each.gradient for each in halves]
    parameters = {source(v) for gradient in gradients for v in gradient.differentiated} & set(program.inputs)
    marks = {value: 1 << i for i, value in enumerate(program.inputs)}
    mark_dependence(program, marks)
    losses = union_of_marks(marks, (v for each in halves for v in each.forward.inputs))
    returned = union_of_marks(marks, program.outputs)
    state = {value for i, value in enumerate(program.inputs) if (returned & ~losses) >> i & 1}
    return Step(
        jaxpr,
        program,
        tuple(gradients),
        shown.gradient,
        frozenset(parameters),
        frozenset(state - parameters),
        frozenset(donated),
        _aliased_results(program, donated),
        shown.times,
    )


def _aliased_results(program: Program, donated: Iterable[Value]) -> dict[Value, Value]:
    """Map results to the donated arguments whose buffers they reuse: in order, per shape and dtype, as in JAX."""
    free: dict[tuple[object, object], deque[Value]] = {}
    for value in dict.fromkeys(donated):
        free.setdefault((value.shape, value.dtype), deque()).append(value)
    pairs: dict[Value, Value] = {}
    for value in dict.fromkeys(program.outputs):
        if not isinstance(value, Literal) and (alike := free.get((value.shape, value.dtype))):
            pairs[value] = alike.popleft()
    return pairs


def with_donated(step: Step, more: Collection[Value]) -> Step:
    """Return a step that also donates more of its arguments."""
    donated = [v for v in step.program.inputs if v in step.donated or v in more]
    aliased = _aliased_results(step.program, donated)
    return dataclasses.replace(step, donated=frozenset(donated), aliased=aliased)


_SAME_DATA = VIEWS | {"convert_element_type", "copy", "sharding_constraint", "transpose"}


def _source_finder(program: Program) -> Callable[[Value], Value]:
    """Return a function that maps a value to the value of which it is a cast, a reshape or a carry."""
    origin: dict[Value, Value] = {}
    for equation in program.all_equations():
        if equation.primitive in _SAME_DATA:
            origin[equation.outputs[0]] = equation.inputs[0]
        if equation.primitive in ("scan", "while", "shard_map"):
            for body in equation.bodies:
                origin.update(zip(body.inputs, equation.inputs[equation.first_carry :], strict=False))

    def source(value: Value) -> Value:
        while value in origin:
            value = origin[value]
        return value

    return source


def is_step(program: Program, gradients: Sequence[Gradient]) -> bool:
    """Return whether a program returns values with the shapes of its differentiated values, as a step does, unlike a
    loss.

    A gradient inside a checkpoint is not that of a step, because a checkpoint exists to be differentiated.
    """
    returned = {v.shape for v in program.outputs}
    there = {v.placement.shape for v in program.outputs}  # inside a shard_map, it is with respect to a device's shard
    hidden = _in_checkpoints(program)
    return any(
        v.shape and (v.shape in returned or v.placement.shape in there)
        for gradient in gradients
        if hidden.isdisjoint(gradient.cotangents)
        for v in gradient.differentiated
    )


def _in_checkpoints(program: Program) -> set[Value]:
    """Return the marked values inside checkpoints, including cotangents."""
    names = (equation for equation in program.all_equations() if equation.primitive == "name")
    return {v for equation in names if any(map(jax_compat.is_checkpoint, equation.calls)) for v in equation.outputs}
