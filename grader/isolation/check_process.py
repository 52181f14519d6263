"""The process that runs a learner's file: `python -m grader.isolation.check_process`.

`grader.isolation.check_child` starts this process and sends a JSON object to its standard input: the file to check
(`path`), the file for the verdict (`written`), and the other arguments of `check_file`.
"""

import json
import math
import sys
import time
from pathlib import Path

from grader.isolation import in_process
from grader.isolation.sandboxed import libc
from grader.tracing import failures
from grader.verdicts.verdict import Verdict
from rematscope.render import write_whole


def limit(processor_seconds: int, address_space: int) -> None:
    """Limit the further processor time of this process, in seconds, and its further address space, in bytes."""
    try:
        import resource
    except ImportError:  # On Windows, only the parent's time limit applies
        return
    # At the soft limit, the process gets SIGXCPU, which shows the cause. At the hard limit, it would get SIGKILL.
    seconds = math.ceil(time.process_time()) + processor_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        addresses = libc.address_space() + address_space
    except OSError:  # only Linux reports the address space and enforces a limit on it
        return
    resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))


def main() -> None:
    """Check the file within the limits, and write a verdict unless this process is killed."""
    if sys.platform == "linux":  # elsewhere, the process ends at its limits
        libc.end_with_parent()
    if not (told := sys.stdin.read()):  # no file was checked
        return
    asked = json.loads(told)
    path, written = Path(asked["path"]), Path(asked["written"])
    limit(asked["limits"]["processor_seconds"], asked["limits"]["address_space"])

    def write(verdict: Verdict) -> None:
        write_whole(written, json.dumps(verdict.to_dict()))  # the parent must never see half of a verdict

    verdict = None
    try:
        for verdict in in_process.verdicts_on_file(path, asked["exercise"], asked["seed"]):
            write(verdict)  # the next attempt may crash this process
    except Exception as error:
        if verdict is None:
            write(failures.grader_failed(path.stem, error))


if __name__ == "__main__":
    main()
