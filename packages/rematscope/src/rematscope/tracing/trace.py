"""`trace(f, *args)`: the forward and the backward program of a function, without running either."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr

from rematscope.errors import TraceError
from rematscope.ir import jax_internals, placement, roles
from rematscope.ir.collectives import CollectiveStats, collectives_of, tallied
from rematscope.ir.cost import Cost, program_cost
from rematscope.ir.cost_rules import is_closed
from rematscope.ir.garbage import collected_later
from rematscope.ir.gradients import GradientInside, donated, has_gradient, marking, stopped_at_gradients
from rematscope.ir.inline import Inliner
from rematscope.ir.program import Program, Typed, Value
from rematscope.ir.propagation import propagate
from rematscope.ir.source import Source
from rematscope.ir.value_names import name_values, names_again
from rematscope.render.progress import working
from rematscope.tracing.arguments import (
    argument_paths,
    called,
    check_differentiable,
    flattened,
    vjp_for,
    with_own_options,
)
from rematscope.tracing.residuals import Residual, makers_of, origin_of, residuals_of
from rematscope.tracing.step import Gradient, Halves, Step, gradients_of, halves_of, is_step, step_of

source_info_util.register_exclusion(__file__)


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """The two programs that differentiating a function in reverse mode runs.

    `forward(*arguments)` returns the outputs, then the residuals; `backward(*residuals, *cotangents)` returns a
    cotangent for every argument. All arrays are flat lists, in the order of `jax.tree.leaves`.

    Attributes:
      function: the name of the function.
      forward, backward: the programs. A value that crosses is one `Value` with one name in both.
      residuals: one for each leaf of `jax.vjp(f, *args)[1]`, in its order.
      cotangents: the values that the backward program is given besides the residuals.
      forward_value_of: maps the value of a recomputed equation to the forward value that it equals, the first if there
        are several.
      equal_values: maps such a first value to all forward values that equal it, in program order, if there are several.
      unproven_equalities: the number of loops, deeply nested or among many similar ones, whose carries could not all be
        compared within a bounded number of steps. Values that depend on these carries count as deferred (`D`), though
        some of them may be recomputed.
      mesh: the mesh that the function is for, of devices or abstract; None on one device. Costs are those of
        one device, bytes of the whole arrays unless they are said to be on a device.
      step: what stands around the two programs, where they are those of a gradient that the function takes itself; else
        None. Costs are those of the two programs, run once.

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

    @property
    def outputs(self) -> tuple[Value, ...]:
        """What the function returns; of a step, what it takes the gradient of."""
        return self.forward.outputs[: len(self.forward.outputs) - len(self.residuals)]

    @property
    def gradients(self) -> tuple[tuple[Value, Value], ...]:
        """Each argument, and its gradient; of a step, what it takes the gradient for."""
        given = self.forward.inputs if self.step is None else self.step.shown.differentiated
        return tuple(zip(given, self.backward.outputs, strict=True))

    @property
    def axes(self) -> dict[str, int]:
        """The axes of the mesh, and how long each is; none on one device."""
        return {} if self.mesh is None else dict(self.mesh.shape)

    @property
    def devices(self) -> int:
        """How many devices there are on the mesh; 1 where there is none."""
        return math.prod(self.axes.values())

    @property
    def per_device_text(self) -> str:
        """` on each of 8 devices`, to say so behind bytes of one device; nothing where there is only one."""
        return f" on each of {self.devices} devices" if self.axes else ""

    @cached_property
    def unresolved_shardings(self) -> tuple[Residual, ...]:
        """Residuals on a mesh of which only the compiler decides what each device has; its bytes are foretold.

        Those are arrays under automatic axes that no argument, `shard_map` or sharding constraint says it of. They are
        taken to lie as what they are computed from; see `rematscope.ir.propagation`. What the compiler makes of both
        passes, `rematscope.measure` tells.
        """
        return tuple(r for r in self.residuals if self.axes and r.shape and not r.value.placement.decided)

    @property
    def times(self) -> int:
        """How often both passes run: once for each microbatch of a step, else 1."""
        return 1 if self.step is None else self.step.times

    @cached_property
    def cost(self) -> Cost:
        """The cost of both passes, over all microbatches of a step."""
        return (program_cost(self.forward) + program_cost(self.backward)) * self.times

    @cached_property
    def recompute_cost(self) -> Cost:
        """The cost of recomputing in the backward pass what the forward pass had, the sum over `R`; see `cost`."""
        return program_cost(self.backward, roles.RECOMPUTED) * self.times

    @cached_property
    def deferred_cost(self) -> Cost:
        """The cost of what the backward pass computes first, without the cotangent, the sum over `D`; see `cost`."""
        return program_cost(self.backward, roles.DEFERRED) * self.times

    def __repr__(self) -> str:
        return f"<{self.function}: saves {self.saved_bytes():,} bytes, recomputes {self.recompute_cost}>"

    @cached_property
    def has_auto_sharded_work(self) -> bool:
        """Whether some work stands under automatic axes, so that only the compiler knows how devices divide it.

        It counts in all costs as it is foretold to be divided, and what is exchanged for it does not count.
        """
        return bool(self.axes) and (
            placement.has_auto_sharded_work(self.forward) or placement.has_auto_sharded_work(self.backward)
        )

    @cached_property
    def opaque_primitives(self) -> tuple[str, ...]:
        """Primitives that stand as one equation though they run what is not looked into.

        Kernels, linear solvers, custom calls, callbacks to Python and operations that rematscope does not know. What
        they save is seen; what they recompute inside is not.
        """
        equations = itertools.chain(self.forward.walk(), self.backward.walk())
        return tuple(sorted({e.primitive for e, _ in equations if is_closed(e.primitive)}))

    def collectives(self, role: str | None = None) -> dict[str, CollectiveStats]:
        """Return how often each kind of collective runs, and the bytes that a device sends for it.

        Loops are multiplied by their trip counts. Of a training step, those of the whole step count: of all
        microbatches, all gradients and the update.

        Args:
          role: only those with this role in the backward pass: `"R"` for recomputed gathers and sums.
        """
        if self.step is not None:
            return tallied(collectives_of(self.step.program, role))
        forward = collectives_of(self.forward) if role is None else ()
        return tallied([*forward, *collectives_of(self.backward, role)])

    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes saved of each kind of residual, those the function computed first; one array counts once.

        What is kept in the host's memory takes none of the device's, and is not among them; see `host_bytes`.
        """
        return self._by_kind(lambda residual: residual.nbytes)

    def device_bytes_by_kind(self) -> dict[str, int]:
        """The same of what each device has of the residuals."""
        return self._by_kind(lambda residual: residual.device_bytes)

    def _by_kind(self, size: Callable[[Residual], int]) -> dict[str, int]:
        here = {r.array: r for r in self.residuals if r.memory == "device"}.values()
        kinds = {kind: sum(size(r) for r in here if r.kind == kind) for kind in ("computed", "constant", "argument")}
        return {kind: size for kind, size in kinds.items() if size or kind != "constant"}

    def host_bytes(self) -> int:
        """Bytes of the residuals that are kept in the host's memory, for each device; one array counts once."""
        return sum(r.device_bytes for r in {r.array: r for r in self.residuals}.values() if r.memory == "host")

    def saved_bytes(self) -> int:
        """Bytes of all residuals that are kept on the device; one array counts once."""
        return sum(self.bytes_by_kind().values())

    def saved_device_bytes(self) -> int:
        """Bytes of all residuals that are kept on each device; one array counts once."""
        return sum(self.device_bytes_by_kind().values())


@with_own_options
def trace(f: Callable[..., Any], *args: Any, differentiate: bool | None = None, **kwargs: Any) -> Trace:
    """Splits `f` into its forward and its backward program, without running either.

    A training step takes a gradient itself and returns new parameters. It is looked at as it stands: the programs are
    those of the gradient that it takes, of the one that keeps most if it takes several, and `Trace.step` has the rest.

    Args:
      f: a function of pytrees of arrays, differentiable in reverse mode, or a step.
      *args, **kwargs: its arguments: arrays, Python scalars or `jax.ShapeDtypeStruct`s in pytrees. Only shapes and
        dtypes are looked at. Integers, booleans and PRNG keys are allowed beside floating-point arguments.
      differentiate: whether to take the gradient of `f`. By default a function is a step, whose gradient is not taken,
        if it takes one itself, not in a checkpoint, and returns something of the shape of what it takes it for.

    Returns:
      The two programs, what crosses between them, and what they cost.

    Raises:
      TraceError: if there is nothing to differentiate, an argument is no array, `differentiate` is not of the three, or
        `f` has no reverse-mode derivative.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import trace
      >>> def f(w, x):
      ...     return jnp.sin(w @ x)
      >>> shapes = jax.ShapeDtypeStruct((5, 4), jnp.float32), jax.ShapeDtypeStruct((4,), jnp.float32)
      >>> trace(f, *shapes).bytes_by_kind()
      {'computed': 20, 'argument': 96}
      >>> trace(jax.checkpoint(f), *shapes).recompute_cost.flops  # the product, 2·5·4
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
    """Trace a call as `trace` does, whatever the keyword arguments of `f` are called.

    Args:
      f, args, kwargs, differentiate: as for `trace`.
      grad_mask: which leaves of `(args, kwargs)` get a gradient; None for all. The cotangent of another leaf is a
        float0, like that of an integer, and the backward pass computes nothing for it.
    """
    __tracebackhide__ = True
    flat, leaves = flattened(f, args, kwargs)
    if not isinstance(differentiate, bool | None):
        raise TraceError(
            f"differentiate={differentiate!r} is neither True, to take the gradient of {called(f)}, nor False, to look "
            "at the gradient that it takes itself. Leave it out where that can be told."
        )
    check_differentiable((args, kwargs))
    paths = argument_paths(f, args, kwargs)
    with working("tracing"), collected_later():
        if differentiate is None:
            try:
                return _differentiated(called(f), stopped_at_gradients(flat), leaves, paths, grad_mask, stop=True)
            except GradientInside:
                pass
            except Exception:  # an optimizer, or a gradient, may do what has no derivative; what else there is, is said
                with contextlib.suppress(Exception):
                    if (step := _as_it_stands(called(f), flat.updating, leaves, paths, is_step)) is not None:
                        return step
                raise
            if (step := _as_it_stands(called(f), flat.updating, leaves, paths, is_step)) is not None:
                return step
        if differentiate is False:
            if (step := _as_it_stands(called(f), flat.updating, leaves, paths, lambda *_: True)) is None:
                raise TraceError(
                    f"{called(f)} takes no gradient, so there are no passes in it. Leave out differentiate=."
                )
            return step
        return _differentiated(called(f), flat, leaves, paths, grad_mask)


def _differentiated(
    function: str,
    flat: Callable[..., Any],
    leaves: list[Any],
    paths: Sequence[str],
    grad_mask: Sequence[bool] | None = None,
    stop: bool = False,
) -> Trace:
    """The passes of a function whose gradient is taken; GradientInside, if it shall stop there, where it has one."""
    grad_mask = [True] * len(leaves) if grad_mask is None else grad_mask

    def forward(*leaves: Any) -> Any:
        return vjp_for(flat, leaves, grad_mask)

    try:
        forward_jaxpr, (out, pullback) = jax.make_jaxpr(forward, return_shape=True)(*leaves)
        if stop and has_gradient(forward_jaxpr):
            raise GradientInside
        residuals, pullback_tree = jax.tree.flatten(pullback)
        cotangents = [_cotangent(leaf) for leaf in jax.tree.leaves(out)]

        def backward(residuals: list[Any], cotangents: list[Any]) -> Any:
            cotangents = jax.tree.unflatten(jax.tree.structure(out), cotangents)
            found = iter(jax.tree.unflatten(pullback_tree, residuals)(cotangents))
            none = (np.zeros(jnp.shape(leaf), jax.dtypes.float0) for leaf in leaves)
            return [next(found) if one else zero for one, zero in zip(grad_mask, none, strict=True)]

        if not any(c.dtype != jax.dtypes.float0 for c in cotangents):
            raise TraceError(
                f"{function} returns no floating-point value, so there is nothing to differentiate. "
                "Return a float from it, a loss for example."
            )
        backward_jaxpr = jax.make_jaxpr(backward)(residuals, cotangents)
    except Exception as error:
        if (explained := _explained(error, function, leaves)) is None:
            if "object is not callable" in str(error):
                # JAX calls a policy late and does not say that it was the policy.
                error.add_note(
                    "If this is about policy=: a policy is a function, jax.checkpoint_policies.dots_saveable for one, "
                    "and no string, number or list."
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

    shardings = [getattr(leaf, "sharding", None) for leaf in leaves]
    meshes = inline.meshes + placement.give_shardings(fwd.inputs, shardings)
    mesh = _placed(fwd, bwd, outputs, incoming, meshes)
    equal = roles.assign_roles(fwd, bwd, incoming)
    name_values(function, fwd, bwd, incoming, equal.forward_value_of)
    saved = residuals_of(fwd, bwd, crossing, outputs)
    return Trace(
        function, fwd, bwd, saved, incoming, equal.forward_value_of, equal.equal_values, equal.unproven_equalities, mesh
    )


def _as_it_stands(
    function: str,
    flat: Callable[..., Any],
    leaves: list[Any],
    paths: Sequence[str],
    accepted: Callable[[Program, Sequence[Gradient]], bool],
) -> Trace | None:
    """The passes of a gradient that a function takes itself; None if it takes none, or none that is `accepted`."""
    jaxpr = jax.make_jaxpr(marking(flat))(*leaves)
    inline = Inliner()
    operands = jax_internals.body_of(jaxpr)[0].invars
    arguments = [Value(v.aval, path) for v, path in zip(operands, paths, strict=True)]
    program = inline.program(jaxpr, arguments)
    shardings = [getattr(leaf, "sharding", None) for leaf in leaves]
    meshes = inline.meshes + placement.give_shardings(program.inputs, shardings)
    mesh = _placed(program, Program((), [], ()), (), (), meshes)
    gradients = gradients_of(inline.marks)
    if not gradients or not accepted(program, gradients) or not (halves := halves_of(program, gradients)):
        return None

    def kept(each: Halves) -> int:
        made = {v for equation in each.forward.equations for v in equation.outputs}
        return sum(v.device_bytes for v in each.crossing if v in made)

    shown = max(halves, key=kept)
    for each in halves:
        if each is not shown:
            roles.assign_roles(each.forward, each.backward, each.gradient.cotangents)
    incoming = shown.gradient.cotangents
    equal = roles.assign_roles(shown.forward, shown.backward, incoming)
    name_values(function, program, Program((), [], ()), incoming, {})
    names_again(shown.backward, equal.forward_value_of)
    saved = residuals_of(shown.forward, shown.backward, shown.crossing, shown.values)
    step = step_of(program, halves, [arguments[i] for i in donated(jaxpr)], shown)
    fwd, bwd = shown.forward, shown.backward
    return Trace(
        function,
        fwd,
        bwd,
        saved,
        incoming,
        equal.forward_value_of,
        equal.equal_values,
        equal.unproven_equalities,
        mesh,
        step,
    )


def sources_of(jaxpr: ClosedJaxpr) -> tuple[Source | None, ...]:
    """For each output of a traced function the user's line that made it, as `Residual.source` says it."""
    program = Inliner().program(jaxpr, [Value(v.aval) for v in jax_internals.body_of(jaxpr)[0].invars])
    makers = makers_of(program)
    origins = [origin_of(value, makers)[1] for value in program.outputs]
    return tuple(None if equation is None else equation.source for equation in origins)


def _placed(
    fwd: Program, bwd: Program, outputs: Sequence[Value], cotangents: Sequence[Value], meshes: Sequence[Any]
) -> Any:
    """Notes how the values of both programs lie; returns the mesh that they are for, one of devices before others."""
    found = [*meshes, *placement.meshes_in(fwd), *placement.meshes_in(bwd)]
    several = [mesh for mesh in found if mesh.size > 1]
    if not several:
        return None
    for program in (fwd, bwd, fwd, bwd):  # again for what is known only from what reads it
        placement.place(program)
        for output, cotangent in zip(outputs, cotangents, strict=True):
            placement.same(cotangent, output.placement)
    mesh = max(several, key=lambda mesh: (mesh.size, isinstance(mesh, jax.sharding.Mesh)))
    propagate([fwd, bwd], dict(zip(cotangents, outputs, strict=True)), dict(mesh.shape))
    return mesh


def _cotangent(leaf: Typed) -> Typed:
    dtype = leaf.dtype if jnp.issubdtype(leaf.dtype, np.inexact) else jax.dtypes.float0
    like: Callable[..., Typed] = jax.ShapeDtypeStruct  # JAX gives its constructor no types
    return like(leaf.shape, dtype, sharding=getattr(leaf, "sharding", None))


def _explained(error: Exception, function: str, leaves: Sequence[Any]) -> TraceError | None:
    """What JAX's refusal to differentiate means and what to do; None for an error of the function's own."""
    text = str(error)
    needs_value = isinstance(error, (jax.errors.JAXTypeError, jax.errors.JAXIndexError))
    if (needs_value or "Non-hashable static arguments" in text) and any(isinstance(v, int) for v in leaves):
        return TraceError(
            f"{function} looks at the value of an argument, and trace gives it only shapes. Bind flags, axes and other "
            "settings before: functools.partial(f, training=True)."
        )
    if "different trace level" in text:  # as Flax says it
        return TraceError(
            f"{function} changes an object that it was not given, such as a module of Flax's nnx. Make that an "
            "argument, step(model, optimizer, batch): what a function puts into its arguments is looked at."
        )
    if isinstance(error, NameError) and "unbound axis name" in text:
        axis = text.partition("unbound axis name:")[2].partition(".")[0].strip()
        return TraceError(
            f"{function} uses the axis {axis!r}, which only the shard_map, vmap or pmap around it names. Give the "
            f"function that has this around {function}."
        )
    if "Reverse-mode differentiation does not work" in text:
        return TraceError(
            f"{function} has no backward pass: it runs a while_loop, or a fori_loop whose bounds are not known when it "
            "is traced, and JAX would have to keep an unknown number of residuals. Use jax.lax.scan, or a fori_loop "
            "with bounds that are Python integers."
        )
    maker = text.partition("(")[0]
    if isinstance(error, TypeError) and hasattr(jax.checkpoint_policies, maker):
        return TraceError(
            f"a checkpoint of {function} has policy={maker}, which makes a policy of its arguments and is none. Call "
            "it first: save_only_these_names('h')."
        )
    refusals = ("do not support JVP", "Linearization failed", "ifferentiation rule")
    if any(refusal in text for refusal in refusals):
        return TraceError(
            f"{function} has no backward pass: {text.splitlines()[0].rstrip('.')}. Give that operation a derivative "
            "with jax.custom_vjp, or keep it out with jax.lax.stop_gradient."
        )
    return None
