"""The Dockerfile, the dev container and the public CI agree with README and start.py."""

import json
import re
import tomllib
from pathlib import Path

import yaml
from packaging.specifiers import SpecifierSet

import start

ROOT = Path(start.ROOT)
PYTHON = (ROOT / ".python-version").read_text().strip()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
SAID = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()


def steps(job: str) -> str:
    """Return the commands of a CI job, one per line."""
    return "\n".join(step["run"] for step in WORKFLOW["jobs"][job]["steps"] if "run" in step)


def test_the_image_is_pinned_has_bubblewrap_and_does_not_run_as_root():
    assert re.search(rf"^FROM python:{re.escape(PYTHON)}(\.\d+)+-", DOCKERFILE, re.MULTILINE)
    assert "bubblewrap" in DOCKERFILE
    assert re.findall(r"^USER (\w+)$", DOCKERFILE, re.MULTILINE) == ["learner"]
    assert not [c for c in re.findall(r"start\.(\w+)", DOCKERFILE) if c != "py" and not hasattr(start, c)]
    command = json.loads(re.search(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)[1])
    assert command[:3] == ["python3", "start.py", "--"] and "8888" in re.search(r"^EXPOSE (.+)$", DOCKERFILE, re.M)[1]


def test_the_image_omits_generated_files():
    left_out = (ROOT / ".dockerignore").read_text().split()
    assert {".git", start.VENV.name, start.OWN_UV.name} <= set(left_out)


def test_the_devcontainer_has_the_workbooks_python_and_its_pins():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert f"-{PYTHON}-" in container["image"]
    named = re.findall(r"[\w.]+/?[\w.]*\.lock|\.binder/\w+", container["postCreateCommand"])
    assert named == [start.LEARNERS, ".binder/postBuild"] and all((ROOT / name).exists() for name in named)


def test_the_workflow_runs_the_documented_commands():
    for job, command in {"tests": "python3 start.py test", "book": "python3 start.py book"}.items():
        assert command in steps(job) and command in SAID
    assert "packages/rematscope/tests/on_jax.py" in steps("jax") and "uv build packages/rematscope" in steps("wheels")
    needed = re.search(r"for package in (.+?); do", (ROOT / ".ci" / "run").read_text())[1].split()
    assert not [name for name in needed if name not in steps("tests")]
    # These jobs run on a schedule only, so a release that depends on them would never run.
    assert set(WORKFLOW["jobs"]["release"]["needs"]) == WORKFLOW["jobs"].keys() - {"release", "fuzz", "foreign"}


def test_the_workflow_tries_the_oldest_jax_one_in_between_and_the_newest():
    project = tomllib.loads((ROOT / "packages" / "rematscope" / "pyproject.toml").read_text())["project"]
    oldest, _, newest = WORKFLOW["jobs"]["jax"]["strategy"]["matrix"]["include"]
    (jax,) = [each for each in project["dependencies"] if re.match(r"jax\b", each)]
    assert f">={oldest['jax']}" in jax and newest["jax"] == "newest"
    assert oldest["python"] in SpecifierSet(project["requires-python"]) and newest["python"] == PYTHON
    assert f">={oldest['python']}" in project["requires-python"]
