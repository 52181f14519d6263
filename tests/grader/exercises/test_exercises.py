"""Every exercise is complete."""

from pathlib import Path

import numpy as np
import pytest
from sample_answers import right, wrong

from grader.exercises import registry
from grader.exercises.feedback import common_hints
from grader.exercises.spec import Question

ROOT = Path(__file__).parents[3]


def test_an_exercise_is_four_things():
    """An exercise has a page, a worked answer, a catalogue entry and answers to test it with; none may be missing."""
    names = list(registry.names())
    pages = [path.stem.split("_", 1)[1] for path in ROOT.glob("exercises/[0-9][0-9]_*.ipynb")]
    assert sorted(pages) == names
    assert sorted(path.stem for path in ROOT.glob("solutions/[!_]*.py")) == names
    for file in ("task.py", "expect.py", "feedback.toml"):
        assert sorted(path.parent.name for path in registry.CATALOG.glob(f"*/{file}")) == names
    for kind in ("wrong", "right"):
        assert sorted(path.parent.name for path in ROOT.glob(f"tests/grader/catalog/*/{kind}.py")) == names
    for slug in names:
        assert len(wrong(slug)) >= 5 and len(right(slug)) >= 3, slug


THINGS = {
    "page": "exercises/[0-9][0-9]_*.ipynb",
    "worked answer": "solutions/[!_]*.py",
    "catalogue entry": "grader/catalog/[!_]*/*.[pt]*",
    "answers to test it with": "tests/grader/catalog/[!_]*/*.*",
}


@pytest.mark.parametrize("thing", THINGS)
def test_nothing_of_an_exercise_is_still_a_stub(thing):
    """`python -m grader new` writes stubs."""
    lines = [(path, line) for path in sorted(ROOT.glob(THINGS[thing])) for line in path.read_text().splitlines()]
    left = [f"{path.relative_to(ROOT)}: {line.partition('STUB: ')[2]}" for path, line in lines if "STUB: " in line]
    assert not left, "to be written, and then the mark STUB is to go:\n" + "\n".join(left)


@pytest.mark.parametrize("slug", registry.names())
def test_hints_are_questions_and_depend_on_the_findings(slug):
    """There are at least three hints. The first is a question, and some apply only to certain findings."""
    named = registry.expect(slug).feedback.hints
    hints = list(named.values())
    assert len(hints) >= 3
    assert "?" in hints[0].text and not hints[0].on_kinds, "the first hint asks a question, whatever was found"
    assert sum(not hint.on_kinds for hint in hints) > 1, "what is nearly the answer helps whatever was found"
    found = {answer.kind for answer in wrong(slug).values()}
    assert any(hint.on_kinds for hint in hints)
    for hint in [hint for key, hint in named.items() if key not in common_hints()]:
        assert not hint.on_kinds or found.intersection(hint.on_kinds), f"no wrong answer gets what {hint} is for"
    for name, answer in wrong(slug).items():
        assert answer.hints and named.keys() >= {*answer.hints}, f"{name} names no hint of the exercise: {answer.hints}"


@pytest.mark.parametrize("slug", registry.names())
def test_an_answer_is_shown_at_the_pages_shapes_unless_it_is_plain_data(slug):
    task = registry.task(slug)
    is_data = isinstance(task.cases(np.random.default_rng(0))[0], Question)
    assert (task.shown is None) == is_data
    assert is_data or {str(argument.dtype) for argument in task.shown.arguments} <= {"float32", "bool"}
