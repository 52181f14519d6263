"""The checkpoints that a function has, and the same function with another policy in them."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.ir.inline import Inliner
from rematscope.ir.placement import place
from rematscope.ir.program import Value
from rematscope.jax_compat import AnyJaxpr, Policy
from rematscope.jax_compat.vjp_hook import (
    GradientInside,
    has_gradient,
    raise_at_gradients,
    record_gradients,
    transform_losses,
)
from rematscope.tracing.arguments import FlatFunction, callable_name, check_differentiable, flattened
from rematscope.tracing.per_device import manual_axes, remap_shard_map
from rematscope.tracing.step import gradients_of, is_step

source_info_util.register_exclusion(__file__)


def nothing(*_: Any, **__: Any) -> bool:
    """A policy that saves nothing. A checkpoint that has it was given it here."""
    return False


def with_policy(f: Callable[..., Any], policy: Policy | None) -> Callable[..., Any]:
    """Returns `f` with `policy` in each of its checkpoints; with one checkpoint around all of it if it has none.

    Of a training step, that is done to what it takes the gradient of.

    Args:
      f: a function of pytrees of arrays. Checkpoints are found in functions that it calls, in jit, loops and branches,
        but not in custom rules.
      policy: what `jax.checkpoint` takes: None saves nothing.

    Raises:
      PlanError: when the function is called, if a checkpoint of `f` is differentiated in it, or if it has an effect
        that none may go around.
    """
    return with_policies(f, lambda _: policy)


def with_policies(f: Callable[..., Any], instead: Callable[[Policy | None], Policy | None]) -> Callable[..., Any]:
    """Returns `f` with another policy in each of its checkpoints; with one checkpoint around all of it if it has none.

    Args:
      f: as for `with_policy`.
      instead: gives the policy that takes the place of one; that of a checkpoint around all of `f` had been None.

    Raises:
      PlanError: as `with_policy` says.
    """

    @functools.wraps(f)
    def planned(*args: Any, **kwargs: Any) -> Any:
        once, leaves = _call_once(f, args, kwargs)
        if once is None:
            return transform_losses(f, lambda loss: with_policies(loss, instead))(*args, **kwargs)
        if any(map(jax_compat.is_differentiated, checkpoints(once.jaxpr))):
            # What the gradient inside keeps was decided when it was taken: another policy would not change that.
            raise PlanError(
                f"{getattr(f, '__name__', 'the function')} differentiates a function that has a checkpoint, so "
                "names can no longer be chosen. Pass the function itself, not its gradient."
            )
        try:
            return once.run(jax_compat.jaxpr_with_policies(once.with_checkpoint, instead), leaves)
        except NotImplementedError as error:
            if (refusal := _explain_refusal(callable_name(f), str(error))) is None:
                raise
            raise refusal from None

    return planned


def _explain_refusal(function: str, error: str) -> PlanError | None:
    """What JAX's refusal to checkpoint a function means; None for another error."""
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
    """Returns `f` without the checkpoints that `with_policy` reaches."""
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
    """A function for arguments of some shapes alone, which was traced and is called no more: to be traced in many ways.

    Attributes:
      function: what was traced.
      jaxpr: its program, on the leaves of its arguments.
    """

    def __init__(self, f: Callable[..., Any], jaxpr: ClosedJaxpr, out: Any):
        functools.update_wrapper(self, f)  # for its signature
        self.__name__ = callable_name(f)  # which a partial has not
        self.function = f
        self.jaxpr = jaxpr
        self._out = jax.tree.structure(out)
        self._with_checkpoint: dict[bool, ClosedJaxpr] = {}

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        _, leaves = flattened(self.function, args, kwargs)
        return self.run(self.jaxpr, leaves)

    def run(self, jaxpr: ClosedJaxpr, leaves: Sequence[Any]) -> Any:
        """What it returns if this is its program."""
        return self.returning(jaxpr_as_fun(jaxpr)(*leaves))

    def returning(self, results: Sequence[Any]) -> Any:
        """What it returns if these are its program's results."""
        return jax.tree.unflatten(self._out, results)

    @functools.cached_property
    def without_checkpoints(self) -> "CalledOnce":
        """The same without its checkpoints."""
        without = jax_compat.map_equations(
            self.jaxpr,
            lambda eqn, _: [jax_compat.eqn_without_checkpoint(eqn) if jax_compat.is_checkpoint(eqn) else eqn],
        )
        return self if without is self.jaxpr else CalledOnce(self.function, without, self.returning(without.out_avals))

    @property
    def with_checkpoint(self) -> ClosedJaxpr:
        """Its program; one checkpoint goes around all of it if it has none.

        One object for all policies: JAX then knows again what it has made of the checkpoint's body. `jax_remat3`
        decides which equation a checkpoint is.
        """
        if any(checkpoints(self.jaxpr)):
            return self.jaxpr
        mode = jax_compat.remat3()
        if mode not in self._with_checkpoint:
            inside = jax.checkpoint(jaxpr_as_fun(self.jaxpr))
            self._with_checkpoint[mode] = jax_compat.make_jaxpr(inside)(*self.jaxpr.in_avals)
        return self._with_checkpoint[mode]


class KnownStep:
    """A training step, which is called whenever it is traced, for there its gradient is changed: known for one."""

    def __init__(self, f: Callable[..., Any]):
        functools.update_wrapper(self, f)
        self.__name__ = callable_name(f)
        self.function = f

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def called_once(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """`f` for arguments of these shapes alone, which calls it no more; see `CalledOnce`, of a step `KnownStep`.

    What cannot be traced stays as it is, and so does what takes a gradient and is no step.
    """
    flattened(f, args, kwargs)
    try:
        once, _ = _call_once(f, args, kwargs)
    except Exception:  # of the user's, which `trace` explains
        return f
    if once is None:
        return KnownStep(as_given(f))
    return f if has_gradient(once.jaxpr) else once


def as_given(f: Callable[..., Any]) -> Callable[..., Any]:
    """What `called_once` was given."""
    return f.function if isinstance(f, CalledOnce | KnownStep) else f


def _call_once(
    f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[CalledOnce | None, Sequence[Any]]:
    """A function that is called once, None if it is a training step; and the leaves of its arguments."""
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
    return traced(f, args, kwargs)


def traced(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[CalledOnce, Sequence[Any]]:
    """A function that is called once, now if it was not before, whatever it does; and the leaves of its arguments."""
    flat, leaves = flattened(f, args, kwargs)
    if isinstance(f, CalledOnce):
        return f, leaves
    return CalledOnce(f, *jax_compat.make_jaxpr(flat, return_shape=True)(*leaves)), leaves


def _takes_step(flat: FlatFunction, leaves: list[Any]) -> bool:
    inline = Inliner()
    jaxpr = jax_compat.make_jaxpr(record_gradients(flat.updating))(*leaves)
    program = inline.program(jaxpr, [Value(v.aval) for v in jax_compat.body_of(jaxpr)[0].invars])
    place(program)
    return is_step(program, gradients_of(inline.marks))


def loss_inside(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """`f` and its arguments; of a training step what it takes the first gradient of, and shapes of what that is given.

    What that function reads of the step around it is an argument of it too. Inside a shard_map it is a function of what
    one device has, and stands in one of its own here. Under automatic axes it is not known where a value comes from: it
    is taken to lie as the step's arguments of its shape, if these lie alike.
    """
    flat, leaves = flattened(f, args, kwargs)
    check_differentiable((args, kwargs))
    if (once := _call_once(f, args, kwargs)[0]) is not None:
        return once, args, kwargs
    found: list[tuple[Any, list[Any]]] = []
    shardings: dict[tuple[int, ...], set[Any]] = {}
    for leaf in leaves:
        if jnp.shape(leaf):
            shardings.setdefault(jnp.shape(leaf), set()).add(getattr(leaf, "sharding", None))

    def like(value: Any) -> Any:
        """The sharding of a step's arguments of this shape."""
        several = shardings.get(value.shape, set())
        sharding = next(iter(several)) if len(several) == 1 else None
        return sharding if getattr(sharding, "num_devices", 1) > 1 else None

    def look(loss: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*primals: Any, **settings: Any) -> Any:
            inner, given = flattened(loss, primals, settings)
            jaxpr: Any
            jaxpr = jax_compat.make_jaxpr(inner)(*given)  # it may be called once, as nnx's may
            read = [isinstance(x, jax.core.Tracer) for x in jaxpr.consts]

            def alone(*leaves: Any) -> Any:
                rest = iter(leaves)
                consts = [next(rest) if taken else x for x, taken in zip(jaxpr.consts, read, strict=True)]
                return jaxpr_as_fun(jaxpr.replace(consts=consts))(*rest)

            values = [*(x for x, taken in zip(jaxpr.consts, read, strict=True) if taken), *given]
            shapes = [_make_shape(jax.typeof(x), like(x)) for x in values]
            found.append(remap_shard_map(alone, values) if manual_axes() else (alone, shapes))
            raise GradientInside  # what else the step does is not asked for

        return seen

    with contextlib.suppress(GradientInside):
        jax_compat.make_jaxpr(transform_losses(flat, look))(*leaves)
    loss, shapes = found[0]
    loss.__name__ = callable_name(f)
    return called_once(loss, shapes, {}), shapes, {}


def _make_shape(aval: Any, sharding: Any) -> Any:
    make: Callable[..., Any] = jax.ShapeDtypeStruct  # JAX gives its constructor no types
    return make(aval.shape, aval.dtype, sharding=sharding, weak_type=getattr(aval, "weak_type", False))


def checkpoints(jaxpr: AnyJaxpr) -> Iterator[JaxprEqn]:
    """Every checkpoint that `with_policy` reaches, those in other ones included."""
    for eqn in jax_compat.body_of(jaxpr)[0].eqns:
        if jax_compat.is_checkpoint(eqn):
            yield eqn
        for body in () if jax_compat.is_custom_rule(eqn) else jax_compat.bodies(eqn):
            yield from checkpoints(body)


def repeats_what_may_differ(jaxpr: AnyJaxpr) -> bool:
    """Whether a checkpoint goes around an operation whose second run may give another result; see `is_repeatable`."""
    bodies = (jax_compat.called_body(eqn) for eqn in checkpoints(jaxpr))
    inside = (eqn for body in bodies if body is not None for eqn in jax_compat.body_of(body)[0].eqns)
    return not all(jax_compat.is_repeatable(eqn, prints=True) for eqn in inside)


def jaxpr_of(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ClosedJaxpr:
    """The jaxpr of `f` on the leaves of its arguments, arrays or `jax.ShapeDtypeStruct`s."""
    return traced(f, args, kwargs)[0].jaxpr
