"""Style, layers and types are as configured in pyproject.toml, and no file is too long."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [ROOT / "packages" / "rematscope" / "src" / "rematscope", ROOT / "grader", ROOT / "solutions"]


def assert_content(*command: str):
    """Run a tool of this environment on the workbook and assert that it reports no problem."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff_has_nothing_to_say(command):
    assert_content("-m", "ruff", *command, ".")


def test_a_folder_imports_only_folders_below_it():
    assert_content("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache")


@pytest.mark.parametrize("package", PACKAGES[:2], ids=lambda path: path.name)
def test_a_package_has_folders_and_hardly_any_file_at_its_top(package):
    assert len(list(package.glob("*.py"))) <= 4


@pytest.mark.slow
def test_the_types_of_both_packages_agree():
    assert_content("-m", "mypy")


@pytest.mark.slow
def test_a_type_checker_knows_which_names_rematscope_has(tmp_path):
    """rematscope imports its names on first use. A type checker that read its `__getattr__` would accept any name."""
    user = tmp_path / "user.py"
    user.write_text("import rematscope\nrematscope.plan\nrematscope.plane\n")
    alone = ["--follow-imports=skip", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *alone, PACKAGES[0] / "__init__.pyi", user]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert "user.py:3: error: Module has no attribute" in said and "Found 1 error" in said
