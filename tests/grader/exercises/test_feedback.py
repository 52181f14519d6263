"""The choice of the next hint takes the findings into account."""

import pytest

from grader.exercises.feedback import Hint, next_hint
from grader.verdicts.verdict import Finding

HINTS = (Hint("Where to begin?"), Hint("Too much?", on_kinds=("also saved",)), Hint("And then?"), Hint("Nearly."))


@pytest.mark.parametrize(
    ("kinds", "given", "index"),
    [
        ([], [], 0),
        ([], [0], 2),
        (["also saved"], [], 1),
        (["also saved"], [1], 0),
        (["wrong value", "also saved"], [0], 1),
        (["recomputes"], [0, 2, 3], None),
        (["also saved"], [0, 2, 3], 1),
        (["also saved"], [0, 1, 2, 3], None),
    ],
)
def test_the_next_hint_knows_the_last_findings(kinds, given, index):
    assert next_hint(dict(enumerate(HINTS)), [Finding(kind, "…") for kind in kinds], given) == index


@pytest.mark.parametrize(
    ("found", "order"),
    [
        ([], [0, 4]),
        ([Finding("also saved", "saves a mask")], [2, 1, 0, 4]),
        ([Finding("also saved", "saves a sine"), Finding("recomputes", "a mask")], [1, 0, 4]),
        (
            [Finding("also saved", "…", expected="a mask"), Finding("not saved", "…", next="And a mask?")],
            [2, 3, 1, 0, 4],
        ),
        ([Finding("also saved", "…", cases=("a mask", "two"))], [2, 1, 0, 4]),
        ([Finding("also saved", "a mask", next="And a sine?")], [5, 2, 1, 0, 4]),
        ([Finding("also saved", "a mask"), Finding("also saved", "a sine")], [2, 1, 0, 4]),
        ([Finding("also saved", "saves a tangent")], [6, 1, 0, 4]),
        ([Finding("also saved", "…", got="a mask"), Finding("not saved", "…", source="mask = …")], [2, 1, 0, 4]),
    ],
)
def test_a_hint_for_a_findings_text_precedes_a_hint_for_its_kind(found, order):
    hints = (
        Hint("Where to begin?"),
        Hint("Too much?", on_kinds=("also saved",)),
        Hint("A mask?", on_kinds=("also saved",), on_text=("mask",)),
        Hint("No mask?", on_kinds=("not saved",), on_text=("mask",)),
        Hint("Nearly."),
        Hint("A mask, and a sine of it?", on_kinds=("also saved",), on_text=("mask", "sine")),
        Hint("A cosine or a tangent?", on_kinds=("also saved",), on_any_text=("cosine", "tangent")),
    )
    given = []
    while (index := next_hint(dict(enumerate(hints)), found, given)) is not None:
        given.append(index)
    assert given == order
