"""Run part of rematscope's tests on the oldest JAX that it supports. This takes about a minute, so it is marked slow.

All of them run with `python packages/rematscope/tests/on_jax.py 0.7.2`.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "packages" / "rematscope"
PART = [
    "ir",
    "tracing/test_seeds.py",
    "tracing/test_provenance.py",
    "tracing/test_trace_errors.py",
    "views/test_view.py",
]


@pytest.mark.slow
@pytest.mark.skipif(
    not (os.environ.get("CI") or os.environ.get("REMATSCOPE_OLDEST_JAX")),
    reason="makes an environment with an old JAX: set REMATSCOPE_OLDEST_JAX=1 to have it run",
)
def test_tracing_and_views_work_on_the_oldest_jax():
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    (oldest,) = [
        re.fullmatch(r"jax>=([\d.]+)", need)[1] for need in project["dependencies"] if need.startswith("jax>=")
    ]
    python = project["requires-python"].removeprefix(">=")
    # uv could download the oldest supported Python. If it is not installed, use the running Python: JAX is what this
    # tests.
    here = ".".join(map(str, sys.version_info[:2]))
    command = [sys.executable, PACKAGE / "tests" / "on_jax.py", oldest]
    command += ["--python", python if shutil.which(f"python{python}") else here, "--", "-q", *PART]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if run.returncode and re.search("client error|error sending request|Failed to fetch|offline", run.stderr):
        pytest.skip("no package registry can be reached, and uv's cache lacks the old JAX")
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
