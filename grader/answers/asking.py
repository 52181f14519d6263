"""What an answer is tried on: what is drawn for everybody, and what its own code makes worth a question.

A number that is written in it may be what it does something else for, so it is asked about that. What stands behind an
`if` that has only gone one way, or is picked by a remainder or a comparison, may be there for anything: so it is asked
about more structures, those for which it does something else above all. Neither says anything of an answer: it is what
the answer does there that counts.
"""

import itertools
from collections.abc import Callable

import numpy as np

from grader.answers.branches import Branches
from grader.answers.capture import parameters, traced
from grader.answers.evidence import Evidence, Traced
from grader.answers.exploring import Apart, most_of, new_ways, structures
from grader.answers.failures import failure_of
from grader.answers.memory import caches_of
from grader.answers.written import chooses, codes_of, written_in
from grader.exercises import registry
from grader.exercises.besides import asks_anything, for_what_is_written, once_more
from grader.exercises.spec import Case, Question, Structure
from grader.verdicts.verdict import Verdict


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
    cases = registry.cases(exercise, seed)
    try:
        return _asked_and_traced(answer, exercise, cases, seed)
    except MemoryError as error:  # it is asked nothing more: it would take all memory each time, for seconds
        failed = tuple(Traced(case.name, failure=failure_of(error)) for case in cases)
        return cases, Evidence(exercise, parameters(answer), "", "", failed)


def _asked_and_traced(
    answer: Callable, exercise: str, cases: tuple[Case | Question, ...], seed: int
) -> tuple[tuple[Case | Question, ...], Evidence | Verdict]:
    task = registry.task(exercise)
    if not asks_anything(task):
        return cases, traced(answer, exercise, cases, seed)
    written, codes = written_in(answer), codes_of(answer)
    besides = for_what_is_written(task, cases, written, np.random.default_rng([seed, 3]))
    cases = registry.cases(exercise, seed, besides)
    near: list[Structure] = []
    apart = Apart(task, np.random.default_rng([seed, 6]))
    more = structures(task, cases, written, near, apart, np.random.default_rng([seed, 4]))
    with Branches(codes) as branches:
        if (caches := caches_of(answer)) is None:
            # What it remembers by some numbers is another function's, or another layer's, when they come again.
            found = once_more(task, cases, np.random.default_rng([seed, 5]))
            # It is not run before it is traced: it would remember that, and do something else for it.
            found += itertools.islice(more, most_of(cases) - len(found)) if chooses(codes, by_branches=True) else []
        elif chooses(codes) or caches:
            found = new_ways(answer, task, cases, more, branches, near, apart, seed)
            # Not all that is else shows in what a program consists of.
            found += itertools.islice(more, most_of(cases) - len(found))
        else:
            evidence = traced(answer, exercise, cases, seed, besides)
            if not branches.one_sided:
                return cases, evidence
            if not (found := new_ways(answer, task, cases, more, branches, near, apart, seed)):
                return cases, evidence
    for cache in caches or ():  # what was made while it was looked at is for no other trace
        cache.cache_clear()
    besides += found
    cases = registry.cases(exercise, seed, besides)
    return cases, traced(answer, exercise, cases, seed, besides)
