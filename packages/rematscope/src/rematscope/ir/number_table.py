"""The table of value numbers, which maps keys and values to numbers."""

import contextlib
import dataclasses
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from rematscope import jax_compat
from rematscope.ir.program import Equation, Literal, Value

# In these a and b can change places: IEEE 754 rounds a + b and b + a alike. XLA's maximum of 0 and -0 is the first one.
_COMMUTES = frozenset({"add", "add_any", "mul", "and", "or", "xor", "eq", "ne"})


class NumberTable:
    """Numbers by key and by value. The same key always has the same number, and no two keys share one."""

    def __init__(self) -> None:
        self._of_key: dict[Hashable, int] = {}
        self._of_value: dict[Value, int] = {}
        self._same: dict[int, int] = {}  # maps a number to the current number of its key
        self._params: dict[Equation, Hashable] = {}  # cached because a loop's body is numbered many times
        # Maps the result of a `cond` to the number of its predicate, and to the result's number in each branch. So the
        # result of a branch is known in a branch of another `cond` with the same predicate.
        self._choices: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._taken: dict[int, int] = {}
        self._boxed: dict[int, int] = {}  # an array of one number → the scalar in it
        self._constants: dict[int, np.ndarray] = {}  # the value of each number that is a literal's

    def intern(self, *key: Hashable) -> int:
        """Return the number of a key; a new number if the key is new."""
        number = self._of_key.setdefault(key, len(self._of_key))
        return self._same.get(number, number)

    def equate(self, number: int, other: int) -> None:
        """Change the number of a key from `number` to `other`."""
        if number != other:
            self._same[number] = other

    def is_numbered(self, value: Value) -> bool:
        return value in self._of_value

    def assign(self, values: Iterable[Value], numbers: Iterable[int]) -> None:
        self._of_value.update(zip(values, numbers, strict=True))

    def number(self, value: Value) -> int:
        """Return the number of a value; inside a branch, the number that the value has if this branch is taken."""
        if value not in self._of_value:
            if isinstance(value, Literal):
                self._of_value[value] = self._number_constant(_as_array(value.value, value.aval.dtype))
            else:
                self._of_value[value] = self.intern("given", value)
        number = self._of_value[value]
        while number in self._choices and self._choices[number][0] in self._taken:
            which, results = self._choices[number]
            number = results[self._taken[which]]
        return number

    def results(self, equation: Equation) -> list[int]:
        """Return the numbers of an operation's results."""
        if jax_compat.is_stateful(equation.eqn):  # another run gives another value
            return [self.intern("effect", equation, i) for i in range(len(equation.outputs))]
        if equation not in self._params:
            self._params[equation] = _hashable_params(equation.params)
        operands = tuple(map(self.number, equation.inputs))
        if equation.primitive == "squeeze" and operands[0] in self._boxed:
            return [self._boxed[operands[0]]]
        if equation.primitive == "convert_element_type":
            converted = self._number_conversion(equation, operands[0])
            if converted is not None:
                return [converted]
        if equation.primitive in _COMMUTES:
            operands = tuple(sorted(operands))
        key = (equation.primitive, self._params[equation], operands)
        numbers = [self.intern(*key, i) for i in range(len(equation.outputs))]
        if is_box(equation):
            self._boxed[numbers[0]] = operands[0]
        return numbers

    def _number_constant(self, array: np.ndarray) -> int:
        number = self.intern("literal", *_constant_key(array))
        self._constants[number] = array
        return number

    def _number_conversion(self, equation: Equation, operand: int) -> int | None:
        """Return the number of a conversion that changes only the weak type, or converts a constant; None for others.

        JAX leaves out the first and computes the second while it traces the forward pass, where an argument such as
        `eps=1e-6` of a checkpointed function is a constant. The recompute converts it as an argument.
        """
        dtype = equation.outputs[0].dtype
        if dtype == equation.inputs[0].dtype:
            return operand
        if operand not in self._constants or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
            return None
        constant = self._constants[operand]
        if np.iscomplexobj(constant) and not jax.dtypes.issubdtype(dtype, np.complexfloating):
            constant = constant.real
        return self._number_constant(constant.astype(dtype))

    def is_boxed(self, number: int) -> bool:
        """Return whether a number belongs to an array of one element that contains a scalar."""
        return number in self._boxed

    @contextlib.contextmanager
    def taking(self, which: int, taken: int) -> Iterator[None]:
        """Enter a context in which every `cond` whose predicate has the number `which` takes the branch `taken`."""
        outer = self._taken.get(which)
        self._taken[which] = taken
        yield
        del self._taken[which]
        if outer is not None:
            self._taken[which] = outer

    def choice(self, which: int, branches: tuple[int, ...]) -> int:
        """Return the number of a `cond`'s result, which equals `branches[i]` if the predicate `which` is `i`."""
        number = self.intern("cond", which, branches)
        self._choices[number] = (which, branches)
        return number


def is_box(equation: Equation) -> bool:
    """Return whether an equation puts a scalar into an array of one element, as JAX does in a `shard_map`."""
    boxes = equation.primitive == "broadcast_in_dim" and equation.outputs[0].shape == (1,)
    return boxes and not equation.inputs[0].shape


_PLAIN = frozenset({type(None), int, str})


def _hashable_params(params: Any) -> Hashable:  # a parameter of a primitive may be anything
    """Return a hashable key for an equation's parameters, in which a jaxpr is represented by its computation."""
    if type(params) in _PLAIN:
        return params  # type: ignore[no-any-return]  # most are: a large model has a hundred thousand
    if type(params) in (float, bool):
        return type(params), repr(params)  # 0.0 == -0.0 and 1 == True, and an operation may tell them apart
    if isinstance(params, dict):
        return tuple([(key, _hashable_params(params[key])) for key in sorted(params)])
    if isinstance(params, (tuple, list)):
        return tuple(map(_hashable_params, params))
    if hasattr(params, "eqns"):
        jaxpr, _, consts = jax_compat.body_of(params)
        names = {v: i for i, v in enumerate([*jaxpr.constvars, *jaxpr.invars])}

        def read(atom: Any) -> Hashable:
            return _constant_key(_as_array(atom.val, atom.aval.dtype)) if jax_compat.is_literal(atom) else names[atom]

        lines: list[Hashable] = [tuple(map(id, consts))]
        for eqn in jaxpr.eqns:
            lines.append((eqn.primitive.name, _hashable_params(eqn.params), *map(read, eqn.invars)))
            names.update((v, len(names) + i) for i, v in enumerate(eqn.outvars))
        return tuple(lines), tuple(map(read, jaxpr.outvars))
    if jax_compat.is_pallas_parameter(params):
        fields = [field.name for field in dataclasses.fields(params) if field.compare]  # jaxprs among them
        return type(params), *(_hashable_params(getattr(params, field)) for field in fields)
    try:
        hash(params)
    except TypeError:
        return id(params)
    return params  # type: ignore[no-any-return]  # it has just been hashed


def _as_array(value: Any, dtype: Any) -> np.ndarray:
    """Return a literal's value, such as a Python number, as an array of its dtype, unless this is JAX's own."""
    array = np.asarray(value)
    return array.astype(dtype) if isinstance(dtype, np.dtype) else array


def _constant_key(array: np.ndarray) -> tuple[Hashable, ...]:
    return array.tobytes(), array.dtype, array.shape
