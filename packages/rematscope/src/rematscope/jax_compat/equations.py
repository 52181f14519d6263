"""The module that reaches behind JAX's public API, and that knows what its releases do differently.

These have no public door:

* `scan` keeps how its operands divide into constants, carries and slices in parameters (other ones from JAX 0.12 on).
* Some operations are `HiPrim` objects in the private `_prim` parameter of one primitive; under `JAX_REMAT3=1`, a switch
  that came with JAX 0.10, so are checkpoints and names.
* `shard_map` keeps in parameters what is divided over which axes of a mesh.
* A call primitive's body sits under a parameter name of its own.
* The switch between the two is a state that only a private module can set for a while, and so is the one that has types
  in a shard_map say what differs from device to device.
* How an equation's parameters are handed to its primitive changed between releases (a pair until JAX 0.11).
* The transformations that a call is made in are a state of a private module, and only that can be set aside.
* Which backends JAX has started, and whether a machine has a TPU, only private modules say.
* The names that a policy was made with are only in its closure, or in fields of its own from JAX 0.11 on.

Between releases differ: `jaxprs_in_params` is public from JAX 0.10 on, and from 0.11 on every jaxpr is a closed one,
whose equations can be replaced.

Everything here takes a `JaxprEqn` and returns plain data or arrays; a release that moves one of them is mended here.
"""

import contextlib
import functools
import importlib.metadata
import importlib.util
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax import ad_checkpoint
from jax._src import config, core, hardware_utils, xla_bridge
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

try:
    from jax.extend.core import jaxprs_in_params as jaxprs_in_params
except ImportError:  # JAX 0.9 and before
    from jax._src.core import jaxprs_in_params as jaxprs_in_params

__all__ = ["jaxprs_in_params"]

AnyJaxpr = Jaxpr | ClosedJaxpr
Policy = Callable[..., Any]  # of a primitive and its operands' avals; what it returns changed between releases
Change = Callable[[JaxprEqn, JaxprEqn], Iterable[JaxprEqn]]

_give_name: Callable[[Any, str], Any] = ad_checkpoint.checkpoint_name

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
    "custom_vmap_call": "call",
    "composite": "call_jaxpr",
    "linear_call": "callee",
    "xla_metadata_call": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}


def remat3() -> bool:
    """Whether JAX's next rematerialization is on, `JAX_REMAT3=1`; before JAX 0.10 there was none."""
    return hasattr(config, "remat3") and bool(config.remat3.value)


def start_no_absent_tpu() -> None:
    """Set `jax_platforms` to `cpu` where libtpu is installed, the machine has no TPU, and nothing is chosen yet.

    JAX starts all backends when it needs its first device, as lowering does. Without a TPU libtpu may then wait for
    minutes, for a metadata server or for other hosts, before JAX goes on with the CPU. Other accelerators have plugins;
    where one is installed, the choice stays with JAX.
    """
    if jax.config.jax_platforms or "JAX_FORCE_TPU_INIT" in os.environ or importlib.util.find_spec("libtpu") is None:
        return
    hardware, settings = cast(Any, hardware_utils), cast(Any, jax.config)  # JAX gives these functions no types
    if xla_bridge.backends_are_initialized() or hardware.num_available_tpu_chips_and_device_id()[0]:
        return
    if importlib.util.find_spec("jax_plugins") or importlib.metadata.entry_points(group="jax_plugins"):
        return
    settings.update("jax_platforms", "cpu")


def body_of(jaxpr: AnyJaxpr) -> tuple[Jaxpr, list[Var], list[Any]]:
    """Returns (jaxpr with eqns/invars/outvars, constvars, consts), for open and closed jaxprs of either release."""
    consts = list(getattr(jaxpr, "consts", ()))
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    return inner, list(inner.constvars), consts


def hi_primitive(eqn: JaxprEqn) -> Any:  # a class of JAX's without a public name
    """The `HiPrim` of an equation under remat3 (`RematTraced`, `CheckpointName`, …), or None."""
    return eqn.params.get("_prim") if eqn.primitive.name == "call_hi_primitive" else None


def called_body(eqn: JaxprEqn) -> AnyJaxpr | None:
    """The jaxpr that `eqn` calls exactly once with its own operands, or None if it does anything else."""
    if (prim := hi_primitive(eqn)) is not None:
        if type(prim).__name__ == "RematTraced":
            body: AnyJaxpr = prim.jaxpr
            return body
        keeps = checkpoint_name(eqn) is not None or passes_first_operand(eqn)
        return None if keeps else _expanded(prim, tuple(prim.in_avals_flat))
    if (key := _CALLS.get(eqn.primitive.name)) is not None:
        return eqn.params.get(key, eqn.params.get("jaxpr"))  # lax.composite's until JAX 0.11
    return None


@functools.lru_cache(maxsize=1024)  # one program of each, however often it is asked for
def _expanded(prim: Any, avals: tuple[Any, ...]) -> AnyJaxpr | None:
    """What a `HiPrim` is made of, such as `jnp.searchsorted`; None where its author does not say so."""

    def run(*flat: Any) -> Any:
        return jax.tree.leaves(prim.expand(*jax.tree.unflatten(prim.in_tree, flat)))

    try:
        return jax.make_jaxpr(run)(*avals)
    except NotImplementedError:
        return None


_OF_CHECKPOINTS = ("checkpoint", "rematted_computation")


def scopes(eqn: JaxprEqn) -> list[str]:
    """The names that `jax.named_scope`, or a library for its modules, gave to what made `eqn`, outermost first.

    JAX notes its transformations among them, and what an einsum is about.
    """
    names = (each.name for each in eqn.source_info.name_stack.stack if type(each).__name__ == "Scope")
    return [name for name in names if name not in _OF_CHECKPOINTS and "," not in name and "->" not in name]


def is_checkpoint(eqn: JaxprEqn) -> bool:
    """True for an equation that `jax.checkpoint` made."""
    return eqn.primitive.name in _CHECKPOINTS or type(hi_primitive(eqn)).__name__ == "RematTraced"


def is_differentiated(eqn: JaxprEqn) -> bool:
    """True for a checkpoint whose gradient was taken in the program that it stands in."""
    return bool(eqn.params.get("differentiated"))


def is_custom_rule(eqn: JaxprEqn) -> bool:
    """True for a function with a derivative of its own, which is opaque."""
    return eqn.primitive.name.startswith("custom_")


def policy_of(checkpoint: JaxprEqn) -> Policy | None:
    """The policy of an equation that `jax.checkpoint` made."""
    prim = hi_primitive(checkpoint)
    policy: Policy | None = prim.policy if prim is not None else checkpoint.params["policy"]
    return policy


def prevents_cse(checkpoint: JaxprEqn) -> bool:
    """Whether anything keeps the compiler from taking what a checkpoint computes again for what was computed before."""
    prim = hi_primitive(checkpoint)
    prevent = prim.prevent_cse if prim is not None else checkpoint.params["prevent_cse"]
    return prevent if isinstance(prevent, bool) else any(prevent)


def policy_name(policy: Policy | None) -> str:
    """What a policy is called: `dots_saveable`, `save_only_these_names`, or a name of the user's own."""
    if policy is None:
        return "no policy"
    known = next((name for name, each in vars(jax.checkpoint_policies).items() if each is policy), None)
    if known is None and _made_with(policy) and not inspect.isfunction(policy):
        return re.sub("(?<!^)(?=[A-Z])", "_", type(policy).__name__).lower()
    return known or getattr(policy, "__qualname__", type(policy).__name__).partition(".<locals>")[0]


def names_in_policy(policy: Policy | None) -> set[str]:
    """The names that one of JAX's policies about names was made with, or those in `save_from_both_policies`."""
    found: set[str] = set()
    for key, value in _made_with(policy).items():
        if "names" in key:
            found |= set(value)
        elif key.startswith("policy_"):
            found |= names_in_policy(value)
    return found


def _made_with(policy: Policy | None) -> dict[str, Any]:
    """What one of JAX's own policies remembers: in a closure, or in fields in JAX 0.11. Nothing else tells."""
    if getattr(policy, "__module__", None) != jax.checkpoint_policies.nothing_saveable.__module__:
        return {}
    return dict(inspect.getclosurevars(policy).nonlocals if inspect.isfunction(policy) else vars(policy))


def bodies(eqn: JaxprEqn) -> list[AnyJaxpr]:
    """The programs that `eqn` runs: what it calls, or those of a loop or a branch."""
    body = called_body(eqn)
    return [body] if body is not None else list(jaxprs_in_params(eqn.params))


def map_equations(jaxpr: Any, change: Change) -> Any:
    """`jaxpr` with other equations: `change(eqn, original)` says which take the place of `original`.

    `eqn` is the same with its bodies rewritten, those of jit, loops, branches and checkpoints; not those of custom
    rules, which are opaque functions. What does not change stays one object, so that JAX knows what it made of it.
    """
    inner: Any = body_of(jaxpr)[0]
    if inner is not jaxpr:  # closed around an open one, before JAX 0.11
        return jaxpr if (new := map_equations(inner, change)) is inner else jaxpr.replace(jaxpr=new)
    eqns = [new for eqn in jaxpr.eqns for new in change(_with_bodies(eqn, change), eqn)]
    return jaxpr if [*map(id, eqns)] == [*map(id, jaxpr.eqns)] else jaxpr.replace(eqns=eqns)


def _rewritten_parameter(value: Any, change: Change) -> Any:
    if type(value) in (tuple, list):  # the branches of a cond; a named tuple says how an operation works
        parts = type(value)(_rewritten_parameter(part, change) for part in value)
        return value if [*map(id, parts)] == [*map(id, value)] else parts
    return map_equations(value, change) if hasattr(value, "eqns") else value


def _with_bodies(eqn: JaxprEqn, change: Change) -> JaxprEqn:
    if (prim := hi_primitive(eqn)) is not None:
        if not remat3():
            return _in_default_remat(eqn, change)
        if not is_checkpoint(eqn):
            return eqn
        prim = type(prim)(map_equations(prim.jaxpr, change), prim.policy, prim.prevent_cse)
        return _replaced(eqn, params={**eqn.params, "_prim": prim})
    params = {} if is_custom_rule(eqn) else {k: _rewritten_parameter(v, change) for k, v in eqn.params.items()}
    return _replaced(eqn, params=params) if any(params[key] is not eqn.params[key] for key in params) else eqn


def _replaced(eqn: JaxprEqn, **changes: Any) -> JaxprEqn:
    replaced: JaxprEqn = eqn.replace(**changes)
    return replaced


def jaxpr_with_policies(jaxpr: AnyJaxpr, instead: Callable[[Policy | None], Policy | None]) -> Any:
    """`jaxpr` with another policy in every checkpoint, those in jit, loops, branches and other checkpoints included."""
    return map_equations(
        jaxpr, lambda eqn, _: [replace_policy(eqn, instead(policy_of(eqn))) if is_checkpoint(eqn) else eqn]
    )


def replace_policy(checkpoint: JaxprEqn, policy: Policy | None) -> JaxprEqn:
    """A checkpoint with another policy."""
    if (prim := hi_primitive(checkpoint)) is not None:
        prim = type(prim)(prim.jaxpr, policy, prim.prevent_cse)
        return _replaced(checkpoint, params={**checkpoint.params, "_prim": prim})
    return _replaced(checkpoint, params={**checkpoint.params, "policy": policy})


def eqn_without_checkpoint(eqn: JaxprEqn) -> JaxprEqn:
    """A checkpoint as a call of what it goes around."""
    body = called_body(eqn)
    assert body is not None, "a checkpoint goes around a program"
    closed = body if hasattr(body, "consts") else ClosedJaxpr(body, ())  # open until JAX 0.11
    return trace_single_equation(jax.jit(jaxpr_as_fun(closed)), eqn)


def with_name(eqn: JaxprEqn, name: str, which: int = 0) -> list[JaxprEqn]:
    """`eqn`, and what gives one of its results a checkpoint name before anything reads it."""
    result = eqn.outvars[which]
    unnamed = type(result)(result.aval)
    naming = trace_single_equation(lambda x: _give_name(x, name), _replaced(eqn, invars=[unnamed], outvars=[result]))
    return [_replaced(eqn, outvars=[*eqn.outvars[:which], unnamed, *eqn.outvars[which + 1 :]]), naming]


def trace_single_equation(f: Callable[..., Any], eqn: JaxprEqn) -> JaxprEqn:
    """`eqn` with the operation that `f` is."""
    mesh = eqn.ctx.cur_abstract_mesh  # of which a shard_map around has made some axes its own
    kinds = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    axes = [(name, size) for name, size, kind in kinds if kind == jax.sharding.AxisType.Manual]
    varies = [varying(v.aval) for v in (*eqn.invars, *eqn.outvars)] if axes else []
    like = [_like(v.aval) if axes else v.aval for v in eqn.invars]
    with eqn.ctx.manager, config._check_vma(any(varies)) if axes else contextlib.nullcontext():
        (only,) = body_of(jax.make_jaxpr(f, axis_env=axes)(*like))[0].eqns
    return _replaced(eqn, primitive=only.primitive, params=only.params, effects=only.effects)


def varying(aval: Any) -> frozenset[str]:
    """The axes along which a type in a shard_map says that values may differ; `vma` until JAX 0.9 or so."""
    return frozenset(aval.mat.varying if hasattr(aval, "mat") else getattr(aval, "vma", ()))


def _like(aval: Any) -> Any:
    """A shape that says so as well."""
    varies = {"manual_axis_type": aval.mat} if hasattr(aval, "mat") else {"vma": aval.vma}
    shape: Any = jax.ShapeDtypeStruct  # JAX gives its constructor no types
    weak = getattr(aval, "weak_type", False)
    return shape(aval.shape, aval.dtype, sharding=aval.sharding, weak_type=weak, **varies)


@contextlib.contextmanager
def outside_transformations() -> Iterator[None]:
    """A context outside of the caller's transformations: without their trace, named axes and manual mesh."""
    context, mesh = cast(Any, core.trace_ctx), jax.sharding.get_abstract_mesh()
    is_manual = jax.sharding.AxisType.Manual in mesh.axis_types
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())) if is_manual else None
    trace, axes = context.trace, context.axis_env
    with no_mesh or contextlib.nullcontext():
        context.set_trace(core.eval_trace)
        context.set_axis_env(core.top_axis_env)
        try:
            yield
        finally:
            context.set_trace(trace)
            context.set_axis_env(axes)


def default_remat() -> contextlib.AbstractContextManager[Any]:
    """A context in which JAX's default rematerialization is on, whatever `jax_remat3` is set to."""
    return use_remat3(False)


def use_remat3(on: bool) -> contextlib.AbstractContextManager[Any]:
    """A context in which JAX's next rematerialization is on or off in this thread; off is all that JAX 0.9 has."""
    return config.remat3(on) if hasattr(config, "remat3") else contextlib.nullcontext()


def _in_default_remat(eqn: JaxprEqn, change: Change) -> JaxprEqn:
    """A checkpoint or a name of remat3, as the equation that the default would have made."""
    prim = hi_primitive(eqn)
    if is_checkpoint(eqn):
        body = jaxpr_as_fun(map_equations(prim.jaxpr, change))
        return trace_single_equation(jax.checkpoint(body, policy=prim.policy, prevent_cse=prim.prevent_cse), eqn)
    if (name := checkpoint_name(eqn)) is not None:
        return trace_single_equation(lambda x: _give_name(x, name), eqn)
    return eqn


def checkpoint_name(eqn: JaxprEqn) -> str | None:
    """The name that `eqn` gives its operand, or None if `eqn` names nothing."""
    prim = hi_primitive(eqn)
    name: str | None = None
    if eqn.primitive.name == "name":
        name = eqn.params["name"]
    elif type(prim).__name__ in ("CheckpointName", "CheckpointNameFwd"):
        name = prim.name
    return name


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


def jit_shardings(eqn: JaxprEqn) -> tuple[Sequence[Any], Sequence[Any]]:
    """The shardings that a `jit` was given for its operands and its results; for other equations none."""
    return eqn.params.get("in_shardings", ()), eqn.params.get("out_shardings", ())


class Scan(NamedTuple):
    """What a `scan` equation says of itself; its operands are constants, then carries, then what is sliced."""

    body: ClosedJaxpr
    consts: int
    carries: int
    length: int
    reverse: bool


def scan_of(eqn: JaxprEqn) -> Scan:
    """Reads the parameters of a `scan`."""
    params = eqn.params
    if "num_consts" in params:  # JAX 0.11 and before
        consts, carries = params["num_consts"], params["num_carry"]
    else:
        consts, carries, _ = map(len, params["ft_in"].unpack())
    return Scan(params["jaxpr"], consts, carries, params["length"], params["reverse"])


class While(NamedTuple):
    """What a `while` equation says of itself; its operands are `tested` constants of the condition, `kept` ones of the
    body, then carries."""

    condition: ClosedJaxpr
    tested: int
    body: ClosedJaxpr
    kept: int


def while_of(eqn: JaxprEqn) -> While:
    """Reads the parameters of a `while`."""
    params = eqn.params
    return While(params["cond_jaxpr"], params["cond_nconsts"], params["body_jaxpr"], params["body_nconsts"])


class ShardMap(NamedTuple):
    """What a `shard_map` equation says of itself.

    Attributes:
      body: what each device runs on its parts.
      mesh: the mesh, of devices or abstract.
      axes: the mesh axes that it divides arrays over, and how long each is.
      in_specs, out_specs: how each operand and each result is divided.
      check_vma: whether JAX keeps account of what differs between devices.
    """

    body: AnyJaxpr
    mesh: Any  # jax.sharding.Mesh or AbstractMesh, which have no common type
    axes: dict[str, int]
    in_specs: tuple[Any, ...]
    out_specs: tuple[Any, ...]
    check_vma: bool


def shard_map_of(eqn: JaxprEqn) -> ShardMap:
    """Reads the parameters of a `shard_map`."""
    params = eqn.params
    names = params["newly_manual_axes" if "newly_manual_axes" in params else "manual_axes"]  # the latter in JAX 0.7
    mesh = params["mesh"]
    axes = {name: size for name, size in mesh.shape.items() if name in names}
    return ShardMap(params["jaxpr"], mesh, axes, params["in_specs"], params["out_specs"], params["check_vma"])


def effects_of(eqn: JaxprEqn) -> set[str]:
    """Kinds of its effects, `DebugEffect` of a print: it must run though nothing reads a result of it.

    That a collective is about an axis of a mesh is written down as an effect too, and is none.
    """
    return {type(effect).__name__ for effect in eqn.effects} - {"NamedAxisEffect"}


# Another run of these gives another result: the next numbers of a device's own generator, or the next item of a queue.
_STATEFUL = frozenset({"rng_uniform", "infeed", "outfeed"})
# And of these it may: JAX takes a `pure_callback` at its word, but it returns whatever Python code does.
_MAY_DIFFER = _STATEFUL | {"pure_callback", "io_callback"}
_PRINTS = frozenset({"DebugEffect", "OrderedDebugEffect"})


def is_stateful(eqn: JaxprEqn) -> bool:
    """Whether an operation has effects, or gives another result each time it runs."""
    return bool(effects_of(eqn)) or eqn.primitive.name in _STATEFUL


def is_repeatable(eqn: JaxprEqn, prints: bool = False) -> bool:
    """Whether a second run on the same operands gives the same results and has no effect, in all bodies too.

    `rng_bit_generator` and all that is made of PRNG keys is repeatable: the state of the generator is an operand.

    Args:
      eqn: an operation.
      prints: whether printing twice is allowed.
    """
    if effects_of(eqn) - (_PRINTS if prints else frozenset()) or eqn.primitive.name in _MAY_DIFFER:
        return False
    return all(is_repeatable(inner, prints) for body in bodies(eqn) for inner in body_of(body)[0].eqns)


def saving_unrepeatable(policy: Policy | None) -> Policy:
    """A policy that also saves results that a second run may not give; see `is_repeatable`."""

    def asked(primitive: Any, *avals: Any, **params: Any) -> Any:
        if primitive.name in _MAY_DIFFER:
            return True
        return policy is not None and policy(primitive, *avals, **params)

    return asked


def branches_of(eqn: JaxprEqn) -> tuple[ClosedJaxpr, ...]:
    """The branches of a `cond`."""
    return tuple(eqn.params["branches"])


def run(eqn: JaxprEqn, operands: list[Any]) -> list[Any]:
    """Applies the primitive of `eqn` to concrete or abstract operands."""
    primitive: Any = eqn.primitive
    bound = primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # a pair until JAX 0.11
    with eqn.ctx.manager:
        results = primitive.bind(*functions, *operands, **params)
    return list(results) if primitive.multiple_results else [results]


def literal_value(atom: Literal) -> Any:
    """The number of a literal as primitives take it: a Python scalar, or an array."""
    wrapped = type(atom.val).__name__ == "LiteralArray"  # in JAX 0.7, where no primitive takes it outside of jit
    return np.asarray(atom.val) if wrapped else atom.val


def is_literal(atom: Any) -> bool:
    """True for a number that is written into a jaxpr where others have a variable."""
    return isinstance(atom, Literal)
