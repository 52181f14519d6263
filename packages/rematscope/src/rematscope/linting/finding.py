"""What lint says: findings, and places that deserve a name."""

import dataclasses

from rematscope.ir.source import Source
from rematscope.linting.subject import where


@dataclasses.dataclass(frozen=True)
class LintFinding:
    """Something in a function that does not do what it looks like.

    Attributes:
      kind: what it is about:
        of a name, `"discarded"`, `"custom rule"`, `"outside"` (no checkpoint is around it), `"barred"`, `"argument"`,
        `"not needed"` (the backward pass reads it nowhere), `"own result"` (named after an operation whose derivative
        uses its own result), `"too late"` (what it is made from is computed again anyway), `"used unnamed"`, `"free"`;
        of a policy, `"unknown name"`, `"ignored names"`, `"saves nothing"`, `"overridden"`;
        of a checkpoint, `"nested"`, `"undone"` (by the compiler), `"whole net"`.
      text: the cause and the next step.
      source: the line that it is about, or None.
      name: the `checkpoint_name` that it is about, or None.
    """

    kind: str
    text: str
    source: Source | None = None
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class Place:
    """A value that deserves a name.

    Attributes:
      what: which value of its line it is.
      source: the line that computes it.
      type: its dtype and shape, `f32[8,64]`, in each iteration of a loop.
      nbytes: bytes that saving it adds, in all layers that the line is run for.
      spares: FLOPs and transcendentals that are not computed again if it is saved beside the names that help.
    """

    what: str
    source: Source | None
    type: str
    nbytes: int = 0
    spares: int = 0

    def __str__(self):
        return f"{self.what} on {where(self.source)} ({self.type})"
