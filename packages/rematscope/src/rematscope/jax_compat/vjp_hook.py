"""Where a program takes a gradient: told by marks that are put into it while it is traced.

`jax.grad`, `jax.value_and_grad` and what libraries make of them all go through `jax.vjp`. While a function is traced
here, that gives a name to what is differentiated for, to its value, to the cotangent that goes into the pullback, and
to what comes out. Names change nothing, and they stay in place through jit, loops, vmap and shard_map.

No public door of JAX says so; like the rest of `rematscope.jax_compat`, this file goes behind it.
"""

import contextlib
import inspect
import itertools
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import ad_checkpoint
from jax.extend import linear_util, source_info_util

from rematscope.jax_compat.contexts import outside_transformations
from rematscope.jax_compat.equations import AnyJaxpr, bodies, body_of

source_info_util.register_exclusion(__file__)

Function = Callable[..., Any]

# What jax.grad, jax.value_and_grad, jax.jacrev and jax.vjp itself call, and under which name they find it.
_api: dict[str, Any] = inspect.unwrap(jax.value_and_grad).__globals__
_VJP = "_vjp" if "_vjp" in _api else "vjp"  # the former until JAX 0.9, of a function that is wrapped
_give_name: Callable[[Any, str], Any] = ad_checkpoint.checkpoint_name
_partial: Callable[..., Any] = jax.tree_util.Partial  # JAX gives it no types
_patching = threading.RLock()
_numbers = itertools.count()

# What is traced in it stays out of the caches of what is traced outside: they must not hold marked programs.
_user_context: Callable[[Any], Any] = jax.make_user_context
_trace_cache_key = _user_context(None)


class Mark(NamedTuple):
    """What a value is to a gradient.

    Attributes:
      gradient: its number; two of one number are taken by the same call of `jax.vjp`.
      what: `"differentiated"` for, its `"value"`, a `"cotangent"` going in, or a `"gradient"` coming out.
    """

    gradient: int
    what: str

    @classmethod
    def read(cls, name: str) -> "Mark | None":
        """The mark that a checkpoint name is; None for one of the user's own."""
        program, _, rest = name.partition(":")
        number, _, what = rest.partition(":")
        return cls(int(number), what) if program == _PREFIX else None


_PREFIX = "rematscope.gradient"


def _mark_leaves(tree: Any, number: int, what: str) -> Any:
    def mark(leaf: Any) -> Any:
        try:
            dtype = jnp.result_type(leaf)
        except TypeError:  # a symbolic zero, or none of JAX's types
            return leaf
        inexact = dtype != jax.dtypes.float0 and jnp.issubdtype(dtype, np.inexact)
        return _give_name(leaf, f"{_PREFIX}:{number}:{what}") if inexact else leaf

    return jax.tree.map(mark, tree)


class _Gradients:
    """Stands in the place of `jax.vjp` while a function runs in this thread, for gradients in no other's.

    Attributes:
      taken: what is called in its place, `taken(original, f, *primals, **settings)`.
      busy: a gradient is being taken, or pulled back: those in it are its own affair.
    """

    def __init__(self, taken: Function):
        self.taken = taken
        self.busy = False
        self._thread = threading.get_ident()

    @property
    def is_here(self) -> bool:
        """Whether this thread runs the function."""
        return threading.get_ident() == self._thread

    def run(self, f: Function, args: Any, kwargs: Any, key: Any) -> Any:
        """Calls `f(*args, **kwargs)`, apart from all caches where there is a `key`."""
        with _patching, _trace_cache_key((_trace_cache_key.value, key)) if key else contextlib.nullcontext():
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
        self.busy = True
        try:
            out, pullback, *aux = self.taken(self._original, f, *primals, **settings)
        finally:
            self.busy = False
        return out, _partial(_Pullback(self), pullback), *aux


class _Pullback:
    """Calls a pullback, whose own gradients are nobody's affair."""

    def __init__(self, gradients: _Gradients):
        self._gradients = gradients

    def __call__(self, pullback: Function, *cotangents: Any) -> Any:
        before, self._gradients.busy = self._gradients.busy, True
        try:
            return pullback(*cotangents)
        finally:
            self._gradients.busy = before


def record_gradients(f: Function) -> Function:
    """`f`, whose outermost gradients are marked in the jaxpr that is made of it."""

    def taken(vjp: Function, fun: Any, *primals: Any, **settings: Any) -> Any:
        number = next(_numbers)
        out, pullback, *aux = vjp(fun, *_mark_leaves(primals, number, "differentiated"), **settings)
        return _mark_leaves(out, number, "value"), _partial(_MarkedPullback(number), pullback), *aux

    return lambda *args, **kwargs: _Gradients(taken).run(f, args, kwargs, "marks")


class _MarkedPullback:
    """Calls a pullback, and marks what goes in and what comes out."""

    def __init__(self, number: int):
        self._number = number

    def __call__(self, pullback: Function, *cotangents: Any) -> Any:
        return _mark_leaves(pullback(*_mark_leaves(cotangents, self._number, "cotangent")), self._number, "gradient")


def transform_losses(f: Function, change: Callable[[Function], Function], key: Hashable | None = None) -> Function:
    """`f`, whose outermost gradients are those of `change(loss)` in place of the loss.

    Args:
      f: the function.
      change: takes a loss and returns another one.
      key: JAX's caches keep what is traced under one key; by default, each call is traced anew.
    """

    def taken(vjp: Function, fun: Any, *primals: Any, **settings: Any) -> Any:
        if isinstance(fun, linear_util.WrappedFun):
            changed: Any = linear_util.wrap_init(change(fun.call_wrapped), debug_info=fun.debug_info)
        else:
            changed = change(fun)
        return vjp(changed, *primals, **settings)

    return lambda *args, **kwargs: _Gradients(taken).run(f, args, kwargs, key or object())


@contextlib.contextmanager
def outside_traces() -> Iterator[None]:
    """A context for traces of their own: outside of the caller's transformations, and of what is done to its gradients.

    A plan that is made while a function is traced here takes gradients itself, which are none of that function's.
    """
    around = _api[_VJP]
    watched = isinstance(around, _Gradients) and around.is_here
    before = watched and around.busy
    with outside_transformations(), _trace_cache_key(None):
        if watched:
            around.busy = True
        try:
            yield
        finally:
            if watched:
                around.busy = before


class GradientInside(Exception):
    """A function takes a gradient."""


def raise_at_gradients(f: Function) -> Function:
    """`f`, which raises GradientInside where it takes a gradient.

    A gradient in a function that was jitted and traced before is not seen, but by `has_gradient`.
    """

    def taken(*_: Any, **__: Any) -> Any:
        raise GradientInside

    return lambda *args, **kwargs: _Gradients(taken).run(f, args, kwargs, None)


def has_gradient(jaxpr: AnyJaxpr) -> bool:
    """Whether a gradient was taken in a program, by the names that JAX gives to what it transposes."""
    stacks: dict[int, Any] = {}  # few: equations of one place share theirs

    def look(jaxpr: AnyJaxpr) -> None:
        for eqn in body_of(jaxpr)[0].eqns:
            stacks[id(eqn.source_info.name_stack)] = eqn.source_info.name_stack
            for body in bodies(eqn):
                look(body)

    look(jaxpr)
    return any("transpose(" in str(stack) for stack in stacks.values())


def donated_operands(jaxpr: AnyJaxpr) -> list[int]:
    """Which operands of a program a `jit` around all of it may overwrite, as `donate_argnums` says."""
    inner = body_of(jaxpr)[0]
    flags = [(eqn.invars, eqn.params.get("donated_invars", ())) for eqn in inner.eqns]
    given = [v for operands, donated in flags for v, ok in zip(operands, donated, strict=False) if ok]
    return [i for i, v in enumerate(inner.invars) if v in given]
