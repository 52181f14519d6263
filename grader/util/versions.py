"""The versions of the tools, and the time."""

import importlib.metadata
import os
import platform
from datetime import UTC, datetime


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """The versions of the tools that a verdict comes from; `JAX_REMAT3` if JAX's next rematerialization is on."""
    packages = {"jax": "jax", "jaxlib": "jaxlib", "workbook": "remat-workbook"}
    on = os.environ.get("JAX_REMAT3", "").lower() in ("1", "true", "on", "yes", "t", "y")  # as JAX reads it
    remat3 = {"JAX_REMAT3": "on"} if on else {}
    return {"python": platform.python_version()} | {k: _version(package) for k, package in packages.items()} | remat3


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
