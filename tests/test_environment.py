"""Files with requirements agree: the ranges in pyproject.toml, the pins in two lock files, environment.yml and .binder.

`python tests/test_environment.py` writes environment.yml and Binder's requirements from the others.
"""

import ast
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {name: (ROOT / name).read_text() for name in ("requirements.lock", "requirements-test.lock")}
LEARNERS, TESTERS = LOCKS.values()
PYTHON = (ROOT / ".python-version").read_text().strip()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNS_PAGES = ("nbval", "pytest")
BINDERS = ROOT / ".binder" / "requirements.txt"
# Binder provides Jupyter and pip, rematscope is part of the project, and only teachers need spreadsheets.
NOT_FOR_BINDER = {"jupyterlab", "openpyxl", "pip", "rematscope"}

ENVIRONMENT = """\
# What learners need, as requirements.lock pins it, and what tests the pages, for conda. pip takes no hashes beside an
# editable project, so the pins stand here without; `python tests/test_environment.py` writes this file and a test keeps
# it true.
name: remat-workbook
channels:
  - conda-forge
dependencies:
  - python={python}
  - pip
  - pip:
{pins}
      - -e ./packages/rematscope
      - -e .
"""

BINDER = """\
# For Binder and Colab, which have Jupyter: what the workbook needs besides and what builds it, as requirements.lock has
# it. `python tests/test_environment.py` writes this file and a test keeps it true. The project itself is installed
# without what it needs, by postBuild; for Colab, the book says how.
"""


def entries(lock: str) -> list[str]:
    """Return the entries of a requirements file, each with its hashes on one line, without comments."""
    lines = [line for line in lock.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join(lines).replace("\\\n", "").splitlines()


def pins(lock: str) -> dict[str, Requirement]:
    """Return the pinned requirements by name; raise ValueError for an entry that is not an exact pin with a hash."""
    result = {}
    for entry in entries(lock):
        text, *hashes = re.split(r"\s+--hash=", entry)
        if not re.match(r"[\w.-]+==[\w.+!]+( ;|$)", text) or not hashes:
            raise ValueError(f"not `name==version` with hashes: {entry[:80]}")
        if not all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", value) for value in hashes):
            raise ValueError(f"not a sha256: {entry[:80]}")
        pin = Requirement(text)
        result[pin.name] = pin
    return result


def needed_by(names: tuple[str, ...], lock: str) -> set[str]:
    """Return the names and all their dependencies, according to the lock file's `# via …` comments."""
    pinned = re.split(r"^(?=\w)", lock, flags=re.MULTILINE)[1:]
    users = {
        text.partition("==")[0]: set(re.findall(r"^    #(?: via)? +(\S+)$", text, re.MULTILINE)) for text in pinned
    }
    found = set(names)
    while more := {name for name, by in users.items() if by & found} - found:
        found |= more
    return found


def environment() -> str:
    """Return the expected content of environment.yml."""
    for_pages = needed_by(RUNS_PAGES, TESTERS)
    chosen = pins(LEARNERS) | {name: pin for name, pin in pins(TESTERS).items() if name in for_pages}
    listed = "\n".join(f"      - {chosen[name]}" for name in sorted(chosen))
    return ENVIRONMENT.format(python=PYTHON, pins=listed)


def for_binder() -> str:
    """Return the expected content of .binder/requirements.txt."""
    ranges = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["build"]
    named = {canonicalize_name(Requirement(text).name) for text in ranges} - NOT_FOR_BINDER
    needed = needed_by((*named, "ipykernel"), LEARNERS)
    return BINDER + "\n".join(sorted(e for e in entries(LEARNERS) if e.partition("==")[0] in needed)) + "\n"


def versions(lock: str) -> dict[str, str]:
    """Return the pinned versions by name."""
    return {name: str(pin.specifier) for name, pin in pins(lock).items()}


def test_the_locks_pin_everything_with_hashes():
    assert {"jax", "jaxlib", "jupyterlab"} <= pins(LEARNERS).keys()
    assert {"jax", "pytest", "playwright"} <= pins(TESTERS).keys()


def test_the_test_lock_file_includes_the_learners_pins():
    assert versions(LEARNERS).items() <= versions(TESTERS).items()


def test_the_learners_lock_file_has_no_test_packages():
    only_tests = {Requirement(text).name for text in PROJECT["dependency-groups"]["test"]}
    only_tests -= {"nbclient", "packaging", "pyyaml"}  # JupyterLab depends on these
    assert only_tests & pins(LEARNERS).keys() == set()


def code_of_learners() -> Iterator[str]:
    """Yield all code that a learner may run: both packages, the worked answers and the pages."""
    for folder in (ROOT / "packages" / "rematscope" / "src", ROOT / "grader", ROOT / "solutions"):
        for path in folder.rglob("*.py"):
            yield path.read_text()
    for page in [*ROOT.glob("notebooks/[0-9]*.ipynb"), *ROOT.glob("exercises/[0-9]*.ipynb")]:
        cells = [cell.source for cell in nbformat.read(page, as_version=4).cells if cell.cell_type == "code"]
        yield re.sub(r"^%.*$", "", "\n".join(cells), flags=re.MULTILINE)


def imported(code: str) -> set[str]:
    """Return the names of the packages that code imports, at the top level or inside functions."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


@pytest.mark.slow
def test_learners_code_imports_only_packages_of_their_lock_file():
    names = set().union(*map(imported, code_of_learners()))
    names -= {*sys.stdlib_module_names, "rematscope", "grader", "solutions"}
    # Optional packages: where one is missing, a message says so. Flax depends on Optax.
    extras = {"distributed", "equinox", "flax", "haiku", "libtpu", "optax"}
    assert {"jax", "equinox"} <= names
    provided, pinned = packages_distributions(), pins(LEARNERS).keys()
    learners = {name for name in names if pinned & {canonicalize_name(dist) for dist in provided.get(name, [])}}
    assert names - learners - extras == set()


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_a_lock_has_no_url_and_names_no_registry(lock):
    assert "://" not in lock
    assert not re.search("^-", lock, re.MULTILINE), "an option, such as --index-url"


@pytest.mark.parametrize(
    "entry",
    [
        "rich>=15 --hash=sha256:" + "0" * 64,
        "rich==15.0.0",
        "rich==15.0.0 --hash=md5:" + "0" * 32,
        "rich @ https://example.org/rich.whl --hash=sha256:" + "0" * 64,
        "--index-url https://example.org",
    ],
)
def test_a_worse_lock_would_be_noticed(entry):
    with pytest.raises(ValueError, match="not "):
        pins(f"{LEARNERS}\n{entry}\n")


REQUIREMENTS = {
    "requirements.lock": [
        *PROJECT["project"]["dependencies"],
        *PROJECT["dependency-groups"]["build"],
        *PROJECT["build-system"]["requires"],
    ],
    "requirements-test.lock": [
        *PROJECT["project"]["optional-dependencies"]["cluster"],
        *PROJECT["dependency-groups"]["test"],
        *PROJECT["dependency-groups"]["write"],
    ],
}


@pytest.mark.parametrize(("lock", "text"), [(lock, text) for lock, texts in REQUIREMENTS.items() for text in texts])
def test_each_requirement_of_the_project_is_pinned_within_its_range(lock, text):
    wanted = Requirement(text)
    assert wanted.specifier, "a range says what is known to work"
    if wanted.name == "rematscope":  # not on PyPI
        found = tomllib.loads((ROOT / "packages" / "rematscope" / "pyproject.toml").read_text())["project"]["version"]
    else:
        found = versions(LOCKS[lock])[wanted.name].removeprefix("==")
    assert found in wanted.specifier


def test_python_is_within_its_range():
    assert f"{PYTHON}.0" in SpecifierSet(PROJECT["project"]["requires-python"])


def test_environment_yml_has_the_pins_of_the_locks():
    found = (ROOT / "environment.yml").read_text()
    assert found == environment(), "environment.yml is out of date: run `python tests/test_environment.py`"
    assert "\n      - coverage==" in found, "nbval needs it, and no learner does"


def test_binder_installs_the_workbooks_requirements():
    folder = ROOT / ".binder"
    assert (folder / "runtime.txt").read_text() == f"python-{PYTHON}\n"
    assert BINDERS.read_text() == for_binder(), "out of date: run `python tests/test_environment.py`"
    assert pins(BINDERS.read_text()).keys() < pins(LEARNERS).keys()
    script = folder / "postBuild"
    assert os.access(script, os.X_OK)
    editables = re.findall(r"(?:-e|--editable) (\S+)", script.read_text())
    assert editables == re.findall(r"- -e (\S+)", environment()) == ["./packages/rematscope", "."]


if __name__ == "__main__":
    (ROOT / "environment.yml").write_text(environment())
    BINDERS.write_text(for_binder())
