"""What a report is about: a function and its arguments, traced as written and with changes."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util

from rematscope.errors import PlanError
from rematscope.ir.gc_pause import gc_paused
from rematscope.memory.xla_estimate import Allocations, allocations
from rematscope.reporting.arrays import arguments_of
from rematscope.reporting.microbatches import divided_values
from rematscope.reporting.rewrite import Changes, Rewritten, takes_gradient
from rematscope.seconds.devices import Device
from rematscope.seconds.roofline import estimate_time
from rematscope.tracing.arguments import callable_name, flattened
from rematscope.tracing.trace import Trace, trace_call
from rematscope.xla.compiling import compile_both
from rematscope.xla.measure import Measurement

source_info_util.register_exclusion(__file__)

_CHECKED_FLOPS = 2e10  # of a check with numbers: more would take longer than a few seconds on a CPU
_CHECKED_BYTES = 2**30


class Traced(NamedTuple):
    """A function with some changes, traced.

    Attributes:
      changes: the changes.
      passes: the trace.
      memory: the buffers that the compiler is predicted to allocate.
      seconds: the predicted time of the step; 0 without a device.
    """

    changes: Changes
    passes: Trace
    memory: Allocations
    seconds: float

    @property
    def work(self) -> int:
        """The FLOPs, and 1 for each element of a transcendental function."""
        return self.passes.cost.flops + self.passes.cost.transcendentals


class Subject:
    """A function and its arguments.

    Attributes:
      f: the function as written.
      name: its name.
      is_step: whether it takes a gradient itself.
      arguments: the arrays among its arguments.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        device: Device | None,
        target: str,
    ):
        flattened(f, (), {})
        self.f, self.name, self.device, self.target = f, callable_name(f), device, target
        self.arguments = arguments_of(f, args, kwargs)
        self.is_step = takes_gradient(f, args, kwargs)
        self._traced: dict[Changes, Traced] = {}
        self.seconds = 0.0  # of processor time, for traces

    def changed(self, changes: Changes) -> Callable[..., Any]:
        """Return the function with some changes."""
        return self.f if changes == Changes() else Rewritten(self.f, changes)

    @gc_paused()
    def traced(self, changes: Changes) -> Traced:
        """Return the function with some changes, traced.

        Raises:
          PlanError: if the changes cannot be applied to it.
        """
        if changes not in self._traced:
            start = time.process_time()
            f = self.arguments.bound(self.changed(changes))
            differentiate = False if self.is_step else None
            passes = trace_call(f, self.arguments.args, self.arguments.kwargs, differentiate)
            self._check_outputs(passes)
            seconds = 0.0 if self.device is None else estimate_time(passes, self.device).step
            self._traced[changes] = Traced(changes, passes, allocations(passes, self.target), seconds)
            self.seconds += time.process_time() - start
        return self._traced[changes]

    def _check_outputs(self, passes: Trace) -> None:
        """Raise PlanError if a changed step returns arrays of other shapes than the step as written."""
        base = self._traced.get(Changes())
        if base is None or base.passes.step is None or passes.step is None:
            return
        before, after = ([v.shape for v in p.step.program.outputs] for p in (base.passes, passes) if p.step is not None)
        if before != after:
            raise PlanError(f"{self.name} would return arrays of other shapes in microbatches.")

    def compiled(self, changes: Changes) -> Measurement:
        """Compile the function with some changes."""
        found = self.traced(changes)
        f = self.arguments.bound(self.changed(changes))
        made = compile_both(found.passes, *flattened(f, self.arguments.args, self.arguments.kwargs), self.target)
        return Measurement(found.passes, self.target, made)

    # Arguments by what the step does with them.

    @functools.cached_property
    def _leaves(self) -> list[list[Any]]:
        return [jax.tree.leaves(tree) for tree in self.arguments.args]

    @functools.cached_property
    def updated_argnums(self) -> tuple[int, ...]:
        """The positional arguments that hold parameters or optimizer state, and nothing that is donated already."""
        step = self.traced(Changes()).passes.step
        if step is None:
            return ()
        inputs, found = iter(step.program.inputs), []
        for which, leaves in enumerate(self._leaves):
            values = [next(inputs) for _ in leaves]
            if any(v in step.parameters | step.state for v in values) and not step.donated.intersection(values):
                found.append(which)
        return tuple(found)

    @functools.cached_property
    def batch_argnums(self) -> tuple[int, ...]:
        """The positional arguments whose arrays all have the batch as their first axis; none if that is unclear."""
        step = self.traced(Changes()).passes.step
        if step is None:
            return ()
        inputs, sizes = iter(step.program.inputs), dict[int, int]()
        for which, leaves in enumerate(self._leaves):
            values = [next(inputs) for _ in leaves]
            first = {jnp.shape(leaf)[0] for leaf in leaves if jnp.shape(leaf)}
            if len(first) == 1 and not any(v in step.parameters | step.state for v in values):
                sizes[which] = first.pop()
        if not sizes:
            return ()
        size = sizes[max(sizes)]
        return tuple(which for which, each in sizes.items() if each == size) if size > 1 else ()

    @property
    def batch_size(self) -> int:
        """The length of the batch axis; 0 if there is none."""
        if not self.batch_argnums:
            return 0
        return int(next(jnp.shape(v)[0] for v in self._leaves[self.batch_argnums[0]] if jnp.shape(v)))

    @functools.cached_property
    def why_no_microbatches(self) -> str:
        """Why the gradient cannot be computed in microbatches, as a sentence; "" if it can.

        The gradient of two examples is compared with the average over both, on random data.
        """
        if not self.is_step:
            return f"{self.name} is a loss: microbatches are a matter of the step around it."
        if self.batch_size < 2:
            return f"{self.name} has no argument whose arrays all have a batch as their first axis."
        base = self.traced(Changes())
        flops = base.passes.cost.flops * 4 / self.batch_size
        bytes_needed = base.memory.fixed_bytes
        if flops > _CHECKED_FLOPS or bytes_needed > _CHECKED_BYTES:
            return (
                "The model is too large to check with numbers here that its loss is an average over examples. If it "
                "is, microbatches give the same gradient."
            )
        try:
            return self._difference()
        except PlanError as error:
            return str(error)
        except Exception as error:  # whatever the step raises for a batch of another size
            return f"{self.name} cannot run with another batch size: {str(error).splitlines()[0]:.200}"

    def _difference(self) -> str:
        batch = [which in self.batch_argnums for which, leaves in enumerate(self._leaves) for _ in leaves]
        batch += [False] * len(jax.tree.leaves(self.arguments.kwargs))
        flat, leaves = flattened(self.arguments.bound(self.f), self.arguments.args, self.arguments.kwargs)
        batch = [one and bool(jnp.shape(leaf)) for one, leaf in zip(batch, leaves, strict=True)]

        def values(*leaves: Any) -> list[list[Any]]:
            return [divided_values(flat.updating, leaves, batch, count, self.name) for count in (1, 2)]

        both = jax.jit(values)
        for scale in _SCALES:  # random weights may overflow
            rng = np.random.default_rng(0)
            drawn = [_drawn(leaf, one, scale, rng) for leaf, one in zip(leaves, batch, strict=True)]
            whole, parts = ([np.asarray(v, np.float64) for v in found] for found in both(*drawn))
            if all(np.isfinite(v).all() for v in whole):
                break
        else:
            return f"The gradient of {self.name} is not finite for random data, so microbatches could not be checked."
        program = self.traced(Changes()).passes.forward
        made = (v.dtype for equation, _ in program.walk() for v in equation.outputs if hasattr(v.aval, "dtype"))
        narrow = any(jnp.issubdtype(dtype, np.floating) and dtype.itemsize < 4 for dtype in made)
        if not _agree(whole, parts, _TOLERANCE[narrow]):
            return (
                f"Averaged over microbatches, the gradient or the loss of {self.name} differs: its loss is no average "
                "over examples (batch normalization, a weighted mean and a sum are none)."
            )
        return ""


_EXAMPLES = 4
_SCALES = 1.0, 0.1, 0.01
_TOLERANCE = {False: 2e-3, True: 3e-2}  # by whether some values have fewer than 32 bits


def _drawn(leaf: Any, is_batch: bool, scale: float, rng: Any) -> Any:
    """An array to compute with in place of an argument: its own values; random ones for a shape and the batch."""
    if not is_batch and not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    shape, dtype = tuple(jnp.shape(leaf)), jax.typeof(leaf).dtype
    shape = (_EXAMPLES, *shape[1:]) if is_batch else shape
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), shape) if shape else jax.random.key(0)
    if jnp.issubdtype(dtype, np.inexact):
        drawn = rng.standard_normal(shape)
        if not is_batch:  # a matrix of weights, or a scale or a variance, which is positive
            drawn = drawn * scale * shape[-2] ** -0.5 if len(shape) > 1 else abs(drawn) * scale
        return jnp.asarray(drawn, dtype)
    largest = 1
    if not isinstance(leaf, jax.ShapeDtypeStruct) and np.size(leaf):
        largest = max(1, int(np.max(leaf)))
    return jnp.asarray(rng.integers(0, largest + 1, shape), dtype)


def _agree(whole: Sequence[Any], parts: Sequence[Any], tolerance: float) -> bool:
    """Whether two lists of arrays differ by rounding alone; what should be 0 is compared with the largest of them."""
    norm: Any = np.linalg.norm
    least = 1e-3 * tolerance * max(map(norm, whole), default=0.0)
    return all(norm(one - other) <= tolerance * norm(one) + least for one, other in zip(whole, parts, strict=True))
