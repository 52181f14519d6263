"""Derive the seeds of each submission's shapes and inputs from the two numbers of a run.

The shapes' seed is no secret: an answer sees its cases, and pages of learners name the seed. Whoever knew what inputs
are drawn, in a second attempt say, could hand in programs that are right for these alone; so their secret is in no
page.
"""

import functools
import hashlib

from grader.exercises import registry
from grader.exercises.spec import Case, Question
from grader.tracing.evidence import Evidence

# So many sets of shapes are drawn for a class. What the reference does in each is traced and compiled once.
_SETS_OF_SHAPES = 8


def number(seed: int, *what: object) -> int:
    """Return a number that only whoever knows the seed can tell, the same for the same things: 64 bits of SHA-256."""
    return int.from_bytes(hashlib.sha256(repr((seed, *what)).encode()).digest()[:8])


def seed_of_shapes(seed: int, learner: str) -> int:
    """Return the seed of the shapes that a learner's answers are traced for."""
    return number(seed, number(seed, learner) % _SETS_OF_SHAPES)


def seed_of_inputs(seed: int, evidence: Evidence, secret: int = 0) -> int:
    """Return the seed of what an answer's programs are tried on: the same for the same programs, and unknown to whoever
    has not seen the run's secret."""
    return number(seed, secret, evidence.forward, evidence.backward, [traced.data for traced in evidence.cases])


@functools.lru_cache(maxsize=8 * _SETS_OF_SHAPES)
def cases_for(exercise: str, shapes: int) -> tuple[Case | Question, ...]:
    """Return an exercise's cases of these shapes, the same objects each time, so that what is compiled for them is
    kept."""
    return registry.cases(exercise, shapes)
