"""Capture a function in one trace, so that its value and its derivatives come from the same program.

`jax.jit` retraces a function when a call has another pytree structure, static value, array type or JAX setting. A plan
from one trace refuses such a call. Both ignore later changes to other values, such as variables that the function
closes over: these keep the values from the time of tracing.
"""

import contextlib
import functools
import itertools
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from rematscope.errors import PlanError
from rematscope.ir.inline import Inliner
from rematscope.ir.program import Program, Value
from rematscope.jax_compat import body_of, is_mutable_array, varying
from rematscope.scheduling.linearize import linearize
from rematscope.tracing import checkpoints
from rematscope.tracing.arguments import callable_name, check_differentiable, flattened, step_of_path, type_description
from rematscope.tracing.checkpoints import CalledOnce, KnownStep, called_once, trace_once
from rematscope.tracing.trace import changes_outer_object, trace

_SEARCHED = 20_000  # the maximum number of reachable objects to search for tracers
_LIBRARIES = ("jax", "jaxlib", "numpy", "builtins", "rematscope")


def captured(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> CalledOnce:
    """Return `f` traced for these arguments, with the current values of the variables that it closes over.

    Raises:
      TraceError: as for `trace`.
      PlanError: if `f` is a training step; if it changes the state of an object that it takes or closes over, since the
        traced program would not; or if it closes over a traced value of an outer transformation.
    """
    once = traced_for_a_plan(f, args, kwargs)
    if any(isinstance(each, jax.core.Tracer) for each in once.jaxpr.consts):
        raise PlanError(
            f"{callable_name(f)} closes over a traced value of an outer transformation, such as jit or grad. Make it "
            "an argument, or plan outside of that transformation."
        )
    return once


def traced_for_a_plan(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> CalledOnce:
    """Return `f` traced like `captured`, for a plan that is used immediately.

    Unlike in `captured`, `f` may close over traced values of an outer transformation.
    """
    flattened(f, args, kwargs)
    check_differentiable(f, args, kwargs)
    if isinstance(f, CalledOnce):
        return f
    changed: list[object] = []
    watched = _with_watched_arguments(f, changed)
    before = {id(each): each for each in _reachable_tracers(f)}
    once = called_once(watched, args, kwargs)
    if isinstance(once, KnownStep):
        linearize(trace(f, *args, **kwargs))  # raises an error that explains why a step cannot be planned
    if not isinstance(once, CalledOnce):  # `f` takes a gradient, or cannot be traced
        try:
            once, _ = trace_once(watched, args, kwargs)
        except PlanError:
            raise
        except Exception as error:
            if changes_outer_object(error):
                raise _keeps_state(f, "a module of Flax's nnx that it closes over") from None
            trace(f, *args, **kwargs)  # raises an error with an explanation if it has one
            raise
    if changed and not _rebinds_same_leaves(f, args, kwargs):
        raise _keeps_state(f, f"its argument, {type_description(changed[0])}")
    if any(id(each) not in before for each in _reachable_tracers(f)):
        raise _keeps_state(f, "an object that outlives the call and now holds a traced value (a leaked tracer)")
    body, constvars, _ = body_of(once.jaxpr)
    if any(is_mutable_array(v.aval) for v in (*body.invars, *constvars)):
        raise _keeps_state(f, "a mutable array (jax.new_ref) that was created outside of it")
    return CalledOnce(f, once.jaxpr, once.returning(once.jaxpr.out_avals))


def with_outer_values(once: CalledOnce, leaves: Sequence[Any], by: str) -> tuple[CalledOnce, list[Any]]:
    """Return a function of its arguments and of the values of outer transformations that it closes over, with all of
    them.

    A value of an outer transformation that is only closed over would be hidden from the derivative. The values come
    first. `by` is the name of the function that needs this, for a message.
    """
    jaxpr: Any = once.jaxpr
    with_outer, outer = checkpoints.split_outer_values(jaxpr)
    values = [*outer, *leaves]
    made = (v.aval for eqn in body_of(jaxpr)[0].eqns for v in eqn.outvars)
    if axes := sorted(frozenset[str]().union(*map(varying, (*map(jax.typeof, values), *made)))):
        raise PlanError(
            f"{callable_name(once.function)} is called inside a shard_map over {', '.join(map(repr, axes))} with "
            f"check_vma=True, which {by} does not support. Put the shard_map into the function that you pass "
            f"to {by}, or pass check_vma=False to the shard_map."
        )
    if not outer:
        return once, values
    longer = jax.make_jaxpr(with_outer)(*values)
    return CalledOnce(once.function, longer, once.returning(jaxpr.out_avals)), values


def name_in_closure(f: Callable[..., Any], value: Any) -> str | None:
    """Return the name of a value that `f`, or a function that `f` wraps, closes over, such as `params.w`; None if there
    is no such name.
    """
    for each in _reachable_objects(f):
        if not isinstance(each, types.FunctionType) or _is_library(each.__module__):
            continue
        for name, cell in zip(each.__code__.co_freevars, each.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                for path, leaf in jax.tree_util.tree_leaves_with_path(cell.cell_contents):
                    if leaf is value:
                        return name + "".join(map(step_of_path, path))
    return None


def _keeps_state(f: Callable[..., Any], what: str) -> PlanError:
    return PlanError(
        f"{callable_name(f)} changes {what}, and a plan is for a function without side effects: the change would be "
        "lost. Return the new state as a second result, and use jax.value_and_grad(…, has_aux=True). For a module of "
        "Flax's nnx: graph, params, state = nnx.split(model, nnx.Param, ...) outside of the function; in it, "
        "model = nnx.merge(graph, params, state, copy=True), and at its end nnx.split(model, nnx.Param, ...)[2] is the "
        "new state."
    )


def _with_watched_arguments(f: Callable[..., Any], changed: list[object]) -> Callable[..., Any]:
    """Return `f` with a record of the objects among its arguments whose leaves it replaces but does not return.

    Dictionaries and lists do not count, because `jax.jit` also passes copies of them to a function.
    """

    @functools.wraps(f, updated=())
    def watched(*args: Any, **kwargs: Any) -> Any:
        nodes = _objects_in(args, kwargs)
        before = [jax.tree.leaves(node) for node in nodes]
        returned = f(*args, **kwargs)
        _check_returned(f, returned)
        there = {*map(id, jax.tree.leaves(returned)), *map(id, itertools.chain.from_iterable(before))}
        for node, then in zip(nodes, before, strict=True):
            now = jax.tree.leaves(node)
            if len(now) != len(then) or any(
                one is not other and id(other) not in there for one, other in zip(then, now, strict=True)
            ):
                changed.append(node)
        return returned

    return watched


def _check_returned(f: Callable[..., Any], returned: Any) -> None:
    """Raise PlanError unless all leaves of what `f` returns are arrays or numbers."""
    for leaf in jax.tree.leaves(returned):
        try:
            jax.typeof(leaf)
        except TypeError:
            raise PlanError(
                f"{callable_name(f)} returns {type_description(leaf)}, and a planned function returns arrays and "
                "numbers. Leave this value out of the results."
            ) from None


def _rebinds_same_leaves(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the leaves that `f` assigns to its arguments equal the old ones.

    `nnx.remat` and `nnx.jit` assign all variables of a module, although most of them are unchanged.
    """

    def leaves_before_and_after(*args: Any, **kwargs: Any) -> Any:
        nodes = _objects_in(args, kwargs)
        before = jax.tree.leaves(nodes)
        f(*args, **kwargs)
        return before, jax.tree.leaves(nodes)

    once, _ = trace_once(leaves_before_and_after, args, kwargs)
    program = Inliner().whole(once.jaxpr)
    before, after = once.returning(program.outputs)
    return before == [_passed_through_loops(program, value) for value in after]


def _passed_through_loops(program: Program, value: Value) -> Value:
    """Return the value that scans pass through unchanged to an output, as a carry or as slices that are restacked."""
    maker = {output: equation for equation in program.equations for output in equation.outputs}
    while value in maker and maker[value].primitive == "scan":
        equation = maker[value]
        (body,), place = equation.bodies, equation.outputs.index(value)
        is_carry, result = place < equation.carries, body.outputs[place]
        source = body.inputs.index(result) if result in body.inputs else -1
        if source != place if is_carry else source < equation.carries:
            break
        value = equation.inputs[equation.first_carry + source]
    return value


def _objects_in(*arguments: Any) -> list[Any]:
    return [node for node in jax.tree.leaves(arguments, is_leaf=_is_object) if _is_object(node)]


def _is_object(node: object) -> bool:
    """Return whether a pytree node is an object with state: neither one of Python's containers nor a leaf."""
    return not (node is None or isinstance(node, dict | list | tuple) or jax.tree_util.all_leaves([node]))


def _reachable_tracers(f: Callable[..., Any]) -> Iterator[Any]:
    """Return the tracers among the objects that a function reaches."""
    return (each for each in _reachable_objects(f) if isinstance(each, jax.core.Tracer))


def _reachable_objects(f: Callable[..., Any]) -> Iterator[Any]:
    """Yield the objects that a function reaches: closure, globals, `self`, and what these hold, but not in tracers."""
    seen: dict[int, Any] = {}
    queue = deque[Any]([f])
    while queue and len(seen) < _SEARCHED:
        each = queue.popleft()
        if id(each) not in seen:
            seen[id(each)] = each
            yield each
            queue.extend(() if isinstance(each, jax.core.Tracer) else _values_held_by(each))


def _values_held_by(value: Any) -> Iterator[Any]:
    """Return the values that a Python object holds."""
    kind = type(value)
    if isinstance(value, types.ModuleType) or kind in (str, int, float, bool, bytes, complex, type(None)):
        return
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from value
    elif isinstance(value, types.FunctionType):
        yield from _held_by_function(value)
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, np.ndarray):
        yield from value.flat if value.dtype == object else ()
    elif "__wrapped__" in getattr(value, "__dict__", {}):  # a wrapper such as that of jax.jit
        yield value.__wrapped__
    elif not _is_library((value if isinstance(value, type) else kind).__module__):
        yield from getattr(value, "__dict__", {}).values()
        slots = getattr(kind, "__slots__", ())
        yield from (getattr(value, name, None) for name in ([slots] if isinstance(slots, str) else slots))


def _held_by_function(f: types.FunctionType) -> Iterator[Any]:
    """Return the closure and defaults of a Python function, and the globals that it names."""
    for cell in f.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell.cell_contents
    yield from (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values(), *f.__dict__.values())
    if _is_library(f.__module__):
        return
    codes, names = [f.__code__], set[str]()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    for found in (f.__globals__[name] for name in names & f.__globals__.keys()):
        yield found
        if isinstance(found, types.ModuleType) and not _is_library(found.__name__):
            yield from (vars(found)[name] for name in names & vars(found).keys())


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES
