"""Convert a jaxpr to a `Program`, with calls inlined and unused operations removed."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from rematscope import jax_compat
from rematscope.errors import TraceError
from rematscope.ir import collectives
from rematscope.ir.placement import give_shardings
from rematscope.ir.program import Equation, Literal, Program, Value, values_of_program
from rematscope.ir.source import lines_of
from rematscope.ir.trip_counts import trip_count
from rematscope.jax_compat import AnyJaxpr
from rematscope.jax_compat.library_primitives import trace_implementation
from rematscope.jax_compat.vjp_hook import Mark


@dataclasses.dataclass(frozen=True)
class ForwardRule:
    """The computation of the results of a `custom_vjp` function, or of an operation, if it is differentiated.

    Attributes:
      program: the computation, on the same operands.
      outputs: pairs of an output of the program and the result that it equals.
    """

    program: Program
    outputs: tuple[tuple[Value, Value], ...]


class Inliner:
    """Converts jaxprs to programs. Both passes use the same object, so that a shared constant is one `Value`."""

    def __init__(self) -> None:
        self._constants: dict[int, tuple[Value, Any]] = {}  # by the id of the array, which is kept so that it stays
        self._equal_constants: dict[Hashable, Value] = {}
        self._calls: tuple[JaxprEqn, ...] = ()  # the calls that are being inlined, innermost first
        self.meshes: list[Any] = []  # the meshes of the shardings that a `jit` specifies
        self.marks: list[tuple[Mark, Value]] = []  # the marks of gradients, in program order
        self.has_remat3_checkpoint = False
        self._in_rule = False
        self.rules: dict[Value, ForwardRule] = {}  # by the outputs of the differentiated functions
        self._axes: dict[str, int] = {}  # the mesh axes of the enclosing shard_maps

    def program(self, jaxpr: AnyJaxpr, inputs: Sequence[Value]) -> Program:
        """Convert a jaxpr whose operands are `inputs` to a program. Values and literals are passed through unchanged.

        Args:
          jaxpr: open or closed. Its constants become constants of the program.
        """
        equations: list[Equation] = []
        outputs = self._inline_jaxpr(jaxpr, inputs, equations)
        program = Program(tuple(inputs), without_dead_code(equations, outputs), tuple(outputs))
        used = values_of_program(program)
        program.constants = {v: array for v, array in self._constants.values() if v in used}
        return program

    def whole(self, jaxpr: AnyJaxpr) -> Program:
        """Convert a jaxpr to a program with inputs of its own."""
        return self.program(jaxpr, [Value(v.aval) for v in jax_compat.body_of(jaxpr)[0].invars])

    def _constant_value(self, array: Any) -> Value:
        if id(array) not in self._constants:
            # A function that converts an array, as in `w.astype(x.dtype)`, makes a new one whenever it runs.
            value = self._equal_constants.setdefault(_constant_key(array), Value(jax.typeof(array)))
            self._constants[id(array)] = value, array
        return self._constants[id(array)][0]

    @contextlib.contextmanager
    def _inside_call(self, eqn: JaxprEqn) -> Iterator[None]:
        outer, self._calls = self._calls, (eqn, *self._calls)
        yield
        self._calls = outer

    def _inline_jaxpr(self, jaxpr: AnyJaxpr, operands: Sequence[Value], equations: list[Equation]) -> list[Value]:
        jaxpr, constvars, consts = jax_compat.body_of(jaxpr)
        env: dict[Any, Value] = dict(zip(constvars, map(self._constant_value, consts), strict=True))
        env.update(zip(jaxpr.invars, operands, strict=True))

        def read(atom: Any) -> Value:  # a variable or a literal of a jaxpr
            return Literal(atom.aval, jax_compat.literal_value(atom)) if jax_compat.is_literal(atom) else env[atom]

        for eqn in jaxpr.eqns:
            outputs = self._add_equation(eqn, [read(a) for a in eqn.invars], equations)
            env.update(zip(eqn.outvars, outputs, strict=True))
        return [read(a) for a in jaxpr.outvars]

    def _add_equation(self, eqn: JaxprEqn, inputs: list[Value], equations: list[Equation]) -> Sequence[Value]:
        """Append the operations of `eqn` to `equations`, and return its outputs."""
        self.has_remat3_checkpoint |= jax_compat.shows_remat3(eqn)
        if (body := jax_compat.called_body(eqn) or trace_implementation(eqn)) is not None:
            crossing = (inputs[i] for i in jax_compat.barrier_operands(eqn))
            if fenced := tuple(v for v in crossing if not isinstance(v, Literal)):
                equations.append(Equation("optimization_barrier", fenced, fenced, {}, eqn))
            with self._inside_call(eqn):
                results = self._inline_jaxpr(body, inputs, equations)
            self._add_rule(eqn, inputs, results)
            for values, shardings in zip((inputs, results), jax_compat.jit_shardings(eqn), strict=True):
                self.meshes += give_shardings(values, shardings)
            return results
        if jax_compat.passes_first_operand(eqn):
            return inputs[:1]
        primitive = eqn.primitive.name
        if primitive == "reduce_precision" and _keeps_precision(eqn):
            return inputs  # jax.checkpoint marks saved values with a rounding to their own precision
        if primitive == "optimization_barrier":
            fenced = tuple(v for v in inputs if not isinstance(v, Literal))
            equations.append(Equation(primitive, fenced, fenced, {}, eqn))
            return inputs

        outputs = tuple(Value(v.aval) for v in eqn.outvars)
        if (name := jax_compat.checkpoint_name(eqn)) is not None:
            if (mark := Mark.read(name)) is not None:
                value = outputs[0] if mark.what == "cotangent" else inputs[0]
                self.marks.append((mark, value))
                if value is inputs[0]:
                    return inputs
            equation = Equation("name", tuple(inputs), outputs, {"name": name}, eqn)
        elif primitive == "scan":
            equation = self._scan_equation(eqn, inputs, outputs)
        elif primitive == "while":
            equation = self._while_equation(eqn, inputs, outputs)
        elif primitive == "shard_map":
            equation = self._shard_map(eqn, inputs, outputs)
        elif primitive == "cond":
            bodies = tuple(self._body_program(eqn, branch, inputs[1:], ()) for branch in jax_compat.branches_of(eqn))
            equation = Equation(primitive, tuple(inputs), outputs, eqn.params, eqn, bodies)
        else:
            equation = Equation(primitive, tuple(inputs), outputs, eqn.params, eqn)
            equation.devices = collectives.devices_per_group(primitive, eqn.params, self._axes)
        equation.calls = self._calls
        equations.append(equation)
        self._add_rule(eqn, inputs, outputs)
        return outputs

    def _add_rule(self, eqn: JaxprEqn, inputs: list[Value], results: Sequence[Value]) -> None:
        """Record how the results are computed if `eqn` is differentiated, because remat3 leaves the forward pass as it
        is."""
        if self._in_rule or not jax_compat.remat3():
            return
        try:
            rule = jax_compat.forward_rule(eqn)
        except Exception as error:  # whatever the rule raises
            raise TraceError(
                f"Under jax_remat3, rematscope traces the forward rule of {jax_compat.primitive_name(eqn)} in "
                f"{lines_of([eqn.source_info])} as if all floating-point operands were differentiated, and the rule "
                f"does not support this ({type(error).__name__}). Trace the function without jax_remat3."
            ) from error
        if rule is None:
            return
        self._in_rule = True
        equations: list[Equation] = []
        outputs = self._inline_jaxpr(rule, inputs, equations)[: len(results)]
        self._in_rule = False
        pairs = [pair for pair in zip(outputs, results, strict=True) if not isinstance(pair[1], Literal)]
        made = ForwardRule(Program(tuple(inputs), equations, tuple(outputs)), tuple(pairs))
        self.rules.update((result, made) for _, result in pairs)

    def _scan_equation(self, eqn: JaxprEqn, inputs: list[Value], outputs: tuple[Value, ...]) -> Equation:
        scan = jax_compat.scan_of(eqn)
        own = [Value(v.aval) for v in jax_compat.body_of(scan.body)[0].invars[scan.consts :]]
        return Equation(
            "scan",
            tuple(inputs),
            outputs,
            eqn.params,
            eqn,
            bodies=(self._body_program(eqn, scan.body, [*inputs[: scan.consts], *own], own),),
            length=scan.length,
            reverse=scan.reverse,
            first_carry=scan.consts,
            carries=scan.carries,
        )

    def _while_equation(self, eqn: JaxprEqn, inputs: list[Value], outputs: tuple[Value, ...]) -> Equation:
        loop = jax_compat.while_of(eqn)
        first = loop.tested + loop.kept
        carry = inputs[first:]

        def part(jaxpr: AnyJaxpr, captured: list[Value]) -> Program:
            own = [Value(v.aval) for v in carry]
            return self._body_program(eqn, jaxpr, [*captured, *own], own)

        bodies = part(loop.condition, inputs[: loop.tested]), part(loop.body, inputs[loop.tested : first])
        length = trip_count(*bodies, carry)
        return Equation(
            "while",
            tuple(inputs),
            outputs,
            eqn.params,
            eqn,
            bodies,
            length=1 if length is None else length,
            counted=length is not None,
            first_carry=first,
            carries=len(carry),
        )

    def _shard_map(self, eqn: JaxprEqn, inputs: list[Value], outputs: tuple[Value, ...]) -> Equation:
        mapped = jax_compat.shard_map_of(eqn)
        own = [Value(v.aval) for v in jax_compat.body_of(mapped.body)[0].invars]
        around, self._axes = self._axes, {**self._axes, **mapped.axes}
        body = self._body_program(eqn, mapped.body, own, own)
        self._axes = around
        params = mapped._asdict()
        del params["body"]
        return Equation("shard_map", tuple(inputs), outputs, params, eqn, bodies=(body,))

    def _body_program(self, eqn: JaxprEqn, jaxpr: AnyJaxpr, operands: Sequence[Value], own: Sequence[Value]) -> Program:
        """Return the body of the loop or branch `eqn`, whose inputs are `own`. It reads all other values from
        outside."""
        equations: list[Equation] = []
        with self._inside_call(eqn):
            outputs = self._inline_jaxpr(jaxpr, operands, equations)
        return Program(tuple(own), without_dead_code(equations, outputs), tuple(outputs))


def _constant_key(array: Any) -> Hashable:
    """Return a key that is the same for equal NumPy arrays. JAX's arrays may be on other devices: only `is` counts."""
    if not isinstance(array, np.ndarray):
        return id(array)
    return jax.typeof(array), hashlib.blake2b(array.tobytes()).digest()


_FINFO: Callable[[Any], Any] = jnp.finfo  # it has no types


def _keeps_precision(eqn: JaxprEqn) -> bool:
    operand: Any = eqn.invars[0].aval
    info = _FINFO(operand.dtype)
    return bool(eqn.params["exponent_bits"] >= info.nexp and eqn.params["mantissa_bits"] >= info.nmant)


def without_dead_code(equations: Sequence[Equation], outputs: Sequence[Value]) -> list[Equation]:
    """Remove unused operations, as XLA does. Keep side effects, and trim barriers to the values that are read later."""
    needed = set(outputs)
    live = []
    for equation in reversed(equations):
        if equation.primitive == "optimization_barrier":
            fenced = tuple(v for v in equation.inputs if v in needed)
            if fenced:
                live.append(dataclasses.replace(equation, inputs=fenced, outputs=fenced))
        elif jax_compat.effects_of(equation.eqn) or not needed.isdisjoint(equation.outputs):
            if equation.bodies:
                equation = _without_unused(equation, needed)
            live.append(equation)
            needed.update(equation.inputs)
            # Only the body reads its constants.
            for body in equation.bodies:
                needed |= values_of_program(body)
    return live[::-1]


def _without_unused(equation: Equation, needed: set[Value]) -> Equation:
    """Remove the unused results, operands and operations of a loop or a branch.

    This includes a loop's carry that only its own next iteration reads, which XLA removes from the loop's state.
    """
    first, carries = equation.first_carry, equation.carries
    is_loop = equation.primitive in ("scan", "while")
    kept = {i for i, v in enumerate(equation.outputs) if v in needed}
    bodies = _bodies_computing(equation, kept)
    carried = [pair for body in equation.bodies for pair in enumerate(body.inputs[:carries])]
    read = _values_of(bodies)
    while more := {i for i, value in carried if value in read} - kept:
        kept |= more
        bodies = _bodies_computing(equation, kept)
        read = _values_of(bodies)
    stays = sorted(kept)
    params = equation.params
    if equation.primitive == "shard_map":
        params = {**params, "out_specs": tuple(params["out_specs"][i] for i in stays)}
        return dataclasses.replace(
            equation, outputs=tuple(equation.outputs[i] for i in stays), bodies=tuple(bodies), params=params
        )
    around, given = equation.inputs[:first], equation.inputs[first:]
    if is_loop:  # a body's inputs are the carries, then the slices of arrays
        slices = range(carries, len(given))
        own = [*(i for i in stays if i < carries), *(i for i in slices if equation.bodies[-1].inputs[i] in read)]
        bodies = [dataclasses.replace(b, inputs=tuple(b.inputs[i] for i in own)) for b in bodies]
        around, given = tuple(v for v in around if v in read), tuple(given[i] for i in own)
    else:  # the first operand selects the branch
        given = (*given[:1], *(v for v in given[1:] if v in read))
    return dataclasses.replace(
        equation,
        inputs=(*around, *given),
        outputs=tuple(equation.outputs[i] for i in stays),
        bodies=tuple(bodies),
        first_carry=len(around),
        carries=sum(i < carries for i in stays),
    )


def _bodies_computing(equation: Equation, kept: set[int]) -> list[Program]:
    """Return the bodies of a loop or a branch, reduced to these results. A while loop's condition has one result."""
    bodies = []
    for place, body in enumerate(equation.bodies):
        is_test = equation.primitive == "while" and place == 0
        outputs = body.outputs if is_test else tuple(body.outputs[i] for i in sorted(kept))
        bodies.append(dataclasses.replace(body, equations=without_dead_code(body.equations, outputs), outputs=outputs))
    return bodies


def _values_of(bodies: list[Program]) -> set[Value]:
    return set[Value]().union(*map(values_of_program, bodies))
