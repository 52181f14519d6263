"""A call of a function, and which leaves of its arguments get a gradient."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rematscope.tracing.trace import Trace, trace_call


class GradientCall(NamedTuple):
    """A call that a plan is made for.

    Attributes:
      grad_mask: which leaves of the arguments get a gradient; None for all.
    """

    f: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    grad_mask: Sequence[bool] | None = None

    def trace(self, variant: Callable[..., Any]) -> Trace:
        """Return the trace of a variant of the function, called like the function."""
        return trace_call(variant, self.args, self.kwargs, grad_mask=self.grad_mask)
