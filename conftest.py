"""Configure pytest and its plugins for this project."""

import gc
import importlib.util
import os
import random
import re
import secrets
import tempfile

import forked_kernels
import pytest
from nbval.kernel import RunningKernel

# JAX's traces consist of hundreds of thousands of objects, and most stay in caches. At Python's default thresholds,
# garbage collection of these objects takes an eighth of the suite's time.
gc.set_threshold(100_000, 20, 100)

collect_ignore_glob = ["exercises/my_*.ipynb", "notebooks/my_*.ipynb"]  # copies that `reset` and `update` make


def execute_cell_input(self, cell_input, allow_stdin=None):
    # By default, nbval does not store a history, and each cell is In [1]. The outputs name the cell of a source line,
    # and nbval compares them.
    return self.kc.execute(cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)


RunningKernel.execute_cell_input = execute_cell_input


# These chapters compile or search for many seconds. They are slow tests, unless they are named on the command line.
SLOW_PAGES = (
    "08_under_jit",
    "09_fewer_checkpoints",
    "10_transformer_block",
    "11_budget",
    "12_without_names",
    "14_many_devices",
    "15_kernels_and_rules",
    "18_a_training_step",
)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects the slow tests
def pytest_collection_modifyitems(config, items):
    """Mark the slow pages. Skip cells that need a missing optional package, as a tag such as `needs-equinox` says."""
    for item in items:
        if not hasattr(item, "cell"):
            continue
        if item.path.stem in SLOW_PAGES and not any(item.path.name in argument for argument in config.args):
            item.add_marker(pytest.mark.slow)
        tags = item.cell.metadata.get("tags", ())
        for package in (tag.removeprefix("needs-") for tag in tags if tag.startswith("needs-")):
            if importlib.util.find_spec(package) is None:
                item.add_marker(pytest.mark.skip(reason=f"needs {package}"))


def pytest_collection_finish():
    gc.freeze()  # imported modules and collected tests exist until the end, so garbage collection can ignore them


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure():
    _progress.cleanup()  # xdist's processes exit without Python's cleanup
    gc.freeze()  # the garbage collection at exit would visit millions of objects in JAX's caches


# Tests neither read nor change the progress of the person who runs them. Each test and each page starts without
# progress.
_progress = tempfile.TemporaryDirectory(prefix="remat-workbook-", ignore_cleanup_errors=True)
forked_kernels.fork_kernels(_progress.name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    os.environ["REMAT_WORKBOOK_DATA"] = tempfile.mkdtemp(dir=_progress.name)


# The seed of all random draws. It is fixed, so that every run of the suite gives the same result. The processes of a
# run read it from the environment.
SEED = 20260


def _parse_seed(text: str) -> int:
    return secrets.randbits(32) if text == "random" else int(text)


def pytest_addoption(parser):
    parser.addoption(
        "--seed", type=_parse_seed, default=SEED, help=f"the seed of all draws, or `random` (default: {SEED})"
    )


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # with `random`, each process of pytest-xdist would draw another seed
        os.environ["REMAT_SEED"] = str(config.getoption("seed"))
    if getattr(config.option, "hypothesis_seed", "given") is None:
        config.option.hypothesis_seed = os.environ["REMAT_SEED"]


def pytest_report_header():
    return f"seed: {os.environ['REMAT_SEED']} (--seed={os.environ['REMAT_SEED']} repeats this run)"


@pytest.fixture(scope="session")
def seed() -> int:
    """Return the seed of the run."""
    return int(os.environ["REMAT_SEED"])


@pytest.fixture(autouse=True)
def seeded_defaults(seed, request, monkeypatch):
    """Make the seed that a check or a batch draws depend only on the test and on the seed of the run."""
    monkeypatch.setattr(secrets, "randbits", random.Random(f"{seed} {request.node.nodeid}").getrandbits)


# environment.yml does not contain pytest-xdist, so pyproject.toml cannot set its options.


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Use three processes unless `-n` sets their number or `--pdb` is given.

    Three processes keep two cores busy, because tests of the browser and of the sandbox wait. Files start in
    alphabetical order, so the browser's tests, which take longest, start first.
    """
    is_worker = hasattr(config, "workerinput")
    if config.pluginmanager.hasplugin("xdist") and not is_worker:
        config.option.loadscopereorder = False
        if config.option.numprocesses is None and not config.option.usepdb:
            config.option.numprocesses = 3


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run tests in the same process if they share something expensive.

    The cells of a page share a kernel, so a file is not split. All browser tests share a server and a browser. The
    answers to an exercise share its traced reference and their evidence.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if of_exercise := re.match(r"tests/grader/catalog/test_(?:\w+_answers|bounds)\.py::.*\[(\w+)", nodeid):
                return f"the answers to {of_exercise[1]}"
            return "tests/browser" if nodeid.startswith("tests/browser/") else super()._split_scope(nodeid)

    return ByFile(config, log)
