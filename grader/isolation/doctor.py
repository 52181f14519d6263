"""Test which guarantees of SECURITY.md this machine can give; each is tried out, not looked up."""

import os
import textwrap
from dataclasses import dataclass

from grader.isolation import remote_execution
from grader.isolation.control_groups import HOW, limit_of_all
from grader.isolation.limits import FOR_BATCH
from grader.isolation.sandbox import SandboxError, Zygote
from grader.isolation.sandboxed.lockdown import THREADS

# Bytes that the two processes of a submission may have at most, with their temporary folders.
_A_SUBMISSION = FOR_BATCH.memory + remote_execution.LIMITS.memory + 2 * remote_execution.LIMITS.disk


@dataclass(frozen=True)
class Promise:
    """Something that SECURITY.md promises, and whether it is held here.

    Attributes:
      name: what it is about.
      held: whether it is held.
      text: what it means, or what is missing and what to do.
      needed: whether grading strangers is not advised without it.
    """

    name: str
    held: bool
    text: str
    needed: bool = True

    def __str__(self) -> str:
        begin = f"{'held' if self.held else 'NOT HELD':<10}{self.name:<16}"
        return textwrap.fill(self.text, 110, initial_indent=begin, subsequent_indent=" " * len(begin))


def examine(jobs: int) -> list[Promise]:
    """Try the promises out.

    Args:
      jobs: how many submissions are to be graded at a time.
    """
    try:
        with Zygote(jobs) as zygote:
            groups, uncounted = zygote.without_groups, zygote.uncounted
    except SandboxError as error:
        return [Promise("sandbox", False, str(error))]
    return [
        Promise(
            "sandbox",
            True,
            "Each answer runs isolated: it sees only the files it needs, no other processes and no network.",
        ),
        Promise(
            "system calls",
            True,
            "Only system calls on an allow list are possible; all others are refused. Huge pages are disabled.",
        ),
        _control_groups_promise(groups),
        _threads_promise(bool(groups) and uncounted),
        _memory_promise(jobs),
    ]


def _control_groups_promise(groups: str) -> Promise:
    if groups:
        text = f"`batch` refuses to run without --without-control-groups: {groups}. To fix this,"
        advice = f"try `{HOW}` on a machine with systemd. For containers, see docs/isolation.md."
        return Promise("control groups", False, f"{text} {advice}")
    text = "The kernel limits each answer's memory, tasks and processor time, and kills only that answer."
    return Promise("control groups", True, text)


def _threads_promise(uncounted: bool) -> Promise:
    if uncounted:
        text = (
            "Linux does not limit the threads of root, and answers cannot run as another user here. Grade as another "
            "user, or with control groups."
        )
        return Promise("threads", False, text)
    return Promise("threads", True, f"An answer has at most {THREADS} threads.")


def _memory_promise(jobs: int) -> Promise:
    limit = limit_of_all()
    there = limit or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    enough = max(1, there // _A_SUBMISSION)
    where = "The container's limit for all processes together" if limit else "This machine's memory"
    text = f"{where}, {there / 2**30:.0f} GiB, is enough for --jobs {enough} at {_A_SUBMISSION >> 20} MiB each."
    if jobs > enough:
        text += f" With --jobs {jobs}, memory may run out; then answers are killed and must be graded again."
    return Promise("memory", jobs <= enough, text, needed=False)
