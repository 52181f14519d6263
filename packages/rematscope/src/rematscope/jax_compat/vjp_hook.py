"""Find where a program takes a gradient, by marking values while the program is traced.

`jax.grad`, `jax.value_and_grad` and libraries' versions of them all call `jax.vjp`. While a function is traced here, a
replacement of `jax.vjp` gives checkpoint names to the values that it differentiates with respect to, to the function's
value, to the cotangents of the pullback and to the gradients. Names do not change results, and they persist through
jit, loops, vmap and shard_map.

JAX has no public API for this, so this module replaces private functions.
"""

import contextlib
import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import ad_checkpoint
from jax.extend import linear_util
from jax.extend.core import jaxpr_as_fun

from rematscope.jax_compat.absent_gpu import make_jaxpr
from rematscope.jax_compat.contexts import outside_transformations
from rematscope.jax_compat.equations import AnyJaxpr, body_of, walk_equations

Function = Callable[..., Any]

# The function that jax.grad, jax.value_and_grad, jax.jacrev and jax.vjp itself call, and its name.
_api: dict[str, Any] = inspect.unwrap(jax.value_and_grad).__globals__
_VJP = "_vjp" if "_vjp" in _api else "vjp"  # `_vjp`, which takes a wrapped function, until JAX 0.9
_give_name: Callable[[Any, str], Any] = ad_checkpoint.checkpoint_name
_partial: Callable[..., Any] = jax.tree_util.Partial  # it has no types
_patching = threading.RLock()
_numbers = itertools.count()

# Separates JAX's caches of traces inside and outside of it, because the caches must not return marked programs outside.
_user_context: Callable[[Any], Any] = jax.make_user_context
_trace_cache_key = _user_context(None)


class Mark(NamedTuple):
    """The role of a value in a gradient.

    Attributes:
      gradient: the number of the gradient; marks with the same number belong to the same call of `jax.vjp`.
      what: the role: `"differentiated"` (the gradient is with respect to the value), `"value"` (the function's value),
        `"cotangent"` or `"gradient"`.
    """

    gradient: Any
    what: str

    @classmethod
    def read(cls, name: str) -> "Mark | None":
        """Return the mark that a checkpoint name encodes; None for a user's name."""
        program, _, rest = name.partition(":")
        number, _, what = rest.partition(":")
        return cls(int(number), what) if program == _PREFIX else None


_PREFIX = "rematscope.gradient"


def _mark_leaves(tree: Any, number: int, what: str) -> Any:
    return _map_inexact(lambda leaf: _give_name(leaf, f"{_PREFIX}:{number}:{what}"), tree)


def _map_inexact(change: Function, tree: Any) -> Any:
    def changed(leaf: Any) -> Any:
        try:
            dtype = jnp.result_type(leaf)
        except TypeError:  # a symbolic zero, or not a JAX type
            return leaf
        return change(leaf) if dtype != jax.dtypes.float0 and jnp.issubdtype(dtype, np.inexact) else leaf

    return jax.tree.map(changed, tree)


class _Gradients:
    """A replacement of `jax.vjp` while a function runs, which affects gradients in this thread only.

    Attributes:
      taken: the function that is called instead of `jax.vjp`, as `taken(original, f, *primals, **settings)`.
      busy: whether a gradient is being taken or pulled back; gradients inside it are ignored.
    """

    def __init__(self, taken: Function):
        self.taken = taken
        self.busy = False
        self._thread = threading.get_ident()

    @property
    def is_here(self) -> bool:
        """Return whether this thread runs the function."""
        return threading.get_ident() == self._thread

    @contextlib.contextmanager
    def ignored(self) -> Iterator[None]:
        """Ignore gradients within the context, whose traces then use the caches of the caller of `run`."""
        key, before = _trace_cache_key.value, self.busy
        self.busy = True
        try:
            with _trace_cache_key(self._around if key is self._key else key):
                yield
        finally:
            self.busy = before

    def run(self, f: Function, args: Any, kwargs: Any, key: Any) -> Any:
        """Call `f(*args, **kwargs)`; if there is a `key`, with separate caches."""
        self._around = _trace_cache_key.value
        self._key = (self._around, key) if key else self._around
        with _patching, _trace_cache_key(self._key):
            self._original, public = _api[_VJP], vars(jax)["vjp"]
            _api[_VJP] = self
            if _VJP == "vjp":
                vars(jax)["vjp"] = self
            try:
                return f(*args, **kwargs)
            finally:
                _api[_VJP], vars(jax)["vjp"] = self._original, public

    def __call__(self, f: Any, *primals: Any, **settings: Any) -> Any:
        if self.busy or not self.is_here:
            return self._original(f, *primals, **settings)
        with self.ignored():
            out, pullback, *aux = self.taken(self._original, f, *primals, **settings)
        return out, _partial(_Pullback(self), pullback), *aux


class _Pullback:
    """A pullback, inside which gradients are ignored."""

    def __init__(self, gradients: _Gradients):
        self._gradients = gradients

    def __call__(self, pullback: Function, *cotangents: Any) -> Any:
        with self._gradients.ignored():
            return pullback(*cotangents)


def record_gradients(f: Function, scale: float | None = None) -> Function:
    """Return `f` with its outermost gradients marked when it is traced.

    Args:
      scale: a factor for the cotangents, after their marks.
    """

    def taken(vjp: Function, fun: Any, *primals: Any, **settings: Any) -> Any:
        number = next(_numbers)
        out, pullback, *aux = vjp(fun, *_mark_leaves(primals, number, "differentiated"), **settings)
        return _mark_leaves(out, number, "value"), _partial(_MarkedPullback(number, scale), pullback), *aux

    return lambda *args, **kwargs: _Gradients(taken).run(f, args, kwargs, "marks")


class _MarkedPullback:
    """A pullback that marks its cotangents and its gradients, and scales its cotangents."""

    def __init__(self, number: int, scale: float | None):
        self._number, self._scale = number, scale

    def __call__(self, pullback: Function, *cotangents: Any) -> Any:
        marked = _mark_leaves(cotangents, self._number, "cotangent")
        if self._scale is not None:
            marked = _map_inexact(lambda cotangent: cotangent * self._scale, marked)
        return _mark_leaves(pullback(*marked), self._number, "gradient")


class _TracedLoss:
    """A loss that is called once for arguments of the same types; later calls run its jaxpr.

    Some losses, such as those of nnx, allow one call.
    """

    def __init__(self, loss: Function):
        functools.update_wrapper(self, loss)
        self._loss = loss
        self._traces = dict[Any, Any]()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        key = tree, tuple(map(jax.typeof, leaves))
        if key not in self._traces:

            def flat(*leaves: Any) -> Any:
                given, named = jax.tree.unflatten(tree, leaves)
                return self._loss(*given, **named)

            jaxpr, out = make_jaxpr(flat, return_shape=True)(*leaves)
            self._traces[key] = jaxpr_as_fun(jaxpr), jax.tree.structure(out)
        run, out_tree = self._traces[key]
        return jax.tree.unflatten(out_tree, run(*leaves))


class _PullbackWithTypes:
    """A pullback whose gradients have weak types where those of the loss as written have."""

    def __init__(self, as_written: Function):
        self._as_written = as_written

    def __call__(self, pullback: Function, *cotangents: Any) -> Any:
        expected = jax.eval_shape(lambda: self._as_written()[1](*cotangents))
        return jax.tree.map(with_weak_type, pullback(*cotangents), expected)


def with_weak_type(value: Any, like: Any) -> Any:
    """Return a value whose type is weak if the type `like` is, and is not weak otherwise."""
    aval, weak = jax.typeof(value), bool(getattr(like, "weak_type", False))
    if bool(getattr(aval, "weak_type", False)) == weak:
        return value
    return jax.lax.convert_element_type_p.bind(value, new_dtype=aval.dtype, weak_type=weak, sharding=None)


def transform_losses(f: Function, change: Callable[[Function], Function], key: Hashable | None = None) -> Function:
    """Return `f` with the loss of each outermost gradient replaced by `change(loss)`.

    A gradient has a weak type if that of the loss as written has one. JAX derives it from the operations of the loss,
    and for a loop from the type of the argument, which a loop in the changed loss would otherwise decide.

    Args:
      key: the key of JAX's caches of traces; by default, each call is traced again.
    """

    def taken(vjp: Function, fun: Any, *primals: Any, **settings: Any) -> Any:
        loss = _loss_of_wrapped(fun) if isinstance(fun, linear_util.WrappedFun) else fun
        is_weak = any(getattr(jax.typeof(leaf), "weak_type", False) for leaf in jax.tree.leaves(primals))
        loss = _TracedLoss(loss) if is_weak else loss

        def differentiable(loss: Function) -> Any:
            is_wrapped = isinstance(fun, linear_util.WrappedFun)
            return linear_util.wrap_init(loss, debug_info=fun.debug_info) if is_wrapped else loss

        out, pullback, *aux = vjp(differentiable(change(loss)), *primals, **settings)
        if not is_weak:
            return out, pullback, *aux
        as_written = functools.partial(vjp, differentiable(loss), *primals, **settings)
        return out, _partial(_PullbackWithTypes(as_written), pullback), *aux

    return lambda *args, **kwargs: _Gradients(taken).run(f, args, kwargs, key or object())


def _loss_of_wrapped(fun: linear_util.WrappedFun) -> Function:
    """Return a loss of older JAX, such as 0.7.2, as a function from which the user's function can be reached."""

    call: Function = fun.call_wrapped

    def loss(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    loss.__dict__["function"] = fun.f  # a search in closures and attributes does not look into objects of JAX
    return loss


@contextlib.contextmanager
def outside_traces(keeps_axes: bool = False) -> Iterator[None]:
    """Leave the caller's transformations and the replacement of its gradients within the context, for separate traces.

    A plan that is made while a function is traced takes gradients too, which do not belong to that function.

    Args:
      keeps_axes: whether the separate traces may use the caller's named axes, such as those of a `shard_map`.
    """
    around = _api[_VJP]
    watched = isinstance(around, _Gradients) and around.is_here
    before = watched and around.busy
    with outside_transformations(keeps_axes), _trace_cache_key(None):
        if watched:
            around.busy = True
        try:
            yield
        finally:
            if watched:
                around.busy = before


class GradientInside(BaseException):
    """Raised if a function takes a gradient.

    It is not an `Exception`, because libraries may catch every `Exception` around a gradient, as Tokamax does.
    """


def raise_at_gradients(f: Function) -> Function:
    """Return `f`, changed to raise GradientInside where it takes a gradient.

    This does not detect a gradient in a jitted function that was traced before; use `has_gradient` for it.
    """
    return lambda *args, **kwargs: _Gradients(_raise_gradient_inside).run(f, args, kwargs, None)


def announce_gradient() -> None:
    """Raise GradientInside if `raise_at_gradients` runs the caller, whose gradient is in a program traced before."""
    around = _api[_VJP]
    if isinstance(around, _Gradients) and around.is_here and not around.busy and around.taken is _raise_gradient_inside:
        raise GradientInside


def _raise_gradient_inside(*_: Any, **__: Any) -> Any:
    raise GradientInside


def has_gradient(jaxpr: AnyJaxpr) -> bool:
    """Return whether a program contains a gradient, by the names that JAX gives to transposed operations."""
    return _is_in_name("transpose(", jaxpr)


def has_map(jaxpr: AnyJaxpr) -> bool:
    """Return whether a program contains a `jax.vmap`, by the names that JAX gives to mapped operations."""
    return _is_in_name("vmap(", jaxpr)


def is_in_jvp(eqn: Any) -> bool:
    """Return whether `jax.jvp` or a gradient differentiates an equation, by the name that JAX gives its operations."""
    return "jvp(" in str(eqn.source_info.name_stack)


def _is_in_name(text: str, jaxpr: AnyJaxpr) -> bool:
    stacks = (eqn.source_info.name_stack for eqn, _ in walk_equations(jaxpr))
    few = {id(stack): stack for stack in stacks}  # equations of the same scope share a stack
    return any(text in str(stack) for stack in few.values())


def donated_operands(jaxpr: AnyJaxpr) -> list[int]:
    """Return the operands of a program that a `jit` around the whole program donates (`donate_argnums`)."""
    inner = body_of(jaxpr)[0]
    flags = [(eqn.invars, eqn.params.get("donated_invars", ())) for eqn in inner.eqns]
    given = [v for operands, donated in flags for v, ok in zip(operands, donated, strict=False) if ok]
    return [i for i, v in enumerate(inner.invars) if v in given]
