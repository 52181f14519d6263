"""Time checks in units of B, the time to start Python, import JAX and add two arrays.

    python benchmarks/check.py

A warm check of every exercise's worked answer runs in this process, and a cold one from the command line. After one
warm-up, each check runs five times, round-robin so that a busy machine slows all checks equally. The median counts.
"""

import argparse
import functools
import importlib
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grader import check
from grader.exercises import registry

ROOT = Path(__file__).parent.parent


def start_jax():
    subprocess.run([sys.executable, "-c", "import jax; import jax.numpy as jnp; jnp.ones(3)+1"], check=True)


def warm_check(slug):
    assert check(getattr(importlib.import_module(f"solutions.{slug}"), slug)).passed


def cold_check():
    command = [sys.executable, "-m", "grader", "check", "solutions/checkpoint_dot_policy.py"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


ROWS = {  # what is timed → its upper limit
    "B": (start_jax, None),
    **{f"warm check of {slug}": (functools.partial(warm_check, slug), 1.0) for slug in registry.names()},
    "cold check of checkpoint_dot_policy": (cold_check, 2.0),
}


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rounds = [[seconds(function) for function, _ in ROWS.values()] for _ in range(6)][1:]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    table = Table("", "seconds", "in B", "at most", title="Checks of the worked answers, medians of 5")
    for (name, (_, limit)), median in zip(ROWS.items(), medians, strict=True):
        table.add_row(name, f"{median:.2f}", f"{median / medians[0]:.2f}", "" if limit is None else f"{limit}")
    Console().print(table)


if __name__ == "__main__":
    main()
