"""The process that runs a learner's file: `python -m grader.isolation.check_process`.

Begun by `grader.isolation.check_child`, and told on standard input, as a JSON object, which file (`path`), where the
verdict goes (`written`), and what else `check_file` is asked.
"""

import json
import os
import sys
from pathlib import Path

from grader.isolation import in_process
from grader.isolation.sandboxed import libc
from grader.tracing import failures
from grader.verdicts.verdict import Verdict
from rematscope.render import write_whole


def limit(processor_seconds: int, memory: int) -> None:
    """Limit this process's processor time, in seconds, and its memory, in bytes beyond what it has now."""
    try:
        import resource
    except ImportError:  # Windows: the wall clock, which the parent watches, is the limit there
        return
    # At the first of the two the process ends with SIGXCPU, which says why; the second would be a plain SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # only Linux says, and only Linux keeps to, a limit on addresses
        return
    addresses = pages * os.sysconf("SC_PAGE_SIZE") + memory
    resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))


def main() -> None:
    """Check the file within the limits, and write the verdict whatever happens but an end of this process."""
    if sys.platform == "linux":  # elsewhere it ends at its limits
        libc.end_with_parent()
    if not (told := sys.stdin.read()):  # it was begun in vain
        return
    asked = json.loads(told)
    path, written = Path(asked["path"]), Path(asked["written"])
    limit(asked["limits"]["processor_seconds"], asked["limits"]["memory"])

    def write(verdict: Verdict) -> None:
        write_whole(written, json.dumps(verdict.to_dict()))  # half a verdict would read as damaged

    verdict = None
    try:
        for verdict in in_process.verdicts_on_file(path, asked["exercise"], asked["seed"]):
            write(verdict)  # what comes next may take this process along
    except Exception as error:
        if verdict is None:
            write(failures.grader_failed(path.stem, error))


if __name__ == "__main__":
    main()
