"""What a JAX function's backward pass keeps, what it computes again, and what that costs.

    from rematscope import explore, linked, print_fwd_bwd, residual_table, trace

Nothing here runs the function: arguments may be arrays or `jax.ShapeDtypeStruct`s.
"""

from rematscope.cost import Cost
from rematscope.errors import TraceError
from rematscope.explore import explore
from rematscope.linked import linked
from rematscope.liveness import liveness
from rematscope.program import Equation, Literal, Program, Value
from rematscope.source import Source
from rematscope.table import ResidualTable, residual_table
from rematscope.trace import Passes, Residual, trace
from rematscope.view import FwdBwd, print_fwd_bwd

__all__ = [
    "Cost",
    "Equation",
    "FwdBwd",
    "Literal",
    "Passes",
    "Program",
    "Residual",
    "ResidualTable",
    "Source",
    "TraceError",
    "Value",
    "explore",
    "linked",
    "liveness",
    "print_fwd_bwd",
    "residual_table",
    "trace",
]
