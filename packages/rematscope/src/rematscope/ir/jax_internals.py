"""The one module that reaches behind JAX's public API, and why.

Six things have no public door (JAX 0.11 to 0.12):

* `scan` keeps how its operands divide into constants, carries and slices in parameters that changed between releases.
* Under `JAX_REMAT3=1` checkpoints and names are `HiPrim` objects in the private `_prim` parameter of one primitive.
* A call primitive's body sits under a parameter name of its own.
* The switch between the two is a state that only a private module can set for a while.
* How an equation's parameters are handed to its primitive changed between releases.
* The names that a policy was made with are only in its closure, or in fields of its own.

Everything here takes a `JaxprEqn` and returns plain data or arrays; a release that moves one of them is mended here.
"""

import inspect
import re

import jax
from jax._src import config
from jax.ad_checkpoint import checkpoint_name as name_value
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun, jaxprs_in_params

AnyJaxpr = Jaxpr | ClosedJaxpr

_CHECKPOINTS = ("remat2", "checkpoint")

# Primitives that only call a body: where the body is, and nothing else to know.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}


def body_of(jaxpr):
    """Returns (jaxpr with eqns/invars/outvars, constvars, consts), for open and closed jaxprs of either release."""
    consts = list(getattr(jaxpr, "consts", ()))
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    return inner, list(inner.constvars), consts


def hi_primitive(eqn: JaxprEqn):
    """The `HiPrim` of an equation under remat3 (`RematTraced`, `CheckpointName`, …), or None."""
    return eqn.params.get("_prim") if eqn.primitive.name == "call_hi_primitive" else None


def called_body(eqn: JaxprEqn):
    """The jaxpr that `eqn` calls exactly once with its own operands, or None if it does anything else."""
    if (prim := hi_primitive(eqn)) is not None:
        return prim.jaxpr if type(prim).__name__ == "RematTraced" else None
    if (key := _CALLS.get(eqn.primitive.name)) is not None:
        return eqn.params.get(key)
    return None


def is_checkpoint(eqn: JaxprEqn) -> bool:
    """True for an equation that `jax.checkpoint` made."""
    return eqn.primitive.name in _CHECKPOINTS or type(hi_primitive(eqn)).__name__ == "RematTraced"


def is_differentiated(eqn: JaxprEqn) -> bool:
    """True for a checkpoint whose gradient was taken in the program that it stands in."""
    return bool(eqn.params.get("differentiated"))


def is_custom_rule(eqn: JaxprEqn) -> bool:
    """True for a function with a derivative of its own, which is opaque."""
    return eqn.primitive.name.startswith("custom_")


def policy_of(checkpoint: JaxprEqn):
    """The policy of an equation that `jax.checkpoint` made."""
    prim = hi_primitive(checkpoint)
    return prim.policy if prim is not None else checkpoint.params["policy"]


def prevents_cse(checkpoint: JaxprEqn) -> bool:
    """Whether anything keeps the compiler from taking what a checkpoint computes again for what was computed before."""
    prim = hi_primitive(checkpoint)
    prevent = prim.prevent_cse if prim is not None else checkpoint.params["prevent_cse"]
    return prevent if isinstance(prevent, bool) else any(prevent)


def policy_name(policy) -> str:
    """What a policy is called: `dots_saveable`, `save_only_these_names`, or a name of the user's own."""
    known = next((name for name, each in vars(jax.checkpoint_policies).items() if each is policy), None)
    if known is None and _made_with(policy) and not inspect.isfunction(policy):
        return re.sub("(?<!^)(?=[A-Z])", "_", type(policy).__name__).lower()
    return known or getattr(policy, "__qualname__", type(policy).__name__).partition(".<locals>")[0]


def names_in_policy(policy) -> set:
    """The names that one of JAX's policies about names was made with, or those in `save_from_both_policies`."""
    found = set()
    for key, value in _made_with(policy).items():
        if "names" in key:
            found |= set(value)
        elif key.startswith("policy_"):
            found |= names_in_policy(value)
    return found


def _made_with(policy) -> dict:
    """What one of JAX's own policies remembers: in a closure, or in fields in JAX 0.11. Nothing else tells."""
    if getattr(policy, "__module__", None) != jax.checkpoint_policies.nothing_saveable.__module__:
        return {}
    return inspect.getclosurevars(policy).nonlocals if inspect.isfunction(policy) else vars(policy)


def bodies(eqn: JaxprEqn) -> list:
    """The programs that `eqn` runs: what it calls, or those of a loop or a branch."""
    body = called_body(eqn)
    return [body] if body is not None else list(jaxprs_in_params(eqn.params))


def rewritten(jaxpr, change):
    """`jaxpr` with other equations: `change(eqn, original)` says which take the place of `original`.

    `eqn` is the same with its bodies rewritten, those of jit, loops, branches and checkpoints. The bodies of custom
    rules stay as they are: their rules are opaque functions, which would not change with them.
    """
    if type(jaxpr) in (tuple, list):  # the branches of a cond; a named tuple says how an operation works
        return type(jaxpr)(rewritten(part, change) for part in jaxpr)
    if not hasattr(jaxpr, "eqns"):
        return jaxpr
    if not hasattr(jaxpr, "invars"):  # a closed jaxpr around an open one
        return jaxpr.replace(jaxpr=rewritten(jaxpr.jaxpr, change))
    return jaxpr.replace(eqns=[new for eqn in jaxpr.eqns for new in change(_with_bodies(eqn, change), eqn)])


def _with_bodies(eqn: JaxprEqn, change) -> JaxprEqn:
    if (prim := hi_primitive(eqn)) is not None:
        if not config.remat3.value:
            return _in_default_remat(eqn, change)
        if not is_checkpoint(eqn):
            return eqn
        prim = type(prim)(rewritten(prim.jaxpr, change), prim.policy, prim.prevent_cse)
        return eqn.replace(params={**eqn.params, "_prim": prim})
    if is_custom_rule(eqn):
        return eqn
    return eqn.replace(params={key: rewritten(value, change) for key, value in eqn.params.items()})


def with_policy(jaxpr, policy):
    """`jaxpr` with `policy` in every checkpoint, those in jit, loops, branches and other checkpoints included."""
    return rewritten(jaxpr, lambda eqn, _: [given_policy(eqn, policy) if is_checkpoint(eqn) else eqn])


def given_policy(checkpoint: JaxprEqn, policy) -> JaxprEqn:
    """A checkpoint with another policy."""
    if (prim := hi_primitive(checkpoint)) is not None:
        prim = type(prim)(prim.jaxpr, policy, prim.prevent_cse)
        return checkpoint.replace(params={**checkpoint.params, "_prim": prim})
    return checkpoint.replace(params={**checkpoint.params, "policy": policy})


def without_checkpoint(eqn: JaxprEqn) -> JaxprEqn:
    """A checkpoint as a call of what it goes around."""
    body = called_body(eqn)
    closed = body if hasattr(body, "consts") else ClosedJaxpr(body, ())  # open in JAX 0.11
    return _only_equation(jax.jit(jaxpr_as_fun(closed)), eqn)


def with_name(eqn: JaxprEqn, name: str) -> list[JaxprEqn]:
    """`eqn`, which has one result, and what gives that a checkpoint name before anything reads it."""
    (result,) = eqn.outvars
    unnamed = type(result)(result.aval)
    naming = _only_equation(lambda x: name_value(x, name), eqn.replace(invars=[unnamed]))
    return [eqn.replace(outvars=[unnamed]), naming]


def _only_equation(f, eqn: JaxprEqn) -> JaxprEqn:
    """`eqn` with the operation that `f` is."""
    (only,) = body_of(jax.make_jaxpr(f)(*(v.aval for v in eqn.invars)))[0].eqns
    return eqn.replace(primitive=only.primitive, params=only.params, effects=only.effects)


def default_remat():
    """A context in which JAX's default rematerialization is on, whatever `JAX_REMAT3` says."""
    return config.remat3(False)


def _in_default_remat(eqn: JaxprEqn, change) -> JaxprEqn:
    """A checkpoint or a name of remat3, as the equation that the default would have made."""
    prim = hi_primitive(eqn)
    if is_checkpoint(eqn):
        body = jaxpr_as_fun(rewritten(prim.jaxpr, change))
        return _only_equation(jax.checkpoint(body, policy=prim.policy, prevent_cse=prim.prevent_cse), eqn)
    if (name := checkpoint_name(eqn)) is not None:
        return _only_equation(lambda x: name_value(x, name), eqn)
    return eqn


def checkpoint_name(eqn: JaxprEqn) -> str | None:
    """The name that `eqn` gives its operand, or None if `eqn` names nothing."""
    if eqn.primitive.name == "name":
        return eqn.params["name"]
    prim = hi_primitive(eqn)
    if prim is not None and type(prim).__name__ in ("CheckpointName", "CheckpointNameFwd"):
        return prim.name
    return None


def passes_first_operand(eqn: JaxprEqn) -> bool:
    """True for remat3's `PrimalLeftTangentRight(x, _)`, whose value is `x`."""
    return type(hi_primitive(eqn)).__name__ == "PrimalLeftTangentRight"


def barrier_operands(eqn: JaxprEqn) -> list[int]:
    """Operands that the default `remat2` puts behind an optimization barrier when it is lowered.

    remat3 writes that barrier as an equation of its own; the default path hides it in the lowering.
    """
    if eqn.primitive.name not in _CHECKPOINTS or not eqn.params["differentiated"]:
        return []
    prevent = eqn.params["prevent_cse"]
    flags = [prevent] * len(eqn.invars) if isinstance(prevent, bool) else prevent
    return [i for i, (flag, atom) in enumerate(zip(flags, eqn.invars, strict=True)) if flag and not is_literal(atom)]


def scan_split(eqn: JaxprEqn) -> tuple[int, int]:
    """(number of constants, number of carries) among the operands of a `scan`."""
    params = eqn.params
    if "num_consts" in params:  # JAX 0.11
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def run(eqn: JaxprEqn, operands: list) -> list:
    """Applies the primitive of `eqn` to concrete or abstract operands."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # a pair in JAX 0.11
    with eqn.ctx.manager:
        results = eqn.primitive.bind(*functions, *operands, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def is_literal(atom) -> bool:
    return isinstance(atom, Literal)
