"""The findings of `lint`, and the values that are worth naming."""

import dataclasses
from enum import StrEnum

from rematscope.ir.source import Source
from rematscope.linting.linted_function import line_text


class LintKind(StrEnum):
    """The kind of a lint finding. A kind compares equal to its string: `finding.kind == "too late"`."""

    # A name:
    DISCARDED = "discarded"  # the named value is never used
    CUSTOM_RULE = "custom rule"  # the name is in a function with a custom derivative rule
    OUTSIDE = "outside"  # the named value is outside of all checkpoints
    BARRED = "barred"  # JAX can save the value, but not in an array of its own
    ARGUMENT = "argument"  # the named value is saved anyway
    NOT_NEEDED = "not needed"  # the backward pass does not read the value
    OWN_RESULT = "own result"  # the derivative of the operation before the name uses its unnamed result
    TOO_LATE = "too late"  # the value's inputs are recomputed anyway
    USED_UNNAMED = "used unnamed"  # another operation reads the same value without the name
    FREE = "free"  # recomputing the value costs nothing

    # A policy:
    UNKNOWN_NAME = "unknown name"  # the policy refers to a name that no value has
    IGNORED_NAMES = "ignored names"  # the policy ignores the names that it refers to
    SAVES_NOTHING = "saves nothing"
    OVERRIDDEN = "overridden"  # the enclosing checkpoint decides

    # A name or a policy:
    REMAT3 = "jax_remat3"  # because jax_remat3 is set, it has less effect or drops a gradient

    # A checkpoint:
    DRAWN_AGAIN = "drawn again"  # its recompute gives a different result, so the gradient is wrong
    NESTED = "nested"  # the checkpoint has no effect inside the enclosing checkpoint
    UNDONE = "undone"  # the compiler may remove the recompute
    RECOMPUTED_EARLY = "recomputed early"  # the compiler may recompute several checkpoints of a loop's body at once
    WHOLE_MODEL = "whole model"  # the checkpoint wraps several layers, so the peak does not drop


@dataclasses.dataclass(frozen=True)
class LintFinding:
    """A problem that `lint` found with a name, a policy or a checkpoint.

    Attributes:
      kind: the kind of problem.
      text: the cause and the next step, as sentences.
      source: the source line of the name or checkpoint, or None if it is unknown.
      name: the `checkpoint_name` that the finding is about; None if it is about a policy or a checkpoint.
    """

    kind: LintKind
    text: str
    source: Source | None = None
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class NameSuggestion:
    """A value that is worth saving, because saving it avoids recompute.

    You can name the value with `checkpoint_name`, unless it is an intermediate value of a library function; see
    `alternative`.

    Attributes:
      value: a description of the value, such as `the result of a matmul`.
      source: the source line that computes the value, or None if it is unknown.
      type: the dtype and shape, such as `f32[8,64]`; in a loop, those of one iteration.
      nbytes: the bytes that saving the value adds, summed over all layers in which the line computes this type. A name
        on the line also saves the values of the other types, each of which is a suggestion of its own.
      count: the number of arrays of this type that have these bytes, such as one per layer of a scan.
      avoided: the FLOPs and transcendentals that are no longer recomputed if the value is saved in addition to all
        names that have an effect.
      module: the modules that run the line, such as `layers_0…63/attention`, from JAX's name stack; else "".
      alternative: for an intermediate value of a library function, where you cannot add a name, the policy that saves
        it; else "".
    """

    value: str
    source: Source | None
    type: str
    nbytes: int = 0
    avoided: int = 0
    module: str = ""
    alternative: str = ""
    count: int = 1

    def __str__(self) -> str:
        return f"{self.value} on {line_text(self.source)} ({self.type})"
