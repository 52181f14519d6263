"""pytest's plugins, as this project needs them."""

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

# JAX traces into objects by the hundred thousand, most of which live on in caches: to look through them all for cycles
# as often as Python does by itself takes an eighth of the suite's time.
gc.set_threshold(100_000, 20, 100)

collect_ignore_glob = ["exercises/my_*.ipynb", "notebooks/my_*.ipynb"]  # what `reset` and `update` keep


def execute_cell_input(self, cell_input, allow_stdin=None):
    # nbval runs cells without a history, and then every one of them is In [1]. The pages say which cell a line stands
    # in, and that is compared like the rest.
    return self.kc.execute(cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)


RunningKernel.execute_cell_input = execute_cell_input
forked_kernels.fork_kernels()


def pytest_collection_modifyitems(items):
    """Leaves out cells of pages that show what learners need not have installed: a tag says what, `needs-equinox`."""
    for item in items:
        tags = item.cell.metadata.get("tags", ()) if hasattr(item, "cell") else ()
        for package in (tag.removeprefix("needs-") for tag in tags if tag.startswith("needs-")):
            if importlib.util.find_spec(package) is None:
                item.add_marker(pytest.mark.skip(reason=f"needs {package}"))


def pytest_collection_finish():
    gc.freeze()  # what was imported and collected lives until the end: no later collection has to look through it


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure():
    _progress.cleanup()  # xdist's processes end without Python's own cleaning up
    gc.freeze()  # pytest and Python look for cycles at the end: millions of objects of JAX's caches, which are none


# Tests neither see nor change what whoever runs them has done in the workbook. Each one, and each page, begins anew.
_progress = tempfile.TemporaryDirectory(prefix="remat-workbook-", ignore_cleanup_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    os.environ["REMAT_WORKBOOK_DATA"] = tempfile.mkdtemp(dir=_progress.name)


# One seed for everything that a run draws, the same in every run: whoever runs the suite gets the same result. The
# processes of a run read it from the environment.
SEED = 20260


def _seed(text: str) -> int:
    return secrets.randbits(32) if text == "random" else int(text)


def pytest_addoption(parser):
    parser.addoption("--seed", type=_seed, default=SEED, help=f"a number, or `random`, to draw from (default: {SEED})")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # with `random`, pytest-xdist's processes would each draw one
        os.environ["REMAT_SEED"] = str(config.getoption("seed"))
    if getattr(config.option, "hypothesis_seed", "given") is None:
        config.option.hypothesis_seed = os.environ["REMAT_SEED"]


def pytest_report_header():
    return f"seed: {os.environ['REMAT_SEED']} (--seed={os.environ['REMAT_SEED']} repeats this run)"


@pytest.fixture(scope="session")
def seed() -> int:
    """The run's seed."""
    return int(os.environ["REMAT_SEED"])


@pytest.fixture(autouse=True)
def seeded_defaults(seed, request, monkeypatch):
    """Checks and batches draw a seed where none is given: the same one for the same test of the same run's seed."""
    monkeypatch.setattr(secrets, "randbits", random.Random(f"{seed} {request.node.nodeid}").getrandbits)


# xdist is not there where pages alone are tested (environment.yml); pytest's settings cannot say "if it is there".


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Three processes, unless `-n` says how many (`-n 0`, none, for `--pdb`): two cores are busy with them, since tests
    of the browser and of the sandbox wait. Files begin in alphabetical order, and so the browser's, which take longest,
    first."""
    one_of_them = hasattr(config, "workerinput")
    if config.pluginmanager.hasplugin("xdist") and not one_of_them:
        config.option.loadscopereorder = False
        if config.option.numprocesses is None and not config.option.usepdb:
            config.option.numprocesses = 3


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of one file in one process, since the cells of a page share a kernel; all browser tests, which
    share a server and a browser; and an exercise's answers, which share its traced reference and their evidence."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if of_exercise := re.match(r"tests/grader/catalog/test_(?:\w+_answers|bounds)\.py::.*\[(\w+)", nodeid):
                return f"the answers to {of_exercise[1]}"
            return "tests/browser" if nodeid.startswith("tests/browser/") else super()._split_scope(nodeid)

    return ByFile(config, log)
