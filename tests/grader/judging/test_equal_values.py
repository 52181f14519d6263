"""Values of the reference that are equal by chance, as the cosines of one element may be in float16."""

import numpy as np
import pytest
from sample_answers import rounded_otherwise, shipped

from grader.exercises.observation import ResidualKind
from grader.isolation.in_process import grade
from grader.judging.identity import Identity, _Named, _separate_equal_values


def named(**values: float) -> list[_Named]:
    return [_Named(name, np.array([value]), (1,), 1e-3, (value, value)) for name, value in values.items()]


class Run:
    def __init__(self, *residuals: float) -> None:
        self.residuals = [np.array([value], np.float16) for value in residuals]


def computed(*names: str | None) -> list[Identity]:
    return [Identity(ResidualKind.COMPUTED, name) for name in names]


def names_after(run: Run, found: list[Identity], asked: list[_Named]) -> list[str | None]:
    return [identity.name for identity in _separate_equal_values(run, found, asked, 1.0)]


@pytest.mark.parametrize("found", [("a", "a"), ("b", "b"), ("other", "a"), ("b", "a"), ("a", "b")])
def test_each_of_two_equal_values_is_matched_to_a_residual(found: tuple[str, str]) -> None:
    assert sorted(names_after(Run(0.5, 0.5002), computed(*found), named(a=0.5, b=0.5001))) == ["a", "b"]


def test_a_value_that_is_saved_twice_is_not_taken_for_another() -> None:
    assert names_after(Run(0.5, 0.5), computed("a", "a"), named(a=0.5, b=0.7)) == ["a", "a"]


def test_a_third_residual_of_two_equal_values_remains_a_duplicate() -> None:
    found = names_after(Run(0.5, 0.5, 0.5), computed("a", "a", "a"), named(a=0.5, b=0.5))
    assert sorted(found) == ["a", "a", "b"]


def test_a_correctly_claimed_residual_keeps_its_name() -> None:
    # Only the second residual can be b. The first residual keeps the name a, although the third can also be a.
    assert names_after(Run(0.5, 0.7, 0.5), computed("a", "a", "a"), named(a=0.5, b=0.7)) == ["a", "b", "a"]


@pytest.mark.slow
def test_a_right_answer_passes_if_two_cosines_agree() -> None:
    (answer,) = shipped("best_placement", "worked").values()
    assert grade(answer, "best_placement", 50018).passed


@pytest.mark.slow
def test_a_right_answer_passes_if_a_sine_is_nearly_its_argument() -> None:
    # At this seed, XLA's sine is closer to the reference's matmul than to the reference's sine.
    (answer,) = shipped("two_checkpoints", "worked").values()
    assert rounded_otherwise(answer, "two_checkpoints", 310054).passed
