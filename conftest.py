"""pytest's plugins, as this project needs them."""

import os
import tempfile

import pytest
from nbval.kernel import RunningKernel
from xdist.scheduler import LoadFileScheduling

collect_ignore_glob = ["exercises/my_*.ipynb"]  # what `python -m grader reset` keeps


def execute_cell_input(self, cell_input, allow_stdin=None):
    # nbval runs cells without a history, and then every one of them is In [1]. The pages say which cell a line stands
    # in, and that is compared like the rest.
    return self.kc.execute(cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)


RunningKernel.execute_cell_input = execute_cell_input

# Tests neither see nor change what whoever runs them has done in the workbook. Each one, and each page, begins anew.
_progress = tempfile.TemporaryDirectory(prefix="remat-workbook-", ignore_cleanup_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    os.environ["REMAT_WORKBOOK_DATA"] = tempfile.mkdtemp(dir=_progress.name)


class _Scheduler(LoadFileScheduling):
    """Gives files to processes one by one, but all browser tests to one process: they share a server and a browser."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/browser" if nodeid.startswith("tests/browser/") else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config, log):
    return _Scheduler(config, log)
