"""`watch` in a real terminal with few columns: its output, its keys, and the state in which it leaves the terminal."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import run_here

from grader.answers import find
from grader.learner import page_text, pages
from grader.learner.progress import Progress
from grader.learner.prose import Prose
from grader.learner.watch import next_page
from grader.verdicts.verdict import Outcome, Verdict
from rematscope.render.view import plain_text

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
WRONG = f"import jax\n\n\ndef {NAME}(w1, w2, x):\n    return ((jax.nn.relu(x @ w1) @ w2) ** 2).sum()\n"
COLUMNS = 50


# Log in to the terminal, so that Ctrl-C reaches the program, and restore SIGINT's default: a shell that starts the
# tests in the background has them ignore it.
_LOG_IN = (
    "import os, signal, sys; os.login_tty(0); signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Terminal:
    """A program with a controlling terminal of its own.

    Attributes:
      said: the program's output so far, without color codes.
    """

    def __init__(self, *command: str):
        self.said = ""
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self.settings = termios.tcgetattr(slave)
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "EDITOR")}
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm"}
        self._child = subprocess.Popen(
            [sys.executable, "-c", _LOG_IN, *command],
            stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment,
        )  # fmt: skip
        self._slave = slave  # kept open to read the terminal's settings after the program has ended

    def wait_for(self, words: str) -> str:
        """Wait until these words appear, across any line breaks, and return the output since the last call."""
        deadline = time.monotonic() + 300
        pattern = re.compile(r"\s+".join(map(re.escape, words.split())))
        new = ""
        while not pattern.search(new):
            ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"{words!r} was not said, but:\n{new}"
            new += re.sub(r"\x1b\[[0-9;]*m", "", os.read(self._master, 65536).decode(errors="replace"))
        self.said += new
        return new

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def ended(self) -> int:
        """Wait until the program ends, check that the terminal's settings are restored, and return the exit status."""
        status = self._child.wait(300)
        left = termios.tcgetattr(self._slave)
        os.close(self._master)
        os.close(self._slave)
        assert left == self.settings
        return status


def save(path, text):
    """Save like most editors: write another file and rename it."""
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)


@pytest.mark.slow
def test_an_exercise_is_solved_with_a_narrow_terminal_and_an_editor(tmp_path):
    answer = tmp_path / "mine.py"
    answer.write_text(WRONG)
    terminal = Terminal("-m", "grader", "watch", str(answer))
    began = terminal.wait_for("q quit")
    assert "Write checkpoint_dot_policy" in began and "Watching" in began and "Not passed yet" in began
    terminal.press("\x1b[A")  # arrow keys do nothing
    terminal.press("h")
    assert "Hint 1" in terminal.wait_for("q quit")
    answer.unlink()  # while it is edited, the file may be missing or contain a syntax error
    save(answer, "def checkpoint_dot_policy(w1,")
    assert "not valid Python" in terminal.wait_for("q quit")
    save(answer, (ROOT / "solutions" / f"{NAME}.py").read_text())
    assert "Passed" in terminal.wait_for("n next exercise")
    terminal.press("n")
    assert f"Exercise {pages.find(NAME).number + 1} " in terminal.wait_for("n skip")
    terminal.press("\x03")
    terminal.wait_for("Your progress is saved")
    assert terminal.ended() == 0
    assert [attempt.verdict.passed for attempt in Progress().attempts(NAME)] == [False, True]
    # No line is longer than the terminal is wide. The address of a link takes no space there.
    shown = re.sub(r"\x1b\]8;.*?\x1b\\", "", began)
    assert not [line for line in shown.splitlines() if len(line.rstrip()) > COLUMNS]


ENDS = {
    "raise ValueError('of its own')": ("", 1),
    "[wait(1) for _ in range(60)]": ("\x03", 130),  # an interrupt may arrive just when Python begins to wait
    "os.kill(os.getpid(), signal.SIGTERM); wait(60)": ("", 128 + signal.SIGTERM),
    "assert wait(60) == 'x'": ("x", 0),
}


@pytest.mark.parametrize("body", ENDS)
def test_the_terminal_is_put_back_whatever_ends_the_program(body):
    key, status = ENDS[body]
    program = (
        f"import os, signal\nfrom grader.learner.keyboard import keys\nwith keys() as wait: print('ready'); {body}"
    )
    terminal = Terminal("-c", program)
    terminal.wait_for("ready")
    terminal.press(key)
    assert terminal.ended() in (status, -signal.SIGINT if status == 130 else status)


@pytest.mark.parametrize("page", pages.exercises(), ids=lambda page: page.name)
def test_a_page_as_a_python_file_has_its_problem_and_its_stub(page, tmp_path):
    page = replace(page, path=tmp_path / page.path.name)
    file = page_text.write_python(page)
    text = file.read_text()
    compile(text, file.name, "exec")
    assert find.read(file).is_stub() and find.read(file).exercise == page.name
    assert f"check({page.name})" not in text and pages.find(file.name).name == page.name
    commented = "\n".join(line.removeprefix("# ") for line in text.splitlines())
    problem = page_text.problem(page)
    assert problem.splitlines()[0] in commented.replace("$", "`") and f"{page.name}(" in problem
    assert plain_text(Prose(problem), 40).count("…") == problem.count("…"), "nothing is cut off"


def test_an_existing_python_file_is_not_overwritten(tmp_path):
    page = replace(pages.find(NAME), path=tmp_path / f"00_{NAME}.ipynb")
    page_text.python_file(page).write_text(WRONG)
    assert page_text.write_python(page).read_text() == WRONG


def test_after_the_last_exercise_the_skipped_exercises_come_next():
    *others, first, last = pages.exercises()
    for page in others:
        Progress().record(page.name, Verdict(page.name, Outcome.PASSED), "")
    assert next_page(last) == first and next_page(first) == last
    Progress().record(last.name, Verdict(last.name, Outcome.PASSED), "")
    assert next_page(first) is None


def test_next_names_the_next_task_and_its_file():
    page = pages.find(NAME)
    Progress().record(NAME, Verdict(NAME, Outcome.NOT_PASSED), "")
    _, said, _ = run_here("next")
    assert f"continue with {page.label}." in said and page.path.name in said and "watch" in said


def test_other_files_are_not_watched(tmp_path):
    status, _, err = run_here("watch", tmp_path / "nothing.py")
    assert status == 1 and "File not found" in err
