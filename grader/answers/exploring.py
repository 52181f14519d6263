"""Structures for which an answer does something else than for those that it is tried on anyway.

As fuzzers do, which keep an input where it reaches what no other one has reached, and vary what has come near: here
that is a way of a branch, what came of a comparison, or an operation in the traced program. The latter tells
`[keeps_all, right][n % 2]` for even and for odd n, where there is no branch. And where a comparison has only had one
outcome, structures are tried that bring its two sides together.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from types import CodeType
from typing import Any

import jax
import numpy as np

from grader.answers.apply import applied
from grader.answers.branches import Branches
from grader.answers.comparisons import Compared, Comparisons
from grader.exercises import besides
from grader.exercises.besides import DRAW, MOST_CASES, corners, drawn, drawn_alike, made_of, pairs_of, related, targets
from grader.exercises.spec import Case, Question, Structure, TaskOfAnyStructure
from grader.util.jax_settings import as_they_come
from rematscope.ir.jax_internals import AnyJaxpr, bodies, body_of

_LOOKS = 6
_MOST_LOOKS = 60, 100  # cases, questions: while a branch or a comparison has gone one way, or hardly the other
_OFTEN = 3  # for fewer structures that go a way, what is done there may be right
_SETTLED = 4  # structures of either outcome
_OF_A_NEW_WAY = 6  # are looked for, of which those are asked that are least alike


class Apart:
    """What an answer has compared, for as long as a comparison has seldom had one of its two outcomes.

    Args:
      task: the exercise's `task` module.
      rng: draws what it does not settle.
    """

    def __init__(self, task: TaskOfAnyStructure, rng: np.random.Generator):
        self._task, self._rng = task, rng
        self._outcomes: dict[Any, Counter[bool]] = {}
        self._count = itertools.count()
        # How many structures have been made of one comparison, how far apart its sides were, and the others.
        self._left: list[tuple[int, float, int, Any, Iterator[Structure | None]]] = []

    def add(self, structure: Structure, compared: Sequence[Compared]) -> None:
        """Adds what was compared for a structure: of each comparison the numbers that were closest together."""
        closest = {each.place: each for each in sorted(compared, key=_distance, reverse=True)}
        for place, says in {(each.place, each.says) for each in compared}:
            self._outcomes.setdefault(place, Counter())[says] += 1
        for place, each in closest.items():
            together = besides.together(self._task, structure, each.left, each.right, self._rng)
            heapq.heappush(self._left, (0, _distance(each), next(self._count), place, together))

    @property
    def is_settled(self) -> bool:
        """Whether each comparison has had both of its outcomes, more than once."""
        return all(map(_settles, self._outcomes.values()))

    def structures(self) -> Iterator[Structure | None]:
        """What may bring two sides together, or past each other, in turn of all that is left; None while nothing is."""
        while True:
            while self._left:
                often, distance, count, place, together = heapq.heappop(self._left)
                if not _settles(self._outcomes[place]) and (structure := next(together, None)):
                    heapq.heappush(self._left, (often + 1, distance, count, place, together))
                    break
            else:
                structure = None
            yield structure


def _settles(outcomes: Counter[bool]) -> bool:
    return min(outcomes[True], outcomes[False]) >= _SETTLED


def _distance(compared: Compared) -> float:
    return abs(compared.left - compared.right)


def structures(
    task: TaskOfAnyStructure,
    asked: Sequence[Case | Question],
    written: Collection[int | str],
    near: Sequence[Structure],
    apart: Apart,
    rng: np.random.Generator,
) -> Iterator[Structure]:
    """More structures to ask an answer about: with all numbers at an end, with one and two of its own numbers, with one
    number twice, with numbers that stand to each other as none before, and any.

    Args:
      task: the exercise's `task` module.
      asked: what the answer is tried on anyway, and not again.
      written: the answer's numbers and words.
      near: at any time, those of which one in four is to be a variation.
      apart: what has been compared; every other one is to bring that together.
      rng: draws them.
    """
    known, wanted = [each.structure for each in asked], targets(task.ranges, written, rng)
    with_own = itertools.cycle(drawn(task, rng, fixed) for fixed in wanted or [{}])
    with_two = (drawn(task, rng, fixed) for fixed in pairs_of(wanted))
    stands = related(task, known, written, rng)
    afresh = itertools.cycle(
        (stands, corners(task, rng), with_own, stands, drawn_alike(task, rng), with_two, _any(task, rng))
    )
    together, varied = map(itertools.repeat, (apart.structures(), _varied(task, near, rng)))
    ways_to_draw = itertools.chain.from_iterable(zip(together, afresh, together, varied, strict=False))
    for way in itertools.islice(ways_to_draw, _most_looks(asked)):
        structure = next(way, None) or drawn(task, rng)
        if structure is not None:
            known.append(structure)
            times = known.count(structure) - 1
            yield {**structure, DRAW: times} if times else structure


def _most_looks(asked: Sequence[Case | Question]) -> int:
    cases, questions = _MOST_LOOKS
    # Where few questions are asked of everybody, each takes its time.
    return cases if isinstance(asked[0], Case) else min(questions, 2 * max(len(asked), _LOOKS))


def _varied(
    task: TaskOfAnyStructure, near: Sequence[Structure], rng: np.random.Generator
) -> Iterator[Structure | None]:
    """Structures that have about half of what they say in common with one of these; None while there are none."""
    while True:
        kept = near[int(rng.integers(len(near)))] if near else {}
        yield drawn(task, rng, {each: kept[each] for each in task.ranges if each in kept and rng.integers(2)})


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
    near: list[Structure],
    apart: Apart,
    seed: int,
) -> list[Structure]:
    """Those of some structures for which an answer does something else than for what it is tried on anyway.

    Args:
      answer: the learner's function; it has no memory.
      task: the exercise's `task` module.
      asked: what the answer is tried on anyway.
      more: the structures; a few are looked at, and while a branch has gone one way, all.
      branches: watches the answer's code.
      near: becomes, and stays, what has alone gone a new way, or has come to branches that have gone one way: `more`
        goes by it.
      apart: becomes what the answer has compared; so it does by that.
      seed: seeds all but the structure.
    """
    with Comparisons(branches.codes) as comparisons:
        return _new_ways(answer, task, asked, more, branches, comparisons, near, apart, seed)


def _new_ways(
    answer: Callable,
    task: TaskOfAnyStructure,
    asked: Sequence[Case | Question],
    more: Iterator[Structure],
    branches: Branches,
    comparisons: Comparisons,
    near: list[Structure],
    apart: Apart,
    seed: int,
) -> list[Structure]:
    def done_for(each: Case | Question) -> frozenset[Any]:
        done = _done(answer, each, branches)
        apart.add(each.structure, compared := comparisons.since())
        return done.union((*each.place, each.says) for each in compared)

    did = [(each.structure, done_for(each)) for each in asked]
    counts = Counter(itertools.chain.from_iterable(done for _, done in did))
    known = {done for done, count in counts.items() if count >= _OFTEN or not _is_of_branch(done)}
    found = dict[frozenset[Any], list[Structure]]()
    while True:
        # What has gone a new way may be right for some that do: then the next that goes it tells.
        new_of_late = [
            each for ways, each in found.items() if len(each) < _OF_A_NEW_WAY and all(map(_is_of_branch, ways))
        ]
        near[:] = [*itertools.chain(*new_of_late)] or [
            structure for structure, done in did if done & branches.one_sided
        ]
        settled = not near and apart.is_settled and branches.all_entered
        if (len(did) >= len(asked) + _LOOKS and settled) or (structure := next(more, None)) is None:
            break
        done = done_for(made_of(structure, task, seed))
        did.append((structure, done))
        if new := done - known:
            ways = frozenset(filter(_is_of_branch, new))
            found.setdefault(ways or done, []).append(structure)
    # A new way of a branch says more than another program, which may be so for a dtype's sake.
    by_kind: tuple[list[list[Structure]], ...] = [], []
    for ways, each in found.items():
        by_kind[not all(map(_is_of_branch, ways))].append(_unlike(each))
    in_turn = (each for kind in by_kind for each in itertools.chain(*itertools.zip_longest(*kind)))
    return [*filter(None, in_turn)][: most_of(asked)]


def _is_of_branch(done: tuple[Any, ...]) -> bool:
    return isinstance(done[0], CodeType)


def _unlike(structures: Sequence[Structure]) -> list[Structure]:
    """The first one, and then what has least in common with it: what an answer does there may be right for one."""
    order, left = [*structures[:1]], [*structures[1:]]
    while left:
        order.append(min(left, key=lambda each: max(len(each.items() & other.items()) for other in order)))
        left.remove(order[-1])
    return order


def most_of(asked: Sequence[Case | Question]) -> int:
    """How many more an answer is asked that shows nothing of what for."""
    return MOST_CASES if isinstance(asked[0], Case) else 3 * MOST_CASES


def _done(answer: Callable, asked: Case | Question, branches: Branches) -> frozenset[Any]:
    """What an answer does when it is asked: the ways of its branches, and of what the traced program consists."""
    branches.ways_since()
    program = frozenset[Any]()
    try:
        if isinstance(asked, Question):
            asked.data(answer)
        else:
            program = frozenset(_operations(_program(applied(answer, asked), asked.arguments)))
    except MemoryError:
        raise
    except (Exception, SystemExit):
        pass
    return program | branches.ways_since()


def _program(function: Callable, arguments: Sequence[Any]) -> AnyJaxpr:
    """What a function does; and what its gradients do, if it has a say in these: by a policy, or rules of its own."""

    def values(*arguments: Any) -> Any:  # a function of its own: what JAX has traced before, it does not run again
        return function(*arguments)

    def gradients(*arguments: Any) -> Any:
        output, pullback = jax.vjp(function, *arguments)
        return pullback(output)

    forward = jax.make_jaxpr(values)(*arguments)
    return jax.make_jaxpr(gradients)(*arguments) if _has_a_say(forward) else forward


def _has_a_say(jaxpr: AnyJaxpr) -> bool:
    body, _, _ = body_of(jaxpr)
    return any(
        eqn.params.get("policy") is not None
        or any(kind in eqn.primitive.name for kind in ("custom", "hi_"))  # the latter in the next rematerialization
        or any(map(_has_a_say, bodies(eqn)))
        for eqn in body.eqns
    )


def _operations(jaxpr: AnyJaxpr, within: tuple[str, ...] = ()) -> Iterator[Any]:
    """Each operation: in what it stands, and its result's dtype and number of axes. Sizes are left out."""
    body, _, _ = body_of(jaxpr)
    for eqn in body.eqns:
        kinds = tuple((str(getattr(v.aval, "dtype", "")), len(getattr(v.aval, "shape", ()))) for v in eqn.outvars[:1])
        yield within, eqn.primitive.name, kinds, eqn.params.get("name")
        for inner in bodies(eqn):
            yield from _operations(inner, (*within, eqn.primitive.name))
