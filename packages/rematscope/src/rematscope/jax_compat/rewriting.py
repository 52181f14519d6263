"""Rewriting of jaxprs.

Since JAX 0.11, every jaxpr is closed, and its equations can be replaced. No public API passes the mesh of a `shard_map`
and the varying types inside it to `make_jaxpr`.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax import ad_checkpoint
from jax._src import config
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from rematscope.jax_compat.contexts import remat3
from rematscope.jax_compat.equations import (
    AnyJaxpr,
    body_of,
    called_body,
    checkpoint_name,
    hi_primitive,
    is_checkpoint,
    is_custom_rule,
    policy_of,
    varying,
)
from rematscope.jax_compat.policies import Policy

Change = Callable[[JaxprEqn, JaxprEqn], Iterable[JaxprEqn]]
_give_name: Callable[[Any, str], Any] = ad_checkpoint.checkpoint_name


def map_equations(jaxpr: Any, change: Change) -> Any:
    """Return `jaxpr` with each equation replaced by the equations that `change(eqn, original)` returns.

    `eqn` is `original` with its bodies rewritten: those of jit, loops, branches and checkpoints, but not those of
    custom rules, which are opaque. Unchanged bodies stay the same objects, so that JAX's caches apply.
    """
    inner: Any = body_of(jaxpr)[0]
    if inner is not jaxpr:  # before JAX 0.11, a closed jaxpr contains an open one
        return jaxpr if (new := map_equations(inner, change)) is inner else jaxpr.replace(jaxpr=new)
    eqns = [new for eqn in jaxpr.eqns for new in change(_with_bodies(eqn, change), eqn)]
    return jaxpr if [*map(id, eqns)] == [*map(id, jaxpr.eqns)] else jaxpr.replace(eqns=eqns)


def jaxpr_with_policies(jaxpr: AnyJaxpr, instead: Callable[[Policy | None], Policy | None]) -> Any:
    """Return `jaxpr` with a new policy in every checkpoint, including those in jit, loops, branches and checkpoints."""
    return map_equations(
        jaxpr, lambda eqn, _: [replace_policy(eqn, instead(policy_of(eqn))) if is_checkpoint(eqn) else eqn]
    )


def replace_policy(checkpoint: JaxprEqn, policy: Policy | None) -> JaxprEqn:
    if hi_primitive(checkpoint) is not None:
        return _with_primitive(checkpoint, policy=policy)
    return _replace_fields(checkpoint, params={**checkpoint.params, "policy": policy})


def with_barrier(checkpoint: JaxprEqn) -> JaxprEqn:
    """Return a checkpoint of JAX's default rematerialization with `prevent_cse=True`."""
    return _replace_fields(checkpoint, params={**checkpoint.params, "prevent_cse": True})


def eqn_without_checkpoint(eqn: JaxprEqn) -> JaxprEqn:
    """Return a call of a checkpoint's body, without the checkpoint."""
    body = called_body(eqn)
    assert body is not None, "a checkpoint goes around a program"
    closed = body if hasattr(body, "consts") else ClosedJaxpr(body, ())  # open until JAX 0.11
    return trace_single_equation(jax.jit(jaxpr_as_fun(closed)), eqn)


def with_name(eqn: JaxprEqn, name: str, which: int = 0) -> list[JaxprEqn]:
    """Return `eqn`, followed by an equation that gives one of its results a checkpoint name."""
    result = eqn.outvars[which]
    unnamed = type(result)(result.aval)
    naming = trace_single_equation(
        lambda x: _give_name(x, name), _replace_fields(eqn, invars=[unnamed], outvars=[result])
    )
    return [_replace_fields(eqn, outvars=[*eqn.outvars[:which], unnamed, *eqn.outvars[which + 1 :]]), naming]


def _rewritten_parameter(value: Any, change: Change) -> Any:
    if type(value) in (tuple, list):  # the branches of a cond; named tuples are other parameters
        parts = type(value)(_rewritten_parameter(part, change) for part in value)
        return value if [*map(id, parts)] == [*map(id, value)] else parts
    return map_equations(value, change) if hasattr(value, "eqns") else value


def _with_bodies(eqn: JaxprEqn, change: Change) -> JaxprEqn:
    if (prim := hi_primitive(eqn)) is not None:
        if not remat3():
            return _in_default_remat(eqn, change)
        if not is_checkpoint(eqn):
            return eqn
        return _with_primitive(eqn, jaxpr=map_equations(prim.jaxpr, change))
    params = {} if is_custom_rule(eqn) else {k: _rewritten_parameter(v, change) for k, v in eqn.params.items()}
    return _replace_fields(eqn, params=params) if any(params[key] is not eqn.params[key] for key in params) else eqn


def _in_default_remat(eqn: JaxprEqn, change: Change) -> JaxprEqn:
    """Return a checkpoint or name of remat3 as the equation of JAX's default rematerialization."""
    prim = hi_primitive(eqn)
    if is_checkpoint(eqn):
        body = jaxpr_as_fun(map_equations(prim.jaxpr, change))
        prevent = prim.params.get("prevent_cse", True)  # JAX 0.10 always prevents it
        return trace_single_equation(jax.checkpoint(body, policy=prim.policy, prevent_cse=prevent), eqn)
    if (name := checkpoint_name(eqn)) is not None:
        return trace_single_equation(lambda x: _give_name(x, name), eqn)
    return eqn


def trace_single_equation(f: Callable[..., Any], eqn: JaxprEqn) -> JaxprEqn:
    """Return `eqn` with its operation replaced by that of `f`."""
    mesh = eqn.ctx.cur_abstract_mesh  # an enclosing shard_map has made some of its axes manual
    kinds = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    axes = [(name, size) for name, size, kind in kinds if kind == jax.sharding.AxisType.Manual]
    varies = [varying(v.aval) for v in (*eqn.invars, *eqn.outvars)] if axes else []
    like = [_shape_like(v.aval) if axes else v.aval for v in eqn.invars]
    with eqn.ctx.manager, config._check_vma(any(varies)) if axes else contextlib.nullcontext():
        (only,) = body_of(jax.make_jaxpr(f, axis_env=axes)(*like))[0].eqns
    return _replace_fields(eqn, primitive=only.primitive, params=only.params, effects=only.effects)


def _shape_like(aval: Any) -> Any:
    """Return a shape that also has the varying axes of a type."""
    varies = {"manual_axis_type": aval.mat} if hasattr(aval, "mat") else {"vma": aval.vma}
    shape: Any = jax.ShapeDtypeStruct  # the constructor has no types
    weak = getattr(aval, "weak_type", False)
    return shape(aval.shape, aval.dtype, sharding=aval.sharding, weak_type=weak, **varies)


def _with_primitive(eqn: JaxprEqn, **changes: Any) -> JaxprEqn:
    """Return an equation of remat3 with changed parameters of its operation."""
    prim = hi_primitive(eqn)
    return _replace_fields(eqn, params={**eqn.params, "_prim": type(prim)(**{**prim.params, **changes})})


def _replace_fields(eqn: JaxprEqn, **changes: Any) -> JaxprEqn:
    replaced: JaxprEqn = eqn.replace(**changes)
    return replaced
