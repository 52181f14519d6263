"""Grade all that a class handed in: each grade is written down when it is there, so that a run can be resumed."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait

from grader.classroom.collect import Class, Refused, Submission
from grader.classroom.grade import Grade
from grader.classroom.report import Report, completed
from grader.classroom.run_folder import Run
from grader.verdicts.kinds import FindingKind, Outcome
from grader.verdicts.verdict import Finding, Verdict
from rematscope.render.progress import progress


def grade_class(
    handed_in: Class,
    run: Run,
    executor: Executor,
    ahead: int,
    grade: Callable[[Submission, int, int], Grade],
    losses: tuple[type[Exception], ...] = (),
) -> tuple[Report, int]:
    """Grades what is not graded yet, and shows how far it is.

    What was being graded when the run ended before its time comes last, one after the other, while nothing else is
    graded, and last of all what was begun last: if one of these ends each run, all others get their grades.

    Args:
      handed_in: what the class handed in.
      run: where grades are kept.
      executor: what calls `grade`.
      ahead: how many submissions are read, and handed to the executor, before their grades are there.
      grade: grades a submission with a seed and a secret, see `seeds`.
      losses: what the executor raises for a submission whose machine is gone.

    Returns:
      The report, and how many submissions were lost. Their grades say so, and are not kept: whoever resumes the run
      grades them.
    """
    seed, exercise = run.settings["seed"], run.settings["exercise"]
    graded: list[Grade] = []
    pending: dict[Future, Submission] = {}
    gone: tuple[type[BaseException], ...] = (CancelledError, *losses)
    lost = taken = 0

    def take(done: Iterable[Future]):
        nonlocal lost, taken
        for future in done:
            submission = pending.pop(future)
            try:
                found = run.keep(submission, future.result())
            except gone as error:
                lost += 1
                found = _without(submission, f"what was to grade it was lost ({type(error).__name__})")
            graded.append(found)
            taken += 1
            tell(f"grading {taken} of {missing}", taken)

    def wait_for(left: int):
        while len(pending) > left:
            take(wait(pending, return_when=FIRST_COMPLETED).done)

    def begin(submission: Submission, at_once: int):
        wait_for(at_once - 1)
        run.begin_with(submission)
        pending[executor.submit(grade, submission, seed, run.settings["secret"])] = submission

    suspects: list[Submission] = []
    missing = sum(isinstance(s, Submission) and run.grade_of(s) is None for s in handed_in.submissions(exercise))
    with progress(total=missing or None) as tell:
        tell(f"grading 0 of {missing}", 0)
        try:
            for submission in handed_in.submissions(exercise):
                if isinstance(submission, Refused):
                    graded.append(_without(submission, submission.reason))
                elif found := run.grade_of(submission):
                    graded.append(found)
                elif submission.digest in run.suspects:
                    suspects.append(submission)
                else:
                    begin(submission, ahead)
            for submission in sorted(suspects, key=lambda submission: run.suspects.index(submission.digest)):
                begin(submission, at_once=1)
            wait_for(0)
        finally:
            for future in pending:
                future.cancel()
    graded = [
        grade for grade in graded if not any(f.kind == FindingKind.ANOTHER_EXERCISE for f in grade.verdict.findings)
    ]
    best = completed(graded, handed_in.learners, [exercise] if exercise else [], handed_in.learners)
    counted = set(map(id, best))
    others = sorted((g for g in graded if id(g) not in counted), key=lambda g: (g.learner, g.name, g.reason))
    return Report(seed, run.settings["sandboxed"], best, others, handed_in.learners, run.picture_of), lost


def _without(submission: Submission | Refused, reason: str) -> Grade:
    finding = Finding(FindingKind.NOT_JUDGED, f"{submission.name or 'This'} could not be judged: {reason}.")
    return Grade(
        submission.learner, submission.name, Verdict(submission.exercise or "", Outcome.NOT_JUDGED, (finding,))
    )
