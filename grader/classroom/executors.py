"""Run gradings on this machine or on a Dask cluster."""

import contextlib
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from grader.classroom.collect import Submission
from grader.classroom.grade import Grade
from grader.classroom.run_folder import RunError
from grader.isolation.limits import TimedOut
from grader.util.versions import versions

SECONDS_TO_CONNECT = 20  # for the first connection to a scheduler, and for each reconnection


class WorkerRejected(Exception):
    """Raised if a worker cannot grade. It gets no more submissions, and the submission must be graded by another
    worker."""


@contextlib.contextmanager
def local_executor(jobs: int, sandboxed: bool, needs_groups: bool) -> Iterator["LocalExecutor"]:
    """Provide an executor that grades on this machine.

    Args:
      jobs: the number of submissions to grade at the same time.
      sandboxed: whether answers run in the sandbox, instead of with the privileges of the user who grades.
      needs_groups: whether each answer must have a control group.

    Raises:
      SandboxError: if the sandbox does not work on this machine.
    """
    from grader.classroom.grade_one import SandboxGrader, grade_unsandboxed  # imports JAX

    grader = SandboxGrader(needs_groups=needs_groups, jobs=jobs)
    zygote = grader.begin() if sandboxed else None
    # Threads suffice, because the expensive work already runs in separate processes.
    executor = ThreadPoolExecutor(jobs)
    try:
        place = LocalExecutor(executor, jobs, grader.grade if sandboxed else grade_unsandboxed)
        if zygote:
            place.without_groups, place.uncounted = zygote.without_groups, zygote.uncounted
        yield place
        executor.shutdown()
        grader.close()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


class LocalExecutor:
    """Grades on this machine.

    Args:
      executor: the executor that calls `grade`.
      ahead: the maximum number of submissions that are being graded at the same time.
      grade: a function that grades a submission, such as `SandboxGrader.grade`.

    Attributes:
      losses: the errors that `grade_of` raises if a machine was lost.
      set_aside: maps machines that cannot grade to the reasons.
      without_groups: why answers have no control groups; "" if they have control groups; None if unknown.
      uncounted: whether answers run as root, whose threads Linux does not limit.
    """

    losses: tuple[type[Exception], ...] = ()

    def __init__(
        self,
        executor: ThreadPoolExecutor,
        ahead: int,
        grade: Callable[[Submission, int, int, float], Grade],
    ):
        self.ahead = ahead
        self.without_groups: str | None = None
        self.uncounted = False
        self.set_aside: dict[str, str] = {}
        self._executor, self._grade = executor, grade

    def submit(self, submission: Submission, seed: int, secret: int, seconds: float) -> Future:
        """Submit a submission for grading; see `SandboxGrader.grade`."""
        return self._executor.submit(self._grade, submission, seed, secret, seconds)

    def grade_of(self, future: Future) -> Grade:
        """Return the grade of a future from `submit`. Raises TimedOut, or another error that grading raised."""
        grade: Grade = future.result()
        return grade


@contextlib.contextmanager
def on_cluster(scheduler: str, sandboxed: bool, needs_groups: bool) -> Iterator["Cluster"]:
    """Provide an executor that grades on a Dask cluster.

    Args:
      scheduler: its address, such as `"tcp://10.0.0.1:8786"`.
      sandboxed: whether answers run in the sandbox, instead of with the privileges of the workers.
      needs_groups: whether each answer must have a control group.

    Raises:
      RunError: if Dask is not installed, or if the scheduler cannot be reached.
    """
    try:
        import distributed
    except ModuleNotFoundError:
        raise RunError(
            "Grading on a cluster needs Dask. Install it with "
            "`pip install ./packages/rematscope -e '.[cluster]'` in the workbook's folder."
        ) from None
    try:
        client = distributed.Client(scheduler, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RunError(f"No Dask scheduler answers at {scheduler} ({error}). Check that it is running.") from None
    with client:
        yield Cluster(client, scheduler, sandboxed, needs_groups)


class Cluster:
    """Grades on the workers of a Dask cluster, except rejected ones, like `LocalExecutor`. Workers may join later.

    Args:
      client: Dask's client.
      scheduler: its address.
      sandboxed: whether answers run in the sandbox, instead of with the privileges of the workers.
      needs_groups: whether each answer must have a control group.
    """

    def __init__(self, client: Any, scheduler: str, sandboxed: bool, needs_groups: bool):
        import distributed

        self.ahead = max(4 * sum(client.nthreads().values()), 64)  # workers may join later
        self.losses: tuple[type[Exception], ...] = (distributed.KilledWorker,)
        self.set_aside: dict[str, str] = {}
        self.without_groups: str | None = None  # machines may differ
        self.uncounted = False
        self._client, self._scheduler = client, scheduler
        self._how = sandboxed, needs_groups

    def submit(self, submission: Submission, seed: int, secret: int, seconds: float) -> Future:
        """Submit a submission for grading. Raises RunError if no worker is left, or if the scheduler does not
        answer."""
        from distributed.comm import CommClosedError

        asked = (submission.learner, submission.name, submission.content, submission.exercise), seed, secret, seconds
        with self._scheduler_needed(CommClosedError, TimeoutError):
            options: dict[str, Any] = {}
            if self.set_aside:
                workers = [each for each in self._client.nthreads() if each not in self.set_aside]
                if not workers:
                    why = "; ".join(f"{worker}: {why}" for worker, why in self.set_aside.items())
                    raise RunError(f"No worker is left that can grade ({why}). The grades so far are saved.")
                options = {"workers": workers, "allow_other_workers": False}
            executor = self._client.get_executor(pure=False, **options)
            future: Future = executor.submit(_copy_for_pickle(_grade_on_worker), *asked, versions(), *self._how)
            return future

    def grade_of(self, future: Future) -> Grade:
        """Return the grade of a future from `submit`.

        Raises:
          TimedOut: if grading exceeded its time limit.
          WorkerRejected: if the worker cannot grade. It gets no more submissions.
          RunError: if the scheduler does not answer.
        """
        from distributed.comm import CommClosedError

        with self._scheduler_needed(CommClosedError):  # other errors may come from the machine that grades the answer
            reply: dict[str, Any] = future.result()
        if "unfit" in reply:
            self.set_aside[reply["worker"]] = reply["unfit"]
            raise WorkerRejected(reply["worker"])
        if "not done" in reply:
            late = TimedOut(reply["not done"])
            late.seconds = reply["seconds"]
            raise late
        return Grade.from_dict(reply["grade"])

    @contextlib.contextmanager
    def _scheduler_needed(self, *lost: type[Exception]) -> Iterator[None]:
        try:
            yield
        except (RunError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the error depends on when Dask notices the lost connection
            # The client's status may change only some time after the connection is lost.
            if self._client.status == "running" and not isinstance(error, lost):
                raise
            raise RunError(
                f"The Dask scheduler at {self._scheduler} no longer answers. The grades so far are saved: "
                "restart the scheduler, and add --resume."
            ) from None


def _copy_for_pickle(function: Any) -> Callable[..., dict[str, Any]]:
    """Return a copy of the function that pickle finds in no module, so that pickle sends the function's code.

    If pickle sent only the function's name, a worker with another version of this file would run other code.
    """
    copy = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, f"{function.__name__}_copy_for_pickle")
    copy.__module__, copy.__qualname__ = "__main__", copy.__name__
    return copy


def _grade_on_worker(submission, seed, secret, seconds, needed, sandboxed, needs_groups):
    # Takes and returns plain data, and uses no global of this module; see `_copy_for_pickle`.
    import os

    import distributed

    worker = distributed.get_worker().address
    # Workers use JAX on the CPU, because evidence is exported for the CPU. If another thread is importing JAX, the
    # import statement waits for it.
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        import jax
    except ImportError as error:
        return {"worker": worker, "unfit": f"it does not have this workbook ({error})"}
    jax.config.update("jax_platforms", "cpu")
    ours = ("JAX_PLATFORMS", "JAX_REMAT3")
    settings = [name for name in os.environ if name.startswith(("JAX_", "XLA_", "NPY_")) and name not in ours]
    if settings:
        return {
            "worker": worker,
            "unfit": f"its environment sets {', '.join(settings)}: start it without these",
        }
    try:
        from grader.util.versions import versions

        if (found := versions()) != needed:
            other = ", ".join(f"{name} {found.get(name)}" for name in needed if found.get(name) != needed[name])
            return {"worker": worker, "unfit": f"its versions differ from those here: {other or 'JAX_REMAT3'}"}
        from grader.classroom import worker as there
        from grader.classroom.collect import Submission
        from grader.isolation.limits import TimedOut
        from grader.isolation.sandbox import SandboxError
    except (ImportError, TypeError) as error:
        return {"worker": worker, "unfit": f"it does not have this workbook ({error})"}
    try:
        how = sandboxed, needs_groups
        return {"grade": there.grade(Submission(*submission), seed, secret, seconds, *how).to_dict()}
    except TimedOut as error:
        return {"not done": str(error), "seconds": error.seconds}
    except SandboxError as error:
        return {"worker": worker, "unfit": str(error)}
