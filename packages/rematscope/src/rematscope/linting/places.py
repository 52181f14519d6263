"""Values that may be worth naming, before it is known how much recompute a name would avoid."""

import dataclasses

from jax.extend import source_info_util
from jax.extend.core import JaxprEqn

from rematscope import jax_compat
from rematscope.ir.cost import cost_of
from rematscope.ir.expression import frames_to_line
from rematscope.ir.primitives import MATMULS
from rematscope.ir.program import Equation, type_text
from rematscope.linting.dataflow import SAME_DATA, Values
from rematscope.linting.finding import NameSuggestion

_NAME = "rematscope: place "


@dataclasses.dataclass
class Candidate:
    """A place that may be worth a name, in all layers that run its line.

    Attributes:
      place: the line and the type; the bytes and the avoided recompute are not known yet.
      eqns: the equations of the jaxpr whose results would get the name.
      equations: the operations that compute the values.
    """

    place: NameSuggestion
    eqns: list[JaxprEqn] = dataclasses.field(default_factory=list)
    equations: list[Equation] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Use:
    """How an operation uses a value, or computes it."""

    what: str
    equation: Equation


def find_candidates(values: Values) -> dict[str, Candidate]:
    """Return names for places: around matmuls and before softmaxes; without any, around all operations with a cost."""
    found: dict[Equation | None, _Use] = {}  # None for arguments, which have no line
    for each in values.equations:
        if each.primitive in MATMULS:
            what = "a convolution" if each.primitive == "conv_general_dilated" else "a matmul"
            found[each] = _Use(f"the result of {what}", each)
            for value in each.inputs:
                found.setdefault(values.origin(value), _Use(f"the input of {what}", each))
        elif each.primitive == "exp" and (shifted := values.softmax_input(each)) is not None:
            found.setdefault(values.origin(shifted), _Use("the input of a softmax", each))
    if not found:
        costs = {e: cost_of(e) for e in values.equations if e.outputs and not e.bodies}
        costly = [e for e, cost in costs.items() if cost.flops or cost.transcendentals or cost.uncounted]
        found = {e: _Use(f"the result of {e.primitive}", e) for e in costly}

    # For each operation whose result would get a name: the operation that uses the value, and the place.
    uses: dict[Equation, tuple[Equation, NameSuggestion]] = {}
    for equation, use in found.items():
        if equation is None or jax_compat.is_in_derivative(equation.eqn, *equation.calls):
            continue  # the lines of a function that is differentiated inside also compute derivatives, without names
        handed = _handed_over(equation, values)
        at = handed or equation
        returned = handed is not None and at.source is not None and at.source.caller is not None
        what = "the result of a library call" if returned else use.what
        instead = "" if handed else _alternative_text(equation)
        place = NameSuggestion(what, at.source, type_text(at.outputs[0]), alternative=instead)
        uses.setdefault(at, (use.equation, place))

    candidates: dict[tuple[object, ...], Candidate] = {}
    in_layers: dict[tuple[object, ...], Candidate] = {}
    for equation, (reader, place) in uses.items():
        if (eqn := _nameable_equation(equation, reader)) is None:
            continue
        line = source_info_util.summarize(equation.eqn.source_info)
        alike = place, equation.primitive, line, *map(type_text, equation.inputs)
        candidate = candidates.setdefault(alike, Candidate(place))
        candidate.eqns.append(eqn)
        candidate.equations.append(equation)
        in_layers.setdefault(_in_any_layer(equation), candidate)
    named = {each.primitive for each in uses}
    for equation in values.equations:  # of layers that use the value in another way, such as the last layer
        if equation in uses or equation.primitive not in named:
            continue
        same = in_layers.get(_in_any_layer(equation))
        if same is not None and (eqn := _nameable_equation(equation)) is not None:
            same.eqns.append(eqn)
            same.equations.append(equation)
    return {f"{_NAME}{i}": candidate for i, candidate in enumerate(candidates.values())}


def _in_any_layer(equation: Equation) -> tuple[object, ...]:
    """Return the properties that an operation has in all layers that run its line."""
    eqns = equation.eqn, *equation.calls
    if equation.source is None or not (frames := frames_to_line(equation.source, *eqns)):
        return (equation,)
    return equation.primitive, frames, *map(type_text, equation.inputs)


def _handed_over(equation: Equation, values: Values) -> Equation | None:
    """Return the operation whose result the user's code receives: this one, or one whose result a library returns.

    None if the library computes something else from it, or several values.
    """
    followed = {equation}
    while not _has_user_line(equation, values):
        readers = values.readers(equation.outputs[0])
        # In a loop, the only reader may be an operation that was already followed: the next iteration's.
        if len(readers) != 1 or readers[0].primitive not in _AS_GOOD or readers[0] in followed:
            return None
        (equation,) = readers
        followed.add(equation)
    return equation


# Operations whose result is as good to save as their operand, such as a matmul's result plus a bias.
_AS_GOOD = SAME_DATA | {"add", "sub", "mul", "neg"}


def _has_user_line(equation: Equation, values: Values) -> bool:
    """Return whether a line of the user's code computes a value, or calls an operation that reads it."""
    if (source := equation.source) is None or source.caller is None:
        return True
    (value, *_) = equation.outputs
    callers = (reader.source and reader.source.caller for reader in values.readers(value))
    return values.is_returned(value) or any(caller != source.caller for caller in callers)


def _alternative_text(equation: Equation) -> str:
    """Return what saves a value that cannot be named."""
    if equation.primitive != "dot_general":
        # Modules can be subclassed; their libraries, such as Flax and Haiku, record the module's path.
        if equation.module:
            return "a subclass of the module that adds a name"
        # With remat3, JAX asks policies only about names, matmuls and convolutions.
        if jax_compat.remat3():
            return "a copy of the library's function that adds a name"
        return "a policy of your own that returns True for it"
    _, (batch, _) = equation.params["dimension_numbers"]
    policy = "dots_saveable" if batch else "dots_with_no_batch_dims_saveable"
    return f"jax.checkpoint_policies.{policy}"


def _nameable_equation(equation: Equation, reader: Equation | None = None) -> JaxprEqn | None:
    """Return the equation of the jaxpr whose result can be named for an operation and the operation that reads it; None
    if there is none.
    """
    rules = [eqn for eqn in equation.calls if jax_compat.is_custom_rule(eqn)]
    if not rules:
        return equation.eqn if len(equation.outputs) == len(equation.eqn.outvars) == 1 else None
    # Names in a custom rule have no effect: its results must be named outside of it.
    outer = rules[-1]
    is_read_inside = reader is not None and any(eqn is outer for eqn in reader.calls)
    return outer if len(outer.outvars) == 1 and not is_read_inside else None
