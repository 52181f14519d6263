"""Derive the seeds of each submission's shapes and inputs from the two numbers of a run.

The seed of the shapes is not secret: an answer sees its cases, and feedback pages show the seed. A learner who knew the
inputs, for example from an earlier attempt, could hand in programs that are right for these inputs only. So no page
contains the secret of the inputs.
"""

import functools
import hashlib

from grader.exercises import registry
from grader.exercises.spec import Case, Question
from grader.tracing.evidence import Evidence

# The number of sets of shapes for a class. The reference is traced and compiled once per set.
_SETS_OF_SHAPES = 8


def number(seed: int, *what: object) -> int:
    """Return 64 bits of the SHA-256 hash of the arguments: a number that cannot be predicted without the seed."""
    return int.from_bytes(hashlib.sha256(repr((seed, *what)).encode()).digest()[:8])


def seed_of_shapes(seed: int, learner: str) -> int:
    """Return the seed of the shapes with which a learner's answers are traced."""
    return number(seed, number(seed, learner) % _SETS_OF_SHAPES)


def seed_of_inputs(seed: int, evidence: Evidence, secret: int = 0) -> int:
    """Return the seed of the inputs for an answer's programs. It is the same for identical programs, and cannot be
    predicted without the run's secret."""
    return number(seed, secret, evidence.forward, evidence.backward, [traced.data for traced in evidence.cases])


@functools.lru_cache(maxsize=8 * _SETS_OF_SHAPES)
def cases_for(exercise: str, shapes: int) -> tuple[Case | Question, ...]:
    """Return an exercise's cases for a seed of shapes. Each call returns the same objects, so compiled programs for
    them are reused."""
    return registry.cases(exercise, shapes)
