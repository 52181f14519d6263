"""Learners take turns, what takes long comes last, and what ended a run or a process before comes alone."""

from concurrent.futures import Future

import pytest

from grader.classroom import collect, control, executors, grade_class, run_folder
from grader.classroom.grade import Grade
from grader.isolation.limits import Hurry, NotDone
from grader.verdicts.kinds import FindingKind, Outcome
from grader.verdicts.verdict import Finding, Verdict


class Place:
    """Grades at once; `does` says how, by the text of a submission. Notes what it was asked, and how much at a time."""

    losses = ()

    def __init__(self, does, ahead=3):
        self.does, self.ahead, self.set_aside = does, ahead, {}
        self.asked, self.waiting = [], 0

    def submit(self, submission, seed, secret, hurry):
        self.waiting += 1
        text = submission.content.decode()
        self.asked.append((submission.learner, text, hurry, self.waiting))
        future = Future()
        future.set_result((submission, hurry))
        return future

    def grade_of(self, future):
        self.waiting -= 1
        submission, hurry = future.result()
        found = self.does(submission.content.decode(), hurry)
        if isinstance(found, BaseException):
            raise found
        return Grade(submission.learner, submission.name, *found)


PASSED = (Verdict("either", Outcome.PASSED, (), ("Right.",)),)


def unjudged(kind, seconds=0.0):
    return Verdict("either", Outcome.NOT_JUDGED, (Finding(kind, "It could not be judged."),)), "", seconds


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


def test_learners_take_turns_and_nobody_waits_for_what_takes_long(handed_in, graded):
    class_ = handed_in(ada=["1", "slow 2", "3"], ben=["very slow 4"], cy=["5"])
    patience = {"slow": Hurry.SOME, "very": Hurry.NONE}
    place = Place(lambda text, hurry: NotDone("…") if hurry > patience.get(text.split()[0], hurry) else PASSED)
    grades = graded(class_, place)
    asked = [(text, hurry) for _, text, hurry, _ in place.asked]
    great, some, none = sorted(Hurry, reverse=True)
    assert {*asked[:3]} == {("1", great), ("very slow 4", great), ("5", great)}, "everybody's first answer"
    assert asked[3:5] == [("slow 2", great), ("3", great)]
    assert sorted(asked[5:-1]) == [("slow 2", some), ("very slow 4", some)] and asked[-1] == ("very slow 4", none)
    assert len(grades) == 5 and all(grade.verdict.passed for grade in grades.values())


def test_no_name_comes_first_in_every_run(handed_in, tmp_path):
    class_ = handed_in(**{f"learner{number:02}": [str(number)] for number in range(30)})
    orders = []
    for number in range(2):
        run, place = run_folder.Run.begin(tmp_path / str(number), 3, None, True), Place(lambda *_: PASSED)
        grade_class.grade_class(class_, run, place)
        orders.append([learner for learner, _, _, _ in place.asked])
    assert sorted(orders[0]) == sorted(orders[1]) != orders[0] != orders[1]


def test_one_learner_has_so_much_time_and_no_more(handed_in, graded):
    class_ = handed_in(ada=[f"slow {n}" for n in range(40)], ben=["slow"])
    long = unjudged(FindingKind.NOT_JUDGED, seconds=60)
    place = Place(lambda text, hurry: NotDone("…") if hurry else long, ahead=1)
    grades = graded(class_, place)
    some = [learner for learner, _, hurry, _ in place.asked if learner and hurry is Hurry.SOME]  # "" has the control
    assert sorted(some) == ["ada", "ben"], "whose first one takes long has no more of them tried before others'"
    tried = [learner for learner, _, hurry, _ in place.asked if not hurry]
    assert tried.count("ada") == grade_class.LEARNERS_SECONDS / 60 + 1 and tried.count("ben") == 1
    assert sum("more than 300 s" in grade.reason for grade in grades.values()) == 40 - tried.count("ada")


def test_what_was_killed_is_tried_again_alone_and_kept_only_if_that_repeats(handed_in, graded, tmp_path):
    class_ = handed_in(ada=["killed once"], ben=["killed"], cy=["1"], dee=["2"])
    killed, tries = unjudged(FindingKind.MACHINE), []

    def does(text, hurry):
        tries.append(text)
        return PASSED if text.isdigit() or (tries.count(text) > 1 and "once" in text) else killed

    place = Place(does)
    grades = graded(class_, place)
    assert [(text, waiting) for _, text, _, waiting in place.asked[4:]] == [("killed once", 1), ("killed", 1)]
    assert grades["ada", "0.py"].verdict.passed
    assert grades["ben", "0.py"].verdict.findings[0].kind == FindingKind.MACHINE
    again = Place(does)
    assert graded(class_, again) and again.asked == [], "both are kept"


def test_a_run_that_crashed_begins_with_the_others(handed_in, graded, tmp_path):
    class_ = handed_in(ada=["crashes"], ben=["1"], cy=["2"], dee=["3"])

    def does(text, hurry):
        return MemoryError() if text == "crashes" else PASSED

    asked = []
    for _ in range(2):
        with pytest.raises(MemoryError):  # whatever ends the run
            graded(class_, place := Place(does, ahead=2))
        asked.append([(text, waiting) for _, text, _, waiting in place.asked])
    begun = {text for text, _ in asked[0]}
    assert "crashes" in begun and {text for text, _ in asked[1]} - begun == {"1", "2", "3"} - begun
    alone = asked[1][len({"1", "2", "3"} - begun) :]
    assert ("crashes", 1) in alone and all(waiting == 1 for _, waiting in alone), "last, and alone"
    assert all(grade.verdict.passed for grade in graded(class_, Place(lambda *_: PASSED)).values())
    assert not any((tmp_path / "out" / "begun").iterdir())


def test_what_was_put_off_when_a_run_crashed_is_no_suspect(handed_in, graded, tmp_path):
    class_ = handed_in(**{f"learner{number}": [f"slow {number}"] for number in range(20)}, eve=["crashes"])

    def does(text, hurry):
        return NotDone("…") if hurry is Hurry.GREAT else MemoryError() if text == "crashes" else PASSED

    with pytest.raises(MemoryError):
        graded(class_, Place(does, ahead=2))
    assert len(run_folder.Run.resume(tmp_path / "out", None, None, True).suspects) <= 2, "what was in flight, no more"
    graded(class_, place := Place(lambda *_: PASSED, ahead=2))
    assert sum(hurry is Hurry.NONE for _, _, hurry, _ in place.asked) <= 2


def test_an_unfit_machine_is_asked_no_more(handed_in, graded):
    class_, failures = handed_in(ada=["1"], ben=["2"]), [executors.Unfit("tcp://a"), executors.Unfit("tcp://b")]
    grades = graded(class_, Place(lambda *_: failures.pop() if failures else PASSED))
    assert all(grade.verdict.passed for grade in grades.values())


def test_what_could_not_be_judged_can_be_graded_anew(handed_in, graded, tmp_path):
    class_ = handed_in(ada=["1"], ben=["2"])
    unlucky = unjudged(FindingKind.NOT_JUDGED)
    graded(class_, Place(lambda text, hurry: PASSED if text == "1" else unlucky))
    run = run_folder.Run.resume(tmp_path / "out", None, None, True)
    assert (run.forget(Outcome.NOT_JUDGED), run.forget(Outcome.NOT_JUDGED)) == (1, 0)
    grades = graded(class_, place := Place(lambda *_: PASSED))
    assert [text for _, text, _, _ in place.asked] == ["2"] and grades["ben", "0.py"].verdict.passed


def test_two_runs_do_not_write_into_one_folder(tmp_path):
    with (
        run_folder.locked(tmp_path / "out"),
        pytest.raises(run_folder.RunError, match=r"Another run is grading into .*out: wait"),
        run_folder.locked(tmp_path / "out"),
    ):
        pass
    with run_folder.locked(tmp_path / "out"):
        pass


MANY = {f"learner{number:02}": [str(number)] for number in range(12)}


@pytest.mark.parametrize("kind", [FindingKind.NOT_JUDGED, FindingKind.MACHINE])
def test_a_machine_that_judges_nothing_stops_the_run_and_resume_grades_everything(handed_in, graded, kind):
    class_ = handed_in(**MANY)
    with pytest.raises(run_folder.RunError, match=r"5 answers in a row .* worked solution.*this machine.*--resume"):
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
    place = Place(lambda text, hurry: NotDone("…") if hurry is Hurry.SOME else unjudged(FindingKind.NOT_JUDGED))
    assert len(graded(handed_in(**MANY), place)) == 12
