"""`trace(f, *args)`: the forward and the backward program of a function, without running either."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from rematscope import jax_compat
from rematscope.errors import TraceError
from rematscope.ir import placement, roles
from rematscope.ir.collectives import CollectiveStats, collectives_of, tally_by_kind
from rematscope.ir.cost import Cost, program_cost
from rematscope.ir.gc_pause import gc_paused
from rematscope.ir.inline import Inliner
from rematscope.ir.primitives import is_opaque
from rematscope.ir.program import Program, Typed, Value
from rematscope.ir.sharding_propagation import propagate
from rematscope.ir.source import Source
from rematscope.ir.value_names import name_recomputed, name_values
from rematscope.jax_compat.vjp_hook import (
    GradientInside,
    donated_operands,
    has_gradient,
    raise_at_gradients,
    record_gradients,
)
from rematscope.render.progress import progress_message
from rematscope.tracing.arguments import (
    NEEDS_VALUE,
    PartlyDifferentiable,
    argument_paths,
    callable_name,
    check_differentiable,
    flattened,
    vjp_for,
)
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.residuals import Residual, makers_of, origin_of, residuals_of
from rematscope.tracing.step import Gradient, Halves, Step, gradients_of, halves_of, is_step, step_of


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """The forward and the backward program of a function, with the residuals that connect them.

    `forward(*arguments)` returns the outputs, followed by the residuals. `backward(*residuals, *cotangents)` returns
    one cotangent per argument. Both take and return flat lists of arrays, in the order of `jax.tree.leaves`.

    Attributes:
      function: the name of the function.
      forward, backward: the two programs. A residual is the same `Value`, with the same name, in both.
      residuals: the residuals, one for each leaf of `jax.vjp(f, *args)[1]`, in the same order.
      cotangents: the inputs of the backward program that follow the residuals.
      forward_value_of: maps each recomputed value to the forward value that it equals, the first one if there are
        several.
      equal_values: if several forward values equal a recomputed value, maps the first of them to all of them, in
        program order.
      unproven_equalities: the number of loops whose carries could not all be compared within a bounded number of steps.
        This can happen for deeply nested loops and for many similar loops. Values that depend on these carries count as
        deferred (`D`), although some of them may be recomputed.
      mesh: the mesh of the function, concrete or abstract; None on one device. Costs are per device. Bytes are those of
        whole arrays, unless the name of the attribute says otherwise.
      step: for a training step, the rest of the step around the two programs; else None. `cost`, `recompute_cost` and
        `deferred_cost` do not include this rest.
      remat3: whether `jax_remat3` was set during tracing and one of the programs contains a checkpoint. Under
        `jax_remat3`, JAX leaves no checkpoint in a program whose policy is `everything_saveable`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import trace
      >>> passes = trace(lambda x: jnp.sin(x) * x, jnp.float32(2.0))
      >>> passes.saved_bytes(), passes.forward.count("sin"), passes.backward.count(role="R")
      (12, 1, 0)
      >>> out, *residuals = passes.forward(jnp.float32(2.0))
      >>> (gradient,) = passes.backward(*residuals, jnp.float32(1.0))
      >>> bool(gradient == jax.grad(lambda x: jnp.sin(x) * x)(2.0))
      True
    """

    function: str
    forward: Program
    backward: Program
    residuals: tuple[Residual, ...]
    cotangents: tuple[Value, ...]
    forward_value_of: dict[Value, Value]
    equal_values: dict[Value, list[Value]]
    unproven_equalities: int
    mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh | None
    step: Step | None = None
    remat3: bool = False

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The outputs of the function; for a training step, those of its loss."""
        return self.forward.outputs[: len(self.forward.outputs) - len(self.residuals)]

    @property
    def gradients(self) -> tuple[tuple[Value, Value], ...]:
        """(argument, gradient) pairs; for a training step, only for the arguments with respect to which it
        differentiates."""
        given = self.forward.inputs if self.step is None else self.step.shown.differentiated
        return tuple(zip(given, self.backward.outputs, strict=True))

    @property
    def axes(self) -> dict[str, int]:
        """The axes of the mesh with their sizes; empty on one device."""
        return {} if self.mesh is None else dict(self.mesh.shape)

    @property
    def devices(self) -> int:
        """The number of devices of the mesh; 1 without a mesh."""
        return math.prod(self.axes.values())

    @property
    def per_device_text(self) -> str:
        """Text to append to bytes per device, such as ` on each of 8 devices`; empty on one device."""
        return f" on each of {self.devices} devices" if self.axes else ""

    @cached_property
    def unresolved_shardings(self) -> tuple[Residual, ...]:
        """The residuals on a mesh whose sharding the compiler decides; their bytes per device are an estimate.

        These are arrays on automatic mesh axes whose sharding no argument, `shard_map` or sharding constraint
        determines. The estimate is derived from the sharding of the operands; see `rematscope.ir.sharding_propagation`.
        `measure` shows the compiler's decision.
        """
        return tuple(r for r in self.residuals if self.axes and r.shape and not r.value.placement.is_explicit)

    @property
    def times(self) -> int:
        """How many times both passes run: once per microbatch of a training step; once for any other function."""
        return 1 if self.step is None else self.step.times

    @cached_property
    def cost(self) -> Cost:
        """The cost of both passes; for a training step, summed over all microbatches."""
        return (program_cost(self.forward) + program_cost(self.backward)) * self.times

    @cached_property
    def recompute_cost(self) -> Cost:
        """The cost of all recomputed operations (role `R`); for a training step, summed over all microbatches."""
        return program_cost(self.backward, roles.RECOMPUTED) * self.times

    @cached_property
    def deferred_cost(self) -> Cost:
        """The cost of all deferred operations (role `D`); for a training step, summed over all microbatches."""
        return program_cost(self.backward, roles.DEFERRED) * self.times

    def __repr__(self) -> str:
        saved = f"saves {self.saved_bytes():,} bytes, recomputes {self.recompute_cost}"
        return f"<{self.function}{self.mode_text}: {saved}>"

    @property
    def mode_text(self) -> str:
        """Text to append to the function's name: ` under jax_remat3` if `remat3` is True, and empty otherwise."""
        return " under jax_remat3" if self.remat3 else ""

    @cached_property
    def has_auto_sharded_work(self) -> bool:
        """Whether the compiler decides how to shard some operations, because they are on automatic mesh axes.

        Their costs per device are estimates, which do not include the collectives that the compiler adds.
        """
        return bool(self.axes) and (
            placement.has_auto_sharded_work(self.forward) or placement.has_auto_sharded_work(self.backward)
        )

    @cached_property
    def opaque_primitives(self) -> tuple[str, ...]:
        """The primitives whose inner operations are not analyzed.

        These are kernels, linear solvers, custom calls, Python callbacks, and operations that rematscope does not know.
        The counts include the residuals that these primitives save, but not the operations that they recompute
        internally.
        """
        equations = itertools.chain(self.forward.walk(), self.backward.walk())
        return tuple(sorted({e.primitive for e, _ in equations if is_opaque(e.primitive)}))

    def collectives(self, role: str | None = None) -> dict[str, CollectiveStats]:
        """Return the number of runs of each kind of collective, and the bytes that each device sends for them.

        A collective in a loop counts once per iteration. For a training step, the counts cover the whole step: all
        microbatches, all gradients and the update.

        Args:
          role: count only collectives with this role in the backward pass, such as `"R"` for recomputed ones.
        """
        return tally_by_kind(found for program in programs_of(self) for found in collectives_of(program, role))

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the saved bytes by kind of residual: `"computed"`, `"argument"` and `"constant"`.

        An array that is saved twice counts once. Residuals in host memory are not included; see `host_bytes`.
        """
        return self._by_kind(lambda residual: residual.nbytes)

    def device_bytes_by_kind(self) -> dict[str, int]:
        """Return the same as `bytes_by_kind`, but per device."""
        return self._by_kind(lambda residual: residual.device_bytes)

    def _by_kind(self, size: Callable[[Residual], int]) -> dict[str, int]:
        here = {r.array: r for r in self.residuals if r.memory == "device"}.values()
        kinds = {kind: sum(size(r) for r in here if r.kind == kind) for kind in ("computed", "constant", "argument")}
        return {kind: size for kind, size in kinds.items() if size or kind != "constant"}

    def host_bytes(self) -> int:
        """Return the bytes of all residuals in host memory, per device; an array that is saved twice counts once."""
        return sum(r.device_bytes for r in {r.array: r for r in self.residuals}.values() if r.memory == "host")

    def saved_bytes(self) -> int:
        """Return the bytes of all residuals that are not in host memory; an array that is saved twice counts once."""
        return sum(self.bytes_by_kind().values())

    def saved_device_bytes(self) -> int:
        """Return the same as `saved_bytes`, but per device."""
        return sum(self.device_bytes_by_kind().values())


def programs_of(passes: Trace) -> tuple[Program, ...]:
    """Return both programs of a trace; for a training step, the program of the whole step instead."""
    return (passes.forward, passes.backward) if passes.step is None else (passes.step.program,)


def inputs_of(passes: Trace) -> tuple[Value, ...]:
    """Return the inputs of the function and the cotangents; for a training step, the inputs of the whole step."""
    return (*passes.forward.inputs, *passes.cotangents) if passes.step is None else passes.step.program.inputs


def results_of(passes: Trace) -> tuple[Value, ...]:
    """Return the outputs and the gradients; for a training step, the outputs of the whole step."""
    return (*passes.outputs, *passes.backward.outputs) if passes.step is None else passes.step.program.outputs


def whole_cost(passes: Trace, role: str | None = None) -> Cost:
    """Return the cost of both programs, or of their operations with a role; for a training step, of the whole step."""
    return sum((program_cost(program, role) for program in programs_of(passes)), Cost())


@with_own_options
def trace(f: Callable[..., Any], *args: Any, differentiate: bool | None = None, **kwargs: Any) -> Trace:
    """Trace `f` and its gradient into a forward and a backward program, without running them.

    A training step, which takes a gradient itself and returns new parameters, is traced as written. The two programs
    are then those of its gradient, and `Trace.step` is the rest of the step. If a step takes several gradients, the two
    programs belong to the gradient that saves the most bytes.

    You can trace a function for another device on any machine. Without a GPU, cuDNN's attention
    (`jax.nn.dot_product_attention(…, implementation="cudnn")`) is traced as for a Hopper GPU with cuDNN 9.13.

    Args:
      f: a function of pytrees of arrays that is differentiable in reverse mode, or a training step.
      *args, **kwargs: the arguments of `f`: pytrees of arrays or `jax.ShapeDtypeStruct`s, of which `trace` uses only
        the shapes, dtypes and shardings. Integers, booleans and PRNG keys are allowed in addition to floating-point
        values. Leaves that JAX cannot trace, such as strings and the activation functions in an Equinox model, are
        static: `f` gets them unchanged. Numbers and booleans of Python, and scalars of NumPy, are traced, as `jax.jit`
        traces them, if `f` can be traced with them. If it cannot, because it reads a value, the booleans are static,
        and if this is not enough, all numbers. If `f` is a filtered function of Equinox, such as `eqx.filter_jit(f)`,
        or if an argument holds an Equinox module and `f` is not a `jax.jit` function, Python's numbers are static.
      differentiate: whether to differentiate `f`. By default, `trace` treats `f` as a training step, and does not
        differentiate it, if `f` takes a gradient outside of a checkpoint and returns values with the shapes of the
        arguments with respect to which it differentiates.

    Returns:
      The two programs, the residuals between them, and their costs.

    Raises:
      TraceError: if there is nothing to differentiate, if an argument holds an array that JAX cannot trace, such as one
        of strings, if `f` has no reverse-mode derivative, or if `differentiate` is not valid.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import trace
      >>> def f(w, x):
      ...     return jnp.sin(w @ x)
      >>> shapes = jax.ShapeDtypeStruct((5, 4), jnp.float32), jax.ShapeDtypeStruct((4,), jnp.float32)
      >>> trace(f, *shapes).bytes_by_kind()
      {'computed': 20, 'argument': 96}
      >>> trace(jax.checkpoint(f), *shapes).recompute_cost.flops  # the matmul, 2·5·4
      40
    """
    __tracebackhide__ = True
    return trace_call(f, args, kwargs, differentiate)


def trace_call(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    differentiate: bool | None = None,
    grad_mask: Sequence[bool] | None = None,
) -> Trace:
    """Trace a call like `trace`, without restrictions on the names of the keyword arguments of `f`.

    Args:
      f, args, kwargs, differentiate: as for `trace`.
      grad_mask: which leaves of `(args, kwargs)` get a gradient; None for all. The cotangent of another leaf is a
        float0, like that of an integer, and the backward pass computes nothing for it.
    """
    __tracebackhide__ = True
    given: object = f
    if grad_mask is None and isinstance(given, PartlyDifferentiable):
        grad_mask = given.gradient_mask(args, kwargs)
    flat, leaves = flattened(f, args, kwargs)
    if not isinstance(differentiate, bool | None):
        raise TraceError(
            f"differentiate={differentiate!r} is not valid. Use True to differentiate {callable_name(f)}, False to "
            "trace the gradient that it takes itself, or remove differentiate=."
        )
    check_differentiable(f, args, kwargs)
    name, paths = callable_name(f), argument_paths(f, args, kwargs)
    as_written = functools.partial(_trace_as_written, name, flat.updating, leaves, paths)
    with progress_message("tracing"), gc_paused():
        if differentiate is None:
            try:
                return _trace_passes(name, raise_at_gradients(flat), leaves, paths, grad_mask, stop=True)
            except GradientInside:
                pass
            except Exception:  # a step's own gradient or optimizer may have no derivative; then trace it as written
                with contextlib.suppress(Exception):
                    if (step := as_written(is_step)) is not None:
                        return step
                raise
            if (step := as_written(is_step)) is not None:
                return step
        if differentiate is False:
            if (step := as_written(lambda *_: True)) is None:
                raise TraceError(
                    f"{name} takes no gradient itself, so differentiate=False has nothing to trace. Remove it."
                )
            return step
        return _trace_passes(name, flat, leaves, paths, grad_mask)


def _trace_passes(
    function: str,
    flat: Callable[..., Any],
    leaves: list[Any],
    paths: Sequence[str],
    grad_mask: Sequence[bool] | None = None,
    stop: bool = False,
) -> Trace:
    """Trace both passes of a function by differentiating it.

    If `stop` is set and the function takes a gradient itself, raise GradientInside.
    """
    grad_mask = [True] * len(leaves) if grad_mask is None else grad_mask

    def forward(*leaves: Any) -> Any:
        return vjp_for(flat, leaves, grad_mask)

    try:
        forward_jaxpr, (out, pullback) = jax_compat.make_jaxpr(forward, return_shape=True)(*leaves)
        if stop and has_gradient(forward_jaxpr):
            raise GradientInside
        residuals, pullback_tree = jax.tree.flatten(pullback)
        cotangents = [_cotangent_shape(leaf) for leaf in jax.tree.leaves(out)]

        def backward(residuals: list[Any], cotangents: list[Any]) -> Any:
            cotangents = jax.tree.unflatten(jax.tree.structure(out), cotangents)
            found = iter(jax.tree.unflatten(pullback_tree, residuals)(cotangents))
            none = (np.zeros(jnp.shape(leaf), jax.dtypes.float0) for leaf in leaves)
            return [next(found) if one else zero for one, zero in zip(grad_mask, none, strict=True)]

        if not any(c.dtype != jax.dtypes.float0 for c in cotangents):
            raise TraceError(
                f"{function} returns no floating-point value, so there is nothing to differentiate. Return a "
                "float, such as a loss."
            )
        backward_jaxpr = jax_compat.make_jaxpr(backward)(residuals, cotangents)
    except Exception as error:
        if (explained := _explain_error(error, function, leaves, paths)) is None:
            if "object is not callable" in str(error):
                # JAX calls a policy late and does not say that it was the policy.
                error.add_note(
                    "If this is about policy=: a policy is a function, such as "
                    "jax.checkpoint_policies.dots_saveable, not a string, number or list."
                )
            raise
        raise explained from None

    inline = Inliner()
    arguments = [Value(v.aval, path) for v, path in zip(forward_jaxpr.invars, paths, strict=True)]
    fwd = inline.program(forward_jaxpr, arguments)
    outputs = fwd.outputs[: len(cotangents)]
    crossing = fwd.outputs[len(cotangents) :]
    incoming = tuple(Value(v.aval) for v in backward_jaxpr.invars[len(crossing) :])
    bwd = inline.program(backward_jaxpr, [*crossing, *incoming])

    mesh = _assign_shardings(fwd, bwd, outputs, incoming, leaves, inline.meshes)
    equal = roles.assign_roles(fwd, bwd, incoming, inline.rules)
    name_values(function, fwd, bwd, incoming, equal.forward_value_of)
    saved = residuals_of(fwd, bwd, crossing, outputs)
    return Trace(function, fwd, bwd, saved, incoming, *equal, mesh, remat3=inline.has_remat3_checkpoint)


def _trace_as_written(
    function: str,
    flat: Callable[..., Any],
    leaves: list[Any],
    paths: Sequence[str],
    accepted: Callable[[Program, Sequence[Gradient]], bool],
) -> Trace | None:
    """Return the passes of a gradient that a function takes itself; None if it takes no `accepted` gradient."""
    jaxpr = jax_compat.make_jaxpr(record_gradients(flat))(*leaves)
    inline = Inliner()
    operands = jax_compat.body_of(jaxpr)[0].invars
    arguments = [Value(v.aval, path) for v, path in zip(operands, paths, strict=True)]
    program = inline.program(jaxpr, arguments)
    mesh = _assign_shardings(program, Program((), [], ()), (), (), leaves, inline.meshes)
    gradients = gradients_of(inline.marks)
    if not gradients or not accepted(program, gradients) or not (halves := halves_of(program, gradients)):
        return None

    def kept(each: Halves) -> int:
        made = {v for equation in each.forward.equations for v in equation.outputs}
        return sum(v.device_bytes for v in each.crossing if v in made)

    shown = max(halves, key=kept)
    for each in halves:
        if each is not shown:
            roles.assign_roles(each.forward, each.backward, each.gradient.cotangents, inline.rules)
    incoming = shown.gradient.cotangents
    equal = roles.assign_roles(shown.forward, shown.backward, incoming, inline.rules)
    name_values(function, program, Program((), [], ()), incoming, {})
    name_recomputed(shown.backward, equal.forward_value_of)
    saved = residuals_of(shown.forward, shown.backward, shown.crossing, shown.values)
    step = step_of(jaxpr, program, halves, [arguments[i] for i in donated_operands(jaxpr)], shown)
    fwd, bwd = shown.forward, shown.backward
    return Trace(function, fwd, bwd, saved, incoming, *equal, mesh, step, inline.has_remat3_checkpoint)


def sources_of(jaxpr: ClosedJaxpr) -> tuple[Source | None, ...]:
    """Return the user's source line that computed each output of a jaxpr, as for `Residual.source`."""
    program = Inliner().whole(jaxpr)
    makers = makers_of(program)
    origins = [origin_of(value, makers)[1] for value in program.outputs]
    return tuple(None if equation is None else equation.source for equation in origins)


def _assign_shardings(
    fwd: Program,
    bwd: Program,
    outputs: Sequence[Value],
    cotangents: Sequence[Value],
    leaves: Sequence[Any],
    meshes: Sequence[Any],
) -> Any:
    """Record the sharding of the values of both programs, and return the largest mesh, if possible a concrete one."""
    given = placement.give_shardings(fwd.inputs, [getattr(leaf, "sharding", None) for leaf in leaves])
    found = [*meshes, *given, *placement.meshes_in(fwd), *placement.meshes_in(bwd)]
    several = [mesh for mesh in found if mesh.size > 1]
    if not several:
        return None
    for program in (fwd, bwd, fwd, bwd):  # twice, because a reader may determine a value's sharding
        placement.place(program)
        for output, cotangent in zip(outputs, cotangents, strict=True):
            placement.record_placement(cotangent, output.placement)
    mesh = max(several, key=lambda mesh: (mesh.size, isinstance(mesh, jax.sharding.Mesh)))
    propagate([fwd, bwd], dict(zip(cotangents, outputs, strict=True)), dict(mesh.shape))
    return mesh


def _cotangent_shape(leaf: Typed) -> Typed:
    dtype = leaf.dtype if jnp.issubdtype(leaf.dtype, np.inexact) else jax.dtypes.float0
    like: Callable[..., Typed] = jax.ShapeDtypeStruct  # JAX gives its constructor no types
    return like(leaf.shape, dtype, sharding=getattr(leaf, "sharding", None))


def _may_be_setting(leaf: Any) -> bool:
    """Return whether an argument may be a Python number; a plan fixes only the type of such a number."""
    return isinstance(leaf, int | float) or getattr(leaf, "weak_type", False) or (leaf.shape, leaf.dtype) == ((), bool)


def changes_outer_object(error: Exception) -> bool:
    """Return whether an error says that a function changed a module of Flax's nnx that is not an argument."""
    return "different trace level" in str(error)  # Flax's message


def _explain_error(error: Exception, function: str, leaves: Sequence[Any], paths: Sequence[str]) -> TraceError | None:
    """Return an error that explains why JAX cannot differentiate and what to do; None for the function's own errors."""
    text = str(error)
    needs_value = isinstance(error, NEEDS_VALUE) or "Non-hashable static arguments" in text
    flags = [f"`{path}`" for path, leaf in zip(paths, leaves, strict=True) if _may_be_setting(leaf)]
    if needs_value and flags:
        which = flags[0] if len(flags) == 1 else f"one of {', '.join(flags[:5])}{', …' * (len(flags) > 5)}"
        return TraceError(
            f"{function} reads the value of an argument, {which}, but trace only passes its type. Pass a Python bool "
            "in place of an array, or bind flags, axes and other static arguments first: functools.partial(f, "
            "training=True)."
        )
    if changes_outer_object(error):
        return TraceError(
            f"{function} changes an object that is not an argument, such as a module of Flax's nnx. Make it an "
            "argument, step(model, optimizer, batch): trace follows what a function writes into its arguments."
        )
    if isinstance(error, NameError) and "unbound axis name" in text:
        axis = text.partition("unbound axis name:")[2].partition(".")[0].strip()
        return TraceError(
            f"{function} uses the axis {axis}, which only the shard_map, vmap or pmap around it defines. Pass "
            "the function that contains this transformation."
        )
    if "Reverse-mode differentiation does not work" in text:
        return TraceError(
            f"{function} has no backward pass: it runs a while_loop, or a fori_loop whose bounds are not known "
            "at trace time, and JAX cannot save an unknown number of residuals. Use jax.lax.scan, or a "
            "fori_loop with Python integers as bounds."
        )
    maker = text.partition("(")[0]
    if isinstance(error, TypeError) and hasattr(jax.checkpoint_policies, maker):
        return TraceError(
            f"a checkpoint of {function} has policy={maker}, which returns a policy and is not one itself. Call "
            "it first: save_only_these_names('h')."
        )
    refusals = ("do not support JVP", "Linearization failed", "ifferentiation rule")
    if any(refusal in text for refusal in refusals):
        return TraceError(
            f"{function} has no backward pass: {text.splitlines()[0].rstrip('.')}. Give that operation a "
            "derivative with jax.custom_vjp, or exclude it with jax.lax.stop_gradient."
        )
    return None
