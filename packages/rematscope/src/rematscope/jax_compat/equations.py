"""Information about a jaxpr's equations, from parameters that JAX has no public accessors for.

* Parameters of `scan` and `while` give the numbers of constants, carries and slices among their operands; JAX 0.12
  changed these parameters of `scan`. Parameters of `shard_map` give the mesh and its axes.
* Each call primitive has its own name for the parameter that holds the body.
* Some operations are `HiPrim` objects in the private `_prim` parameter of one primitive. With `JAX_REMAT3=1` (since JAX
  0.10), checkpoints and names are such objects. Their classes are recognized by name.
* The form in which a primitive takes an equation's parameters changed between releases (a pair until JAX 0.11).

Each function takes a `JaxprEqn` and returns plain data or arrays.
"""

import dataclasses
import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from rematscope.jax_compat.absent_gpu import make_jaxpr
from rematscope.jax_compat.contexts import REMAT3_IS_PREDICTABLE, remat3
from rematscope.jax_compat.policies import MAY_DIFFER, STATEFUL, Policy
from rematscope.jax_compat.policies import jaxprs_in_params as jaxprs_in_params

AnyJaxpr = Jaxpr | ClosedJaxpr
# The names of a checkpoint's primitive: JAX's own, and the one that `primitive_name` returns under `jax_remat3`.
CHECKPOINTS = frozenset({"remat2", "checkpoint"})
# The names of the primitives that call a jitted function. `closed_call` exists until JAX 0.10.
JITS = frozenset({"jit", "closed_call"})

# Primitives that only call a body, and the parameter that holds the body.
_CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "remat_opt": "fwd_jaxpr",
    "composite": "call_jaxpr",
    "linear_call": "callee",
    "xla_metadata_call": "jaxpr",
    **dict.fromkeys(CHECKPOINTS, "jaxpr"),
}


def body_of(jaxpr: AnyJaxpr) -> tuple[Jaxpr, list[Var], list[Any]]:
    """Return the open jaxpr of an open or closed jaxpr, its `constvars` and its `consts` (empty if it was open)."""
    consts = list(getattr(jaxpr, "consts", ()))
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    return inner, list(inner.constvars), consts


def hi_primitive(eqn: JaxprEqn) -> Any:  # the class has no public name
    """Return the `HiPrim` of an equation (`RematTraced`, `CheckpointName`, …), or None if the equation has none."""
    return eqn.params.get("_prim") if eqn.primitive.name == "call_hi_primitive" else None


def called_body(eqn: JaxprEqn) -> AnyJaxpr | None:
    """Return the jaxpr that `eqn` calls exactly once with its own operands, or None if `eqn` does anything else."""
    if (prim := hi_primitive(eqn)) is not None:
        if is_remat3_checkpoint(eqn):
            body: AnyJaxpr = prim.jaxpr
            return body
        keeps = checkpoint_name(eqn) is not None or passes_first_operand(eqn)
        return None if keeps else _expand_primitive(prim, tuple(prim.in_avals_flat))
    if (key := _CALLS.get(eqn.primitive.name)) is not None:
        return eqn.params.get(key, eqn.params.get("jaxpr"))  # the parameter of lax.composite until JAX 0.11
    return None


@functools.lru_cache(maxsize=1024)  # always returns the same jaxpr for the same arguments
def _expand_primitive(prim: Any, avals: tuple[Any, ...]) -> AnyJaxpr | None:
    """Return the jaxpr of a `HiPrim`, such as `jnp.searchsorted`; None if its author provides none."""

    def run(*flat: Any) -> Any:
        return jax.tree.leaves(prim.expand(*jax.tree.unflatten(prim.in_tree, flat)))

    try:
        return jax.make_jaxpr(run)(*avals)
    except NotImplementedError:
        return None


_OF_CHECKPOINTS = ("checkpoint", "rematted_computation")


def scopes(eqn: JaxprEqn) -> list[str]:
    """Return the names from `jax.named_scope` or a library's modules around `eqn`, outermost first.

    They also contain JAX's transformations and the formulas of einsums.
    """
    names = (each.name for each in eqn.source_info.name_stack.stack if type(each).__name__ == "Scope")
    return [name for name in names if name not in _OF_CHECKPOINTS and "," not in name and "->" not in name]


def is_in_derivative(*eqns: JaxprEqn) -> bool:
    """Return whether an operation, or a call that contains it, was traced by a derivative such as `jax.grad`.

    Args:
      *eqns: the operation and the calls that contain it.
    """
    return any(
        type(each).__name__ == "Transform" and each.name in ("jvp", "transpose")
        for eqn in eqns
        for each in eqn.source_info.name_stack.stack
    )


def primitive_name(eqn: JaxprEqn) -> str:
    """Return the name of an equation's primitive; for a checkpoint, a name or a custom gradient that is a `HiPrim`, the
    name that JAX gives it by default.
    """
    if is_remat3_checkpoint(eqn):
        return "checkpoint"
    if _is_hi_custom_gradient(eqn):
        return "custom_vjp_call"
    return eqn.primitive.name if checkpoint_name(eqn) is None else "name"


def is_checkpoint(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name in CHECKPOINTS or is_remat3_checkpoint(eqn)


def is_remat3_checkpoint(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a checkpoint that was traced while `jax_remat3` was set."""
    return type(hi_primitive(eqn)).__name__ == "RematTraced"


def shows_remat3(eqn: JaxprEqn) -> bool:
    """Return whether an equation shows that a checkpoint was traced while `jax_remat3` was set.

    The equation is the checkpoint. In JAX 0.10, derivatives contain no checkpoint, so it is a recomputed operation.
    """
    if REMAT3_IS_PREDICTABLE or not remat3():
        return is_remat3_checkpoint(eqn)
    return is_remat3_checkpoint(eqn) or "rematted_computation" in str(eqn.source_info.name_stack)


def is_differentiated(eqn: JaxprEqn) -> bool:
    """Return whether a checkpoint was differentiated in the program that contains it."""
    return bool(eqn.params.get("differentiated"))


def _is_hi_custom_gradient(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a `custom_vjp` function that is a `HiPrim`."""
    return type(hi_primitive(eqn)).__name__ == "CustomVJPTraced"


def is_custom_rule(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a function with a custom derivative rule, which is opaque."""
    return eqn.primitive.name.startswith("custom_") or _is_hi_custom_gradient(eqn)


def policy_of(checkpoint: JaxprEqn) -> Policy | None:
    prim = hi_primitive(checkpoint)
    policy: Policy | None = prim.policy if prim is not None else checkpoint.params["policy"]
    return policy


def prevents_cse(checkpoint: JaxprEqn) -> bool:
    """Return whether a checkpoint prevents the compiler from merging recomputed values with the original ones."""
    prim = hi_primitive(checkpoint)
    # JAX 0.10's remat3 has no such parameter and always prevents it.
    prevent = checkpoint.params["prevent_cse"] if prim is None else prim.params.get("prevent_cse", True)
    return prevent if isinstance(prevent, bool) else any(prevent)


def is_call_without_gradient(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a `HiPrim` with a body and without floating-point results, such as
    `jnp.searchsorted`. Its own derivative rule, if it has one, does not matter.
    """
    is_plain = primitive_name(eqn) == "call_hi_primitive" and called_body(eqn) is not None
    results: list[Any] = [v.aval for v in eqn.outvars]
    return is_plain and not any(jnp.issubdtype(aval.dtype, jnp.inexact) for aval in results)


def bodies(eqn: JaxprEqn) -> list[AnyJaxpr]:
    """Return the jaxprs that `eqn` runs: a called function, or the bodies of a loop or a `cond`."""
    body = called_body(eqn)
    return [body] if body is not None else list(jaxprs_in_params(eqn.params))


def walk_equations(
    jaxpr: AnyJaxpr, around: tuple[JaxprEqn, ...] = ()
) -> Iterator[tuple[JaxprEqn, tuple[JaxprEqn, ...]]]:
    """Yield every equation, bodies included, with the equations around it."""
    for eqn in body_of(jaxpr)[0].eqns:
        yield eqn, around
        for body in bodies(eqn):
            yield from walk_equations(body, (*around, eqn))


def equations_in(eqn: JaxprEqn) -> Iterator[JaxprEqn]:
    """Yield all equations in the bodies of an equation."""
    return (inner for body in bodies(eqn) for inner, _ in walk_equations(body))


def varying(aval: Any) -> frozenset[str]:
    """Return the mesh axes along which values of a type in a shard_map may differ; `vma` until about JAX 0.9."""
    return frozenset(aval.mat.varying if hasattr(aval, "mat") else getattr(aval, "vma", ()))


def checkpoint_name(eqn: JaxprEqn) -> str | None:
    """Return the name that `eqn` gives its operand, or None if `eqn` gives no name."""
    prim = hi_primitive(eqn)
    name: str | None = None
    if eqn.primitive.name == "name":
        name = eqn.params["name"]
    elif type(prim).__name__ in ("CheckpointName", "CheckpointNameFwd"):
        name = prim.name
    return name


def is_forward_name(eqn: JaxprEqn) -> bool:
    """Return whether `eqn` is remat3's `checkpoint_name_fwd`, which is for the forward rule of a `custom_vjp`."""
    return type(hi_primitive(eqn)).__name__ == "CheckpointNameFwd"


def passes_first_operand(eqn: JaxprEqn) -> bool:
    """Return whether `eqn` is remat3's `PrimalLeftTangentRight(x, _)`, whose value is `x`."""
    return type(hi_primitive(eqn)).__name__ == "PrimalLeftTangentRight"


def barrier_operands(eqn: JaxprEqn) -> list[int]:
    """Return the operands that the default `remat2` passes through an optimization barrier when it is lowered.

    With remat3, this barrier is a separate equation. By default, it exists only in the lowering.
    """
    if eqn.primitive.name not in CHECKPOINTS or not eqn.params["differentiated"]:
        return []
    prevent = eqn.params["prevent_cse"]
    flags = [prevent] * len(eqn.invars) if isinstance(prevent, bool) else prevent
    return [i for i, (flag, atom) in enumerate(zip(flags, eqn.invars, strict=True)) if flag and not is_literal(atom)]


# Operations whose derivative rule computes their result in a different way.
_COMPUTED_DIFFERENTLY = frozenset(
    "custom_vjp_call cumlogsumexp cummax cummin cumprod reduce_prod reduce_window_max reduce_window_min sort".split()
)


def forward_rule(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """Return the program that computes an equation's results and the residuals of its derivative.

    Returns None for operations whose derivative computes their results in the same way.
    """
    inexact = [jnp.issubdtype(v.aval.dtype, np.inexact) for v in eqn.invars if hasattr(v.aval, "dtype")]
    if eqn.primitive.name not in _COMPUTED_DIFFERENTLY or not any(inexact):
        return None

    # The values that a function with a custom rule closes over come first. JAX differentiates only with respect to its
    # arguments.
    closed_over = eqn.params.get("num_consts", 0) if eqn.primitive.name == "custom_vjp_call" else 0

    def differentiated(*operands: Any) -> Any:
        constants, arguments = operands[:closed_over], operands[closed_over:]
        return jax.vjp(lambda *arguments: run(eqn, [*constants, *arguments]), *arguments)

    rule: ClosedJaxpr = make_jaxpr(differentiated)(*(v.aval for v in eqn.invars))
    return rule


def forget_forward_rule(eqn: JaxprEqn) -> None:
    """Make JAX trace the forward rule of a `custom_vjp` again when it next differentiates this equation.

    JAX caches the traced rule for each set of differentiated operands, but stores only one pytree of residuals: that of
    the last trace. With `symbolic_zeros=True`, the pytrees may differ.
    """
    if eqn.params.get("symbolic_zeros") and (rule := eqn.params.get("fwd_jaxpr_thunk")) is not None:
        inspect.getclosurevars(rule.f).nonlocals["cells"].clear()


def jit_shardings(eqn: JaxprEqn) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the shardings that a `jit` specifies for its operands and results; none for other equations."""
    return eqn.params.get("in_shardings", ()), eqn.params.get("out_shardings", ())


class Scan(NamedTuple):
    """The parameters of a `scan`; its operands are constants, then carries, then sliced arrays."""

    body: ClosedJaxpr
    consts: int
    carries: int
    length: int
    reverse: bool


def scan_of(eqn: JaxprEqn) -> Scan:
    params = eqn.params
    if "num_consts" in params:  # JAX 0.11 and before
        consts, carries = params["num_consts"], params["num_carry"]
    else:
        consts, carries, _ = map(len, params["ft_in"].unpack())
    return Scan(params["jaxpr"], consts, carries, params["length"], params["reverse"])


class While(NamedTuple):
    """The parameters of a `while`; its operands are `tested` constants of the condition, then `kept` constants of the
    body, then carries."""

    condition: ClosedJaxpr
    tested: int
    body: ClosedJaxpr
    kept: int


def while_of(eqn: JaxprEqn) -> While:
    params = eqn.params
    return While(params["cond_jaxpr"], params["cond_nconsts"], params["body_jaxpr"], params["body_nconsts"])


class ShardMap(NamedTuple):
    """The parameters of a `shard_map`.

    Attributes:
      body: the program that each device runs on its shards.
      mesh: the mesh, concrete or abstract.
      axes: maps the mesh axes that arrays are sharded across to their sizes.
      in_specs, out_specs: the sharding of each operand and of each result.
      check_vma: whether JAX tracks which values differ between devices.
    """

    body: AnyJaxpr
    mesh: Any  # jax.sharding.Mesh or AbstractMesh, which have no common base class
    axes: dict[str, int]
    in_specs: tuple[Any, ...]
    out_specs: tuple[Any, ...]
    check_vma: bool


def shard_map_of(eqn: JaxprEqn) -> ShardMap:
    params = eqn.params
    names = params["newly_manual_axes" if "newly_manual_axes" in params else "manual_axes"]  # the latter in JAX 0.7
    mesh = params["mesh"]
    axes = {name: size for name, size in mesh.shape.items() if name in names}
    return ShardMap(params["jaxpr"], mesh, axes, params["in_specs"], params["out_specs"], params["check_vma"])


def effects_of(eqn: JaxprEqn) -> set[str]:
    """Return the kinds of an operation's effects, such as `DebugEffect` of a print. An operation with effects must run
    even if its results are unused.

    JAX also records the mesh axis of a collective as an effect. It is not included.
    """
    return {name for effect in eqn.effects if (name := type(effect).__name__) != "NamedAxisEffect"}


_PRINTS = frozenset({"DebugEffect", "OrderedDebugEffect"})
_WRITES = frozenset({"ReadEffect", "WriteEffect", "AccumEffect"})


def is_stateful(eqn: JaxprEqn) -> bool:
    """Return whether an operation has effects or returns a different result each time it runs."""
    return bool(effects_of(eqn)) or eqn.primitive.name in STATEFUL


def is_repeatable(eqn: JaxprEqn, prints: bool = False) -> bool:
    """Return whether a second run on the same operands, including all bodies, gives the same results and has no effect.

    `rng_bit_generator` and all operations on PRNG keys are repeatable, because the generator's state is an operand.

    Args:
      prints: whether printing twice is allowed.
    """
    return _is_repeatable(eqn, _PRINTS if prints else frozenset())


def is_repeatable_program(jaxpr: AnyJaxpr, prints: bool = False) -> bool:
    """Return whether a second run of a program gives the same results and has no effect.

    Args:
      jaxpr: the program, which may write to mutable arrays that it creates itself.
      prints: as for `is_repeatable`.
    """
    allowed = _WRITES | {"InternalMutableArrayEffect"} | (_PRINTS if prints else frozenset())
    return all(_is_repeatable(eqn, allowed) for eqn in body_of(jaxpr)[0].eqns)


def _is_repeatable(eqn: JaxprEqn, allowed: frozenset[str]) -> bool:
    # Writes to a body's own mutable arrays, as in kernels, do not outlive the operation. Writes to other arrays are
    # effects of the operation too.
    if eqn.primitive.name in MAY_DIFFER or not effects_of(eqn) <= allowed:
        return False
    inside = allowed | _WRITES
    return all(e.primitive.name not in MAY_DIFFER and effects_of(e) <= inside for e in equations_in(eqn))


def branches_of(eqn: JaxprEqn) -> tuple[ClosedJaxpr, ...]:
    return tuple(eqn.params["branches"])


def run(eqn: JaxprEqn, operands: list[Any]) -> list[Any]:
    """Apply the primitive of `eqn` to concrete or abstract operands."""
    primitive: Any = eqn.primitive
    bound = primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # a pair until JAX 0.11
    with eqn.ctx.manager:
        results = primitive.bind(*functions, *operands, **params)
    return list(results) if primitive.multiple_results else [results]


def is_transformed(value: Any) -> bool:
    """Return whether a transformation, such as `jax.jvp` or `jax.vmap`, follows a value, and not only a trace."""
    return isinstance(value, jax.core.Tracer) and type(value).__name__ != "DynamicJaxprTracer"


def literal_value(atom: Literal) -> Any:
    """Return the value of a literal in the form that primitives accept: a Python scalar or an array."""
    wrapped = type(atom.val).__name__ == "LiteralArray"  # in JAX 0.7, no primitive accepts it outside of jit
    return np.asarray(atom.val) if wrapped else atom.val


def is_literal(atom: Any) -> bool:
    """Return whether an operand in a jaxpr is a literal instead of a variable."""
    return isinstance(atom, Literal)


def is_pallas_parameter(value: Any) -> bool:
    """Return whether a parameter of an equation is a dataclass of Pallas, such as a grid mapping."""
    return type(value).__module__.startswith("jax._src.pallas") and dataclasses.is_dataclass(value)


def is_mutable_array(aval: Any) -> bool:
    """Return whether a type is that of mutable arrays from `jax.new_ref`, which operations can write to."""
    return type(aval).__name__ == "AbstractRef"
