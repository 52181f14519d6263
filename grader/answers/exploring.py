"""Structures for which an answer does something else than for those that it is tried on anyway.

As fuzzers do, which keep an input where it reaches what no other one has reached: here that is a way of a branch, or
an operation in the traced program. The latter tells `[keeps_all, right][n % 2]` for even and for odd n, where there is
no branch.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from grader.answers.apply import applied
from grader.answers.branches import Branches
from grader.exercises.besides import MOST_CASES, drawn, drawn_alike, made_of, pairs_of, targets
from grader.exercises.spec import Case, Question, Structure, TaskOfAnyStructure
from grader.util.jax_settings import as_they_come
from rematscope.ir.jax_internals import AnyJaxpr, bodies, body_of

_LOOKS = 6
_MOST_LOOKS = 40, 100  # cases, questions: for a branch that has gone one way
_OF_EACH = 2  # which do something else alike, as there may be one more condition


def structures(
    task: TaskOfAnyStructure, asked: Sequence[Case | Question], written: Collection[int | str], rng: np.random.Generator
) -> Iterator[Structure]:
    """More structures to ask an answer about: with one and two of its own numbers, with one number twice, and any.

    Args:
      task: the exercise's `task` module.
      asked: what the answer is tried on anyway, and not again.
      written: the answer's numbers and words.
      rng: draws them.
    """
    known, wanted = [each.structure for each in asked], targets(task.ranges, written, rng)
    with_own = itertools.cycle(drawn(task, rng, fixed) for fixed in wanted or [{}])
    with_two = (drawn(task, rng, fixed) for fixed in pairs_of(wanted))
    ways_to_draw = itertools.cycle((drawn_alike(task, rng), with_own, with_two, _any(task, rng)))
    for way in itertools.islice(ways_to_draw, _MOST_LOOKS[isinstance(asked[0], Question)]):
        structure = next(way, None)
        if structure is not None and structure not in known:
            known.append(structure)
            yield structure


def _any(task: TaskOfAnyStructure, rng: np.random.Generator) -> Iterator[Structure | None]:
    while True:
        yield drawn(task, rng)


@as_they_come()
def new_ways(
    answer: Callable,
    task: TaskOfAnyStructure,
    asked: Sequence[Case | Question],
    more: Iterator[Structure],
    branches: Branches,
    seed: int,
    before: int,
) -> list[Structure]:
    """Those of some structures for which an answer does something else than for what it is tried on anyway.

    Args:
      answer: the learner's function; it has no memory.
      task: the exercise's `task` module.
      asked: what the answer is tried on anyway.
      more: the structures; a few are looked at, and while a branch has gone one way, all.
      branches: watches the answer's code.
      seed: seeds all but the structure.
      before: how many structures are asked about besides already.
    """
    known = frozenset[Any]().union(*(_done(answer, each, branches) for each in asked))
    seen: Counter[frozenset[Any]] = Counter()
    found = list[Structure]()
    for looked, structure in enumerate(more):
        if len(found) == most_of(asked) or (looked >= _LOOKS and not branches.one_sided):
            break
        done = _done(answer, made_of(structure, task, seed, before + len(found)), branches)
        if not done <= known and seen[done] < _OF_EACH:
            found.append(structure)
        seen[done] += 1
    return found


def most_of(asked: Sequence[Case | Question]) -> int:
    """How many more an answer is asked that shows nothing of what for."""
    return MOST_CASES if isinstance(asked[0], Case) else 3 * MOST_CASES


def _done(answer: Callable, asked: Case | Question, branches: Branches) -> frozenset[Any]:
    """What an answer does when it is asked: the ways of its branches, and of what the traced program consists."""
    branches.ways_since()
    program = frozenset[Any]()
    with suppress(Exception, SystemExit):
        if isinstance(asked, Question):
            asked.data(answer)
        else:
            program = frozenset(_operations(_gradients(applied(answer, asked), asked.arguments)))
    return program | branches.ways_since()


def _gradients(function: Callable, arguments: Sequence[Any]) -> AnyJaxpr:
    def gradients(*arguments: Any) -> Any:
        output, pullback = jax.vjp(function, *arguments)
        return pullback(output)

    return jax.make_jaxpr(gradients)(*arguments)


def _operations(jaxpr: AnyJaxpr, within: tuple[str, ...] = ()) -> Iterator[Any]:
    """Each operation: in what it stands, and its result's dtype and number of axes. Sizes are left out."""
    body, _, _ = body_of(jaxpr)
    for eqn in body.eqns:
        kinds = tuple((str(getattr(v.aval, "dtype", "")), len(getattr(v.aval, "shape", ()))) for v in eqn.outvars[:1])
        yield within, eqn.primitive.name, kinds, eqn.params.get("name")
        for inner in bodies(eqn):
            yield from _operations(inner, (*within, eqn.primitive.name))
