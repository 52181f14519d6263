"""The same finding of several cases is said once."""

from grader.judging.merge import Seen, merge
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding


def seen(key, case, got):
    return Seen(key, case, Finding(FindingKind.WRONG_VALUE, "…", got=got))


def test_one_finding_has_the_figures_of_the_first_case_and_the_names_of_all():
    merged = merge([seen("a", "one", "1"), seen("b", "one", "2"), seen("a", "two", "3")])
    assert [(finding.got, finding.cases) for finding in merged] == [("1", ("one", "two")), ("2", ("one",))]


def test_nothing_that_was_seen_is_no_finding():
    assert merge([]) == []
