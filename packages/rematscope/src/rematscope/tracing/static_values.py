"""Static values among the arguments of a call: one rule for every function of rematscope.

Arrays and `jax.ShapeDtypeStruct`s are traced. Values that JAX cannot trace, such as functions and strings, are static:
the function gets them unchanged. A number is one of Python's numbers and booleans, or a scalar of NumPy:

- Numbers are traced, as `jax.jit` and `jax.grad` trace them, if the function can be traced with them. Otherwise, for
  example because it branches on a flag, its booleans are static; if this is not enough, all numbers of the call.
- As with `eqx.filter_jit`, which traces NumPy's scalars, all numbers of Python are static if the function is one of
  Equinox's, such as `eqx.filter_jit(step)`, or if an argument holds an Equinox module and the function is not a
  `jax.jit` function.

A static value is in a pytree node without children. JAX then traces only the arrays, and the static values are part of
the pytree structure.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rematscope.errors import PlanError, TraceError
from rematscope.tracing.arguments import (
    NEEDS_VALUE,
    PartlyDifferentiable,
    argument_paths,
    callable_name,
    is_array,
    jax_path,
    type_description,
)

IsStatic = Callable[[Any], bool]
_JIT = type(jax.jit(lambda: None))


@jax.tree_util.register_static
class Static:
    """A static value, as a pytree node without children. Two nodes are equal if their values are."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static):
            return NotImplemented
        if self.value is other.value:
            return True
        if type(self.value) is not type(other.value):
            return False
        if isinstance(self.value, float | complex | np.generic):  # 0.0 == -0.0, and nan != nan
            return repr(self.value) == repr(other.value)
        return bool(self.value == other.value)

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return 0  # `==` compares values that are not hashable

    def __repr__(self) -> str:
        return _describe_value(self.value)


def is_not_array(leaf: Any) -> bool:
    """Return whether a leaf is not an array of any kind.

    An array that JAX cannot trace, such as one of strings or another library's, is not static: `check_arrays` refuses
    it, since its elements would otherwise become constants of the program.
    """
    return not is_array(leaf) and not hasattr(type(leaf), "__array__")


def _is_boolean_or_not_array(leaf: Any) -> bool:
    return isinstance(leaf, bool | np.bool_) or is_not_array(leaf)


def _describe_value(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, int | float | complex | np.generic):
        return f"{value!r:.60}, {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    return type_description(value)


def _is_python_number_or_not_array(leaf: Any) -> bool:
    return (isinstance(leaf, int | float | complex) and not isinstance(leaf, np.generic)) or is_not_array(leaf)


def _is_number_or_not_array(leaf: Any) -> bool:
    return isinstance(leaf, int | float | complex | np.generic) or is_not_array(leaf)


_RULES: tuple[IsStatic, ...] = (
    is_not_array,
    _is_boolean_or_not_array,
    _is_python_number_or_not_array,
    _is_number_or_not_array,
)
_TRIED: tuple[IsStatic, ...] = (is_not_array, _is_boolean_or_not_array, _is_number_or_not_array)
_TRIED_IN_EQUINOX: tuple[IsStatic, ...] = (_is_python_number_or_not_array, _is_number_or_not_array)


class StaticRule:
    """The leaves of the calls of a function that are static values; see the top of this file.

    The function is traced to find out for the first of the calls that have the same pytree structure.
    """

    def __init__(self, f: Callable[..., Any]):
        self._f = f
        self._known: dict[Any, IsStatic] = {}

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> IsStatic:
        """Return whether a leaf of a call is static, as a function."""
        given = tuple(args), dict(kwargs)
        leaves = jax.tree.leaves(given)
        if not any(_is_number_or_not_array(leaf) and is_array(leaf) for leaf in leaves) or not callable(self._f):
            return is_not_array
        tried = _TRIED_IN_EQUINOX if _is_filtered(self._f, given) else _TRIED
        rules_by_leaves = dict[tuple[bool, ...], IsStatic]()  # of rules with the same static leaves, only the first
        for rule in tried:
            if any(_is_inexact(v) and not rule(v) for v in leaves):
                rules_by_leaves.setdefault(tuple(map(rule, leaves)), rule)
        rules = [*rules_by_leaves.values()]
        key = jax.tree.structure(_wrap_static(given, is_not_array)), *rules_by_leaves.items()
        try:
            if key not in self._known:
                self._known[key] = self._find_traceable_rule(rules, given)
            return self._known[key]
        except (TypeError, ValueError):  # a static value that cannot be hashed or compared
            return self._find_traceable_rule(rules, given)

    def _find_traceable_rule(self, rules: Sequence[IsStatic], given: Any) -> IsStatic:
        """Return the first rule with which the function can be traced; the last one if there is none."""

        def call(args: Any, kwargs: Any) -> None:
            given, named = unwrap_static((args, kwargs))
            self._f(*given, **named)

        for rule in rules[:-1]:
            try:
                jax.eval_shape(call, *_wrap_static(given, rule))
            except Exception:  # any error of a function or a library that reads the value
                continue
            return rule
        return rules[-1] if rules else is_not_array


def _is_inexact(leaf: Any) -> bool:
    return is_array(leaf) and bool(jnp.issubdtype(jax.typeof(leaf).dtype, np.inexact))


def _is_filtered(f: Callable[..., Any], arguments: Any) -> bool:
    """Return whether a call is one of Equinox, whose filtered functions trace no numbers."""
    eqx: Any = sys.modules.get("equinox")
    while isinstance(f, functools.partial):
        f = f.func
    if eqx is None or isinstance(f, _JIT):
        return False
    is_module: IsStatic = lambda node: isinstance(node, eqx.Module)  # noqa: E731
    own = type(f).__module__.startswith("equinox.")
    return own or any(map(is_module, jax.tree.leaves(arguments, is_leaf=is_module)))


def widest_rule(rules: Iterable[IsStatic]) -> IsStatic:
    """Return the rule of some according to which most leaves are static."""
    return max(rules, key=_RULES.index, default=is_not_array)


def rule_of(arguments: Any) -> IsStatic:
    """Return the rule according to which some arguments have `Static` nodes."""
    values = _list_static_values(arguments)
    return next(rule for rule in _RULES if all(map(rule, values)))


def _list_static_values(tree: Any) -> list[Any]:
    return [node.value for node in jax.tree.leaves(tree, is_leaf=_is_static) if _is_static(node)]


def check_hashable(arguments: Any) -> None:
    """Raise PlanError if a static value cannot be hashed: it might change unnoticed between two calls."""
    for value in _list_static_values(arguments):
        try:
            hash(value)
        except TypeError:
            raise PlanError(
                f"An argument is {_describe_value(value)}, a static value that cannot be hashed, so rematscope cannot "
                "know whether it is the same at the next call. Make its class hashable, such as a dataclass with "
                "frozen=True, or bind it first, with functools.partial."
            ) from None


def _wrap_static(tree: Any, is_static: IsStatic) -> Any:
    """Return a pytree with each static value in a `Static`; the pytree itself if there are none."""
    if not any(map(is_static, jax.tree.leaves(tree))):
        return tree
    return jax.tree.map(lambda leaf: Static(leaf) if is_static(leaf) else leaf, tree)


def _is_static(node: Any) -> bool:
    return isinstance(node, Static)


def has_static(tree: Any) -> bool:
    """Return whether a pytree has a `Static`."""
    return any(map(_is_static, jax.tree.leaves(tree, is_leaf=_is_static)))


def unwrap_static(tree: Any, rebuilt: list[Any] | None = None) -> Any:
    """Return a pytree with the value in place of each `Static`. Parts of the pytree without one are not copied.

    Args:
      tree: the pytree.
      rebuilt: a list to which the objects that are copied are added, except dictionaries, lists and tuples.
    """
    return _unwrap_nodes(tree, [] if rebuilt is None else rebuilt) if has_static(tree) else tree


def _unwrap_nodes(tree: Any, rebuilt: list[Any]) -> Any:
    if isinstance(tree, Static):
        return tree.value
    children, structure = jax.tree.flatten(tree, is_leaf=lambda node: node is not tree)
    if not children or (len(children) == 1 and children[0] is tree):
        return tree
    found = [_unwrap_nodes(child, rebuilt) for child in children]
    if all(new is old for new, old in zip(found, children, strict=True)):
        return tree
    made = jax.tree.unflatten(structure, found)
    if not isinstance(made, dict | list | tuple):
        rebuilt.append(made)
    return made


class FunctionOfStatic(PartlyDifferentiable):
    """A function whose arguments may have `Static` nodes in place of static values.

    If they do, so do its results. A call with the original arguments calls the original function.

    Attributes:
      function: the original function.
    """

    def __init__(self, f: Callable[..., Any]):
        functools.update_wrapper(self, f, updated=())
        self.__name__ = callable_name(f)  # a partial has no name
        self.function = f

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        rebuilt: list[Any] = []
        given, named = unwrap_static((args, kwargs), rebuilt)
        if given is args and named is kwargs:
            return self.function(*args, **kwargs)
        before = list(map(_arrays_in, rebuilt))
        try:
            returned = _wrap_static(self.function(*given, **named), rule_of((args, kwargs)))
        except (TypeError, AttributeError, ValueError) as error:
            explain_static_values(error, self, args, kwargs)
            raise
        for node, arrays in zip(rebuilt, before, strict=True):
            now = _arrays_in(node)
            if len(now) != len(arrays) or any(new is not old for new, old in zip(now, arrays, strict=True)):
                raise TraceError(
                    f"{self.__name__} changes an argument, {type_description(node)}, that also holds values that are "
                    "not arrays, which rematscope cannot follow. Make these values static fields of its pytree."
                )
        return returned

    def gradient_mask(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[bool] | None:
        f: object = self.function
        return f.gradient_mask(args, kwargs) if isinstance(f, PartlyDifferentiable) else None


def explain_static_values(error: Exception, f: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Raise TraceError for an error about a static value; else add a note that lists the static values."""
    name, needs_value = callable_name(f), isinstance(error, NEEDS_VALUE)
    with_paths = argument_paths(f, args, kwargs, is_leaf=_is_static)
    nodes = jax.tree.flatten_with_path((args, kwargs), is_leaf=_is_static)[0]
    found = [(text, keys, node.value) for text, (keys, node) in zip(with_paths, nodes, strict=True) if _is_static(node)]
    for text, keys, value in found:
        named = jax_path(f, args, keys) in str(error)
        if named and (needs_value or "as an abstract array" in str(error)):
            raise TraceError(
                f"`{text}` is {_describe_value(value)}. {name} passes it to a jax.jit or another transformation of "
                f"JAX, which {'traces it, but the value is read' if needs_value else 'accepts arrays and numbers only'}"
                ". If it is a whole argument, use static_argnames=. Otherwise, bind it first with functools.partial, "
                "or use eqx.filter_jit."
            ) from error
        if isinstance(error, TypeError) and not is_array(value) and repr(type(value).__name__) in str(error):
            raise TraceError(
                f"`{text}` is {_describe_value(value)}, and only arrays, numbers and jax.ShapeDtypeStructs can be "
                f"traced. {name} got it unchanged, and raised TypeError: {str(error).splitlines()[0]}"
            ) from error
    descriptions = ", ".join(dict.fromkeys(f"`{text}`, {_describe_value(value)}" for text, _, value in found))
    note = f"rematscope passed static values to {name}, unchanged: {descriptions}."
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _arrays_in(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if is_array(leaf)]


def with_static(
    args: Sequence[Any], kwargs: Mapping[str, Any], is_static: IsStatic
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with each static value in a `Static`, if there is at least one array."""
    given = tuple(args), dict(kwargs)
    has_array = any(map(is_array, jax.tree.leaves(given)))
    found: tuple[tuple[Any, ...], dict[str, Any]] = _wrap_static(given, is_static) if has_array else given
    return found


def call_with_static(
    f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], rule: StaticRule | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return a function and its arguments with each static value in a `Static`; unchanged if there are none.

    Args:
      f, args, kwargs: the function and its arguments.
      rule: the static values of the function's calls, if it is called several times.
    """
    if has_static((args, kwargs)):
        return f, tuple(args), dict(kwargs)
    given, named = with_static(args, kwargs, (rule or StaticRule(f))(args, kwargs))
    return FunctionOfStatic(f) if callable(f) and has_static((given, named)) else f, given, named


def calling_with_static(f: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Return a function of `arguments`, which may have `Static` nodes, as a function of the original arguments."""
    if not has_static(arguments):
        return f
    is_static = rule_of(arguments)

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        given, named = with_static(args, kwargs, is_static)
        returned = f(*given, **named)
        return returned if has_static((args, kwargs)) else unwrap_static(returned)

    return function
