"""A finding that several cases share is reported once."""

from grader.exercises.spec import Question
from grader.judging.findings import CaseFinding, all_right, group_findings
from grader.verdicts.verdict import Finding, FindingKind


def seen(key, case, got):
    return CaseFinding(key, case, Finding(FindingKind.WRONG_VALUE, "…", got=got))


def test_one_finding_has_the_figures_of_the_first_case_and_the_names_of_all():
    merged = group_findings([seen("a", "one", "1"), seen("b", "one", "2"), seen("a", "two", "3")])
    assert [(finding.got, finding.cases) for finding in merged] == [("1", ("one", "two")), ("2", ("one",))]


def test_of_few_questions_all_are_named_and_of_many_they_are_counted():
    assert [finding.cases for finding in group_findings([seen("a", "3", ""), seen("a", "5", "")], of=9)] == [("3", "5")]
    merged = group_findings([seen("a", "3", "x"), seen("b", "4", ""), seen("a", "5", "y")], of=50)
    assert [finding.cases for finding in merged] == [("2 of 50 questions, the first: 3",), ("1 of 50 questions: 4",)]
    assert merged[0].got == "x"


def test_many_questions_are_not_listed_if_all_are_right():
    questions = [Question(str(n), (n,)) for n in range(50)]
    assert all_right(questions[:3]) == "Right for 0, 1, 2." and all_right(questions) == "Right for all 50 questions."


def test_without_findings_in_cases_there_is_no_finding():
    assert group_findings([]) == []
