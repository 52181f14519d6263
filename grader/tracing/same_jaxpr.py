"""Decide whether two traces of a function are the same program, up to the names of variables.

If two traces of an answer differ, a trace proves nothing about the next call.
"""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from rematscope.extend import AnyJaxpr, body_of, is_literal


class Trace:
    """A traced function, with the origin of each of its values.

    Attributes:
      results: the variables and literals that it returns.
      inputs: maps the variables of its arguments to their positions.
    """

    def __init__(self, jaxpr: AnyJaxpr):
        self._body, constants, values = body_of(jaxpr)
        self.results: list[Any] = list(self._body.outvars)
        self.inputs = {variable: place for place, variable in enumerate(self._body.invars)}
        self._constants = dict(zip(constants, values, strict=True))
        self._made = {made: (eqn, place) for eqn in self._body.eqns for place, made in enumerate(eqn.outvars)}
        self._dependent: set[Any] | None = None

    def origin(self, atom: Any) -> tuple[Any, int]:
        """Return the equation that computes a value, and the value's position in its results. For an argument, return
        None and the argument's position."""
        return (None, self.inputs[atom]) if atom in self.inputs else self._made[atom]

    def is_constant(self, atom: Any) -> bool:
        """Return whether a value is a literal or an array that the function closes over."""
        return is_literal(atom) or atom in self._constants

    def constant(self, atom: Any) -> Any:
        """Return the literal's value or the array."""
        return atom.val if is_literal(atom) else self._constants[atom]

    def depends_on_arguments(self, atom: Any) -> bool:
        """Return whether a value is computed from any argument."""
        if self._dependent is None:
            self._dependent = set(self.inputs)
            for eqn in self._body.eqns:
                if not self._dependent.isdisjoint(atom for atom in eqn.invars if not is_literal(atom)):
                    self._dependent.update(eqn.outvars)
        return not is_literal(atom) and atom in self._dependent


def same_programs(
    one: Trace, other: Trace, results: Iterable[tuple[Any, Any]], alike: dict[tuple[int, int], bool] | None = None
) -> bool:
    """Return whether two traced functions compute pairs of values with the same operations from the same arguments.

    Names of operations and functions among their parameters (policies, custom rules) are not compared. The resulting
    programs are compared instead.

    Args:
      one: the first traced function.
      other: the second traced function. If it was traced inside the first one, it may use a value that the first one
        computed without its arguments, such as a table that is computed once.
      results: pairs of a value of the first function and a value of the second.
      alike: the results of earlier comparisons of nested programs, by their identities. A program that is used in many
        places, for example by nested checkpoints, is compared only once.
    """
    alike = {} if alike is None else alike
    left, seen = list(results), set()
    while left:
        a, b = left.pop()
        if one.is_constant(a) or other.is_constant(b):
            if not _same_constants(one, other, a, b):
                return False
            continue
        if (a, b) in seen:
            continue
        seen.add((a, b))
        (made_a, place_a), (made_b, place_b) = one.origin(a), other.origin(b)
        if place_a != place_b or (made_a is None) != (made_b is None):
            return False
        if made_a is not None:
            if made_a.primitive is not made_b.primitive or len(made_a.invars) != len(made_b.invars):
                return False
            if not _same_parameters(made_a.params, made_b.params, alike):
                return False
            left += zip(made_a.invars, made_b.invars, strict=True)
    return True


def _same_constants(one: Trace, other: Trace, a: Any, b: Any) -> bool:
    if not other.is_constant(b):
        return False
    value = other.constant(b)
    if isinstance(value, jax.core.Tracer):
        return not one.depends_on_arguments(a) and a.aval.shape == value.shape and a.aval.dtype == value.dtype
    return one.is_constant(a) and _same_arrays(one.constant(a), value)


def _same_arrays(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if jax.dtypes.issubdtype(getattr(a, "dtype", None), jax.dtypes.extended):  # PRNG keys
        return jax.dtypes.issubdtype(getattr(b, "dtype", None), jax.dtypes.extended)
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _same_parameters(a: dict[str, Any], b: dict[str, Any], alike: dict[tuple[int, int], bool]) -> bool:
    return a.keys() == b.keys() and all(key == "name" or _same_values(a[key], b[key], alike) for key in a)


def _same_values(a: Any, b: Any, alike: dict[tuple[int, int], bool]) -> bool:
    if a is b:
        return True
    if hasattr(a, "eqns") or hasattr(a, "jaxpr"):  # a jaxpr, or an object that contains one
        if type(a) is not type(b):
            return False
        if not hasattr(a, "eqns"):
            return _same_values(a.jaxpr, b.jaxpr, alike)
        if (id(a), id(b)) not in alike:
            one, other = Trace(a), Trace(b)
            alike[id(a), id(b)] = (
                len(one.results) == len(other.results)
                and len(one.inputs) == len(other.inputs)
                and same_programs(one, other, zip(one.results, other.results, strict=True), alike)
            )
        return alike[id(a), id(b)]
    if isinstance(a, tuple | list):
        return (
            type(a) is type(b)
            and len(a) == len(b)
            and all(_same_values(x, y, alike) for x, y in zip(a, b, strict=True))
        )
    if isinstance(a, np.ndarray | jax.Array):
        return isinstance(b, np.ndarray | jax.Array) and _same_arrays(a, b)
    if isinstance(a, _PLAIN):
        return type(a) is type(b) and (a == b or a != a)
    # JAX's own objects, most of which equal only themselves, and policies, whose class may be redefined in each call.
    return type(a) is type(b) or (callable(a) and callable(b))


_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)
