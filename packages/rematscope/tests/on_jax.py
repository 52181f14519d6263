"""Run rematscope's tests on other releases of JAX, each in its own environment.

    python packages/rematscope/tests/on_jax.py 0.7.2 0.10.2 newest --python 3.11 -- -n 2

Environments are stored in the user's cache, so that the second run starts within seconds. Arguments after `--` are
passed to pytest. Their paths are relative to this folder. Without a path, all tests run except the slow ones; `-m ""`
after `--` adds the slow tests.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent
WORKBOOK = PACKAGE.parent.parent
# The tests' requirements in addition to the package and its extras: the newest version that supports that JAX.
NEEDED = (
    "diffrax dm-haiku equinox flatbuffers flax hypothesis ipykernel ipython nbclient nbformat optax ortools pytest "
    "pytest-xdist"
).split()


def find_uv() -> list[str]:
    """Return the command that runs uv: uv on PATH, or the workbook's own uv."""
    if on_path := shutil.which("uv"):
        return [on_path]
    folder = WORKBOOK / ".uv" / ("Scripts" if os.name == "nt" else "bin")
    if own := shutil.which("python", path=folder):
        return [own, "-m", "uv"]
    raise SystemExit("uv is not installed, which makes the environments: see https://docs.astral.sh/uv.")


def environment(jax: str, version: str) -> Path:
    """Return the Python of an environment with this release of JAX (`newest` for any) and this version of Python.

    Raises:
      CalledProcessError: if uv cannot create it; uv's message is shown.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "rematscope-tests" / f"jax-{jax}-python-{version}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    uv = find_uv()
    subprocess.run([*uv, "venv", "--quiet", "--allow-existing", "--python", version, folder], check=True)
    wanted = ["jax", "jaxlib"] if jax == "newest" else [f"jax=={jax}", f"jaxlib=={jax}"]
    install = [*uv, "pip", "install", "--quiet", "--python", python, "--upgrade"]
    subprocess.run([*install, *wanted, *NEEDED, "--editable", f"{PACKAGE}[notebook,plot]"], check=True)
    return python


def run_tests(python: Path, arguments: list[str]) -> int:
    """Runs pytest in this folder with one of the workbook's settings: no slow tests. Returns its exit status."""
    alone = ["-c", os.devnull, "--rootdir", TESTS, "--confcutdir", TESTS, "-p", "no:cacheprovider"]
    alone += ["-o", "markers=slow", "-m", "not slow"]
    paths = os.pathsep.join([str(TESTS), str(PACKAGE / "src")])
    command = [python, "-m", "pytest", *alone, *arguments]
    return subprocess.run(command, cwd=TESTS, env={**os.environ, "PYTHONPATH": paths}).returncode


def main(arguments: list[str]) -> int:
    """Runs the tests on each release that is asked for; 0 if all pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jax", nargs="+", help="releases of JAX, or `newest`")
    own = ".".join(map(str, sys.version_info[:2]))
    parser.add_argument("--python", default=own, help="version of Python")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    asked = parser.parse_args(arguments[:end])
    failed = []
    for jax in asked.jax:
        print(f"== JAX {jax}, Python {asked.python}", flush=True)
        try:
            status = run_tests(environment(jax, asked.python), arguments[end + 1 :])
        except subprocess.CalledProcessError as error:
            status = error.returncode
        if status:
            failed.append(jax)
    if failed:
        print(f"failed on JAX {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
