"""Show what a JAX function's backward pass saves, what it recomputes, and what that costs.

    from rematscope import compare, explore, liveness, measure, print_fwd_bwd, residual_table, trace
    from rematscope import auto, fit, frontier, lint, plan, with_schedule

The function itself is never run, except to measure its time. Arguments may be arrays or `jax.ShapeDtypeStruct`s.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

__docformat__ = "google"  # for pdoc

# `__init__.pyi` lists the public names with their modules, for type checkers too. A name is imported at its first use
# (PEP 562). So a program that only traces does not load the planner, and a program that only shows something with
# `rematscope.render` does not load JAX.
_MODULE_OF = {
    alias.name: str(statement.module)
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}

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
