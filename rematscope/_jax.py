"""The one module that reaches behind JAX's public API, and why.

Five things have no public door (JAX 0.11 to 0.12):

* `scan` keeps how its operands divide into constants, carries and slices in parameters that changed between releases.
* Under `JAX_REMAT3=1` checkpoints and names are `HiPrim` objects in the private `_prim` parameter of one primitive.
* A call primitive's body sits under a parameter name of its own.
* The switch between the two is a state that only a private module can set for a while.
* How an equation's parameters are handed to its primitive changed between releases.

Everything here takes a `JaxprEqn` and returns plain data or arrays; a release that moves one of them is mended here.
"""

import jax
from jax._src import config
from jax.ad_checkpoint import checkpoint_name as name_value
from jax.extend.core import JaxprEqn, Literal, jaxpr_as_fun, jaxprs_in_params

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


def bodies(eqn: JaxprEqn) -> list:
    """The programs that `eqn` runs: what it calls, or those of a loop or a branch."""
    body = called_body(eqn)
    return [body] if body is not None else list(jaxprs_in_params(eqn.params))


def with_policy(jaxpr, policy):
    """`jaxpr` with `policy` in every checkpoint, those in jit, loops, branches and other checkpoints included.

    The bodies of custom rules stay as they are: their rules are opaque functions, which would not change with them.
    """
    if type(jaxpr) in (tuple, list):  # the branches of a cond; a named tuple says how an operation works
        return type(jaxpr)(with_policy(part, policy) for part in jaxpr)
    if not hasattr(jaxpr, "eqns"):
        return jaxpr
    if not hasattr(jaxpr, "invars"):  # a closed jaxpr around an open one
        return jaxpr.replace(jaxpr=with_policy(jaxpr.jaxpr, policy))
    return jaxpr.replace(eqns=[_eqn_with_policy(eqn, policy) for eqn in jaxpr.eqns])


def _eqn_with_policy(eqn: JaxprEqn, policy) -> JaxprEqn:
    if (prim := hi_primitive(eqn)) is not None:
        if not config.remat3.value:
            return _in_default_remat(eqn, policy)
        if not is_checkpoint(eqn):
            return eqn
        prim = type(prim)(with_policy(prim.jaxpr, policy), policy, prim.prevent_cse)
        return eqn.replace(params={**eqn.params, "_prim": prim})
    if is_custom_rule(eqn):
        return eqn
    params = {key: with_policy(value, policy) for key, value in eqn.params.items()}
    return eqn.replace(params={**params, "policy": policy} if is_checkpoint(eqn) else params)


def default_remat():
    """A context in which JAX's default rematerialization is on, whatever `JAX_REMAT3` says."""
    return config.remat3(False)


def _in_default_remat(eqn: JaxprEqn, policy) -> JaxprEqn:
    """A checkpoint or a name of remat3, as the equation that the default would have made."""
    if is_checkpoint(eqn):
        prim = hi_primitive(eqn)
        made = jax.checkpoint(
            jaxpr_as_fun(with_policy(prim.jaxpr, policy)), policy=policy, prevent_cse=prim.prevent_cse
        )
    elif (name := checkpoint_name(eqn)) is not None:

        def made(x):
            return name_value(x, name)
    else:
        return eqn
    (only,) = body_of(jax.make_jaxpr(made)(*(v.aval for v in eqn.invars)))[0].eqns
    return eqn.replace(primitive=only.primitive, params=only.params, effects=only.effects)


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
