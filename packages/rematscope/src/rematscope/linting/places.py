"""Values that may deserve a name, before it is known what a name on them would spare."""

import dataclasses

from jax.extend import source_info_util
from jax.extend.core import JaxprEqn

from rematscope.ir import jax_internals
from rematscope.ir.cost import Cost, cost_of
from rematscope.ir.program import Equation, type_text
from rematscope.linting.dataflow import PRODUCTS, Values
from rematscope.linting.finding import Place

_NAME = "rematscope: place "


@dataclasses.dataclass
class Candidate:
    """A place that may deserve a name, in all layers that its line is run for.

    Attributes:
      place: the line and the type; bytes and savings are not known yet.
      eqns: where in the jaxpr the name would go.
      equations: what computes the values.
    """

    place: Place
    eqns: list[JaxprEqn] = dataclasses.field(default_factory=list)
    equations: list[Equation] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Use:
    """What a value is to an operation that reads it, or to the one that computes it."""

    what: str
    equation: Equation


def find_candidates(values: Values) -> dict[str, Candidate]:
    """A name for each place that may deserve one: around products and before softmaxes, else around all that costs."""
    found: dict[Equation | None, _Use] = {}  # None for what is given, and has no line of its own
    for each in values.equations:
        if each.primitive in PRODUCTS:
            found[each] = _Use("the result of a matrix product", each)
            for value in each.inputs:
                found.setdefault(values.origin(value), _Use("what goes into a matrix product", each))
        elif each.primitive == "exp" and (shifted := values.softmax_input(each)) is not None:
            found.setdefault(values.origin(shifted), _Use("what goes into a softmax", each))
    if not found:
        costly = [e for e in values.equations if not e.bodies and _takes_work(cost_of(e))]
        found = {e: _Use(f"the result of {e.primitive}", e) for e in costly}

    candidates: dict[tuple[object, ...], Candidate] = {}
    for equation, use in found.items():
        if equation is None or (eqn := _nameable(equation, use.equation)) is None:
            continue
        place = Place(use.what, equation.source, type_text(equation.outputs[0]))
        line = source_info_util.summarize(equation.eqn.source_info)
        alike = place, equation.primitive, line, *map(type_text, equation.inputs)
        candidate = candidates.setdefault(alike, Candidate(place))
        candidate.eqns.append(eqn)
        candidate.equations.append(equation)
    return {f"{_NAME}{i}": candidate for i, candidate in enumerate(candidates.values())}


def _takes_work(cost: Cost) -> bool:
    return bool(cost.flops or cost.transcendentals or cost.uncounted)


def _nameable(equation: Equation, reader: Equation) -> JaxprEqn | None:
    """Where in the jaxpr the result of an operation can be given a name; None if there is no such line."""
    rules = [eqn for eqn in equation.calls if jax_internals.is_custom_rule(eqn)]
    if not rules:
        return equation.eqn if len(equation.outputs) == len(equation.eqn.outvars) == 1 else None
    # Names in a custom rule do nothing: what it returns must be named outside.
    outer = rules[-1]
    return outer if len(outer.outvars) == 1 and not any(eqn is outer for eqn in reader.calls) else None
