"""The values that a user can name, so that a choice can be written into a model by hand.

The function is traced again with a name on every value that one of its source lines holds. This trace is the same
program except for the names, so it shows which value of the primal program each name belongs to.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import JaxprEqn, jaxpr_as_fun

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.ir.expression import Expression, expression_of
from rematscope.ir.program import Equation, Program, Value
from rematscope.linting.linted_function import source_of
from rematscope.scheduling.linearize import Linearized, linearize
from rematscope.scheduling.per_call import GradientCall
from rematscope.tracing.arguments import flattened
from rematscope.tracing.checkpoints import jaxpr_of, without_checkpoints


@dataclasses.dataclass(frozen=True, eq=False)
class Spot:
    """A place where a name can be written.

    Attributes:
      eqn: the equation that computes the value; the loop, if the value is an input of its iterations.
      which: the index of the value among the results, or among the inputs of an iteration.
      handed: whether it is an input of an iteration.
      expression: the expression of the source line.
      module: its module in JAX's name stack; else "".
    """

    eqn: JaxprEqn
    which: int
    handed: bool
    expression: Expression
    module: str

    @property
    def at(self) -> tuple[object, ...]:
        """The properties that spots of one expression in one line share."""
        return self.expression, self.which, self.handed


class Nameable:
    """A function whose values can be given names.

    Attributes:
      spots: where names can be written, in the order of the program.
    """

    def __init__(self, call: GradientCall):
        self._call = call
        plain = jaxpr_of(without_checkpoints(call.f), *call.args, **call.kwargs)
        self._jaxpr = jax_compat.map_equations(plain, lambda eqn, _: [eqn])  # no two equations are one object
        self.spots = tuple(_nameable_spots(self._jaxpr))

    def named(self, names: Mapping[Spot, str]) -> Callable[..., Any]:
        """Return the function with names, and without checkpoints."""
        of: dict[int, list[tuple[Spot, str]]] = {}
        for spot, name in names.items():
            of.setdefault(id(spot.eqn), []).append((spot, name))

        def change(eqn: JaxprEqn, old: JaxprEqn) -> list[JaxprEqn]:
            wanted = of.get(id(old), ())
            if handed := {spot.which: name for spot, name in wanted if spot.handed}:
                params = {k: _named_inputs(v, handed, eqn) if hasattr(v, "eqns") else v for k, v in eqn.params.items()}
                eqn = eqn.replace(params=params)
            made = [eqn]
            for spot, name in wanted:
                if not spot.handed:
                    made = [*jax_compat.with_name(made[0], name, spot.which), *made[1:]]
            return made

        def function(*args: Any, **kwargs: Any) -> Any:
            flat, leaves = flattened(self._call.f, args, kwargs)
            with jax_compat.assuming_gpu():
                tree = jax.tree.structure(jax.eval_shape(flat, *leaves))
            # Converted in each trace, because names have different equations with and without jax_remat3.
            run = jaxpr_as_fun(jax_compat.map_equations(self._jaxpr, change))
            return jax.tree.unflatten(tree, run(*leaves))

        function.__name__ = getattr(self._call.f, "__name__", "named")
        return function

    def spot_of(self, linearized: Linearized) -> dict[Value, Spot]:
        """Return the spot of each value of a primal program that can be named.

        A value is left out if a derivative reads it without the name, as that of `tanh` reads its own result: it would
        be recomputed although its named copy is saved.

        Raises:
          PlanError: if a trace with names is a different program.
        """
        spots = {f"{_GIVEN}{i}": spot for i, spot in enumerate(self.spots)}
        names = {spot: name for name, spot in spots.items()}
        named = linearize(self._call.trace(self.named(names)))
        stands_for: dict[Value, Value] = {}
        try:
            own = {there: here for here, there in _pair_values(linearized.primal, named.primal, stands_for)}
        except ValueError:
            raise PlanError(
                f"{linearized.trace.function} becomes a different program when names are added. Write names where "
                "lint(f, …).places suggests them, and let plan choose among them. The result's .function needs "
                "no names."
            ) from None
        found: dict[Value, Spot] = {}
        everywhere = (*named.primal.all_equations(), *named.backward.all_equations())
        read_unnamed = {v for e in everywhere if not _is_given(e) for v in e.inputs}
        for equation in filter(_is_given, named.primal.all_equations()):
            (source,) = equation.inputs
            value = own.get(stands_for.get(source, source))
            if value is not None and source not in read_unnamed:
                found.setdefault(value, spots[equation.params["name"]])
        return found


def _nameable_spots(jaxpr: Any, around: tuple[JaxprEqn, ...] = ()) -> Iterator[Spot]:
    """Yield the values that a line of the user holds, outside of branches and of loops in loops."""
    body = jax_compat.body_of(jaxpr)[0]
    returned = set[Any]()
    if not around or around[-1].primitive.name == "scan":
        returned = {v for v in body.outvars if not jax_compat.is_literal(v)}
    yield from _spots_of_level(body.eqns, around, returned)
    for eqn in body.eqns:
        inside = (*around, eqn)
        if not _is_closed(eqn) and sum(each.primitive.name == "scan" for each in inside) <= 1:
            for inner in jax_compat.bodies(eqn):
                yield from _nameable_spots(inner, inside)


def _spots_of_level(eqns: Sequence[JaxprEqn], around: tuple[JaxprEqn, ...], returned: set[Any]) -> Iterator[Spot]:
    """Yield the spots in the equations of one body, which returns some values."""
    readers: dict[Any, list[JaxprEqn]] = {}
    for eqn in eqns:
        for atom in eqn.invars:
            if not jax_compat.is_literal(atom):
                readers.setdefault(atom, []).append(eqn)
    is_in_loop = any(eqn.primitive.name == "scan" for eqn in around)
    for eqn in eqns:
        if (here := _expression_in(eqn, around)) is None:
            continue
        module = "/".join(scope for each in (*around, eqn) for scope in jax_compat.scopes(each))
        if eqn.primitive.name == "scan" and not is_in_loop:
            carries = jax_compat.scan_of(eqn).carries
            yield from (Spot(eqn, i, True, here, module) for i in range(carries))
        for i, result in enumerate(eqn.outvars):
            by = readers.get(result, ())
            if result in returned or any(_expression_in(e, around) != here for e in by):
                yield Spot(eqn, i, False, here, module)


def _expression_in(eqn: JaxprEqn, around: tuple[JaxprEqn, ...]) -> Expression | None:
    """Return the expression of the user's source line that an equation belongs to; None without one, or if a derivative
    that the function takes itself traced the equation.
    """
    if jax_compat.is_in_derivative(eqn, *around) or (source := source_of(eqn, around)) is None:
        return None
    return expression_of(eqn, source)


def _is_closed(eqn: JaxprEqn) -> bool:
    """Whether names inside an operation have no effect: in branches and in custom derivatives."""
    return eqn.primitive.name != "scan" and (jax_compat.is_custom_rule(eqn) or jax_compat.called_body(eqn) is None)


def _named_inputs(body: Any, names: Mapping[int, str], loop: JaxprEqn) -> Any:
    """Return a loop's body with names on the inputs of each iteration."""
    inner: Any = jax_compat.body_of(body)[0]
    handed, naming = list(inner.invars), []
    for which, name in names.items():
        place = jax_compat.scan_of(loop).consts + which
        naming.append(jax_compat.with_name(loop.replace(outvars=[handed[place]]), name)[1])
        handed[place] = naming[-1].invars[0]
    inner_named = inner.replace(invars=handed, eqns=[*naming, *inner.eqns])
    return inner_named if inner is body else body.replace(jaxpr=inner_named)


_GIVEN = "rematscope: "  # how names begin that are given to find out which values they reach


def _pair_values(here: Program, there: Program, stands_for: dict[Value, Value]) -> Iterator[tuple[Value, Value]]:
    """Yield the values of a program with those of the same program with names; names go to `stands_for`.

    Loops that return more values, since names are returned too, are compared by the values that their bodies compute.

    Raises:
      ValueError: if the programs differ.
    """

    def computing(program: Program) -> list[Equation]:
        return [e for e in program.equations if e.primitive != "optimization_barrier" and not _is_given(e)]

    yield from zip(here.inputs, there.inputs, strict=True)
    for equation in there.equations:
        if _is_given(equation):
            (source,) = equation.inputs
            stands_for[equation.outputs[0]] = stands_for.get(source, source)
    for one, other in zip(computing(here), computing(there), strict=True):
        if one.primitive != other.primitive:
            raise ValueError(f"{one.primitive} is not {other.primitive}")
        if one.primitive != "scan":
            yield from zip(one.outputs, other.outputs, strict=True)
            continue
        inside = dict(_pair_values(one.bodies[0], other.bodies[0], stands_for))
        yield from inside.items()
        yield from zip(one.outputs[: one.carries], other.outputs[: other.carries], strict=True)
        made = (stands_for.get(v, v) for v in other.bodies[0].outputs[other.carries :])
        stacks = dict(zip(made, other.outputs[other.carries :], strict=True))
        for part, stack in zip(one.bodies[0].outputs[one.carries :], one.outputs[one.carries :], strict=True):
            if inside.get(part) in stacks:
                yield stack, stacks[inside[part]]


def _is_given(equation: Equation) -> bool:
    return equation.primitive == "name" and equation.params["name"].startswith(_GIVEN)
