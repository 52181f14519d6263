"""What a JAX function's backward pass keeps, what it computes again, and what that costs.

    from rematscope import explore, linked, liveness, measure, print_fwd_bwd, residual_table, trace
    from rematscope import fit, frontier, lint, plan

Nothing here runs the function, unless its time is asked for: arguments may be arrays or `jax.ShapeDtypeStruct`s.
"""

from rematscope.cost import Cost, cost_of
from rematscope.errors import PlanError, TargetError, TraceError
from rematscope.explore import explore
from rematscope.fit import Fit, fit
from rematscope.frontier import Frontier, Point, frontier
from rematscope.linked import linked
from rematscope.lint import Lint, lint
from rematscope.liveness import liveness
from rematscope.measure import Measurement, measure
from rematscope.names import Finding, Place
from rematscope.plan import Certificate, Plan, plan, recompute_graph
from rematscope.program import Equation, Literal, Program, Value
from rematscope.source import Source
from rematscope.table import ResidualTable, residual_table
from rematscope.timeline import Moment, Timeline
from rematscope.trace import Passes, Residual, trace
from rematscope.view import FwdBwd, print_fwd_bwd

__all__ = [
    "Certificate",
    "Cost",
    "Equation",
    "Finding",
    "Fit",
    "Frontier",
    "FwdBwd",
    "Lint",
    "Literal",
    "Measurement",
    "Moment",
    "Passes",
    "Place",
    "Plan",
    "PlanError",
    "Point",
    "Program",
    "Residual",
    "ResidualTable",
    "Source",
    "TargetError",
    "Timeline",
    "TraceError",
    "Value",
    "cost_of",
    "explore",
    "fit",
    "frontier",
    "linked",
    "lint",
    "liveness",
    "measure",
    "plan",
    "print_fwd_bwd",
    "recompute_graph",
    "residual_table",
    "trace",
]
