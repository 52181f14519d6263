"""What exercise 15 says of a peak that is too high: whose doing it is."""

import pytest
from sample_answers import wrong

from grader.isolation.in_process import grade


@pytest.mark.parametrize(("name", "merged"), [("without_a_barrier", True), ("the_wrapped_half_is_not_cut", False)])
def test_a_finding_tells_what_xla_merged_from_what_is_kept(name, merged):
    (finding,) = grade(wrong("recursive_checkpoint")[name].answer, "recursive_checkpoint", seed=0).findings
    assert ("prevent_cse=False" in finding.text) == merged
    assert ("what is its default" in finding.next) == merged
