"""Observations of an answer in one case: what the forward pass saves and the backward pass recomputes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rematscope.render import bytes_text


class ResidualKind(StrEnum):
    """The kind of a residual. Only computed residuals take additional memory."""

    ARGUMENT = "argument"
    CONSTANT = "constant"  # does not depend on any argument
    COMPUTED = "computed"


@dataclass(frozen=True)
class MatchedResidual:
    """A value that the forward pass saves for the backward pass.

    Attributes:
      name: the name of the argument, or of the reference's value, that it equals; None if it equals neither.
      kind: whether it is an argument, a constant or computed from arguments.
      type: dtype and shape, such as `f32[7,5]`.
      nbytes: its size in bytes.
      memory: the memory that holds it: `"device"`, or for example `"pinned_host"`.
      source: the learner's line that computed it, or None; untrusted.
    """

    name: str | None
    kind: ResidualKind
    type: str
    nbytes: int
    memory: str = "device"
    source: str | None = None

    def __str__(self) -> str:
        where = "" if self.memory == "device" else f" in {self.memory} memory"
        return f"{self.name or 'an intermediate value'}, {self.type}, {bytes_text(self.nbytes)}{where}"


@dataclass(frozen=True)
class Exchange:
    """A collective of one of the two passes.

    Attributes:
      kind: XLA's name of the collective, such as `"all-gather"`.
      backward: whether the backward pass runs it.
      count: the number of times it runs.
      link_bytes: the bytes that each device sends over its links, summed over all runs.
    """

    kind: str
    backward: bool
    count: int
    link_bytes: int


@dataclass(frozen=True)
class WholeArray:
    """An array that a sharding constraint in one of the two passes makes whole on every device.

    Attributes:
      backward: whether the backward pass does.
      count: the number of times.
      nbytes: the bytes of the whole array.
    """

    backward: bool
    count: int
    nbytes: int


@dataclass(frozen=True)
class CaseObservation:
    """The observations of an answer in one case, in which its values and gradients are right.

    Attributes:
      case: the case's name.
      arguments: the names of the arguments.
      residuals: the values that the forward pass saves for the backward pass.
      wanted: maps the names that the exercise's requirements mention to the reference's values.
      recomputed: the FLOPs of each matmul of the backward pass that does not depend on the cotangent.
      hidden_recompute_flops: a function that finds the other recomputed matmuls of the backward pass, and returns the
        FLOPs of each.
      matmul_flops: the FLOPs of all matmuls of both passes.
      reference_flops: the FLOPs of each matmul of both passes of the reference, which saves everything.
      forward_flops: the FLOPs of each matmul of the reference's forward pass; a backward pass can recompute only these.
      largest_matmul: the FLOPs of one run of the largest matmul of both passes; 0 if there is none.
      negligible: the FLOPs of the reference's smallest matmul. Fewer FLOPs in total are not a matmul of the model, but
        for example a mean that is written as a matmul.
      barriers: the number of optimization barriers in the backward pass.
      input_bytes: the total size of the arguments.
      least_trip_count: the number of runs of the matmul in loops of both passes that runs the fewest times; 0 if there
        is none.
      peak: a function that returns the peak memory of both passes in bytes, without arguments and results. If its
        argument is True, this is the memory that XLA allocates; otherwise, the live bytes in the traced order.
      exchanges: the collectives of both passes that the value and its gradients need.
      matmuls: the number of matmuls in the text of both passes. A matmul in a loop counts once.
      gathers: the arrays that sharding constraints in both passes gather, if the value and its gradients need them. The
        backward pass's arrays that depend on the cotangent, such as gradients, are left out.
      whole_gradients: the names of the arguments whose gradients are whole on every device.
    """

    case: str
    arguments: tuple[str, ...]
    residuals: tuple[MatchedResidual, ...]
    wanted: dict[str, MatchedResidual]
    recomputed: tuple[int, ...]
    hidden_recompute_flops: Callable[[], tuple[int, ...]]
    matmul_flops: int
    reference_flops: tuple[int, ...]
    forward_flops: tuple[int, ...]
    largest_matmul: int
    negligible: int
    barriers: int
    input_bytes: int
    least_trip_count: int
    peak: Callable[[bool], int]
    exchanges: tuple[Exchange, ...] = ()
    matmuls: int = 0
    gathers: tuple[WholeArray, ...] = ()
    whole_gradients: tuple[str, ...] = ()
