"""Find the checkpoints in a function, change their policies, and remove them."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from rematscope import jax_compat
from rematscope.errors import PlanError, TraceError
from rematscope.ir.inline import Inliner
from rematscope.ir.placement import place
from rematscope.ir.source import Source
from rematscope.ir.specs import across_devices
from rematscope.jax_compat import AnyJaxpr, Policy
from rematscope.jax_compat.vjp_hook import (
    GradientInside,
    has_gradient,
    raise_at_gradients,
    record_gradients,
    transform_losses,
)
from rematscope.tracing.arguments import FlatFunction, callable_name, check_differentiable, flattened, shape_struct
from rematscope.tracing.per_device import manual_axes, remap_shard_map
from rematscope.tracing.step import gradients_of, is_step


def nothing(*_: Any, **__: Any) -> bool:
    """Save nothing: a policy that only this package uses, so that its own checkpoints can be recognized."""
    return False


def with_policy(f: Callable[..., Any], policy: Policy | None) -> Callable[..., Any]:
    """Return `f` with `policy` in each of its checkpoints; if it has none, with one checkpoint around all of `f`.

    In a training step, this changes the function that the step differentiates.

    Args:
      f: a function of pytrees of arrays. Its checkpoints may also be in functions that it calls, in jits, loops and
        branches, but not in custom rules.
      policy: a policy as for `jax.checkpoint`; None saves nothing.

    Raises:
      PlanError: when the function is called, if `f` differentiates one of its checkpoints itself, has an effect that a
        checkpoint must not repeat, or has a name whose saved value would have no gradient.
    """
    return with_policies(f, lambda _: policy)


def with_policies(f: Callable[..., Any], instead: Callable[[Policy | None], Policy | None]) -> Callable[..., Any]:
    """Return `f` with another policy in each of its checkpoints; if it has none, with one checkpoint around all of `f`.

    Args:
      instead: maps the old policy of a checkpoint to the new one. If `f` has no checkpoint, the old policy is None.

    Raises:
      PlanError: as for `with_policy`.
    """

    @functools.wraps(f)
    def planned(*args: Any, **kwargs: Any) -> Any:
        once, leaves = _call_once(f, args, kwargs)
        if once is None:
            return transform_losses(f, lambda loss: with_policies(loss, instead))(*args, **kwargs)
        if any(map(jax_compat.is_differentiated, checkpoints(once.jaxpr))):
            # The gradient inside has already chosen its residuals, so another policy would have no effect on it.
            raise PlanError(
                f"{getattr(f, '__name__', 'the function')} differentiates a function that has a checkpoint, so "
                "names can no longer be chosen. Pass the function itself, not its gradient."
            )
        for name, source in names_without_gradient(once.jaxpr).items():
            raise PlanError(lost_gradient_text(name, source))
        try:
            return once.run(jax_compat.jaxpr_with_policies(once.with_checkpoint, instead), leaves)
        except NotImplementedError as error:
            if (refusal := _explain_refusal(callable_name(f), str(error))) is None:
                raise
            raise refusal from None

    return planned


def _explain_refusal(function: str, error: str) -> PlanError | None:
    """Return an error that explains why JAX cannot checkpoint a function; None if JAX's error has another cause."""
    if "Effects not supported" in error:
        return PlanError(
            f"{function} has a callback that must not run twice, such as io_callback. Put checkpoints around the parts "
            "without it."
        )
    if "Mutating a reference" in error:
        return PlanError(
            f"{function} writes values that it differentiates to a mutable array (jax.new_ref), which JAX's "
            "checkpoints do not support. Put checkpoints around the parts without it."
        )
    return None


def without_checkpoints(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` without the checkpoints that `with_policy` changes."""
    if isinstance(f, CalledOnce):
        return f.without_checkpoints

    @functools.wraps(f)
    def plain(*args: Any, **kwargs: Any) -> Any:
        once, leaves = _call_once(f, args, kwargs)
        if once is None:
            return transform_losses(f, without_checkpoints)(*args, **kwargs)
        return once.run(once.without_checkpoints.jaxpr, leaves)

    return plain


class CalledOnce:
    """A function that was traced once, for arguments of these shapes only. Later traces use its jaxpr.

    Attributes:
      jaxpr: its jaxpr, as a function of the leaves of its arguments.
    """

    def __init__(self, f: Callable[..., Any], jaxpr: ClosedJaxpr, out: Any):
        functools.update_wrapper(self, f)  # keeps the signature of `f`
        self.__name__ = callable_name(f)  # a partial has no name
        self.function = f
        self.jaxpr = jaxpr
        self._out = jax.tree.structure(out)
        self._with_checkpoint: dict[bool, ClosedJaxpr] = {}

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        _, leaves = flattened(self.function, args, kwargs)
        return self.run(self.jaxpr, leaves)

    def run(self, jaxpr: ClosedJaxpr, leaves: Sequence[Any]) -> Any:
        """Run a jaxpr on the leaves, and return the results in the structure of the function's outputs."""
        return self.returning(jaxpr_as_fun(jaxpr)(*leaves))

    def returning(self, results: Sequence[Any]) -> Any:
        """Return results of the jaxpr in the structure of the function's outputs."""
        return jax.tree.unflatten(self._out, results)

    @functools.cached_property
    def without_checkpoints(self) -> "CalledOnce":
        """The same function without its checkpoints."""
        without = jax_compat.map_equations(
            self.jaxpr,
            lambda eqn, _: [jax_compat.eqn_without_checkpoint(eqn) if jax_compat.is_checkpoint(eqn) else eqn],
        )
        return self if without is self.jaxpr else CalledOnce(self.function, without, self.returning(without.out_avals))

    @property
    def with_checkpoint(self) -> ClosedJaxpr:
        """The jaxpr; if it has no checkpoint, with one around all of it.

        All policies share one object, so that JAX's caches for the checkpoint's body apply. There is one object per
        value of `jax_remat3`, because this setting decides which equation a checkpoint becomes.
        """
        if any(checkpoints(self.jaxpr)):
            return self.jaxpr
        mode = jax_compat.remat3()
        if mode not in self._with_checkpoint:
            inside = jax.checkpoint(jaxpr_as_fun(self.jaxpr))
            self._with_checkpoint[mode] = jax_compat.make_jaxpr(inside)(*self.jaxpr.in_avals)
        return self._with_checkpoint[mode]


class KnownStep:
    """A function that is known to be a training step. Each trace calls it, because the trace changes its loss."""

    def __init__(self, f: Callable[..., Any]):
        functools.update_wrapper(self, f)
        self.__name__ = callable_name(f)
        self.function = f

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def called_once(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """Return `f` as a `CalledOnce` for arguments of these shapes, or as a `KnownStep` if it is a training step.

    Return `f` unchanged if it cannot be traced, or if it takes a gradient without being a training step.
    """
    flattened(f, args, kwargs)
    try:
        once, _ = _call_once(f, args, kwargs)
    except Exception:  # an error of the user's function, which `trace` explains later
        return f
    if once is None:
        return KnownStep(original_function(f))
    return f if has_gradient(once.jaxpr) else once


def original_function(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that was passed to `called_once`."""
    return f.function if isinstance(f, CalledOnce | KnownStep) else f


def _call_once(
    f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[CalledOnce | None, Sequence[Any]]:
    """Return `f` as a `CalledOnce`, or None if `f` is a training step; and the leaves of its arguments."""
    flat, leaves = flattened(f, args, kwargs)
    if isinstance(f, CalledOnce):
        return f, leaves
    if isinstance(f, KnownStep):
        return None, leaves
    try:
        jaxpr, out = jax_compat.make_jaxpr(raise_at_gradients(flat), return_shape=True)(*leaves)
        if not has_gradient(jaxpr):
            return CalledOnce(f, jaxpr, out), leaves
    except GradientInside:
        pass
    if _takes_step(flat, leaves):
        return None, leaves
    return trace_once(f, args, kwargs)


def trace_once(
    f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[CalledOnce, Sequence[Any]]:
    """Return `f` as a `CalledOnce`, also if it takes a gradient; and the leaves of its arguments.

    `f` is traced here unless it is a `CalledOnce` already.
    """
    flat, leaves = flattened(f, args, kwargs)
    if isinstance(f, CalledOnce):
        return f, leaves
    return CalledOnce(f, *jax_compat.make_jaxpr(flat, return_shape=True)(*leaves)), leaves


def replace_calls(f: Callable[..., Any], run: Callable[[CalledOnce, Sequence[Any]], Any]) -> Callable[..., Any]:
    """Return `f` with each call replaced by `run(once, leaves)`; see `trace_once`."""

    def replaced(*args: Any, **kwargs: Any) -> Any:
        return run(*trace_once(f, args, kwargs))

    return functools.wraps(f, updated=())(replaced)


def _takes_step(flat: FlatFunction, leaves: list[Any]) -> bool:
    inline = Inliner()
    jaxpr = jax_compat.make_jaxpr(record_gradients(flat.updating))(*leaves)
    program = inline.whole(jaxpr)
    place(program)
    return is_step(program, gradients_of(inline.marks))


def loss_inside(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return `f` and its arguments; for a training step, the first loss that it differentiates, and shapes for it.

    Values of the step that the loss closes over become arguments of the loss. A loss inside a `shard_map` is a function
    of one device's shards, so it is returned in a `shard_map` of its own. Under automatic mesh axes, the sharding of
    a value is not known. The value is assumed to be sharded like the step's arguments of the same shape, if these all
    have the same sharding.

    Raises:
      TraceError: if the step contains its gradient as operations, so that there is no loss to differentiate.
    """
    flat, leaves = flattened(f, args, kwargs)
    check_differentiable(f, args, kwargs)
    if (once := _call_once(f, args, kwargs)[0]) is not None:
        return once, args, kwargs
    found: list[tuple[Any, list[Any]]] = []
    shardings: dict[tuple[int, ...], set[Any]] = {}
    for leaf in leaves:
        if jnp.shape(leaf):
            shardings.setdefault(jnp.shape(leaf), set()).add(getattr(leaf, "sharding", None))

    def like(value: Any) -> Any:
        """Return the sharding that all of the step's arguments of this shape have; None if there is no such one."""
        several = shardings.get(value.shape, set())
        return across_devices(next(iter(several))) if len(several) == 1 else None

    def look(loss: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*primals: Any, **settings: Any) -> Any:
            inner, given = flattened(loss, primals, settings)
            jaxpr: Any
            jaxpr = jax_compat.make_jaxpr(inner)(*given)  # once, because some losses, such as nnx's, allow one call
            alone, outer = split_outer_values(jaxpr)
            values = [*outer, *given]
            shapes = [shape_struct(jax.typeof(x), sharding=like(x)) for x in values]
            found.append(remap_shard_map(alone, values) if manual_axes() else (alone, shapes))
            raise GradientInside  # the rest of the step is not needed

        return seen

    with contextlib.suppress(GradientInside):
        jax_compat.make_jaxpr(transform_losses(flat, look))(*leaves)
    if not found:
        raise TraceError(
            f"The gradient of {callable_name(f)} is part of a program that was traced before, as in the result of "
            "rematscope.rewrite with microbatches=. Pass the function as written."
        )
    loss, shapes = found[0]
    loss.__name__ = callable_name(f)
    return called_once(loss, shapes, {}), shapes, {}


def split_outer_values(jaxpr: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return a jaxpr as a function of the values of outer transformations that it closes over, followed by its
    arguments; and these values.
    """
    is_outer = [isinstance(const, jax.core.Tracer) for const in jaxpr.consts]

    def with_outer(*operands: Any) -> Any:
        rest = iter(operands)
        consts = [next(rest) if outer else const for const, outer in zip(jaxpr.consts, is_outer, strict=True)]
        return jaxpr_as_fun(jaxpr.replace(consts=consts))(*rest)

    return with_outer, [const for const, outer in zip(jaxpr.consts, is_outer, strict=True) if outer]


def checkpoints(jaxpr: AnyJaxpr) -> Iterator[JaxprEqn]:
    """Yield every checkpoint that `with_policy` changes, including checkpoints inside other checkpoints."""
    for eqn in jax_compat.body_of(jaxpr)[0].eqns:
        if jax_compat.is_checkpoint(eqn):
            yield eqn
        for body in () if jax_compat.is_custom_rule(eqn) else jax_compat.bodies(eqn):
            yield from checkpoints(body)


def recomputes_unrepeatable(jaxpr: AnyJaxpr) -> bool:
    """Return whether a checkpoint contains an operation whose second run may differ; see `is_repeatable`."""
    bodies = (jax_compat.called_body(eqn) for eqn in checkpoints(jaxpr))
    inside = (eqn for body in bodies if body is not None for eqn in jax_compat.body_of(body)[0].eqns)
    return not all(jax_compat.is_repeatable(eqn, prints=True) for eqn in inside)


def names_without_gradient(jaxpr: AnyJaxpr) -> dict[str, Source | None]:
    """Return the names that `checkpoint_name_fwd` gives outside of derivative rules, with the first line of each.

    With `jax_remat3`, JAX 0.12.0.1 drops the gradient through such a value if a policy saves it. In JAX's default
    rematerialization, `checkpoint_name_fwd` is `checkpoint_name`, and the result is empty.
    """
    found: dict[str, Source | None] = {}
    for eqn, around in jax_compat.walk_equations(jaxpr):
        if jax_compat.is_forward_name(eqn) and not any(map(jax_compat.is_custom_rule, around)):
            name = jax_compat.checkpoint_name(eqn)
            assert name is not None, "checkpoint_name_fwd gives a name"
            found.setdefault(name, Source.of(*(each.source_info for each in (eqn, *reversed(around)))))
    return found


def lost_gradient_text(name: str, source: Source | None) -> str:
    """Return what is wrong with a name of `names_without_gradient`, and what to write instead."""
    where = f" on {source.where}" if source else ""
    return (
        f"checkpoint_name_fwd names {name!r}{where}, outside of the forward rule of a custom_vjp. If a policy saves "
        "this name, JAX 0.12.0.1 with jax_remat3 drops the gradient through the value, without an error. Use "
        "jax.ad_checkpoint.checkpoint_name."
    )


def jaxpr_of(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ClosedJaxpr:
    """Return the jaxpr of `f` on the leaves of its arguments, which are arrays or `jax.ShapeDtypeStruct`s."""
    return trace_once(f, args, kwargs)[0].jaxpr
