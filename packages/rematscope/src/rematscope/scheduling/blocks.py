"""Plain checkpoints around parts of a function: blocks of its operations, or iterations of its loops.

A block is a stretch of consecutive operations of the function, or of a loop, a jit or a `shard_map` in it.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import jaxpr_as_fun

from rematscope import jax_compat
from rematscope.jax_compat import AnyJaxpr, Policy, is_literal
from rematscope.tracing.checkpoints import trace_once, without_checkpoints

# The indices of the operations that contain a block, outermost first, then the block's first index and its end.
Block = tuple[int, ...]
_SAVED = "saved in its block"  # the checkpoint name of these values
_OFFLOADED = "offloaded carry"  # the checkpoint name of these values
OPENED = ("jit", "shard_map")


def bodies(jaxpr: AnyJaxpr, path: Block = (), iterations: int = 1) -> Iterator[tuple[Block, int, Any]]:
    """Yield all jaxprs that may contain blocks, with the path of equations to each and the number of its runs."""
    body, _, _ = jax_compat.body_of(jaxpr)
    yield path, iterations, body
    for i, eqn in enumerate(body.eqns):
        if eqn.primitive.name in OPENED:
            yield from bodies(jax_compat.bodies(eqn)[0], (*path, i), iterations)
        elif eqn.primitive.name == "scan" and (loop := jax_compat.scan_of(eqn)).length:
            yield from bodies(loop.body, (*path, i), iterations * loop.length)


def in_blocks(
    f: Callable[..., Any],
    blocks: Sequence[Block],
    policy: Policy | None = None,
    saved: Collection[Block] = (),
    in_order: bool = False,
) -> Callable[..., Any]:
    """Return `f` with a plain checkpoint around each block.

    Args:
      blocks: blocks that are pairwise disjoint or nested.
      saved: the paths of operations in blocks whose results are saved, if there is no policy.
      in_order: whether the backward pass of each outermost block ends before that of the block before it starts. By
        default, XLA may run the backward passes of independent blocks, such as two calls of a model, at the same time.
    """
    policy = jax.checkpoint_policies.save_only_these_names(_SAVED) if saved else policy
    opened = {block[:end] for block in blocks for end in range(len(block) - 1)}

    def divided(path: Block, jaxpr: AnyJaxpr, operands: Sequence[Any]) -> list[Any]:
        body, constvars, consts = jax_compat.body_of(jaxpr)
        place = {eqn: (*path, i) for i, eqn in enumerate(body.eqns)}

        def run(eqn: Any, operands: list[Any]) -> list[Any]:
            at = place[eqn]
            if at in opened:
                inside = functools.partial(divided, at)
                return (run_scan if eqn.primitive.name == "scan" else _with_body)(eqn, operands, inside)
            results = jax_compat.run(eqn, operands)
            return [checkpoint_name(v, _SAVED) for v in results] if at in saved else results

        def run_span(
            start: int,
            end: int,
            spans: Sequence[Block],
            read: Sequence[Any],
            made: Sequence[Any],
            operands: Sequence[Any],
        ) -> list[Any]:
            env = dict(zip(read, operands, strict=True))
            varying = _varying_values(body) if in_order and not path else set[Any]()
            for first, last, around in _divide_into_stretches(_outermost_spans(spans), start, end):
                eqns = body.eqns[first:last]
                if around and varying:
                    live = [v for e in body.eqns[first:] for v in e.invars if not is_literal(v) and v in env]
                    live = [v for v in dict.fromkeys(live) if v in varying]
                    env |= zip(live, lax.optimization_barrier([env[v] for v in live]), strict=True)
                later = {v for e in body.eqns[last:] for v in e.invars if not is_literal(v)}
                later.update(v for v in body.outvars if not is_literal(v))
                results = [v for e in eqns for v in e.outvars if v in later]
                needs = [v for v in dict.fromkeys(v for e in eqns for v in e.invars if not is_literal(v)) if v in env]
                inner = [span for span in spans if first <= span[0] and span[1] <= last and span != (first, last)]
                stretch: Callable[..., Any] = functools.partial(_run_equations, eqns, needs, results, run)
                if around and inner:
                    stretch = functools.partial(run_span, first, last, inner, needs, results)
                stretch = jax.checkpoint(stretch, policy=policy) if around and _may_repeat(eqns) else stretch
                env |= zip(results, stretch([env[v] for v in needs]), strict=True)
            return [_read_atom(env, v) for v in made]

        spans = [block[-2:] for block in blocks if block[:-2] == path]
        read = (*constvars, *body.invars)
        return run_span(0, len(body.eqns), spans, read, body.outvars, (*consts, *operands))

    return _rewrite_without_checkpoints(f, functools.partial(divided, ()))


def _varying_values(body: Any) -> set[Any]:
    """Return the floating-point values of a jaxpr that depend on its inputs; its constants have no gradients."""
    found = {v for v in body.invars if jnp.issubdtype(v.aval.dtype, jnp.inexact)}
    for eqn in body.eqns:
        if eqn.primitive.name != "stop_gradient" and any(not is_literal(v) and v in found for v in eqn.invars):
            found.update(v for v in eqn.outvars if jnp.issubdtype(v.aval.dtype, jnp.inexact))
    return found


def in_iterations(
    f: Callable[..., Any], depth: int = 0, policy: Policy | None = None, offload: int | None = None
) -> Callable[..., Any]:
    """Return `f` with a plain checkpoint around each iteration of its loops, including loops in jit and `shard_map`.

    Args:
      depth: the number of loops around the loops that get checkpoints. A loop without inner loops counts too.
      offload: instead of a policy, a number of bytes: carries whose values of all iterations have at least so many
        bytes are offloaded to host memory.
    """
    if offload is not None:
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=[_OFFLOADED],
            offload_src="device",
            offload_dst="pinned_host",
        )

    def run(eqn: Any, operands: list[Any], depth: int) -> list[Any]:
        if eqn.primitive.name in OPENED:
            return _with_body(eqn, operands, functools.partial(opened, depth=depth))
        if eqn.primitive.name != "scan":
            return jax_compat.run(eqn, operands)
        body = jax_compat.scan_of(eqn).body
        if depth > 0 and loops_deep(body) > 0:
            return run_scan(eqn, operands, functools.partial(opened, depth=depth - 1))
        run_iteration: Callable[..., Any] = jaxpr_as_fun(body)
        if offload is not None:
            run_iteration = functools.partial(_with_named_carries, run_iteration, large_carries(eqn, offload))
        run_iteration = jax.checkpoint(run_iteration, policy=policy) if _may_repeat([eqn]) else run_iteration
        return run_scan(eqn, operands, lambda _, given: run_iteration(*given))

    def opened(jaxpr: AnyJaxpr, operands: Sequence[Any], depth: int) -> list[Any]:
        body, constvars, consts = jax_compat.body_of(jaxpr)
        given = (*consts, *operands)
        return _run_equations(
            body.eqns, (*constvars, *body.invars), body.outvars, functools.partial(run, depth=depth), given
        )

    return _rewrite_without_checkpoints(f, functools.partial(opened, depth=depth))


def large_carries(eqn: Any, least: int) -> list[int]:
    """Return the indices of a scan's operands that are carries whose values of all iterations have `least` bytes."""
    loop = jax_compat.scan_of(eqn)
    found = []
    for i in range(loop.consts, loop.consts + loop.carries):
        aval = eqn.invars[i].aval
        is_key = jnp.issubdtype(aval.dtype, jax.dtypes.extended)
        if not is_key and loop.length * aval.size * aval.dtype.itemsize >= least:
            found.append(i)
    return found


def _with_named_carries(run: Callable[..., Any], carries: Collection[int], *operands: Any) -> Any:
    """Run an iteration of a loop, with a checkpoint name for some of its operands."""
    return run(*[checkpoint_name(v, _OFFLOADED) if i in carries else v for i, v in enumerate(operands)])


def _may_repeat(eqns: Sequence[Any]) -> bool:
    """Return whether a second run of the operations gives the same results; otherwise, the gradient would be wrong."""
    return all(jax_compat.is_repeatable(eqn, prints=True) for eqn in eqns)


def loops_deep(jaxpr: AnyJaxpr) -> int:
    """Return the largest depth of nested loops that `in_iterations` can put checkpoints into."""
    eqns = [eqn for eqn in jax_compat.body_of(jaxpr)[0].eqns if eqn.primitive.name in (*OPENED, "scan")]
    inside = ((eqn.primitive.name == "scan", map(loops_deep, jax_compat.bodies(eqn))) for eqn in eqns)
    return max((is_loop + max(deep, default=0) for is_loop, deep in inside), default=0)


def _outermost_spans(spans: Sequence[Block]) -> list[Block]:
    """Return the spans that no other span contains, in order."""
    return sorted(span for span in spans if not any(a <= span[0] and span[1] <= b and (a, b) != span for a, b in spans))


def _divide_into_stretches(spans: Sequence[Block], at: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield stretches of the operations from `at` on: start, end, and whether the stretch is one of the given spans."""
    for start, stop in spans:
        if at < start:
            yield at, start, False
        yield start, stop, True
        at = stop
    if at < end:
        yield at, end, False


def _rewrite_without_checkpoints(
    f: Callable[..., Any], run: Callable[[AnyJaxpr, Sequence[Any]], list[Any]]
) -> Callable[..., Any]:
    """Return `f` without its checkpoints, with its operations run by the given function."""

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        once, leaves = trace_once(without_checkpoints(f), args, kwargs)
        return once.returning(run(once.jaxpr, leaves))

    return function


def run_scan(
    eqn: Any,
    operands: Sequence[Any],
    run: Callable[[AnyJaxpr, Sequence[Any]], list[Any]],
) -> list[Any]:
    """Run a scan with another body."""
    loop = jax_compat.scan_of(eqn)
    first, carries = loop.consts, loop.carries

    def run_iteration(carry: Any, slices: list[Any]) -> tuple[list[Any], list[Any]]:
        results = run(loop.body, [*operands[:first], *carry, *slices])
        return results[:carries], results[carries:]

    start, stacks = [*operands[first : first + carries]], [*operands[first + carries :]]
    end, made = lax.scan(run_iteration, start, stacks, length=loop.length, reverse=loop.reverse)
    return [*end, *made]


def run_checkpoint(eqn: Any, operands: Sequence[Any], run: Callable[..., list[Any]]) -> list[Any]:
    """Run a checkpoint with another body; one that recomputes in a backward pass, behind a barrier as JAX lowers it."""
    prevent_cse = jax_compat.prevents_cse(eqn)
    if jax_compat.is_differentiated(eqn):
        return run(*(lax.optimization_barrier(list(operands)) if prevent_cse else operands))
    return list(jax.checkpoint(run, policy=jax_compat.policy_of(eqn), prevent_cse=prevent_cse)(*operands))


def _with_body(eqn: Any, operands: Sequence[Any], run: Callable[[AnyJaxpr, Sequence[Any]], list[Any]]) -> list[Any]:
    """Run a jit or a `shard_map` with another body."""
    if eqn.primitive.name != "shard_map":
        # The jit is preserved, because JAX sums the cotangents from inside of a jit before it adds those from outside.
        called: Callable[..., Any] = jax.jit(lambda *operands: run(jax_compat.bodies(eqn)[0], operands))
        return list(called(*operands))
    mapped = jax_compat.shard_map_of(eqn)
    function = jax.shard_map(
        lambda *parts: tuple(run(mapped.body, parts)),
        mesh=mapped.mesh,
        in_specs=mapped.in_specs,
        out_specs=mapped.out_specs,
        axis_names=set(mapped.axes),
        check_vma=mapped.check_vma,
    )
    results: Callable[..., Any] = jax.jit(function)  # a bare call cannot contain checkpoints
    return list(results(*operands))


def _run_equations(
    eqns: Sequence[Any],
    read: Sequence[Any],
    made: Sequence[Any],
    run: Callable[[Any, list[Any]], list[Any]],
    operands: Sequence[Any],
) -> list[Any]:
    """Run some equations of a jaxpr on the values that they read."""
    env = dict(zip(read, operands, strict=True))
    for eqn in eqns:
        env |= zip(eqn.outvars, run(eqn, [_read_atom(env, v) for v in eqn.invars]), strict=True)
    return [_read_atom(env, v) for v in made]


def _read_atom(env: dict[Any, Any], atom: Any) -> Any:
    return jax_compat.literal_value(atom) if is_literal(atom) else env[atom]
