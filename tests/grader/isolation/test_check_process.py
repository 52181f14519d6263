"""A process that runs an answer without a sandbox ends with the process that started it."""

import signal
import subprocess
import sys
import time

import pytest

ANSWER = """
import os
import time
from pathlib import Path


def wait():
    Path({started!r}).write_text(str(os.getpid()))
    time.sleep(600)


def save_named(f, names, waited=wait()):
    return f
"""
CHECK = """
import sys
from pathlib import Path
from grader.isolation.check_file import check_file

check_file(Path(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it ends at its limits")
def test_an_answer_ends_with_the_process_that_checks_it(tmp_path):
    answer, started = tmp_path / "save_named.py", tmp_path / "started"
    answer.write_text(ANSWER.format(started=str(started)))
    with subprocess.Popen([sys.executable, "-c", CHECK, str(answer)]) as checking:
        while not (started.exists() and started.read_text()):
            assert checking.poll() is None
            time.sleep(0.05)
        checking.kill()
    deadline = time.monotonic() + 120
    while alive(int(started.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


BEGIN = """
import sys
from grader.isolation import check_child

with check_child.CheckChild() as child:
    print(*{"typer", "rich", "numpy", "jax"} & {*sys.modules})
    print(child.process.pid)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody says whether a process runs")
def test_a_check_begins_before_anything_large_is_imported_and_not_in_vain():
    begun = subprocess.run([sys.executable, "-c", BEGIN], capture_output=True, text=True, check=True)
    imported, child = begun.stdout.splitlines()
    assert imported == ""
    assert not alive(int(child)), "it was asked nothing, and ends with the process that began it"


OVER_ITS_LIMIT = """
import time
from grader.isolation.check_process import limit

while time.process_time() < 2:  # as importing JAX does on a slow machine
    pass
limit(processor_seconds=1, address_space=2**30)
while time.process_time() < 2.6:
    pass
print("within the limit", flush=True)
while True:
    pass
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on processor time")
def test_processor_time_before_the_limit_was_set_does_not_count():
    ended = subprocess.run([sys.executable, "-c", OVER_ITS_LIMIT], stdout=subprocess.PIPE, text=True, timeout=120)
    assert ended.stdout == "within the limit\n"
    assert ended.returncode == -signal.SIGXCPU  # SIGKILL would not show the cause
