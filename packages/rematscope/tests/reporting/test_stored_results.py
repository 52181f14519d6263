"""The results that loops store for later loops avoid the most recompute per byte."""

import pytest

from rematscope.reporting.stored_results import results_to_store

LOOPS = {0: ["a", "b", "c"], 1: ["reads b", "reads c"], 2: ["reads a"]}
OPERANDS = {"b": ["a"], "reads a": ["a"], "reads b": ["b"], "reads c": ["c"]}
COSTS = {"a": 10, "b": 1, "c": 5}


@pytest.mark.parametrize(
    ("sizes", "limit", "stored"),
    [
        ({}, 0, ""),
        ({}, 1, "a"),  # avoids 10 FLOPs in each of two loops
        ({}, 2, "ac"),  # b, too, would have avoided 11 FLOPs, but only 1 if a is stored
        ({}, 3, "abc"),
        ({"a": 30}, 2, "bc"),
        ({"a": 30}, 31, "bc"),
        ({"a": 30}, 32, "abc"),
    ],
)
def test_each_choice_counts_the_recompute_that_remains_after_those_before_it(sizes, limit, stored):
    found = results_to_store(
        LOOPS,
        loop_of=lambda step: next(loop for loop, own in LOOPS.items() if step in own),
        operands=lambda step: OPERANDS.get(step, []),
        cost=lambda step: COSTS.get(step, 1),
        size=lambda step: sizes.get(step, 1),
        limit=limit,
    )
    assert found == set(stored)
