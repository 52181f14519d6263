"""Outcomes and kinds of findings are those of the enumerations, in the code and in its output."""

import ast
import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sample_answers import wrong

import grader
from grader.exercises import registry
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict

SOURCES = [path for path in Path(grader.__file__).parent.rglob("*.py") if path.name != "kinds.py"]
TREES = {path: ast.parse(path.read_text()) for path in SOURCES}


def members_used(enum) -> set[str]:
    attributes = (node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == enum.__name__}


@pytest.mark.parametrize("enum", [Outcome, FindingKind])
def test_every_member_is_made_somewhere_and_none_is_made_that_is_not_a_member(enum):
    assert members_used(enum) == set(enum.__members__)


@pytest.mark.parametrize(("name", "place"), [("Finding", 0), ("Verdict", 1)])
def test_no_finding_and_no_verdict_is_made_with_a_text_for_a_kind(name, place):
    calls = [
        (path, call)
        for path, tree in TREES.items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) == name
    ]
    assert len(calls) > 5
    for path, call in calls:
        given = [*call.args[place : place + 1], *(k.value for k in call.keywords if k.arg in ("kind", "outcome"))]
        assert not any(isinstance(each, ast.Constant) for each in given), (path, call.lineno)


@pytest.mark.parametrize("slug", registry.names())
def test_hints_and_test_answers_refer_to_existing_kinds(slug):
    named = {kind for hint in registry.expect(slug).feedback.hints.values() for kind in hint.on_kinds}
    named |= {answer.kind for answer in wrong(slug).values()}
    assert named <= set(FindingKind)


@pytest.mark.parametrize("enum", [Outcome, FindingKind])
def test_a_member_is_written_as_its_text(enum):
    with closing(sqlite3.connect(":memory:")) as file:
        for member in enum:
            row = file.execute("SELECT ?, typeof(?)", (member, member)).fetchone()
            assert row == (member.value, "text") and type(row[0]) is str
            assert json.loads(json.dumps(member)) == f"{member}" == member.value
            csv.writer(line := io.StringIO()).writerow([member])
            assert line.getvalue().strip() == member.value


def test_a_verdict_that_is_read_has_members():
    written = Verdict("policy_from_rules", Outcome.NOT_PASSED, (Finding(FindingKind.PEAK, "…"),)).to_dict()
    read = Verdict.from_dict(json.loads(json.dumps(written)))
    assert read.outcome is Outcome.NOT_PASSED and read.findings[0].kind is FindingKind.PEAK


def test_an_unknown_kind_of_finding_is_no_verdict():
    written = Verdict("policy_from_rules", Outcome.NOT_PASSED, (Finding(FindingKind.PEAK, "…"),)).to_dict()
    written["findings"][0]["kind"] = "peek"
    with pytest.raises(ValueError, match="'peek' is not a valid FindingKind"):
        Verdict.from_dict(written)
