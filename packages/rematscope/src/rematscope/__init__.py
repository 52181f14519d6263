"""Show what a JAX function's backward pass saves, what it recomputes, and what that costs.

    from rematscope import compare, explore, liveness, measure, print_fwd_bwd, residual_table, trace
    from rematscope import auto, fit, frontier, lint, plan, with_schedule

The function itself is never run, except to measure its time. Arguments may be arrays or `jax.ShapeDtypeStruct`s.
"""

import importlib
from typing import Any

__docformat__ = "google"  # for pdoc

# A name is imported at its first use (PEP 562). So a program that only traces does not load the planner, and a program
# that only shows something with `rematscope.render` does not load JAX. Type checkers read `__init__.pyi` instead, which
# some tools that package programs leave out, so it is not read here. `test_public_names.py` compares both lists.
_NAMES_OF = {
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
    "planning.explore": ["explore"],
    "planning.fit": ["Fit", "fit"],
    "planning.frontier": ["Frontier", "frontier"],
    "planning.plan": ["Plan", "plan"],
    "planning.points": ["Point"],
    "reporting.report": ["Report", "report"],
    "reporting.rewrite": ["rewrite"],
    "scheduling.auto": ["AutoFunction", "auto"],
    "scheduling.host": ["HostOffload"],
    "scheduling.load": ["load_schedule"],
    "scheduling.result": ["Auto"],
    "scheduling.with_schedule": ["with_schedule"],
    "seconds.calibrate": ["calibrate"],
    "seconds.devices": ["Device"],
    "seconds.roofline": ["TimeEstimate", "estimate_time"],
    "tracing.residuals": ["Residual"],
    "tracing.trace": ["Trace", "trace"],
    "views.compare": ["Comparison", "ComparisonRow", "compare"],
    "views.interactive_programs": ["interactive_programs"],
    "views.residual_table": ["ResidualTable", "residual_table"],
    "views.side_by_side": ["SideBySide", "print_fwd_bwd"],
    "xla.measure": ["CollectiveRow", "Measurement", "measure"],
}
_MODULE_OF = {name: f"rematscope.{module}" for module, names in _NAMES_OF.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("rematscope")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'rematscope' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
