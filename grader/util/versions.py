"""The versions of the tools, and the time."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from grader.util.environment import REMAT3_ON


def now() -> str:
    """Return the time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Return the versions of the tools that a verdict depends on, including `JAX_REMAT3` if JAX's new rematerialization
    is on."""
    packages = {"jax": "jax", "jaxlib": "jaxlib", "workbook": "remat-workbook"}
    on = os.environ.get("JAX_REMAT3", "").lower() in REMAT3_ON
    remat3 = {"JAX_REMAT3": "on"} if on else {}
    found = {"python": platform.python_version()} | {k: _package_version(package) for k, package in packages.items()}
    return found | {"code": hash_code()} | remat3


@functools.cache
def hash_code() -> str:
    """Return a hash (twelve hexadecimal digits) of the grader, the catalog, the solutions and rematscope, which changes
    with every change of their code."""
    found = hashlib.sha256()
    for package in ("grader", "rematscope", "solutions"):
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in sorted(each for each in Path(folder).rglob("*") if each.suffix in (".py", ".toml")):
                found.update(f"{package}/{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


def _package_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
