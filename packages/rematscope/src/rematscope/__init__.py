"""Show what a JAX function's backward pass saves, what it recomputes, and what that costs.

    from rematscope import compare, explore, liveness, measure, print_fwd_bwd, residual_table, trace
    from rematscope import auto, fit, frontier, lint, plan, with_schedule

The function itself is never run, except to measure its time. Arguments may be arrays or `jax.ShapeDtypeStruct`s.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from rematscope.choices.build import recompute_graph
    from rematscope.errors import PlanError, TargetError, TraceError
    from rematscope.ir.collectives import CollectiveStats
    from rematscope.ir.cost import Cost, cost_of
    from rematscope.ir.program import Equation, Literal, Program, Value
    from rematscope.ir.source import Source
    from rematscope.linting.finding import LintFinding, LintKind, NameSuggestion
    from rematscope.linting.lint import Lint, lint
    from rematscope.memory.liveness import liveness
    from rematscope.memory.timeline import MemorySample, Timeline
    from rematscope.planning.certificate import Certificate
    from rematscope.planning.explore import explore
    from rematscope.planning.fit import Fit, fit
    from rematscope.planning.frontier import Frontier, frontier
    from rematscope.planning.plan import Plan, plan
    from rematscope.planning.points import Point
    from rematscope.reporting.report import Report, report
    from rematscope.reporting.rewrite import rewrite
    from rematscope.scheduling.auto import AutoFunction, auto
    from rematscope.scheduling.host import HostOffload
    from rematscope.scheduling.load import load_schedule
    from rematscope.scheduling.result import Auto
    from rematscope.scheduling.with_schedule import with_schedule
    from rematscope.seconds.calibrate import calibrate
    from rematscope.seconds.devices import Device
    from rematscope.seconds.roofline import TimeEstimate, estimate_time
    from rematscope.tracing.residuals import Residual
    from rematscope.tracing.trace import Trace, trace
    from rematscope.views.compare import Comparison, ComparisonRow, compare
    from rematscope.views.interactive_programs import interactive_programs
    from rematscope.views.residual_table import ResidualTable, residual_table
    from rematscope.views.side_by_side import SideBySide, print_fwd_bwd
    from rematscope.xla.measure import CollectiveRow, Measurement, measure

__all__ = [
    "Auto",
    "AutoFunction",
    "Certificate",
    "CollectiveRow",
    "CollectiveStats",
    "Comparison",
    "ComparisonRow",
    "Cost",
    "Device",
    "Equation",
    "Fit",
    "Frontier",
    "HostOffload",
    "Lint",
    "LintFinding",
    "LintKind",
    "Literal",
    "Measurement",
    "MemorySample",
    "NameSuggestion",
    "Plan",
    "PlanError",
    "Point",
    "Program",
    "Report",
    "Residual",
    "ResidualTable",
    "SideBySide",
    "Source",
    "TargetError",
    "TimeEstimate",
    "Timeline",
    "Trace",
    "TraceError",
    "Value",
    "auto",
    "calibrate",
    "compare",
    "cost_of",
    "estimate_time",
    "explore",
    "fit",
    "frontier",
    "interactive_programs",
    "lint",
    "liveness",
    "load_schedule",
    "measure",
    "plan",
    "print_fwd_bwd",
    "recompute_graph",
    "report",
    "residual_table",
    "rewrite",
    "trace",
    "with_schedule",
]

__docformat__ = "google"  # for pdoc

# A name is imported at its first use (PEP 562). So a program that only traces does not load the planner, and a program
# that only shows something with `rematscope.render` does not load JAX.
_HOMES = {
    "choices.build": ["recompute_graph"],
    "errors": ["PlanError", "TargetError", "TraceError"],
    "ir.collectives": ["CollectiveStats"],
    "ir.cost": ["Cost", "cost_of"],
    "ir.program": ["Equation", "Literal", "Program", "Value"],
    "ir.source": ["Source"],
    "linting.finding": ["LintFinding", "LintKind", "NameSuggestion"],
    "linting.lint": ["Lint", "lint"],
    "memory.liveness": ["liveness"],
    "memory.timeline": ["MemorySample", "Timeline"],
    "planning.certificate": ["Certificate"],
    "planning.fit": ["Fit", "fit"],
    "planning.frontier": ["Frontier", "frontier"],
    "planning.plan": ["Plan", "plan"],
    "planning.points": ["Point"],
    "reporting.report": ["Report", "report"],
    "reporting.rewrite": ["rewrite"],
    "scheduling.auto": ["AutoFunction", "auto"],
    "scheduling.load": ["load_schedule"],
    "scheduling.host": ["HostOffload"],
    "scheduling.result": ["Auto"],
    "scheduling.with_schedule": ["with_schedule"],
    "seconds.calibrate": ["calibrate"],
    "seconds.devices": ["Device"],
    "seconds.roofline": ["TimeEstimate", "estimate_time"],
    "tracing.residuals": ["Residual"],
    "tracing.trace": ["Trace", "trace"],
    "views.compare": ["ComparisonRow", "Comparison", "compare"],
    "planning.explore": ["explore"],
    "views.interactive_programs": ["interactive_programs"],
    "views.residual_table": ["ResidualTable", "residual_table"],
    "views.side_by_side": ["SideBySide", "print_fwd_bwd"],
    "xla.measure": ["CollectiveRow", "Measurement", "measure"],
}
_HOME_OF = {name: f"rematscope.{module}" for module, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker that sees __getattr__ accepts any name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return importlib.import_module("importlib.metadata").version("rematscope")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'rematscope' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__
