"""Observations of an answer in one case: what the forward pass saves and the backward pass recomputes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rematscope.render import bytes_text


class ResidualKind(StrEnum):
    """What a value that is kept costs beyond what is in memory anyway: only what is computed costs anything."""

    ARGUMENT = "argument"
    CONSTANT = "constant"  # depends on no argument
    COMPUTED = "computed"


@dataclass(frozen=True)
class MatchedResidual:
    """A value that the forward pass keeps for the backward pass.

    Attributes:
      name: what it is: an argument's name, or the name of the reference's value that it equals, or None.
      kind: whether it is an argument, depends on none, or is computed from some.
      type: dtype and shape, such as `f32[7,5]`.
      nbytes: its size in bytes.
      memory: where it lies: `"device"`, or for instance `"pinned_host"`.
      source: the learner's line that made it, or None; untrusted.
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
      kind: what XLA calls it, such as `"all-gather"`.
      backward: whether the backward pass runs it.
      count: how often it runs.
      link_bytes: bytes that each device sends over its links for all of these runs.
    """

    kind: str
    backward: bool
    count: int
    link_bytes: int


@dataclass(frozen=True)
class CaseObservation:
    """What one case showed of an answer whose values and gradients are right.

    Attributes:
      case: the case's name.
      arguments: the names of the arguments.
      residuals: what crosses from the forward to the backward pass.
      wanted: the reference's own values, of those names that the exercise's requirements speak of.
      recomputed: FLOPs of each matmul of the backward pass that does not depend on the cotangent.
      hidden_recompute_flops: finds the FLOPs of each other matmul that the backward pass computes again.
      matmul_flops: FLOPs of all matmuls of both passes.
      reference_flops: FLOPs of each matmul of the reference's two passes, which keep everything.
      forward_flops: those of its forward pass, the only ones that a backward pass can recompute.
      largest_matmul: FLOPs of one run of the largest matmul of both passes, 0 if there is none.
      negligible: FLOPs of its smallest matmul: what is less in total is no matmul, but a mean that is spelled as one.
      barriers: the number of optimization barriers in the backward pass.
      held: the names of the arguments that these barriers hold back.
      input_bytes: the arguments' size.
      turns: how often that matmul of both passes runs, in loops, that runs the fewest times; 0 if there is none.
      peak: how many bytes both passes take at once for values between arguments and results: what XLA sets aside, if it
        is to compile them, or what is live in the order in which they were traced.
      exchanges: the collectives of both passes that the value and its gradients need.
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
    held: tuple[str, ...]
    input_bytes: int
    turns: int
    peak: Callable[[bool], int]
    exchanges: tuple[Exchange, ...] = ()
