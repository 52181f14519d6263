"""What an answer is tried on: what is drawn for everybody, and what its own code makes worth a question.

A number that is written in it may be what it does something else for; and so may what stands behind an `if` that has
only gone one way. The first is asked about; for the second more structures are drawn, until one goes the other way.
Neither says anything of an answer: it is what the answer does there that counts.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import jax
import numpy as np

from grader.answers.apply import applied
from grader.answers.branches import Branches
from grader.answers.capture import traced
from grader.answers.evidence import Evidence
from grader.answers.memory import may_remember
from grader.answers.written import codes_of, written_in
from grader.exercises import registry
from grader.exercises.besides import MOST_CASES, asks_anything, drawn, for_what_is_written, pairs_of, targets
from grader.exercises.spec import Case, Question, Structure
from grader.util.jax_settings import as_they_come
from grader.verdicts.verdict import Verdict

_CASES, _QUESTIONS = 40, 100  # that are drawn for an `if` that has gone one way


def asked_and_traced(
    answer: Callable, exercise: str, seed: int
) -> tuple[tuple[Case | Question, ...], Evidence | Verdict]:
    """What an answer was tried on, and its evidence; or the verdict that there is none. This runs the answer.

    Args:
      answer: the learner's function.
      exercise: the exercise's name.
      seed: seeds what is drawn, and the order.

    Raises:
      UnknownExercise: there is no such exercise.
    """
    cases, task = registry.cases(exercise, seed), registry.task(exercise)
    written = written_in(answer)
    besides = for_what_is_written(task, cases, written, np.random.default_rng([seed, 3]))
    with Branches(codes_of(answer) if asks_anything(task) else ()) as branches:
        cases = registry.cases(exercise, seed, besides)
        evidence = traced(answer, exercise, cases, seed, besides)
        # What may remember would remember this as well, and do something else for it.
        more = [] if may_remember(answer) else _other_ways(answer, exercise, cases, written, branches, seed)
    if more:
        cases = registry.cases(exercise, seed, [*besides, *more])
        evidence = traced(answer, exercise, cases, seed, [*besides, *more])
    return cases, evidence


@as_they_come()
def _other_ways(
    answer: Callable,
    exercise: str,
    asked: Sequence[Case | Question],
    written: Collection[int | str],
    branches: Branches,
    seed: int,
) -> list[Structure]:
    """Structures for which branches of the answer go a way that they have not gone, as far as some draws find any."""
    task, rng, found = registry.task(exercise), np.random.default_rng([seed, 4]), list[Structure]()
    if not asks_anything(task):
        return []
    known, wanted = [each.structure for each in asked], targets(task.ranges, written, rng)
    # Its own numbers, one at a time and two, as there may be one more condition; and whatever else.
    ways_to_draw = itertools.cycle((itertools.cycle(wanted or [{}]), iter(pairs_of(wanted)), itertools.repeat({})))
    for fixed in itertools.islice(ways_to_draw, _CASES if isinstance(asked[0], Case) else _QUESTIONS):
        if not branches.one_sided or len(found) == MOST_CASES:
            break
        structure = drawn(task, rng, next(fixed, {}))
        if structure is None or structure in known:
            continue
        known.append(structure)
        ways = branches.ways
        with suppress(Exception, SystemExit):
            _run(answer, task.case(rng, **structure))
        if branches.ways > ways:
            found.append(structure)
    return found


def _run(answer: Callable, asked: Case | Question) -> None:
    if isinstance(asked, Question):
        asked.data(answer)
        return

    def gradients(*arguments):
        output, pullback = jax.vjp(applied(answer, asked), *arguments)
        return pullback(output)

    jax.make_jaxpr(gradients)(*asked.arguments)
