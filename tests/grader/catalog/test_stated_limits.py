"""A limit that an exercise's page computes equals the limit that the grader enforces."""

import itertools
from pathlib import Path

import nbformat
import numpy as np
import pytest

from grader.exercises import registry
from grader.exercises.peaks import PeakAtMost

EXERCISES = Path(__file__).parents[3] / "exercises"


def of_the_page(page):
    """Return the page's function `limit`."""
    cells = nbformat.read(EXERCISES / page, as_version=4).cells
    (source,) = (cell.source for cell in cells if cell.source.startswith("def limit("))
    names = {"print": lambda *_: None}
    exec(source, names)
    return names["limit"]


@pytest.mark.parametrize(
    ("slug", "page", "sizes", "compiled"),
    [
        (
            "chunked_loss",
            "27_chunked_loss.ipynb",
            lambda case: [case.structure[s] for s in ("n", "d", "V", "chunks")],
            True,
        ),
        ("accumulate", "28_accumulate.ipynb", lambda case: [case.structure["r"], case.arguments[0].shape[0]], True),
        (
            "microbatch_fsdp",
            "30_microbatch_fsdp.ipynb",
            lambda case: [case.structure["r"], case.structure["k"], *case.arguments[0].shape],
            False,
        ),
        ("ring_attention", "26_ring_attention.ipynb", lambda case: [case.structure[s] for s in "cde"], False),
    ],
)
def test_a_pages_limit_of_memory_is_the_graders(slug, page, sizes, compiled, seed):
    limit, compared = of_the_page(page), 0
    for case in registry.task(slug).cases(np.random.default_rng(seed)):
        for requirement in itertools.chain(*registry.expect(slug).requirements(case)):
            if isinstance(requirement, PeakAtMost) and requirement.compiled == compiled:
                assert requirement.most == limit(*sizes(case))
                compared += 1
    assert compared
