"""The arrays among the arguments of a call, and the parts of arrays along their batch axes."""

import contextlib
import copy
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from rematscope.errors import PlanError
from rematscope.ir.program import type_text
from rematscope.ir.specs import explicit_sharding, spec_in
from rematscope.reporting.nnx_objects import is_object, is_variable, objects_in, set_state, state_of
from rematscope.tracing.arguments import callable_name, is_array, shape_struct
from rematscope.tracing.static_values import IsStatic, explain_static_values, has_static, unwrap_static, with_static


class Arguments:
    """The arguments of a call, with static values as `rematscope.tracing.static_values` defines them.

    A variable of Flax's nnx that occurs several times, such as one that modules share, counts as an array once.

    Attributes:
      args, kwargs: the arguments with a `Static` in place of each static value, and with None in place of each further
        occurrence of a variable.
      given: the arguments as they were given.
      firsts: for each variable of nnx and for each other leaf, the index of its first occurrence among them.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], is_static: IsStatic):
        """Args:
        args, kwargs: the arguments.
        is_static: whether a leaf is a static value.
        """
        self.given = tuple(args), dict(kwargs)
        self._structure: Any  # with variables as leaves
        nodes, self._structure = jax.tree.flatten(self.given, is_leaf=_is_none_or_variable)
        seen = dict[int, int]()
        self.firsts = tuple(seen.setdefault(id(v), i) if is_variable(v) else i for i, v in enumerate(nodes))
        self._has_repeated = self.firsts != tuple(range(len(nodes)))
        arrays: tuple[Any, Any] = with_static(args, kwargs, is_static)
        self._has_static = has_static(arrays)
        if self._has_repeated:
            parts = enumerate(self._structure.flatten_up_to(arrays))
            arrays = self._structure.unflatten(v if self.firsts[i] == i else None for i, v in parts)
        self.args, self.kwargs = arrays

    def without_arrays(self) -> "Arguments":
        """Return a copy whose `all` works alike, and which holds no array."""
        found = copy.copy(self)
        del found.given, found.args, found.kwargs
        return found

    def all(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the arguments with the static values, and all occurrences of each variable, restored."""
        found: tuple[Any, Any] = tuple(args), dict(kwargs)
        if self._has_repeated:
            nodes = self._structure.flatten_up_to(found)
            found = self._structure.unflatten(nodes[i] for i in self.firsts)
        whole: tuple[Any, Any] = unwrap_static(found)
        return whole

    def bound(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return `f` as a function of `args` and `kwargs`, which returns only arrays.

        The function writes the new state of modules of nnx into its arguments, as `f` does.
        """
        if not self._has_static and not self._has_repeated:
            return f

        @functools.wraps(f, updated=())
        def function(*args: Any, **kwargs: Any) -> Any:
            given, named = self.all(args, kwargs)
            try:
                returned = arrays_of(f(*given, **named))
            except (TypeError, AttributeError, ValueError) as error:
                explain_static_values(error, f, args, kwargs)
                raise
            set_state(objects_in((args, kwargs)), arrays_of(state_of(objects_in((given, named)))))
            return returned

        function.__name__ = callable_name(f)  # a partial has no name
        with contextlib.suppress(TypeError, ValueError):
            function.__signature__ = inspect.signature(f)  # type: ignore[attr-defined]
        return function


def _is_none(node: Any) -> bool:
    return node is None


def _is_none_or_variable(node: Any) -> bool:
    return node is None or is_variable(node)


def arrays_of(tree: Any) -> Any:
    """Return a tree with each leaf that is not an array replaced by None."""
    return jax.tree.map(lambda leaf: leaf if is_array(leaf) else None, tree)


def with_python_numbers(tree: Any) -> Any:
    """Return a tree with a Python number in place of each constant of a program, such as JAX's `TypedInt`."""
    if not any(map(_is_typed, jax.tree.leaves(tree))):
        return tree
    return jax.tree.map(lambda v: type(v).__bases__[0](v) if _is_typed(v) else v, tree, is_leaf=is_object)


def _is_typed(leaf: Any) -> bool:
    return isinstance(leaf, int | float | complex) and type(leaf).__module__.startswith("jax.")


def in_part(shape: Any, axis: int | None, count: int) -> Any:
    """Return the shape and dtype of one of `count` parts of an array along an axis; of all of it without an axis."""
    whole = shape if isinstance(shape, jax.ShapeDtypeStruct) else with_explicit_sharding(shape)
    if axis is None:
        return whole
    lengths = [n // count if i == axis else n for i, n in enumerate(whole.shape)]
    return shape_struct(whole, lengths, explicit_sharding(jax.typeof(whole)))


def with_explicit_sharding(value: Any) -> Any:
    """Return the shape and dtype of a value, with its sharding if that is over explicit mesh axes."""
    aval = jax.typeof(value)
    return shape_struct(aval, sharding=explicit_sharding(aval))


def device_blocks(leaves: Iterable[Any], axes: Iterable[int | None]) -> int:
    """Return the number of blocks that arrays have along their batch axes, because they are sharded across devices.

    Each device has a contiguous block of an array. If a part of the batch has rows of each block, no device needs rows
    of another one. Only shardings over explicit mesh axes count, which are part of an array's type.
    """
    return math.lcm(
        *(_shards_along(jax.typeof(v), axis) for v, axis in zip(leaves, axes, strict=True) if axis is not None)
    )


def _shards_along(aval: Any, axis: int) -> int:
    sharding = explicit_sharding(aval)
    if sharding is None:
        return 1
    spec = spec_in(sharding, len(aval.shape))
    return spec.ways(spec.axes[axis]) or 1


def stacked(value: Any, axis: int, count: int, sharding: NamedSharding | None = None, blocks: int = 1) -> Any:
    """Return the `count` parts of an array along an axis, as a stack.

    A part has rows of each of `blocks` blocks of the axis. If the array is sharded across devices along this axis, each
    part is sharded like it, where the devices divide the length of a part. Otherwise, each part would be on some of the
    devices only, and they would compute it alone.

    Raises:
      PlanError: if the array is sharded over explicit mesh axes along this axis, and the blocks are not those of the
        devices.
    """
    shape, explicit = jnp.shape(value), explicit_sharding(jax.typeof(value))
    if explicit is not None and blocks % _shards_along(jax.typeof(value), axis):
        raise PlanError(
            f"An array of type {type_text(jax.typeof(value))} cannot be divided along axis {axis}, as chunks= and "
            "head_chunks= need: it is sharded over explicit mesh axes along this axis. Use microbatches=, make the "
            "mesh with axis_types of AxisType.Auto, or choose another axis in in_axes=."
        )
    if explicit is not None or blocks > 1:
        return _stacked_in_blocks(value, axis, count, blocks)
    parts = jnp.reshape(value, (*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :]))
    stack = jnp.moveaxis(parts, axis, 0)
    if sharding is None or len(sharding.spec) <= axis or sharding.spec[axis] is None:
        return stack
    split = NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec))
    try:
        split.shard_shape(jnp.shape(stack))
    except ValueError:  # the devices do not divide a part
        return stack
    return lax.with_sharding_constraint(stack, split)


def _stacked_in_blocks(value: Any, axis: int, count: int, blocks: int) -> Any:
    shape, spec = jnp.shape(value), _explicit_spec(jax.typeof(value))
    before, after = shape[:axis], shape[axis + 1 :]
    parts = _reshape_sharded(
        value,
        (*before, blocks, count, shape[axis] // (blocks * count), *after),
        None if spec is None else (*spec[: axis + 1], None, None, *spec[axis + 1 :]),
    )
    return _reshape_sharded(
        jnp.moveaxis(parts, axis + 1, 0),
        (count, *before, shape[axis] // count, *after),
        None if spec is None else (None, *spec),
    )


def _explicit_spec(aval: Any) -> tuple[Any, ...] | None:
    """Return the entries of the `PartitionSpec` of a type over explicit mesh axes; None for other types."""
    sharding = explicit_sharding(aval)
    return None if sharding is None else (*sharding.spec, *(None,) * len(aval.shape))[: len(aval.shape)]


def _reshape_sharded(value: Any, shape: Sequence[int], entries: Sequence[Any] | None) -> Any:
    if entries is None:
        return lax.reshape(value, shape)
    mesh = explicit_sharding(jax.typeof(value)).mesh
    return lax.reshape(value, shape, out_sharding=NamedSharding(mesh, PartitionSpec(*entries)))


def as_type(value: Any, aval: Any) -> Any:
    """Return a value with the sharding of a type over explicit mesh axes."""
    sharding = explicit_sharding(aval)
    if sharding is None or explicit_sharding(jax.typeof(value)) == sharding:
        return value
    return jax.sharding.reshard(value, sharding)


def shardings_of(leaves: Iterable[Any]) -> tuple[NamedSharding | None, ...]:
    """Return the sharding of each leaf across several devices.

    It is None for a leaf on one device, for a mesh with explicit axes, and for a leaf whose sharding is not known, such
    as a tracer.
    """
    found = (None if isinstance(v, jax.core.Tracer) else getattr(v, "sharding", None) for v in leaves)
    return tuple(
        s
        if isinstance(s, NamedSharding)
        and s.num_devices > 1
        and all(kind == AxisType.Auto for kind in s.mesh.axis_types)
        else None
        for s in found
    )


def unstacked(stack: Any, axis: int, blocks: int = 1) -> Any:
    """Return the array whose parts along an axis, with rows of each of `blocks` blocks, are in a stack."""
    count, shape = jnp.shape(stack)[0], jnp.shape(stack)[1:]
    entries = _explicit_spec(jax.typeof(stack))
    if entries is not None or blocks > 1:
        before, after = shape[:axis], shape[axis + 1 :]
        spec = None if entries is None else (*entries[: axis + 2], None, *entries[axis + 2 :])
        parts = _reshape_sharded(stack, (count, *before, blocks, shape[axis] // blocks, *after), spec)
        whole = (*before, count * shape[axis], *after)
        return _reshape_sharded(jnp.moveaxis(parts, 0, axis + 1), whole, None if entries is None else entries[1:])
    parts = jnp.moveaxis(stack, 0, axis)
    shape = jnp.shape(parts)
    return jnp.reshape(parts, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def leaf_axes(args: Sequence[Any], kwargs: Mapping[str, Any], in_axes: Sequence[Any]) -> list[int | None]:
    """Return the batch axis of each leaf of some arguments; None for leaves without one.

    Args:
      args, kwargs: the arguments.
      in_axes: for each positional argument, an axis, None, or a container with the argument's structure, as for
        `jax.vmap`. For a named tuple or a dataclass, a dictionary with the axes of some of its fields will do. An entry
        after those of the positional arguments is a dictionary of the same for keyword arguments.

    Raises:
      ValueError: if the structure of a container does not match its argument.
    """

    def of_leaves(axis: int | None, tree: Any) -> list[int | None]:
        ranks = [len(jnp.shape(leaf)) for leaf in jax.tree.leaves(tree)]
        return [axis % rank if axis is not None and -rank <= axis < rank else None for rank in ranks]

    found: list[int | None] = []
    named = in_axes[len(args)] if len(in_axes) == len(args) + 1 else {}
    if len(in_axes) > len(args) + 1 or type(named) is not dict or not named.keys() <= kwargs.keys():
        raise ValueError(
            f"there are {len(args)} positional arguments. One more entry, for keyword arguments, is a dictionary of "
            "their axes by name."
        )
    keywords = [(named.get(name), kwargs[name]) for name in sorted(kwargs)]  # the order of their leaves
    for axes, arg in (*itertools.zip_longest(in_axes[: len(args)], args), *keywords):
        found += jax.tree.leaves(
            jax.tree.map(of_leaves, _in_fields(axes, arg), arg, is_leaf=_is_none), is_leaf=_is_none
        )
    return found


def fields_of(tree: Any) -> dict[str, Any] | None:
    """Return the fields of a named tuple or of a dataclass, in the order of their leaves; None for other trees."""
    children, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda v: v is not tree)
    named = {path[0].name: child for path, child in children if path and isinstance(path[0], jax.tree_util.GetAttrKey)}
    return named if named and len(named) == len(children) else None


def _in_fields(axes: Any, tree: Any) -> Any:
    """Return an entry of `in_axes` in which trees like the argument's replace dictionaries of fields."""
    if type(axes) is dict and (fields := fields_of(tree)) is not None:
        if unknown := sorted(axes.keys() - fields.keys()):
            raise ValueError(f"{type(tree).__name__} has no field {unknown[0]!r}. Its fields are {', '.join(fields)}.")
        structure = jax.tree.structure(tree, is_leaf=lambda v: v is not tree)
        return jax.tree.unflatten(structure, [_in_fields(axes.get(name), child) for name, child in fields.items()])
    if type(axes) is dict and type(tree) is dict and axes.keys() == tree.keys():
        return {key: _in_fields(axes[key], tree[key]) for key in axes}
    if type(axes) in (tuple, list) and type(tree) is type(axes) and len(axes) == len(tree):
        return type(axes)(map(_in_fields, axes, tree))
    return axes
