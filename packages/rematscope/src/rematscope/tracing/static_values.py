"""Static values among the arguments of a call: leaves that are not arrays, such as functions and strings.

A library such as Equinox has functions among the leaves of its models. `of_arrays` puts each such leaf into a pytree
node without children. JAX then traces only the arrays, and the static values are part of the pytree structure.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from rematscope.errors import TraceError
from rematscope.tracing.arguments import PartlyDifferentiable, callable_name, is_array, type_description


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
        return type(self.value) is type(other.value) and bool(self.value == other.value)

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return 0  # `==` compares values that are not hashable

    def __repr__(self) -> str:
        return type_description(self.value)


def _is_static_value(leaf: Any) -> bool:
    """Return whether a leaf is not an array of any kind.

    An array that JAX cannot trace, such as one of strings or another library's, is not static: `check_arrays` refuses
    it, since its elements would otherwise become constants of the program.
    """
    return not is_array(leaf) and not hasattr(type(leaf), "__array__")


def _marked(tree: Any) -> Any:
    """Return a pytree with each static value in a `Static`; the pytree itself if there are none."""
    if not any(map(_is_static_value, jax.tree.leaves(tree))):
        return tree
    return jax.tree.map(lambda leaf: Static(leaf) if _is_static_value(leaf) else leaf, tree)


def _is_static(node: Any) -> bool:
    return isinstance(node, Static)


def has_static(tree: Any) -> bool:
    """Return whether a pytree has a `Static`."""
    return any(map(_is_static, jax.tree.leaves(tree, is_leaf=_is_static)))


def restored(tree: Any, rebuilt: list[Any] | None = None) -> Any:
    """Return a pytree with the value in place of each `Static`. Parts of the pytree without one are not copied.

    Args:
      tree: the pytree.
      rebuilt: a list to which the objects that are copied are added, except dictionaries, lists and tuples.
    """
    return _restored(tree, [] if rebuilt is None else rebuilt) if has_static(tree) else tree


def _restored(tree: Any, rebuilt: list[Any]) -> Any:
    if isinstance(tree, Static):
        return tree.value
    children, structure = jax.tree.flatten(tree, is_leaf=lambda node: node is not tree)
    if not children or (len(children) == 1 and children[0] is tree):
        return tree
    found = [_restored(child, rebuilt) for child in children]
    if all(new is old for new, old in zip(found, children, strict=True)):
        return tree
    made = jax.tree.unflatten(structure, found)
    if not isinstance(made, dict | list | tuple):
        rebuilt.append(made)
    return made


class OfArrays(PartlyDifferentiable):
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
        given, named = restored((args, kwargs), rebuilt)
        if given is args and named is kwargs:
            return self.function(*args, **kwargs)
        before = list(map(_arrays_in, rebuilt))
        try:
            returned = _marked(self.function(*given, **named))
        except (TypeError, AttributeError, ValueError) as error:
            _explain(error, self.__name__, (args, kwargs))
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


def _explain(error: Exception, function: str, arguments: Any) -> None:
    """Raise TraceError for an error about the type of a static value; else add a note that lists the static values."""
    values = [node.value for node in jax.tree.leaves(arguments, is_leaf=_is_static) if _is_static(node)]
    for value in values if isinstance(error, TypeError) else ():
        if repr(type(value).__name__) in str(error):
            raise TraceError(
                f"an argument holds {type_description(value)}, and only arrays, numbers and jax.ShapeDtypeStructs can "
                f"be traced. {function} got it unchanged, and raised TypeError: {error}"
            ) from error
    descriptions = ", ".join(dict.fromkeys(map(type_description, values)))
    note = f"rematscope passed values that are not arrays to {function}, unchanged: {descriptions}."
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _arrays_in(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if is_array(leaf)]


def with_static(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with each static value in a `Static`, if there is at least one array."""
    given = tuple(args), dict(kwargs)
    has_array = any(map(is_array, jax.tree.leaves(given)))
    found: tuple[tuple[Any, ...], dict[str, Any]] = _marked(given) if has_array else given
    return found


def of_arrays(
    f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return a function and its arguments with each static value in a `Static`; unchanged if there are none."""
    given, named = with_static(args, kwargs)
    is_changed = has_static((given, named)) and not has_static((args, kwargs))
    return OfArrays(f) if callable(f) and is_changed else f, given, named


def calling_with_static(f: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Return a function of `arguments`, which may have `Static` nodes, as a function of the original arguments."""
    if not has_static(arguments):
        return f

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        given, named = with_static(args, kwargs)
        returned = f(*given, **named)
        return returned if has_static((args, kwargs)) else restored(returned)

    return function
