"""Each numeric bound of each exercise has a wrong answer that just exceeds it."""

import pytest
from bounds import Bound, against, asked, bounds, moved, places
from sample_answers import slow_unless_sampled, wrong

from grader.exercises import registry

HELD = [(slug, name) for slug in registry.names() for name, answer in wrong(slug).items() if answer.beyond]


@pytest.mark.parametrize("slug", registry.names())
def test_every_bound_has_a_wrong_answer_just_beyond_it(slug):
    every = {str(bound) for requirement in places(asked(slug)).values() for bound in bounds(requirement)}
    assert {answer.beyond[0] for answer in wrong(slug).values() if answer.beyond} == every


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "name"), slow_unless_sampled(HELD, 12))
def test_an_answer_just_beyond_a_bound_passes_once_that_bound_is_looser(slug, name, unpatched):
    answer = wrong(slug)[name]
    bound, steps = answer.beyond
    wanted = asked(slug)
    looser = moved(wanted, Bound(*bound.split(".")), steps)
    assert against(answer.answer, slug, wanted) and not against(answer.answer, slug, looser)
