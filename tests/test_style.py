"""Style, layers and types are as pyproject.toml says, and no file is long."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [ROOT / "packages" / "rematscope" / "src" / "rematscope", ROOT / "grader", ROOT / "solutions"]


def assert_content(*command: str):
    """A tool of this environment has nothing to say about the workbook."""
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


def test_the_types_of_both_packages_agree():
    assert_content("-m", "mypy")


def test_a_type_checker_knows_which_names_rematscope_has(tmp_path):
    """They are imported when asked for, and a module with a `__getattr__` that it sees may have any name."""
    user = tmp_path / "user.py"
    user.write_text("import rematscope\nrematscope.plan\nrematscope.plane\n")
    alone = ["--follow-imports=skip", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *alone, PACKAGES[0] / "__init__.py", user]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert "user.py:3: error: Module has no attribute" in said and "Found 1 error" in said
