"""A training step as a function of flat arrays, whose batch can be divided into parts."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from rematscope import jax_compat
from rematscope.errors import PlanError, describe_error
from rematscope.ir.program import type_text
from rematscope.jax_compat.vjp_hook import outside_traces, record_gradients, transform_losses
from rematscope.reporting.arrays import device_blocks, in_part


@dataclasses.dataclass(frozen=True, eq=False)
class FlatStep:
    """A training step as a function of flat arrays.

    Attributes:
      run: the function.
      leaves: its arguments: arrays, tracers or shapes.
      axes: the batch axis of each leaf; None for a leaf without a batch axis.
      name: the name of the step.
    """

    run: Callable[..., Any]
    leaves: Sequence[Any]
    axes: Sequence[int | None]
    name: str

    @property
    def batch_lengths(self) -> list[int]:
        """The lengths of the batch axes, each once."""
        pairs = zip(self.leaves, self.axes, strict=True)
        return list(dict.fromkeys(jnp.shape(leaf)[axis] for leaf, axis in pairs if axis is not None))

    @property
    def blocks(self) -> int:
        """The number of blocks of the batch axes; see `device_blocks`. A part of the batch has rows of each block."""
        return device_blocks(self.leaves, self.axes)

    def check_parts(self, count: int, option: str) -> None:
        """Raise PlanError if the batch axes have no common length that is a multiple of `count`."""
        if len(self.batch_lengths) != 1 or self.batch_lengths[0] % count:
            raise PlanError(
                f"{option}={count} does not divide the batch of {self.name}. The axes of in_axes= must all have the "
                f"same length, a multiple of {count}."
            )

    def check_microbatches(self, count: int) -> None:
        """Raise PlanError if the batch axes have no common length that `count` microbatches divide on each device."""
        self.check_parts(count, "microbatches")
        (size,) = self.batch_lengths
        if size % (count * self.blocks):
            raise PlanError(
                f"microbatches={count} does not divide the batch of {self.name} on {self.blocks} devices. Each "
                f"microbatch needs rows of each device, so the length of the batch, {size}, must be a multiple of "
                f"{count * self.blocks}."
            )

    def types(self, count: int) -> list[Any]:
        """Return the types of the leaves for one of `count` parts of the batch."""
        return [in_part(leaf, axis, count) for leaf, axis in zip(self.leaves, self.axes, strict=True)]

    def jaxpr(self, count: int, change: Callable[[Callable[..., Any], Any], Callable[..., Any]]) -> Any:
        """Return the jaxpr of the step for one of `count` parts of its batch, with marks at its gradient.

        Its cotangents are divided by `cotangent_divisor(count)`. The inputs of the jaxpr are the number of the part and
        the leaves.

        Args:
          count: the number of parts.
          change: a function that takes a loss of the step and the number of the part, and returns the loss to use
            instead.
        """

        def numbered(which: Any, *leaves: Any) -> Any:
            changed = transform_losses(self.run, lambda loss: change(loss, which))
            return record_gradients(changed, 1 / cotangent_divisor(count))(*leaves)

        with outside_traces(keeps_axes=True):
            return jax_compat.make_jaxpr(numbered)(jax.ShapeDtypeStruct((), jnp.int32), *self.types(count))


def cotangent_divisor(count: int) -> int:
    """Return the number that the cotangents of one of `count` parts are divided by: the next power of two."""
    return 1 << (count - 1).bit_length()


class OtherSizeError(PlanError):
    """Raised for a step that cannot run with the batch size of a part."""


def explain_other_size(step: FlatStep, error: Exception, option: str = "") -> str:
    """Return a sentence on an error that a step raises with another batch size, which an option may need."""
    need = f" than that of the call, which {option}= needs" if option else " than that of the call"
    for leaf, axis in zip(step.leaves, step.axes, strict=True):
        if axis is not None and axis == len(batch_shape(leaf)) and "PRNG key" in str(error):
            kind = type_text(jax.typeof(leaf))
            return (
                f"in_axes= divides axis {axis} of an argument of {step.name} of type {kind}, but this is the axis of a "
                "PRNG key (jax.random.PRNGKey), not that of a batch. Give None for this argument in in_axes=, and the "
                f"axis of the batch for another argument. If {step.name} closes over its batch, make it an argument."
            )
    return f"{step.name} raises an error with another batch size{need}: {describe_error(error)}"


def batch_shape(leaf: Any) -> tuple[int, ...]:
    """Return the shape of an array without the axis of a PRNG key, as `jax.random.PRNGKey` makes it: of 2 or 4 uint32.

    Keys of `jax.random.key` have no such axis.
    """
    shape: tuple[int, ...] = jnp.shape(leaf)
    is_key = jax.typeof(leaf).dtype == jnp.uint32 and shape[-1:] in ((2,), (4,))
    return shape[:-1] if is_key else shape
