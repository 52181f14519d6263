"""Tests for numbers in words."""

import pytest

from grader.util.words import counted


@pytest.mark.parametrize(
    ("number", "things", "text"),
    [
        (2, "chunks of rows", "2 chunks of rows"),
        (1, "chunks of rows", "1 chunk of rows"),
        (1, "large arrays", "1 large array"),
        (1, "entries", "1 entry"),
    ],
)
def test_the_noun_agrees_with_the_number(number, things, text):
    assert counted(number, things) == text
