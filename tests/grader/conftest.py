import bubblewrap
import jax
import pytest
import sample_answers

from grader.classroom import grade_one
from grader.isolation import check_file, in_process, sandbox
from grader.isolation.limits import FOR_BATCH, CheckLimits


@pytest.fixture(scope="session")
def zygote():
    """Start one sandbox for all tests of this process that do not need a separate one; starting it takes seconds.

    It starts with secrets in the environment, which no answer may see.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("A_SECRET", "JAX_API_KEY", "JAX_COMPILATION_CACHE_DIR"):
            patch.setenv(name, bubblewrap.SECRET)
        zygote = sandbox.Zygote()
    with zygote:
        yield zygote


@pytest.fixture(scope="session")
def grader_in_sandbox(zygote):
    """Return a function that creates a `SandboxGrader` in the shared sandbox, which must not be closed."""

    def begun(limits: CheckLimits = FOR_BATCH) -> grade_one.SandboxGrader:
        grader = grade_one.SandboxGrader(limits)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grade_one, "Zygote", lambda jobs: zygote)
            grader.begin()
        return grader

    return begun


@pytest.fixture(params=[False, True], ids=["remat", "remat3"])
def remat3(request):
    """Run a test with JAX's default rematerialization and with `JAX_REMAT3=1`."""
    before = jax.config.jax_remat3
    jax.config.update("jax_remat3", request.param)
    yield request.param
    jax.config.update("jax_remat3", before)


@pytest.fixture
def check_in_process(monkeypatch):
    """Make the command line check files in this process, because another process would take a second to import JAX."""
    monkeypatch.setattr(check_file, "check_file", in_process.grade_file)


@pytest.fixture
def unpatched():
    """Undo the patches that a test's wrong answers make."""
    with sample_answers.patches_undone():
        yield
