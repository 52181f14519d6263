"""Where submissions are graded: on this machine, or on a Dask cluster."""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grader.classroom.collect import Submission
from grader.classroom.grade import Grade
from grader.classroom.run_folder import RunError
from grader.util.versions import versions


@contextlib.contextmanager
def here(jobs: int, sandboxed: bool) -> Iterator[dict[str, Any]]:
    """What `grade_class` needs to grade on this machine, so many submissions at a time.

    Raises:
      SandboxError: there is no sandbox to be had here.
    """
    from grader.classroom.grade_one import SandboxGrader, grade_unsandboxed  # imports JAX

    grader = SandboxGrader()
    if sandboxed:
        grader.begin()
    # Threads, not processes: what takes time runs in processes of its own already.
    executor = ThreadPoolExecutor(jobs)
    try:
        yield {
            "executor": executor,
            "ahead": 2 * jobs,
            "grade": grader.grade if sandboxed else grade_unsandboxed,
        }
        executor.shutdown()
        grader.close()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def on_cluster(scheduler: str, sandboxed: bool) -> Iterator[dict[str, Any]]:
    """What `grade_class` needs to grade on a Dask cluster.

    Args:
      scheduler: its address, such as `"tcp://10.0.0.1:8786"`.
      sandboxed: False runs answers with the rights of the workers.

    Raises:
      RunError: Dask is not installed, it cannot be reached, or its workers have not what grades here.
    """
    try:
        import distributed
    except ModuleNotFoundError:
        raise RunError(
            "Grading on a cluster takes Dask, which comes with an extra: run "
            "`pip install ./packages/rematscope -e '.[cluster]'` in the workbook's folder."
        ) from None
    try:
        client = distributed.Client(scheduler, timeout=20, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RunError(f"No Dask scheduler answers at {scheduler} ({error}): check that it runs.") from None
    with client:
        for worker, found in client.run(versions, on_error="return").items():
            if found != versions():
                raise RunError(
                    f"The worker {worker} has not what is here ({found}, not {versions()}): install the same workbook "
                    "and JAX on all machines, and set JAX_REMAT3 on all or on none."
                )
        yield {
            "executor": client.get_executor(pure=False),
            "ahead": max(4 * sum(client.nthreads().values()), 64),  # workers may come later
            "grade": _grade_there if sandboxed else _grade_unsandboxed_there,
            "losses": (distributed.KilledWorker,),
        }


# What workers call imports JAX there, on the processor, as it is here: evidence is exported for that.


def _grade_there(submission: Submission, seed: int, secret: int) -> Grade:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from grader.classroom import worker

    return worker.GRADER.grade(submission, seed, secret)


def _grade_unsandboxed_there(submission: Submission, seed: int, secret: int) -> Grade:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from grader.classroom import grade_one

    return grade_one.grade_unsandboxed(submission, seed, secret)
