"""Exercise 20: no answer passes without comparing all choices, whatever is drawn."""

import numpy as np
import pytest
from sample_answers import wrong

from grader.catalog.best_policy import expect, task
from grader.exercises.spec import Impossible

SEARCHES = ("step_by_step", "by_pairs", "from_a_good_beginning", "a_few_at_a_time", "from_a_few_beginnings")


@pytest.fixture(scope="module")
def draws():
    return [task.cases(np.random.default_rng(seed)) for seed in range(6)]


def is_the_least(answer, question) -> bool:
    want = expect.reference(*question.arguments)
    try:
        return want.cost(list(answer(*question.arguments))) == want.least
    except Impossible:
        return False


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_that_improves_a_choice_fails_whatever_is_drawn(name, draws):
    answer = wrong("best_policy")[name].answer
    assert not [k for k, questions in enumerate(draws) if all(is_the_least(answer, each) for each in questions)]


def test_every_usual_way_to_choose_costs_more_somewhere(draws):
    for questions in draws:
        for mistake in expect.mistakes:
            assert any(mistake.wrong_reference(*q.arguments) > expect.reference(*q.arguments).least for q in questions)


def test_blocks_have_all_sizes_and_similar_names(draws):
    for questions in draws:
        blocks = [question.arguments[0] for question in questions]
        assert {len(block.names) for block in blocks} >= {1, *range(6, 10), 11} and len(questions) >= 40
        assert all(len(set(block.names)) == len(block.names) for block in blocks)
        assert any(len({name.lower() for name in block.names}) < len(block.names) for block in blocks)
        assert any(b.startswith(a) for block in blocks for a in block.names for b in block.names if a != b)
