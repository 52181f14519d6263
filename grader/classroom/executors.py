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

SECONDS_TO_CONNECT = 20  # to a scheduler, at first and when it has been lost


class WorkerRejected(Exception):
    """The machine that a submission was given to cannot grade; it has been set aside, and another one is to do it."""


@contextlib.contextmanager
def local_executor(jobs: int, sandboxed: bool, needs_groups: bool) -> Iterator["LocalExecutor"]:
    """This machine, so many submissions at a time.

    Args:
      jobs: how many.
      sandboxed: False runs answers with the rights of whoever grades.
      needs_groups: whether each answer must have a control group.

    Raises:
      SandboxError: there is no sandbox to be had here.
    """
    from grader.classroom.grade_one import SandboxGrader, grade_unsandboxed  # imports JAX

    grader = SandboxGrader(needs_groups=needs_groups)
    zygote = grader.begin() if sandboxed else None
    # Threads, not processes: what takes time runs in processes of its own already.
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
    """A `grade_class.Place`: this machine.

    Args:
      executor: what calls `grade`.
      ahead: how many submissions to hand over before their grades are there.
      grade: grades a submission, as `SandboxGrader.grade` does.

    Attributes:
      without_groups: why answers have no control groups, "" if they have; None if nobody knows.
      uncounted: whether answers are root's, whose threads Linux does not count.
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
        """Have a submission graded."""
        return self._executor.submit(self._grade, submission, seed, secret, seconds)

    def grade_of(self, future: Future) -> Grade:
        """Return the grade that `submit` promised. Raises what grading raised."""
        grade: Grade = future.result()
        return grade


@contextlib.contextmanager
def on_cluster(scheduler: str, sandboxed: bool, needs_groups: bool) -> Iterator["Cluster"]:
    """A Dask cluster.

    Args:
      scheduler: its address, such as `"tcp://10.0.0.1:8786"`.
      sandboxed: False runs answers with the rights of the workers.
      needs_groups: whether each answer must have a control group.

    Raises:
      RunError: Dask is not installed, or it cannot be reached.
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
    """A `grade_class.Place`: the workers of a Dask cluster, also those that come later, but for those set aside.

    Args:
      client: Dask's.
      scheduler: its address.
      sandboxed: False runs answers with the rights of the workers.
      needs_groups: whether each answer must have a control group.
    """

    def __init__(self, client: Any, scheduler: str, sandboxed: bool, needs_groups: bool):
        import distributed

        self.ahead = max(4 * sum(client.nthreads().values()), 64)  # workers may come later
        self.losses: tuple[type[Exception], ...] = (distributed.KilledWorker,)
        self.set_aside: dict[str, str] = {}
        self.without_groups: str | None = None  # each machine has its own
        self.uncounted = False
        self._client, self._scheduler = client, scheduler
        self._how = sandboxed, needs_groups

    def submit(self, submission: Submission, seed: int, secret: int, seconds: float) -> Future:
        """Have a submission graded. Raises RunError if there is no worker left to do it, or the scheduler is gone."""
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
            future: Future = executor.submit(_by_value(_graded_there), *asked, versions(), *self._how)
            return future

    def grade_of(self, future: Future) -> Grade:
        """Return the grade that `submit` promised.

        Raises:
          TimedOut: it takes long.
          WorkerRejected: the worker cannot grade, and has been set aside.
          RunError: the scheduler is gone.
        """
        from distributed.comm import CommClosedError

        with self._scheduler_needed(CommClosedError):  # any other may be the answer's machine's
            said: dict[str, Any] = future.result()
        if "unfit" in said:
            self.set_aside[said["worker"]] = said["unfit"]
            raise WorkerRejected(said["worker"])
        if "not done" in said:
            late = TimedOut(said["not done"])
            late.seconds = said["seconds"]
            raise late
        return Grade.from_dict(said["grade"])

    @contextlib.contextmanager
    def _scheduler_needed(self, *lost: type[Exception]) -> Iterator[None]:
        try:
            yield
        except (RunError, KeyboardInterrupt):
            raise
        except BaseException as error:  # what Dask raises depends on when it finds out
            # Its status may follow later than the broken connection.
            if self._client.status == "running" and not isinstance(error, lost):
                raise
            raise RunError(
                f"The Dask scheduler at {self._scheduler} no longer answers. The grades so far are saved: "
                "restart the scheduler, and add --resume."
            ) from None


def _by_value(function: Any) -> Callable[..., dict[str, Any]]:
    """Return the function, as one that pickle finds in no module, so that its code is sent.

    A worker with another version of this file would make something else of its name.
    """
    copy = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, f"{function.__name__}_by_value")
    copy.__module__, copy.__qualname__ = "__main__", copy.__name__
    return copy


def _graded_there(submission, seed, secret, seconds, needed, sandboxed, needs_groups):
    # Plain data in, plain data out, and nothing of this module: see `_by_value`.
    import os

    import distributed

    worker = distributed.get_worker().address
    # Workers import JAX for the CPU, as it is here: evidence is exported for the CPU. Another thread may be importing
    # JAX at this moment; the import statement waits for it.
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
