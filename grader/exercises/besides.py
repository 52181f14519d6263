"""What an answer is asked besides what is drawn for everybody: what its own numbers make worth a question.

Every range has more inside than a check has time for. An answer that does something else for 7 layers has a 7 in it, so
it is asked about 7 layers; one that tells dtypes apart names them, so it is asked about these in each of the ways in
which a function may be called. An answer without numbers is asked nothing besides.
"""

import dataclasses
import itertools
import math
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from grader.exercises.spec import Case, Integers, OneOf, Question, Structure, Task, TaskOfAnyStructure

type Ranges = Mapping[str, Integers | OneOf]

MOST_QUESTIONS = 40
MOST_CASES = 4  # to trace and run one takes some hundredths of a second
DRAW = (
    "draw"  # beside a structure's symbols: which draw it is of all that the structure leaves open, where not the first
)
_DRAWS = 200
_TRIES = 60  # to find values for the other symbols


def for_what_is_written(
    task: Task, asked: Sequence[Case | Question], written: Collection[int | str], rng: np.random.Generator
) -> list[Structure]:
    """Structures that ask about the numbers and words in an answer, where nothing asks yet.

    Args:
      task: the exercise's `task` module.
      asked: what the answer is tried on anyway.
      written: the numbers and words.
      rng: draws all else.
    """
    if not asks_anything(task):
        return []
    wanted = targets(task.ranges, written, rng)
    if isinstance(asked[0], Question):
        # Those that are there already cost nothing either; where few are asked of everybody, each takes its time.
        fixed = [*wanted, *pairs_of(wanted)][: min(MOST_QUESTIONS, len(asked))]
    else:
        fixed = []
        for target in wanted:
            if not any(target.items() <= each.structure.items() for each in asked):
                _add(fixed, target, task, rng)
    return [structure for each in fixed if (structure := drawn(task, rng, each))]


def _add(found: list[Structure], target: Structure, task: Task, rng: np.random.Generator) -> None:
    """Adds what to ask about; to another one, where both can be asked at once."""
    for place, other in enumerate(found):
        # Not the same number twice: as many segments as steps are another thing than three of them.
        apart = not other.keys() & target.keys() and not {*other.values()} & {*target.values()}
        if apart and drawn(task, rng, {**other, **target}):
            found[place] = {**other, **target}
            return
    if len(found) < MOST_CASES and drawn(task, rng, target):
        found.append(target)


def targets(ranges: Ranges, written: Collection[int | str], rng: np.random.Generator) -> list[Structure]:
    """What to ask about: each number for each symbol, each word in each combination; then the numbers' neighbours."""
    # Everybody writes 0, 1 and 2, and the first two are where ranges begin.
    numbers = [number for number in written if isinstance(number, int) and number > 1]
    beside = {number + step for number in numbers if number > 2 for step in (-1, 1)}.difference(numbers)
    symbols = [symbol for symbol, range_ in ranges.items() if isinstance(range_, Integers)]
    exact, near = ([{s: number} for s in symbols for number in sorted(each)] for each in (numbers, beside))
    choices = {symbol: range_.values for symbol, range_ in ranges.items() if isinstance(range_, OneOf)}
    words = [
        {symbol: word, other: value}
        for symbol, values in choices.items()
        for word in values
        if word in written
        for other in choices
        if other != symbol
        for value in choices[other]
    ]
    return [each[place] for each in (exact, words, near) for place in rng.permutation(len(each))]


def pairs_of(wanted: Sequence[Structure]) -> list[Structure]:
    """What to ask about, two at a time, those first that come first."""
    places = sorted(itertools.combinations(range(len(wanted)), 2), key=sum)
    pairs = ((wanted[place], wanted[other]) for place, other in places)
    return [{**one, **other} for one, other in pairs if not one.keys() & other.keys()]


def asks_anything(task: Task) -> TypeGuard[TaskOfAnyStructure]:
    """Whether a task can ask about any structure within its ranges."""
    return hasattr(task, "case")


def drawn(task: Task, rng: np.random.Generator, fixed: Structure | None = None) -> Structure | None:
    """A structure of the task's with these values, the others drawn, small numbers as often as large ones; None if none
    is found."""
    fixed = fixed or {}
    for _ in range(_TRIES):
        structure: dict[str, Any] = {}
        for symbol in _in_order(task.ranges):
            values: Sequence[Any] = (range_ := task.ranges[symbol]).within(structure)
            if symbol in fixed:
                values = [fixed[symbol]] if fixed[symbol] in values else []
            for other, value in fixed.items():  # a divisor that is asked for leaves few numbers
                if symbol in _ends(range_of := task.ranges[other]) <= {*structure, symbol}:
                    values = [each for each in values if value in range_of.within({**structure, symbol: each})]
            if not values:
                break
            place = int((len(values) + 1) ** rng.random()) if isinstance(range_, Integers) else 0
            structure[symbol] = values[place - 1 if place else int(rng.integers(len(values)))]
        else:
            if _fits(task, structure):
                return structure
    return None


_AGAIN = 2
_MANY = 12


def once_more(task: Task, asked: Sequence[Case | Question], rng: np.random.Generator) -> list[Structure]:
    """Structures of what an answer is tried on, to be tried on them with all else drawn anew; none where so much is
    asked that numbers come again anyway."""
    if len(asked) > _MANY:
        return []
    known = [each.structure for each in asked if _is_allowed(each.structure, task)]
    return [{**known[place], DRAW: 1} for place in rng.permutation(len(known))[:_AGAIN]]


def corners(task: Task, rng: np.random.Generator) -> Iterator[Structure | None]:
    """Structures whose numbers are all the largest, or all the least, that they may be, and then some the one and some
    the other: what an answer does for large products of them it does there, or for small ones, or for large ratios."""
    for ends in itertools.chain((itertools.repeat(True), itertools.repeat(False)), _coins(rng)):
        structure: dict[str, Any] = {}
        for symbol in _in_order(task.ranges):
            if isinstance(range_ := task.ranges[symbol], Integers):
                structure[symbol] = range_.within(structure)[-next(ends)]
        yield drawn(task, rng, structure)


def _coins(rng: np.random.Generator) -> Iterator[Iterator[bool]]:
    """Coins that are tossed as often as anybody asks, and others, and others."""
    while True:
        yield (bool(rng.integers(2)) for _ in itertools.count())


def drawn_alike(task: Task, rng: np.random.Generator) -> Iterator[Structure | None]:
    """Structures with one number for two symbols, each two of them in turn; None where none is found."""
    symbols = [symbol for symbol, range_ in task.ranges.items() if isinstance(range_, Integers)]
    for one, other in itertools.cycle(itertools.combinations(symbols, 2)):
        numbers = [structure[one], structure[other]] if (structure := drawn(task, rng)) else []
        # Of two ranges one may have a number that the other one has not.
        alike = (drawn(task, rng, {one: number, other: number}) for number in numbers)
        yield next(filter(None, alike), None)


# Structures, of which those are taken that are new in how their numbers stand to each other. Twice as many cost 5 ms
# more, and had a twentieth more relations among them.
_POOL = 250


def related(
    task: Task, known: Sequence[Structure], written: Collection[int | str], rng: np.random.Generator
) -> Iterator[Structure]:
    """Structures in which two numbers stand to each other as in none before, and in few others: one is the other's
    square, divides it, or leaves the least remainder or the largest; or their sum, difference, product or quotient is
    written."""
    numbers = {number for number in written if isinstance(number, int) and number > 1}
    pool = {id(each): each for _ in range(_POOL) if (each := drawn(task, rng))}
    relations = {place: _relations(each, task.ranges, numbers) for place, each in pool.items()}
    often = Counter(itertools.chain.from_iterable(relations.values()))
    seen = set().union(*(_relations(each, task.ranges, numbers) for each in known))
    while pool:
        place = max(pool, key=lambda place: sum(_weight(each) / often[each] for each in relations[place] - seen))
        seen |= relations[place]
        yield pool.pop(place)


def _weight(relation: tuple[str, str, str, int]) -> int:
    """How much a relation counts: what is written is asked for sooner than what is not."""
    return 1 if relation[2] in ("leaves", "is a square") else 3


def _relations(structure: Structure, ranges: Ranges, numbers: Collection[int]) -> set[tuple[str, str, str, int]]:
    found = set()
    symbols = [each for each, range_ in ranges.items() if isinstance(range_, Integers) and structure.get(each, 0) > 1]
    for one, other in itertools.permutations(symbols, 2):
        a, b = structure[one], structure[other]
        if a > b:
            found |= {(one, other, how, n) for how, n in (("-", a - b), ("//", a // b), ("%", a % b)) if n in numbers}
            found |= {(one, other, "leaves", n) for n in (0, 1, -1)[:b] if (a - n) % b == 0}
            found |= {(one, other, "is a square", 0)} if a == b * b else set()
        if one < other:
            found |= {(one, other, how, n) for how, n in (("+", a + b), ("*", a * b)) if n in numbers}
    return found


def together(
    task: Task, structure: Structure, left: float, right: float, rng: np.random.Generator
) -> Iterator[Structure]:
    """Structures like this one, for which two numbers that hang on it may be the same, or one go past the other: one of
    its own numbers is changed, by as much as these differ, or as often as one goes into the other; or two of them are,
    whose product goes into one.

    Args:
      task: the exercise's `task` module.
      structure: one of its structures.
      left: a number that was computed of it, or of what was made of it.
      right: another one.
      rng: draws the order, and what does not go together with the changed number.
    """
    known = {symbol: structure[symbol] for symbol in task.ranges if symbol in structure}
    numbers = [symbol for symbol in known if isinstance(task.ranges[symbol], Integers)]
    ways = [_with_number(task, known, numbers, left, right, rng)]
    ways += [_with_product(task, known, numbers, *each, rng) for each in ((left, right), (right, left))]
    # Of most that is compared only the first structures are tried: now those of the one way, now those of another.
    for way in ways if rng.integers(2) else ways[::-1]:
        yield from way


def _with_number(
    task: Task, known: Structure, numbers: Sequence[str], left: float, right: float, rng: np.random.Generator
) -> Iterator[Structure]:
    """Structures like a known one in which one number is changed."""
    apart, past = right - left, 1 if right > left else -1
    for change in (
        lambda number: (left, right)[number == left] if number in (left, right) else number,
        *(lambda number, by=by: number + by for by in (apart, -apart, apart + past, -apart - past)),
        lambda number: number * right / left if left else number,
        lambda number: number * left / right if right else number,
    ):
        for place in rng.permutation(len(numbers)):
            changed = round(change(known[symbol := numbers[place]]))
            if changed != known[symbol]:
                made = drawn(task, rng, {**known, symbol: changed}) or drawn(task, rng, {symbol: changed})
                if made:
                    yield made


def _with_product(
    task: Task, known: Structure, numbers: Sequence[str], product: float, wanted: float, rng: np.random.Generator
) -> Iterator[Structure]:
    """Structures like a known one in which two numbers have another product than that which goes into one number, so
    that this becomes what is wanted."""
    for one, other in itertools.combinations(numbers, 2):
        both = known[one] * known[other]
        if not both or product % both or not (factor := product // both) or wanted % factor:
            continue
        whole = int(wanted // factor)
        factors = [number for number in range(1, math.isqrt(max(whole, 0)) + 1) if whole % number == 0]
        for number in rng.permutation(factors):
            for a, b in ((int(number), whole // int(number)), (whole // int(number), int(number))):
                if made := drawn(task, rng, {**known, one: a, other: b}) or drawn(task, rng, {one: a, other: b}):
                    yield made


def _fits(task: Task, structure: Structure) -> bool:
    return getattr(task, "fits", lambda structure: True)(structure)


def _in_order(ranges: Ranges) -> list[str]:
    """The symbols, each behind those that its range speaks of."""
    order: list[str] = []
    while len(order) < len(ranges):
        order += [symbol for symbol in ranges if symbol not in order and _ends(ranges[symbol]) <= {*order}]
    return order


def _ends(range_: Integers | OneOf) -> set[str]:
    ends = (range_.low, range_.high) if isinstance(range_, Integers) else ()
    return {end for end in ends if isinstance(end, str)}


def with_besides(
    task: Task, asked: Sequence[Case | Question], seed: int, besides: Sequence[Structure]
) -> tuple[Case | Question, ...]:
    """What an answer is tried on, with these structures: cases behind cases, questions behind questions.

    Raises:
      ValueError: the exercise's ranges do not allow one of them, or they are too many.
    """
    most = 2 * (MOST_QUESTIONS if isinstance(asked[0], Question) else MOST_CASES)
    allowed = len(besides) <= most and all(_is_allowed(structure, task) for structure in besides)
    if not (allowed and asks_anything(task)):
        raise ValueError("that is more than may be asked besides, or something else.")
    by_name = {each.name: each for each in asked}
    for structure in besides:
        made = made_of(structure, task, seed)
        if made.name in by_name:
            numbers = (f"{symbol} = {value}" for symbol, value in structure.items() if isinstance(value, int))
            made = dataclasses.replace(made, name=f"{made.name}, {', '.join(numbers)}")
        by_name.setdefault(made.name, made)
    return tuple(sorted(by_name.values(), key=lambda each: isinstance(each, Question)))


def made_of(structure: Structure, task: TaskOfAnyStructure, seed: int) -> Case | Question:
    """The case, or question, of a structure that is asked about besides: always the same, so that an answer is judged
    in what it has been looked at in, whatever else it is asked; and another one for each draw."""
    symbols = {symbol: value for symbol, value in structure.items() if symbol != DRAW}
    drawn_for = zlib.crc32(repr(sorted(symbols.items())).encode())
    return task.case(np.random.default_rng([seed, 2, drawn_for, structure.get(DRAW, 0)]), **symbols)


def _is_allowed(structure: Structure, task: Task) -> bool:
    """Whether a structure, from wherever it comes, is one of the exercise's."""
    draw = structure.get(DRAW, 0)
    if structure.keys() - {DRAW} != task.ranges.keys() or type(draw) is not int or draw not in range(_DRAWS):
        return False
    kinds = {symbol: int if isinstance(range_, Integers) else str for symbol, range_ in task.ranges.items()}
    if any(type(structure[symbol]) is not kind for symbol, kind in kinds.items()):
        return False
    # In this order: a range that ends at another number is as long as that says.
    within = (structure[symbol] in task.ranges[symbol].within(structure) for symbol in _in_order(task.ranges))
    return all(within) and _fits(task, structure)
