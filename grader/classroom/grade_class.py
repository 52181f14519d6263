"""Grade a class. Each grade is saved as soon as it is known, so that a run can be resumed.

The next answer is from the learner who has used the least grading time. This time includes half of the limit of the
learner's next try. The seconds of every try are charged to the learner, and a try that exceeds its limit is stopped:

    the first try    may take 1.35 times as long as the slowest answer of the median learner. Each learner has one
                     vote, so the answers of a hostile minority hardly raise the median.
    later tries      may each take 2.5 times as long as the previous one. When this is more than a quarter of the
                     limits of an answer, the next try may take up to these limits.

An answer that was being graded when a run or its process ended is graded alone: no other answer is graded at the same
time. If three runs end while the answer is graded alone, it is not tried again.
"""

import itertools
import math
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import replace

from grader.classroom.collect import Class, Listed, NotGraded, Refused, Submission
from grader.classroom.control import Control
from grader.classroom.executors import Cluster, LocalExecutor, WorkerRejected
from grader.classroom.grade import Grade
from grader.classroom.report import Report, complete_grades
from grader.classroom.run_folder import Run, Tries
from grader.classroom.seeds import number
from grader.isolation.limits import FOR_BATCH, TimedOut
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict
from rematscope.render import progress_bar

_FIRST_SECONDS = 1.0  # the limit of a first try before any answer has been graded
_TIMES_THE_MEDIAN = 1.35
_TIMES_THE_LAST_TRY = 2.5
# Runs that may end while an answer is graded alone; killing runs from outside rarely hits one answer 3 times.
_RUNS_ENDED = 3
_SECONDS_BETWEEN_REPORTS = 600
_CONTROL_SECONDS = 8.0  # the time limit of a worked answer


def grade_class(
    handed_in: Class,
    run: Run,
    place: LocalExecutor | Cluster,
    meanwhile: Callable[[Report], None] = lambda report: None,
) -> tuple[Report, int]:
    """Grade the answers that have no grade yet, and show a progress bar.

    Args:
      handed_in: the submissions of the class.
      run: the run folder, where grades are saved.
      place: the place where submissions are graded.
      meanwhile: a function that is called with a report every 10 minutes, and before an answer is graded again that was
        being graded when a run ended. The report has a row for every answer.

    Returns:
      The report, and the number of submissions that were lost with a machine. Their grades say so and are not saved, so
      a resumed run grades them.

    Raises:
      RunError: if no machine is left, or if grades cannot be saved.
    """
    exercise = run.settings["exercise"]
    there = handed_in.answers(exercise)
    graded = [_grade_without_verdict(refused, refused.reason) for refused in there if isinstance(refused, Refused)]
    not_graded = [*handed_in.not_graded, *(each for each in there if isinstance(each, NotGraded))]
    missing: list[Listed] = []
    for answer in there:
        if isinstance(answer, Listed):
            if found := run.grade_of(answer.digest):
                graded.append(found)
            else:
                missing.append(answer)

    def report(grades: Sequence[Grade]) -> Report:
        every = [*graded, *grades]
        to_others = [
            NotGraded(grade.learner, grade.name, grade.reason) for grade in every if _answers_another_exercise(grade)
        ]
        asked, without = [grade for grade in every if not _answers_another_exercise(grade)], [*not_graded, *to_others]
        best = complete_grades(asked, handed_in.learners, [exercise] if exercise else [], without, handed_in.unreadable)
        counted = set(map(id, best))
        others = sorted((g for g in asked if id(g) not in counted), key=lambda g: (g.learner, g.name, g.reason))
        settings = run.settings
        return Report(settings["seed"], settings["sandboxed"], best, others, without, run.picture_of)

    with progress_bar(total=len(missing) or None) as tell:
        turns = _Turns(run, place, graded, lambda count: tell(f"grading {count} of {len(missing)}", count))
        turns.grade(missing, lambda grades: meanwhile(report(grades)))
    return report(turns.graded), turns.lost


def _answers_another_exercise(grade: Grade) -> bool:
    return any(finding.kind == FindingKind.ANOTHER_EXERCISE for finding in grade.verdict.findings)


class _Turns:
    """Grades answers, starting with the learner who has used the least grading time.

    Attributes:
      graded: the grades so far.
      lost: the number of submissions without a verdict because a machine was lost.
    """

    def __init__(self, run: Run, place: LocalExecutor | Cluster, before: Sequence[Grade], tell: Callable[[int], None]):
        self.graded: list[Grade] = []
        self.lost = 0
        self._run, self._place, self._tell = run, place, tell
        self._tries = defaultdict(Tries, run.tries)  # by digest
        self._waiting: dict[str, deque[Listed]] = {}  # by learner
        self._pending: dict[Future, Listed] = {}
        self._served: dict[str, float] = defaultdict(float)  # seconds, by learner
        self._longest: dict[str, float] = defaultdict(float)  # seconds that an answer took, by learner
        self._first = _FIRST_SECONDS  # of an answer's first try
        self._control = Control(self._grade_control, run.forget_these)
        for grade in before:
            self._charge_learner(grade)

    def grade(self, missing: Sequence[Listed], meanwhile: Callable[[Sequence[Grade]], None]) -> None:
        self._tell(0)
        # The order is random, because hostile learners could otherwise choose names that come first.
        secret = self._run.settings["secret"]
        learners = sorted({answer.learner for answer in missing}, key=lambda learner: number(secret, learner))
        self._waiting = {learner: deque() for learner in learners}
        for answer in missing:
            self._waiting[answer.learner].append(answer)
            self._served[answer.learner] += self._tries[answer.digest].seconds
        reported = time.monotonic()
        try:
            while self._waiting or self._pending:
                if (chosen := self._next_answer()) is None:
                    self._take_result()
                    continue
                if self._tries[chosen.digest].alone or time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS:
                    meanwhile([*self.graded, *self._provisional_grades()])
                    reported = time.monotonic()
                self._begin_try(chosen)
        finally:
            for future in self._pending:
                future.cancel()

    def _next_answer(self) -> Listed | None:
        """Return the answer to grade next; None if the run must first wait for an answer that is being graded."""
        if not self._waiting or any(self._tries[answer.digest].alone for answer in self._pending.values()):
            return None
        votes = self._longest.values()
        self._first = _TIMES_THE_MEDIAN * statistics.median(votes) if votes else _FIRST_SECONDS
        answer = min((answers[0] for answers in self._waiting.values()), key=self._expected_service)
        most = 1 if self._tries[answer.digest].interrupted else self._place.ahead
        return answer if len(self._pending) < most else None

    def _expected_service(self, answer: Listed) -> float:
        """Return the learner's grading time in seconds, including half of the limit of this answer's next try."""
        return self._served[answer.learner] + self._seconds_for_next_try(self._tries[answer.digest]) / 2

    def _seconds_for_next_try(self, before: Tries) -> float:
        """Return the time limit of an answer's next try in seconds."""
        seconds = max(self._first, before.last * (1 if before.interrupted else _TIMES_THE_LAST_TRY))
        return seconds if 4 * seconds < FOR_BATCH.seconds else FOR_BATCH.seconds

    def _begin_try(self, answer: Listed) -> None:
        self._waiting[answer.learner].popleft()
        if not self._waiting[answer.learner]:
            del self._waiting[answer.learner]
        before = self._tries[answer.digest]
        if before.alone >= _RUNS_ENDED:
            self._add_grade(self._run.keep(answer.digest, _run_ended_grade(answer, before.alone)))
            return
        # The limit is charged now, so that the next run knows about it if this run ends. It is corrected after the try.
        seconds, alone = self._seconds_for_next_try(before), before.alone + before.interrupted
        self._note_tries(answer, Tries(before.seconds + seconds, seconds, interrupted=True, alone=alone))
        self._submit_answer(answer)

    def _submit_answer(self, answer: Listed) -> None:
        seconds, settings = self._tries[answer.digest].last, self._run.settings
        # At the full limit, the answer's own limits also give the reason.
        limit = seconds if seconds < FOR_BATCH.seconds else math.inf
        self._pending[self._place.submit(answer.read(), settings["seed"], settings["secret"], limit)] = answer

    def _take_result(self) -> None:
        """Wait until a try ends, and record its result."""
        gone: tuple[type[BaseException], ...] = (CancelledError, *self._place.losses)
        for future in wait(self._pending, return_when=FIRST_COMPLETED).done:
            answer = self._pending.pop(future)
            tries = self._tries[answer.digest]
            before = tries.seconds - tries.last
            try:
                grade = self._place.grade_of(future)
            except TimedOut as error:
                self._longest[answer.learner] = max(self._longest[answer.learner], tries.last)
                self._put_back(answer, Tries(before + error.seconds, tries.last))
            except WorkerRejected:
                self._submit_answer(answer)
            except gone as error:
                self.lost += 1
                self._add_grade(
                    _grade_without_verdict(answer, f"the machine that graded it failed ({type(error).__name__})")
                )
            else:
                grade = replace(grade, seconds=before + grade.seconds)
                killed = any(finding.kind == FindingKind.MACHINE for finding in grade.verdict.findings)
                if killed and not tries.alone:
                    self._put_back(answer, Tries(grade.seconds, tries.last, interrupted=True))
                else:
                    self._served[answer.learner] -= tries.seconds
                    self._charge_learner(grade)
                    self._add_grade(self._run.keep(answer.digest, grade))
                self._control.note(answer.digest, grade)

    def _grade_control(self, submission: Submission) -> Grade | None:
        settings = self._run.settings
        says_nothing: tuple[type[BaseException], ...] = (TimedOut, CancelledError, *self._place.losses)
        while True:
            promised = self._place.submit(submission, settings["seed"], settings["secret"], _CONTROL_SECONDS)
            try:
                return self._place.grade_of(promised)
            except WorkerRejected:
                continue
            except says_nothing:  # hostile answers can keep the processors busy
                return None

    def _put_back(self, answer: Listed, tries: Tries) -> None:
        self._note_tries(answer, tries)
        self._waiting.setdefault(answer.learner, deque()).append(answer)  # retried after the learner's other answers

    def _note_tries(self, answer: Listed, tries: Tries) -> None:
        self._served[answer.learner] += tries.seconds - self._tries[answer.digest].seconds
        self._tries[answer.digest] = tries
        self._run.note(answer.digest, tries)

    def _charge_learner(self, grade: Grade) -> None:
        self._served[grade.learner] += grade.seconds
        # Pages without an answer would lower the median.
        if grade.verdict.outcome in (Outcome.PASSED, Outcome.NOT_PASSED):
            self._longest[grade.learner] = max(self._longest[grade.learner], grade.seconds)

    def _provisional_grades(self) -> Iterator[Grade]:
        """Yield provisional grades for the answers that have no grade yet."""
        for answer in itertools.chain(*self._waiting.values(), self._pending.values()):
            ended = self._tries[answer.digest].alone
            yield (
                _run_ended_grade(answer, ended)
                if ended
                else _grade_without_verdict(answer, "the run has not graded it yet")
            )

    def _add_grade(self, grade: Grade) -> None:
        self.graded.append(grade)
        self._tell(len(self.graded))


def _grade_without_verdict(answer: Listed | Refused, reason: str, kind: FindingKind = FindingKind.NOT_JUDGED) -> Grade:
    finding = Finding(kind, f"{answer.name or 'This'} could not be judged: {reason}.")
    return Grade(answer.learner, answer.name, Verdict(answer.exercise or "", Outcome.NOT_JUDGED, (finding,)))


def _run_ended_grade(answer: Listed, times: int) -> Grade:
    often = "once" if times == 1 else f"{times} times"
    reason = f"the run ended {often} while grading only this answer"
    return _grade_without_verdict(answer, reason, FindingKind.MACHINE)
