"""The statements about an answer that meets its requirements."""

from types import SimpleNamespace
from typing import Any

from grader.exercises.requirements import Recomputes


def test_a_verdict_on_a_pass_states_the_recomputed_matmuls_and_not_the_bound():
    def said(*flops: int):
        seen: Any = SimpleNamespace(recomputed=flops)
        return Recomputes(2, too_many="").claim(seen)

    assert said() == "the backward pass recomputes no matmul"
    assert said(8) == "the backward pass recomputes 1 matmul"
    # A matmul in two pieces has the same FLOPs.
    assert said(8, 8) == said(8, 4, 4) == "the backward pass recomputes 2 matmuls"
