"""The findings of lint, and values that are worth naming."""

import dataclasses
from enum import StrEnum

from rematscope.ir.source import Source
from rematscope.linting.subject import where


class LintKind(StrEnum):
    """The kind of a finding. Each kind equals its text: `finding.kind == "too late"`."""

    # A name:
    DISCARDED = "discarded"  # the named value is never used
    CUSTOM_RULE = "custom rule"  # it is in a function with a hand-written derivative
    OUTSIDE = "outside"  # no checkpoint is around it
    BARRED = "barred"  # JAX could save it, but not so that its bytes are its own
    ARGUMENT = "argument"  # it names a value that is saved anyway
    NOT_NEEDED = "not needed"  # the backward pass does not read the value
    OWN_RESULT = "own result"  # it is named after an operation whose derivative uses its own result
    TOO_LATE = "too late"  # the value's inputs are recomputed anyway
    USED_UNNAMED = "used unnamed"  # another operation reads the same value without the name
    FREE = "free"  # recomputing the value costs nothing

    # A policy:
    UNKNOWN_NAME = "unknown name"  # it is given a name that no value has
    IGNORED_NAMES = "ignored names"  # it ignores the names that it is given
    SAVES_NOTHING = "saves nothing"
    OVERRIDDEN = "overridden"  # the enclosing checkpoint decides

    # Either of them:
    REMAT3 = "jax_remat3"  # it has less effect with jax_remat3 set, as it is now

    # A checkpoint:
    NESTED = "nested"  # the enclosing checkpoint makes it have no effect
    UNDONE = "undone"  # the compiler may remove it
    WHOLE_MODEL = "whole model"  # it wraps several layers, so the peak does not drop


@dataclasses.dataclass(frozen=True)
class LintFinding:
    """A name, policy or checkpoint that does not do what it seems to do.

    Attributes:
      kind: the kind of problem.
      text: the cause and the next step.
      source: the source line of the problem, or None.
      name: the `checkpoint_name` of the problem, or None.
    """

    kind: LintKind
    text: str
    source: Source | None = None
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class NameSuggestion:
    """A value that is worth saving. It can be given a name, unless it never leaves a library's call.

    Attributes:
      value: a description of the value on its line, such as `the result of a matmul`.
      source: the line that computes it.
      type: its dtype and shape, `f32[8,64]`; in a loop, those of one iteration.
      nbytes: the bytes that saving it adds, summed over all layers that run the line.
      avoided: the FLOPs and transcendentals that are not recomputed if it is saved in addition to the useful names.
      module: the modules that run the line, `layers_0…63/attention`, from JAX's name stack; else "".
      alternative: for a value inside a library's call, where no name can be put: what saves it; else "".
    """

    value: str
    source: Source | None
    type: str
    nbytes: int = 0
    avoided: int = 0
    module: str = ""
    alternative: str = ""

    def __str__(self) -> str:
        return f"{self.value} on {where(self.source)} ({self.type})"
