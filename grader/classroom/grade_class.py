"""Grade all that a class handed in: each grade is written down when it is there, so that a run can be resumed.

Learners take turns, in an order that is drawn, and nobody waits for what takes long:

    first     everybody's answers, in a great hurry: what takes longer than most is put off
    then      what was put off, with some seconds each, and after that with all the time that there is; but only so
              much of it for one learner
    at last   what may have ended a run or a process before, one by one. What has ended a run alone is named in the
              report before it is tried once more, and not tried for ever
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Protocol

from grader.classroom.collect import Class, Listed, Refused, Submission
from grader.classroom.control import Control
from grader.classroom.executors import Unfit
from grader.classroom.grade import Grade
from grader.classroom.report import Report, completed
from grader.classroom.run_folder import Run
from grader.isolation.limits import Hurry, NotDone
from grader.verdicts.kinds import FindingKind, Outcome
from grader.verdicts.verdict import Finding, Verdict
from rematscope.render.progress import progress

LEARNERS_SECONDS = 300  # for one learner's answers that take long, all together


class Place(Protocol):
    """Where submissions are graded.

    Attributes:
      ahead: how many submissions are read, and handed over, before their grades are there.
      losses: what `grade_of` raises where a machine is gone.
      set_aside: machines that cannot grade, and why.
    """

    ahead: int
    losses: tuple[type[Exception], ...]
    set_aside: dict[str, str]

    def submit(self, submission: Submission, seed: int, secret: int, hurry: Hurry) -> Future:
        """Has a submission graded, see `SandboxGrader.grade`. Raises RunError if nobody is left to do it."""

    def grade_of(self, future: Future) -> Grade:
        """The grade that `submit` promised. Raises Unfit if another machine is to be asked, NotDone, `losses`."""


def grade_class(
    handed_in: Class, run: Run, place: Place, meanwhile: Callable[[Report], None] = lambda report: None
) -> tuple[Report, int]:
    """Grades what is not graded yet, and shows how far it is.

    Args:
      handed_in: what the class handed in.
      run: where grades are kept.
      place: where submissions are graded.
      meanwhile: is given a report with all rows before what has ended the run is tried again.

    Returns:
      The report, and how many submissions were lost. Their grades say so, and are not kept: whoever resumes the run
      grades them.

    Raises:
      RunError: nobody is left to grade, or grades cannot be written down.
    """
    exercise = run.settings["exercise"]
    there = handed_in.answers(exercise)
    graded = [_without(refused, refused.reason) for refused in there if isinstance(refused, Refused)]
    missing: list[Listed] = []
    for answer in there:
        if isinstance(answer, Listed):
            if found := run.grade_of(answer.digest):
                graded.append(found)
            else:
                missing.append(answer)

    def report(grades: Sequence[Grade]) -> Report:
        asked = [grade for grade in (*graded, *grades) if not _is_another_s(grade)]
        best = completed(
            asked, handed_in.learners, [exercise] if exercise else [], handed_in.learners, handed_in.unreadable
        )
        counted = set(map(id, best))
        others = sorted((g for g in asked if id(g) not in counted), key=lambda g: (g.learner, g.name, g.reason))
        settings = run.settings
        return Report(settings["seed"], settings["sandboxed"], best, others, handed_in.learners, run.picture_of)

    with progress(total=len(missing) or None) as tell:
        rounds = _Rounds(run, place, lambda count: tell(f"grading {count} of {len(missing)}", count))
        rounds.grade(missing, lambda grades: meanwhile(report(grades)))
    return report(rounds.graded), rounds.lost


def _is_another_s(grade: Grade) -> bool:
    return any(finding.kind == FindingKind.ANOTHER_EXERCISE for finding in grade.verdict.findings)


class _Rounds:
    """Grades answers in rounds.

    Attributes:
      graded: the grades.
      lost: how many of them are none, since machines were lost.
    """

    def __init__(self, run: Run, place: Place, tell: Callable[[int], None]):
        self.graded: list[Grade] = []
        self.lost = 0
        self._run, self._place, self._tell = run, place, tell
        self._spent: dict[str, float] = defaultdict(float)  # seconds, by learner
        self._control = Control(self._graded_now, run.forget_these)

    def grade(self, missing: Sequence[Listed], meanwhile: Callable[[Sequence[Grade]], None]) -> None:
        self._tell(0)
        times = self._run.suspects
        suspects = [answer for digest in times for answer in missing if answer.digest == digest]
        first = [answer for answer in missing if answer.digest not in times]
        killed: set[str] = set()
        slow = {answer.digest for answer in first}
        for hurry in sorted(Hurry, reverse=True):
            slow = self._round([answer for answer in first if answer.digest in slow], self._place.ahead, hurry, killed)
        alone = [*(answer for answer in first if answer.digest in killed), *suspects]
        for place, answer in enumerate(alone):
            if (ended := times.get(answer.digest, 0)) >= _TIMES_ALONE:
                self._add(self._run.keep(answer.digest, _ended_the_run(answer, ended)))
            else:
                if ended:
                    left = alone[place:]  # in the order of how often they did
                    meanwhile([*self.graded, *(_ended_the_run(each, times[each.digest]) for each in left)])
                self._round([answer], 1, Hurry.NONE, None)

    def _round(self, answers: Sequence[Listed], ahead: int, hurry: Hurry, killed: set[str] | None) -> set[str]:
        """Grades answers, learners taking turns, and returns what was not done in such a hurry, by digest.

        Args:
          answers: what to grade.
          ahead: how many to hand over before their grades are there.
          hurry: what takes longer is put off.
          killed: gets what was ended from outside, by digest, to be tried again; None where it is tried again, alone.
        """
        slow: set[str] = set()
        late: set[str] = set()  # learners
        pending: dict[Future, Listed] = {}
        gone: tuple[type[BaseException], ...] = (CancelledError, *self._place.losses)

        def take() -> None:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                answer = pending.pop(future)
                try:
                    grade = self._place.grade_of(future)
                except NotDone:
                    slow.add(answer.digest)
                    late.add(answer.learner)
                    self._run.put_off(answer.digest)
                except Unfit:
                    pending[submit(answer)] = answer
                except gone as error:
                    self.lost += 1
                    self._add(_without(answer, f"what was to grade it was lost ({type(error).__name__})"))
                else:
                    self._spent[answer.learner] += 0 if hurry is Hurry.GREAT else grade.seconds
                    if killed is not None and any(f.kind == FindingKind.MACHINE for f in grade.verdict.findings):
                        killed.add(answer.digest)
                        self._control.note(answer.digest, grade)
                    else:
                        self._add(self._run.keep(answer.digest, grade))
                        self._control.note(answer.digest, grade)

        def submit(answer: Listed) -> Future:
            self._run.begin_with(answer.digest, alone=killed is None)
            settings = self._run.settings
            return self._place.submit(answer.read(), settings["seed"], settings["secret"], hurry)

        try:
            for answer in _in_turns(answers, self._run.settings["secret"]):
                if len(pending) >= ahead:
                    take()
                if hurry is Hurry.SOME and answer.learner in late:
                    slow.add(answer.digest)  # one learner's, however many, do not hold up what others have put off
                elif self._spent[answer.learner] > LEARNERS_SECONDS:
                    self._add(self._run.keep(answer.digest, _without(answer, _SPENT)))
                else:
                    pending[submit(answer)] = answer
            while pending:
                take()
        finally:
            for future in pending:
                future.cancel()
        return slow

    def _graded_now(self, submission: Submission) -> Grade | None:
        settings = self._run.settings
        says_nothing: tuple[type[BaseException], ...] = (NotDone, CancelledError, *self._place.losses)
        while True:
            promised = self._place.submit(submission, settings["seed"], settings["secret"], Hurry.SOME)
            try:
                return self._place.grade_of(promised)
            except Unfit:
                continue
            except says_nothing:  # hostile answers can keep the processors busy
                return None

    def _add(self, grade: Grade) -> None:
        self.graded.append(grade)
        self._tell(len(self.graded))


# What ended the run this often while nothing else was graded is not tried again. Nobody knows that it was the reason:
# a run may be ended from outside, and then seldom three times for the same answer.
_TIMES_ALONE = 3
_SPENT = f"this learner's answers before it took more than {LEARNERS_SECONDS} s"


def _in_turns(answers: Sequence[Listed], secret: int) -> Iterator[Listed]:
    """Everybody's first answer, then everybody's second, and so on.

    In an order that nobody can know: hostile answers would all come first otherwise, under names that do.
    """
    of_learners: dict[str, list[Listed]] = defaultdict(list)
    for answer in answers:
        of_learners[answer.learner].append(answer)
    learners = sorted(of_learners)
    random.Random(secret).shuffle(learners)
    for place in range(max(map(len, of_learners.values()), default=0)):
        yield from (of_learners[learner][place] for learner in learners if place < len(of_learners[learner]))


def _without(answer: Listed | Refused, reason: str, kind: FindingKind = FindingKind.NOT_JUDGED) -> Grade:
    finding = Finding(kind, f"{answer.name or 'This'} could not be judged: {reason}.")
    return Grade(answer.learner, answer.name, Verdict(answer.exercise or "", Outcome.NOT_JUDGED, (finding,)))


def _ended_the_run(answer: Listed, times: int) -> Grade:
    again = "once" if times == 1 else f"{times} times"
    reason = f"the run ended {again} while it was graded, and nothing else was"
    return _without(answer, reason, FindingKind.MACHINE)
