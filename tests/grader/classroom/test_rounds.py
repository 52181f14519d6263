"""Submissions are graded round-robin, slow ones last. One that ended a run or a process before is graded alone."""

import dataclasses
import itertools
import math
import random
import statistics
import types
from concurrent.futures import Future

import pytest

from grader.classroom import collect, control, executors, grade_class, run_folder
from grader.classroom.grade import Grade
from grader.isolation.limits import FOR_BATCH, TimedOut
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict


class Place:
    """An executor that grades immediately. `does` computes the result from a submission's text and its seconds. It
    records its calls and how many were pending."""

    losses = ()

    def __init__(self, does, ahead=3):
        self.does, self.ahead, self.set_aside = does, ahead, {}
        self.asked, self.waiting = [], 0

    def submit(self, submission, seed, secret, seconds):
        self.waiting += 1
        text = submission.content.decode()
        self.asked.append((submission.learner, text, seconds, self.waiting))
        future = Future()
        future.set_result((submission, seconds))
        return future

    def grade_of(self, future):
        self.waiting -= 1
        submission, seconds = future.result()
        found = self.does(submission.content.decode(), seconds)
        if isinstance(found, BaseException):
            raise found
        return Grade(submission.learner, submission.name, *found)


def late(seconds):
    error = TimedOut("…")
    error.seconds = seconds
    return error


PASSED = (Verdict("policy_from_rules", Outcome.PASSED, (), ("Right.",)),)


def unjudged(kind, seconds=0.0):
    return Verdict("policy_from_rules", Outcome.NOT_JUDGED, (Finding(kind, "It could not be judged."),)), "", seconds


@pytest.fixture
def handed_in(tmp_path):
    def handed_in(**learners):
        for learner, texts in learners.items():
            (tmp_path / "in" / learner).mkdir(parents=True)
            for number, text in enumerate(texts):
                (tmp_path / "in" / learner / f"{number}.py").write_text(text)
        return collect.collect(tmp_path / "in")

    return handed_in


@pytest.fixture
def graded(tmp_path):
    def graded(class_, place):
        run = run_folder.Run.resume(tmp_path / "out", 3, None, True)
        report, _ = grade_class.grade_class(class_, run, place)
        run.finish(report, False)
        return {(g.learner, g.name): g for g in [*report.grades, *report.others]}

    return graded


def test_every_learners_first_answer_comes_first_and_slow_answers_are_interrupted(handed_in, graded):
    class_ = handed_in(ada=["1", "5 long", "3"], ben=["40 long"], cy=["2"])

    def does(text, seconds):
        takes = float(text.split()[0]) / 10
        return late(seconds) if takes > seconds else (*PASSED, "", takes)

    place = Place(does, ahead=1)
    grades = graded(class_, place)
    asked = [(text, seconds) for _, text, seconds, _ in place.asked]
    assert {text for text, _ in asked[:3]} == {"1", "40 long", "2"}, "everybody's first answer"
    of_ben = [seconds for text, seconds in asked if text == "40 long"]
    assert of_ben[0] < 4 and all(later > 2 * seconds for seconds, later in itertools.pairwise(of_ben))
    assert asked[-1][0] == "40 long" and all(grade.verdict.passed for grade in grades.values()) and len(grades) == 5


def test_the_last_try_has_all_the_time_that_an_answer_may_have(handed_in, graded):
    place = Place(lambda text, seconds: late(seconds) if seconds < math.inf else PASSED, ahead=1)
    assert graded(handed_in(ada=["1"]), place)["ada", "0.py"].verdict.passed
    assert sum(seconds for _, _, seconds, _ in place.asked[:-1]) < FOR_BATCH.seconds
    assert [seconds for _, _, seconds, _ in place.asked].count(math.inf) == 1


def test_no_learner_is_graded_first_in_every_run(handed_in, tmp_path):
    class_ = handed_in(**{f"learner{number:02}": [str(number)] for number in range(30)})
    orders = []
    for number in range(2):
        run, place = run_folder.Run.begin(tmp_path / str(number), 3, None, True), Place(lambda *_: PASSED)
        grade_class.grade_class(class_, run, place)
        orders.append([learner for learner, _, _, _ in place.asked])
    assert sorted(orders[0]) == sorted(orders[1]) != orders[0] != orders[1]


def test_a_killed_answer_is_retried_alone_and_fails_only_if_that_repeats(handed_in, graded, tmp_path):
    class_ = handed_in(ada=["killed once"], ben=["killed"], cy=["1"], dee=["2"])
    killed, tries = unjudged(FindingKind.MACHINE), []

    def does(text, seconds):
        tries.append(text)
        return PASSED if text.isdigit() or (tries.count(text) > 1 and "once" in text) else killed

    place = Place(does)
    grades = graded(class_, place)
    assert [(text, waiting) for _, text, _, waiting in place.asked[4:]] in (
        [("killed once", 1), ("killed", 1)],
        [("killed", 1), ("killed once", 1)],
    )
    assert grades["ada", "0.py"].verdict.passed
    assert grades["ben", "0.py"].verdict.findings[0].kind == FindingKind.MACHINE
    again = Place(does)
    assert graded(class_, again) and again.asked == [], "both are kept"


def test_a_run_that_crashed_begins_with_the_others(handed_in, graded, tmp_path):
    class_ = handed_in(ada=["crashes"], ben=["1"], cy=["2"], dee=["3"])

    def does(text, seconds):
        return MemoryError() if text == "crashes" else PASSED

    asked = []
    for _ in range(2):
        with pytest.raises(MemoryError):  # any exception that ends the run
            graded(class_, place := Place(does, ahead=2))
        asked.append([(text, waiting) for _, text, _, waiting in place.asked])
    begun = {text for text, _ in asked[0]}
    assert "crashes" in begun and {text for text, _ in asked[1]} - begun == {"1", "2", "3"} - begun
    alone = asked[1][len({"1", "2", "3"} - begun) :]
    assert ("crashes", 1) in alone and all(waiting == 1 for _, waiting in alone), "last, and alone"
    assert all(grade.verdict.passed for grade in graded(class_, Place(lambda *_: PASSED)).values())
    assert not any((tmp_path / "out" / "begun").iterdir())


def test_an_answer_interrupted_before_a_crash_is_not_suspected_and_stays_charged(handed_in, graded, tmp_path):
    class_ = handed_in(**{f"learner{number}": [f"slow {number}"] for number in range(20)}, eve=["crashes"])

    def does(text, seconds):
        return late(seconds) if seconds < math.inf else MemoryError() if text == "crashes" else PASSED

    with pytest.raises(MemoryError):
        graded(class_, first := Place(does, ahead=2))
    tries = run_folder.Run.resume(tmp_path / "out", None, None, True).tries
    suspects = {digest for digest, each in tries.items() if each.interrupted}
    assert len(suspects) <= 2 < len(tries), "what was under way, no more"
    graded(class_, place := Place(lambda *_: PASSED, ahead=2))
    before = {text: seconds for _, text, seconds, _ in first.asked}
    assert all(seconds >= before[text] for _, text, seconds, _ in place.asked), "no try is made twice"


@pytest.mark.parametrize(
    "text", ["", '{"seconds": 1', "[]", '{"seconds": "x", "last": 0, "interrupted": 0, "alone": 0}']
)
def test_a_damaged_record_of_tries_does_not_end_the_run(handed_in, graded, tmp_path, text):
    class_ = handed_in(ada=["1"], ben=["2"])
    with pytest.raises(MemoryError):
        graded(class_, Place(lambda *_: MemoryError()))
    for record in (tmp_path / "out" / "begun").iterdir():
        record.write_text(text)
    assert all(grade.verdict.passed for grade in graded(class_, Place(lambda *_: PASSED)).values())


def test_an_unfit_machine_gets_no_more_work(handed_in, graded):
    class_, failures = (
        handed_in(ada=["1"], ben=["2"]),
        [executors.WorkerRejected("tcp://a"), executors.WorkerRejected("tcp://b")],
    )
    grades = graded(class_, Place(lambda *_: failures.pop() if failures else PASSED))
    assert all(grade.verdict.passed for grade in grades.values())


def test_answers_that_could_not_be_judged_can_be_regraded(handed_in, graded, tmp_path):
    class_ = handed_in(ada=["1"], ben=["2"])
    unlucky = unjudged(FindingKind.NOT_JUDGED)
    graded(class_, Place(lambda text, seconds: PASSED if text == "1" else unlucky))
    run = run_folder.Run.resume(tmp_path / "out", None, None, True)
    assert (run.forget(Outcome.NOT_JUDGED), run.forget(Outcome.NOT_JUDGED)) == (1, 0)
    grades = graded(class_, place := Place(lambda *_: PASSED))
    assert [text for _, text, _, _ in place.asked] == ["2"] and grades["ben", "0.py"].verdict.passed


def test_two_runs_do_not_write_into_one_folder(tmp_path):
    with (
        run_folder.locked(tmp_path / "out"),
        pytest.raises(run_folder.RunError, match=r"Another run is writing grades to .*out"),
        run_folder.locked(tmp_path / "out"),
    ):
        pass
    with run_folder.locked(tmp_path / "out"):
        pass


MANY = {f"learner{number:02}": [str(number)] for number in range(12)}


@pytest.mark.parametrize("kind", [FindingKind.NOT_JUDGED, FindingKind.MACHINE])
def test_a_machine_that_judges_nothing_stops_the_run_and_resume_grades_everything(handed_in, graded, kind):
    class_ = handed_in(**MANY)
    with pytest.raises(run_folder.RunError, match=r"5 answers in a row .* worked answer.*this machine.*--resume"):
        graded(class_, place := Place(lambda *_: unjudged(kind)))
    assert len(place.asked) < 12
    grades = graded(class_, again := Place(lambda *_: PASSED))
    assert sorted(text for _, text, _, _ in again.asked) == sorted(text for (text,) in MANY.values())
    assert len(grades) == 12 and all(grade.verdict.passed for grade in grades.values())


def test_hostile_answers_do_not_stop_the_run(handed_in, graded):
    class_ = handed_in(**MANY)
    worked = control.solution().decode()
    place = Place(lambda text, _: PASSED if text == worked else unjudged(FindingKind.NOT_JUDGED))
    assert len(graded(class_, place)) == 12
    assert sum(text == worked for _, text, _, _ in place.asked) == 12 // control.IN_A_ROW


def test_a_busy_machine_does_not_stop_the_run(handed_in, graded):
    worked = control.solution().decode()
    place = Place(lambda text, seconds: late(9) if text == worked else unjudged(FindingKind.NOT_JUDGED))
    assert len(graded(handed_in(**MANY), place)) == 12


# A class of 300. Honest answers take about half a second; hostile answers take all the time that they get.
HOSTILE = 60
CRASHES = 3  # interruptions of the run, at random times


class Clock:
    """A machine with a simulated clock that grades two answers at a time. `until`: the time at which the run is
    interrupted."""

    losses, ahead, set_aside = (), 2, {}

    def __init__(self, takes, monkeypatch):
        self.takes, self.now, self.until, self.free = takes, 0.0, math.inf, [0.0, 0.0]
        self.ends, self.graded = {}, {}
        monkeypatch.setattr(grade_class, "wait", self.wait)

    def submit(self, submission, seed, secret, seconds):
        # The default is the time of the control submission.
        whole = self.takes.get((submission.learner, submission.name), 0.3)
        begins = max(self.now, min(self.free))
        self.free[self.free.index(min(self.free))] = begins + min(whole, seconds)
        future = Future()
        self.ends[future] = begins + min(whole, seconds)
        future.set_result((submission, whole, seconds))
        return future

    def wait(self, pending, return_when):
        first = min(pending, key=self.ends.__getitem__)
        self.now = max(self.now, self.ends[first])
        if self.now > self.until:
            raise KeyboardInterrupt
        return types.SimpleNamespace(done=[first])

    def grade_of(self, future):
        submission, whole, seconds = future.result()
        if whole > seconds:
            raise late(seconds)
        self.graded.setdefault((submission.learner, submission.name), self.now)
        verdict = PASSED[0] if whole < 30 else unjudged(FindingKind.NOT_JUDGED)[0]
        return Grade(submission.learner, submission.name, verdict, seconds=whole)


@dataclasses.dataclass(frozen=True)
class InMemoryRun(run_folder.Run):
    """A run that saves nothing to disk: a simulation has tens of thousands of tries, and writing them would take most
    of its time."""

    grades: dict = dataclasses.field(default_factory=dict)

    def note(self, digest, tries):
        self.tries[digest] = tries

    def keep(self, digest, grade):
        self.tries.pop(digest, None)
        self.grades[digest] = dataclasses.replace(grade, digest=digest)
        return self.grades[digest]

    def grade_of(self, digest):
        return self.grades.get(digest)


def class_of(draw, kind):
    """Return the seconds that each answer takes, by learner and name."""
    takes = {}
    scale = 3.0 if kind == "slow" else 0.3
    for number in range(300 - HOSTILE):
        answers = draw.randrange(1, 5) if kind == "several answers" else 1
        takes |= {(f"honest{number}", f"{n}.py"): scale * draw.lognormvariate(0, 0.5) for n in range(answers)}
    return takes


def mean_wait(takes, folder, draw, crashes, monkeypatch):
    """Return the mean time at which honest learners' last answers are graded, and the order of all grades."""
    for learner, name in takes:
        (folder / "in" / learner).mkdir(parents=True, exist_ok=True)
        (folder / "in" / learner / name).touch()
    settings = {"seed": draw.getrandbits(63), "secret": draw.getrandbits(63), "exercise": None, "sandboxed": True}
    run = InMemoryRun(folder / "out", settings)
    clock, class_ = Clock(takes, monkeypatch), collect.collect(folder / "in")
    honest = [answer for answer in takes if answer[0].startswith("honest")]
    for moment in [*sorted(draw.uniform(0, 150) for _ in range(crashes)), math.inf]:
        clock.until, clock.free = moment, [clock.now] * 2
        try:
            report, _ = grade_class.grade_class(class_, run, clock)
        except KeyboardInterrupt:
            clock.now = moment
    assert {(grade.learner, grade.name) for grade in (*report.grades, *report.others)} == takes.keys()
    last = {}
    for learner, name in honest:
        last[learner] = max(last.get(learner, 0), clock.graded[learner, name])
    return statistics.mean(last.values()), list(clock.graded.items())


def hostile_answers(hostile, kind):
    """Return the seconds that each hostile answer takes, by learner and name."""
    scale, many = 3.0 if kind == "slow" else 0.3, 1 if hostile == "all the time" else 5
    # Answers that end just before the time limit would raise an average.
    seconds = [scale * 1.4 * 1.05**n if hostile == "just in time" else 60.0 for n in range(many)]
    return {(f"a hostile{number}", f"{n}.py"): seconds[n] for number in range(HOSTILE) for n in range(many)}


def waits(kind, hostile, seed, folder):
    """Return the mean wait without and with hostile learners, and the order of the grades with hostile learners."""
    honest, crashes = class_of(random.Random(seed), kind), CRASHES if seed % 2 else 0
    classes = {"alone": honest, "with hostile learners": honest | hostile_answers(hostile, kind)}
    with pytest.MonkeyPatch.context() as patch:
        (alone, _), (with_hostile, order) = (
            mean_wait(takes, folder / f"{kind} {hostile} {seed} {name}", random.Random(seed), crashes, patch)
            for name, takes in classes.items()
        )
    return alone, with_hostile, order


KINDS, HOSTILES = ["one answer", "several answers", "slow"], ["all the time", "many answers", "just in time"]


@pytest.mark.slow
@pytest.mark.parametrize("hostile", HOSTILES)
@pytest.mark.parametrize("kind", KINDS)
def test_honest_learners_wait_little_longer_in_each_of_thirty_classes(kind, hostile, tmp_path):
    ratios = []
    for seed in range(30):
        alone, with_hostile, _ = waits(kind, hostile, seed, tmp_path)
        ratios.append(with_hostile / alone)
    assert max(ratios) <= 1.5, sorted(ratios)[-5:]


@pytest.mark.slow
def test_the_order_of_grades_follows_from_the_secret_of_the_run(tmp_path):
    first, second = (waits("one answer", "many answers", 1, tmp_path / name) for name in "ab")
    assert first == second
