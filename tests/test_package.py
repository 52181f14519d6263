"""rematscope is a separate distribution: its wheel is complete and works without the rest of the workbook."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rematscope
import start

pytestmark = pytest.mark.slow  # each test builds or installs the package

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "packages" / "rematscope"
REQUIRED = {"jax", "numpy", "rich", "scipy"}


def run(*command, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the package's wheel offline, with the hatchling that is installed and pinned."""
    folder = tmp_path_factory.mktemp("wheel")
    made = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=PACKAGE)
    assert made.returncode == 0, made.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def elsewhere(wheel, tmp_path_factory) -> Path:
    """Return the Python of an environment with only pip, the wheel and its dependencies in the pinned versions."""
    folder = tmp_path_factory.mktemp("environment")
    own = start.python(start.OWN_UV)
    uv = [shutil.which("uv")] if shutil.which("uv") else [own, "-m", "uv"] if Path(own).exists() else None
    if uv is None:
        pytest.skip("uv, which makes the environment fast, is not installed")
    made = run(*uv, "venv", "--seed", "--python", sys.executable, folder / "env", cwd=folder)
    there = Path(start.python(folder / "env"))
    pins = ROOT / "requirements.lock"
    if not made.returncode:
        made = run(*uv, "pip", "install", "--python", there, "--constraint", pins, wheel, cwd=folder)
    if made.returncode and re.search("client error|error sending request|Failed to fetch|offline", made.stderr):
        pytest.skip("no package registry can be reached, and uv's cache lacks what rematscope requires")
    assert made.returncode == 0, made.stderr
    return there


def test_the_wheel_has_types_the_widgets_parts_and_the_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name.partition("/")[2] for name in archive.namelist()}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    sources = PACKAGE / "src" / "rematscope"
    suffixes = (".py", ".pyi", ".js", ".css")
    ours = {str(path.relative_to(sources)) for path in sources.rglob("*") if path.suffix in suffixes}
    assert ours | {"py.typed"} <= held and "licenses/LICENSE" in held
    assert {"widget.js", "widget.css"} <= {Path(name).name for name in ours}
    assert "License-Expression: Apache-2.0" in metadata and "Requires-Python: >=3.11" in metadata


def test_the_wheel_has_the_command_and_the_changelog(wheel, elsewhere):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("rematscope/CHANGELOG.md") == (PACKAGE / "CHANGELOG.md").read_bytes()
    command = elsewhere.with_name("rematscope.exe" if sys.platform == "win32" else "rematscope")
    version = run(command, "--version", cwd=elsewhere.parent).stdout
    assert re.fullmatch(rf"rematscope {re.escape(rematscope.__version__)}, JAX [\d.]+\n", version)


def test_nothing_but_jax_numpy_rich_and_scipy_is_required(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    asked = re.findall(r"^Requires-Dist: ([\w-]+)(.*)$", metadata, re.MULTILINE)
    assert {name for name, rest in asked if "extra ==" not in rest} == REQUIRED
    assert set(re.findall(r"^Provides-Extra: (.*)$", metadata, re.MULTILINE)) == {"notebook", "plot", "tpu"}
    assert "<" not in dict(asked)["jax"], "no upper bound"


def test_the_package_installs_at_most_sixteen_packages(elsewhere):
    names = "import importlib.metadata as m, json; print(json.dumps([d.name for d in m.distributions()]))"
    found = json.loads(run(elsewhere, "-I", "-c", names, cwd=elsewhere.parent).stdout)
    assert {"pip", "rematscope"} <= set(found) and len(found) <= 16


@pytest.mark.parametrize(
    ("readme", "figure"),
    [("README.md", "it needs 7.38 GiB, compiled for cpu"), ("packages/rematscope/README.md", "Cost(flops=")],
)
def test_the_ten_lines_run_where_nothing_else_is_installed(elsewhere, readme, figure, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / readme).read_text(), re.DOTALL)
    block = next(block for block in blocks if "rematscope import" in block)
    (tmp_path / "ten_lines.py").write_text(block)
    # Isolated mode (-I), so that no module can come from PYTHONPATH or the working directory.
    ran = run(elsewhere, "-I", "ten_lines.py", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert figure in ran.stdout and "R recomputed" in ran.stdout


def test_every_public_name_can_be_had_and_is_documented(elsewhere):
    code = (
        "import rematscope, inspect; names = rematscope.__all__; "
        "print([n for n in names if not inspect.getdoc(getattr(rematscope, n))], set(names) <= set(dir(rematscope)))"
    )
    assert run(elsewhere, "-I", "-c", code, cwd=elsewhere.parent).stdout == "[] True\n"


def test_one_command_makes_a_reference_of_every_public_name(tmp_path):
    made = run(sys.executable, "-m", "pdoc", "rematscope", "--output-directory", tmp_path, cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    page = (tmp_path / "rematscope.html").read_text()
    assert [name for name in rematscope.__all__ if f'id="{name}"' not in page] == []
    assert "&gt;&gt;&gt;" in page and "Raises:</h6>" in page, "examples and sections are laid out"
