"""pyproject.toml has ranges, requirements.lock the pins, environment.yml the same pins for conda: they must agree.

`python tests/test_environment.py` writes environment.yml from the other two.
"""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PYTHON = (ROOT / ".python-version").read_text().strip()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

ENVIRONMENT = """\
# The environment of requirements.lock for conda and Binder. pip takes no hashes beside an editable project, so the pins
# stand here without; `python tests/test_environment.py` writes this file and a test keeps it true.
name: remat-workbook
channels:
  - conda-forge
dependencies:
  - python={python}
  - pip
  - pip:
{pins}
      - -e .
"""


def entries(lock: str) -> list[str]:
    """Returns the entries of a requirements file, each with its hashes on one line, without comments."""
    lines = [line for line in lock.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join(lines).replace("\\\n", "").splitlines()


def pins(lock: str) -> dict[str, Requirement]:
    """Returns the pinned requirements by name; ValueError names an entry that is no exact pin with a hash."""
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


def environment() -> str:
    """Returns what environment.yml must be."""
    return ENVIRONMENT.format(python=PYTHON, pins="\n".join(f"      - {pin}" for pin in pins(LOCK).values()))


def test_the_lock_pins_everything_with_hashes():
    assert {"jax", "jaxlib", "jupyterlab", "pytest"} <= pins(LOCK).keys()


def test_the_lock_has_no_url_and_names_no_registry():
    assert "://" not in LOCK
    assert not re.search("^-", LOCK, re.MULTILINE), "an option, such as --index-url"


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
        pins(f"{LOCK}\n{entry}\n")


@pytest.mark.parametrize(
    "text",
    [
        *PROJECT["project"]["dependencies"],
        *(text for group in PROJECT["dependency-groups"].values() for text in group),
        *PROJECT["build-system"]["requires"],
    ],
)
def test_each_requirement_of_the_project_is_pinned_within_its_range(text):
    wanted = Requirement(text)
    (pin,) = pins(LOCK)[wanted.name].specifier
    assert wanted.specifier, "a range says what is known to work"
    assert pin.version in wanted.specifier


def test_python_is_within_its_range():
    assert f"{PYTHON}.0" in SpecifierSet(PROJECT["project"]["requires-python"])


def test_environment_yml_has_the_pins_of_the_lock():
    found = (ROOT / "environment.yml").read_text()
    assert found == environment(), "environment.yml is out of date: run `python tests/test_environment.py`"


if __name__ == "__main__":
    (ROOT / "environment.yml").write_text(environment())
