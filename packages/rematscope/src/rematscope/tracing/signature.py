"""Signatures of calls: calls with equal signatures can share one trace, as with the cache key of `jax.jit`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import AxisType

from rematscope.errors import PlanError
from rematscope.ir.program import Value, type_text
from rematscope.ir.specs import explicit_sharding, is_trivial
from rematscope.jax_compat import is_in_host_memory, type_in_host_memory, varying
from rematscope.tracing.arguments import (
    argument_names,
    argument_paths,
    callable_name,
    check_arrays,
    flattened,
    step_of_path,
)
from rematscope.tracing.static_values import Static, check_hashable, rule_of

# JAX's settings that a trace or its results depend on, as attributes of jax.config. Some releases lack some of them.
SETTINGS = (
    "jax_enable_x64",
    "jax_explicit_x64_dtypes",
    "jax_numpy_dtype_promotion",
    "jax_default_matmul_precision",
    "jax_allow_f16_reductions",
    "jax_accurate_erf_inv",
    "jax_softmax_custom_jvp",
    "jax_use_hlo_logistic_lowering",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_threefry_gpu_kernel_lowering",
    "jax_random_seed_offset",
    "jax_high_dynamic_range_gumbel",
)
_LONGEST = 60  # characters of a static value in a sentence


class _Type(NamedTuple):
    """The type of one array, as far as a trace depends on it.

    Attributes:
      shape, dtype: the shape and the dtype of the array.
      weak: whether the type is weak, so that JAX promotes the array like a Python number.
      spec: the sharding over explicit mesh axes; None without such axes.
      varies: the manual mesh axes over which the array is typed as varying.
      memory: the memory that holds the array.
    """

    shape: tuple[int, ...]
    dtype: Any  # NumPy's, or one of JAX's extended dtypes
    weak: bool
    spec: Any
    varies: frozenset[str]
    memory: str

    @classmethod
    def of(cls, leaf: Any) -> "_Type":
        aval: Any = type_in_host_memory(leaf) if is_in_host_memory(leaf) else jax.typeof(leaf)
        sharding = explicit_sharding(aval)
        weak = bool(getattr(aval, "weak_type", False))
        spec = None if sharding is None or is_trivial(sharding.spec) else sharding.spec
        return cls(aval.shape, aval.dtype, weak, spec, varying(aval), Value(aval).memory)

    def __str__(self) -> str:
        return type_text(self)


class Signature:
    """The pytree structure, static values and array types of a call, and the settings of JAX that it was traced with.

    Calls that can share one trace have equal signatures.

    Args:
      f: the function that is called.
      args, kwargs: its arguments.

    Attributes:
      is_static: whether a leaf of such a call is a static value, as a function.

    Raises:
      PlanError: if a static value cannot be hashed.
      TraceError: if an argument is not an array.
    """

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]):
        _, leaves = flattened(f, args, kwargs)
        check_arrays(f, args, kwargs)
        check_hashable((args, kwargs))
        self.is_static = rule_of((args, kwargs))
        self._f = f
        self._tree: Any = jax.tree.structure((tuple(args), dict(kwargs)))
        self._types = tuple(map(_Type.of, leaves))
        self._settings = _current_settings()
        self._positional, self._keywords = len(args), sorted(kwargs)

    def __hash__(self) -> int:
        # The static data of pytrees need not be hashable: `==` compares it.
        return hash((self._types, *map(str, self._settings.values())))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Signature):
            return NotImplemented
        same = self._types == other._types and self._settings == other._settings
        return same and self._has_tree(other._tree)

    def _has_tree(self, tree: Any) -> bool:
        """Return whether a call has the pytree structure and the static values of this one."""
        try:
            return bool(self._tree == tree)
        except ValueError as error:  # of a static value, such as an array
            raise PlanError(
                f"{callable_name(self._f)} was planned for arguments whose static values cannot be compared with those "
                f"of this call, so it cannot be decided whether the plan fits. As for jax.jit, make an array a data "
                f"field of its pytree, or make it a tuple. JAX says: {error}"
            ) from None

    @property
    def varies(self) -> frozenset[str]:
        """The axes of a `shard_map` over which JAX knows that an argument varies."""
        return frozenset[str]().union(*(each.varies for each in self._types))

    @property
    def _call_text(self) -> str:
        names = [*argument_names(self._f, self._positional), *(f"{name}=…" for name in self._keywords)]
        return f"{callable_name(self._f)}({', '.join(names)})"

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Refuse a call for which `jax.jit` would trace the function again.

        Raises:
          PlanError: if the call differs from the planned one.
          TraceError: if an argument is not an array.
        """
        _, leaves = flattened(self._f, args, kwargs)
        check_arrays(self._f, args, kwargs)
        if (differs := self._first_difference(leaves, args, kwargs)) is not None:
            raise PlanError(f"{callable_name(self._f)} was planned for another call: {differs}")

    def _first_difference(self, leaves: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        settings = _current_settings()
        for name, before in self._settings.items():
            if (now := settings[name]) != before:
                return f"{name} was {before!r} then, and is {now!r} now. Restore it, or plan again."
        if not self._has_tree(jax.tree.structure((tuple(args), dict(kwargs)))):
            return self._other_tree(args, kwargs)
        types = tuple(map(_Type.of, leaves))
        if types == self._types:
            return None
        paths = argument_paths(self._f, args, kwargs)
        for path, before, now in zip(paths, self._types, types, strict=True):
            if now.varies != before.varies:
                axes = ", ".join(map(repr, sorted(now.varies ^ before.varies)))
                return (
                    f"`{path}` is one device's part of an array along the mesh axis {axes}, inside a shard_map that "
                    "checks this (check_vma=True), and the plan was made outside of it. Put the shard_map into the "
                    "function and plan that, or pass check_vma=False to the shard_map."
                )
            if (now.shape, now.dtype) != (before.shape, before.dtype):
                return f"`{path}` was {before} then, and is {now} now. Plan again for these arguments."
            if now.weak != before.weak:
                kinds = f"weakly typed, like a Python number or jnp.full({now.shape}, 1.0)", f"an array of {now.dtype}"
                then, given = kinds if before.weak else kinds[::-1]
                convert = "Plan again" if before.weak else f"Pass jnp.asarray(value, jnp.{now.dtype}), or plan again"
                return f"`{path}` was {then} then, and is {given} now, which JAX promotes differently. {convert}."
            if now.memory != before.memory:
                return f"`{path}` was in {before.memory} memory then, and is in {now.memory} memory now. Plan again."
            if now.spec != before.spec:
                return (
                    f"`{path}` was sharded as {before.spec} then, and is sharded as {now.spec} over explicit mesh axes "
                    "now. Plan again with arrays that are sharded like these."
                )
        return None

    def _other_tree(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Say where the pytree of a call differs from the planned one."""
        call = Signature(self._f, args, kwargs)._call_text
        if call != self._call_text:
            return f"that was called as {self._call_text}, and this as {call}. Call it as planned, or plan again."
        positional, named = self._tree.children()
        names = [*argument_names(self._f, len(args)), *sorted(kwargs)]
        given = [*args, *(kwargs[name] for name in sorted(kwargs))]
        for name, planned, value in zip(names, [*positional.children(), *named.children()], given, strict=True):
            for path, then, now in _structure_differences(planned, value, name):
                return f"`{path}` was {then} then, and is {now} now. Plan again for these arguments."
        return "the pytree of its arguments has another structure or other static values now. Plan again."


def _current_settings() -> dict[str, Any]:
    mesh = jax.sharding.get_abstract_mesh()
    # Inside a shard_map, arrays are one device's shards. A plan made outside of the shard_map is for such shards too.
    around = None if mesh.empty or AxisType.Manual in mesh.axis_types else mesh
    return {name: getattr(jax.config, name) for name in SETTINGS if hasattr(jax.config, name)} | {"the mesh": around}


def _structure_differences(planned: Any, value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the places where a value's structure differs from the planned one, the innermost first.

    Each place is its path, then a description of the planned and of the given structure.
    """
    given: Any = jax.tree.structure(value)
    if planned == given:
        return
    before, now = planned.node_data(), given.node_data()
    if before is not None and now is not None and before[0] is now[0]:
        if before[1] == now[1] and planned.num_nodes and len(planned.children()) == len(given.children()):
            children = jax.tree.flatten_with_path(value, is_leaf=lambda node: node is not value)[0]
            for child, (keys, part) in zip(planned.children(), children, strict=False):
                yield from _structure_differences(child, part, path + "".join(map(step_of_path, keys)))
        if before[1] != now[1]:
            then, new = _differing_parts(before[1], now[1])
            if then != new:
                which = (
                    "" if before[0] in (dict, list, tuple, Static) else f" in the static part of {before[0].__name__}"
                )
                yield path, f"{then}{which}", f"{new}{which}"
        yield path, f"a {before[0].__name__}", f"a {now[0].__name__} with another structure or other static values"
    yield path, _node_text(planned), _node_text(given)


def _differing_parts(before: Any, now: Any) -> tuple[str, str]:
    """Return the innermost parts in which two static values differ, as text."""
    pair = type(before) is type(now) and isinstance(before, tuple | list) and len(before) == len(now)
    if pair:
        for one, other in zip(before, now, strict=True):
            if one != other:
                return _differing_parts(one, other)
    return _short_repr(before), _short_repr(now)


def _short_repr(value: object) -> str:
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _node_text(tree: Any) -> str:
    data = tree.node_data()
    if data is None:
        return "an array"
    kind, aux = data
    if kind is type(None):
        return "None"
    if kind is dict:
        return f"a dict with the keys {_short_repr(aux)}"
    return f"a {kind.__name__} of {tree.num_leaves} arrays" if tree.num_leaves != 1 else f"a {kind.__name__} of 1 array"
