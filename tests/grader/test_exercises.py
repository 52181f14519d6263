"""Every exercise is complete, and each of its requirements is there for a reason."""

from pathlib import Path

import numpy as np
import pytest
from answers import Wrong, named, right, wrong

from grader import exercise
from grader.capture import capture
from grader.exercise import Question
from grader.judge import Trial

ROOT = Path(__file__).parents[2]


def test_an_exercise_is_four_things():
    """Page, worked answer, catalogue entry, and answers to test it with: none goes without the others."""
    pages = [path.stem.split("_", 1)[1] for path in ROOT.glob("exercises/[0-9][0-9]_*.ipynb")]
    assert sorted(pages) == exercise.names()
    assert sorted(path.stem for path in ROOT.glob("solutions/[!_]*.py")) == exercise.names()
    for kind in ("task", "expect"):
        assert sorted(path.parent.name for path in exercise.CATALOG.glob(f"*/{kind}.py")) == exercise.names()
    for kind in ("wrong", "right"):
        assert sorted(path.parent.name for path in ROOT.glob(f"tests/grader/*/{kind}.py")) == exercise.names()
    for slug in exercise.names():
        assert len(wrong(slug)) >= 5 and len(right(slug)) >= 3, slug


@pytest.mark.parametrize("slug", exercise.names())
def test_hints_are_questions_and_know_what_was_found(slug):
    """At least three; the first asks, and some fit only what is found of a wrong answer."""
    hints = exercise.expect(slug).hints
    assert len(hints) >= 3
    assert "?" in hints[0].text and not hints[0].after, "the first hint asks a question, whatever was found"
    assert not hints[-1].after, "what is nearly the answer helps whatever was found"
    found = {answer.kind for answer in wrong(slug).values()}
    assert any(hint.after for hint in hints)
    for hint in hints:
        assert not hint.after or found.intersection(hint.after), f"no wrong answer gets what {hint} is for"


@pytest.mark.parametrize("slug", exercise.names())
def test_an_answer_is_shown_at_the_pages_shapes_unless_it_is_plain_data(slug):
    task = exercise.task(slug)
    is_data = isinstance(task.cases(np.random.default_rng(0))[0], Question)
    assert (task.shown is None) == is_data
    assert is_data or {str(argument.dtype) for argument in task.shown.arguments} <= {"float32", "bool"}


@pytest.mark.parametrize("slug", exercise.names())
def test_no_requirement_is_decoration(slug, unpatched):
    """Without any one requirement, a wrong answer passes or is not told its mistake, or a right one its advice."""
    task, expect = exercise.task(slug), exercise.expect(slug)
    cases = task.cases(np.random.default_rng(3))
    if isinstance(cases[0], Question):
        # What is required of data are the questions: each has a wrong answer that fails in it alone.
        alone = {answer.cases for answer in wrong(slug).values()}
        assert {(question.name,) for question in cases} <= alone
        return
    advised = [Wrong(answer.answer, "no barrier", (), None) for answer in right(slug).values() if answer.advised]
    decoration = {(g, n) for g, (_, group) in enumerate(expect.requirements) for n in range(len(group))}
    for answer in [*advised, *wrong(slug).values()]:
        evidence = capture(answer.answer, slug, cases)
        if any(traced.failure for traced in evidence.cases):
            continue
        trial = Trial(evidence, cases, task, expect, seed=4)
        if named(answer, trial.findings(expect.requirements)[0]):
            decoration = {
                place for place in decoration if named(answer, trial.findings(without(expect.requirements, *place))[0])
            }
        if not decoration:
            return
    assert not decoration, decoration


def without(requirements, group, number):
    """The requirements but for one."""
    changed = [list(several) for _, several in requirements]
    del changed[group][number]
    return [(names, several) for (names, _), several in zip(requirements, changed, strict=True)]
