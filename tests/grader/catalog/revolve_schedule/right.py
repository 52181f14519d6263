"""Right answers to revolve_schedule, spelled in many ways."""

import dataclasses
import enum
import functools
from math import comb

import numpy as np
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@functools.cache
def taken(n, s):
    if n == 1 or s == 1:
        return n * (n - 1) // 2
    return min(k + taken(n - k, s - 1) + taken(k, s) for k in range(1, n))


def splits(n, s):
    return [k for k in range(1, n) if k + taken(n - k, s - 1) + taken(k, s) == taken(n, s)]


def go(start, end):
    return [("step", i) for i in range(start, end)]


def by_splitting(n, s, split, start=0):
    if n == 1:
        return [("load", start), ("back", start)]
    k = split(n, s) if s > 1 else n - 1
    first = by_splitting(k, s, split, start)
    if s == 1:
        return [("load", start), *go(start, start + k), ("back", start + k), *first]
    there = [("load", start), *go(start, start + k), ("save", start + k)]
    return [*there, *by_splitting(n - k, s - 1, split, start + k), *first]


@passes
def the_first_of_the_best_splits(n, s):
    return by_splitting(n, s, lambda n, s: splits(n, s)[0])


@passes
def the_last_of_the_best_splits(n, s):
    return tuple(by_splitting(n, s, lambda n, s: splits(n, s)[-1]))


@passes
def without_a_search(n, s):
    """How far ahead to save, by what can be done with r repeats: as the paper does."""

    def split(n, s):
        r = next(r for r in range(n) if comb(s + r, s) >= n)
        least, most = comb(s + r - 2, s) if r > 1 else 0, comb(s + r - 1, s)
        # The back part's length must be one that r repeats serve, and the front part's one that r - 1 or r serve.
        return max(1, least, min(most, n - (comb(s - 1 + r - 1, s - 1))), n - comb(s - 1 + r, s - 1))

    return by_splitting(n, s, split)


@passes
def with_a_stack(n, s):
    """No function that calls itself: what is still to be done lies on a stack. State 0 is saved once more."""
    schedule, todo = [("save", 0)], [(0, n, s)]
    at_hand = 0
    while todo:
        start, end, slots = todo.pop()
        if at_hand != start:
            schedule.append(("load", start))
        ahead = end - 1 if slots == 1 else start + (splits(end - start, slots) or [0])[0]
        schedule += go(start, ahead)
        at_hand = ahead
        if end - start == 1 or slots == 1:
            schedule.append(("back", at_hand))
            todo += [(start, end - 1, slots)] if end - 1 > start else []
        else:
            schedule.append(("save", ahead))
            todo += [(start, ahead, slots), (ahead, end, slots - 1)]
    return schedule


@passes
def lists_of_numpys_integers(n, s):
    return [[action, np.int64(i)] for action, i in by_splitting(n, s, lambda n, s: splits(n, s)[0])]


class Scheduler:
    """Generators, and a table that is kept from one question to the next."""

    def __init__(self):
        self.known = {}

    def best(self, n, s):
        if n == 1 or s == 1:
            return n * (n - 1) // 2, n - 1
        if (n, s) not in self.known:
            self.known[n, s] = min((k + self.best(n - k, s - 1)[0] + self.best(k, s)[0], k) for k in range(1, n))
        return self.known[n, s]

    def actions(self, start, n, s):
        while n > 1:
            k = self.best(n, s)[1]
            yield from go(start, start + k)
            if s == 1:
                yield "back", start + k
            else:
                yield "save", start + k
                yield from self.actions(start + k, n - k, s - 1)
            yield "load", start
            n = k
        yield "back", start

    def __call__(self, n, s):
        return list(self.actions(0, n, s))


scheduler = Scheduler()
scheduler.__name__ = "scheduler"
passes(scheduler)


class Verb(enum.StrEnum):
    STEP = "step"
    SAVE = "save"
    LOAD = "load"
    BACK = "back"


@dataclasses.dataclass(frozen=True)
class Action:
    verb: Verb
    state: int


@passes
def records(n, s):
    actions = [Action(Verb(verb), state) for verb, state in scheduler(n, s)]
    return [dataclasses.astuple(action) for action in actions]


@passes
def bottom_up(n, s):
    """A table of all shorter chains with fewer slots, row by row."""
    s = min(s, n)
    steps, cut = np.zeros((s + 1, n + 1), int), np.zeros((s + 1, n + 1), int)
    steps[1], cut[1] = np.arange(n + 1) * (np.arange(n + 1) - 1) // 2, np.arange(n + 1) - 1
    for slots in range(2, s + 1):
        for m in range(2, n + 1):
            k = np.arange(1, m)
            taken = k + steps[slots - 1, m - k] + steps[slots, k]
            steps[slots, m], cut[slots, m] = taken.min(), k[taken.argmin()]
    return by_splitting(n, s, lambda n, s: cut[s, n])


@passes
def added_up(n, s):
    parts = functools.partial(by_splitting, s=s, split=lambda n, s: splits(n, s)[-1])(n)
    return functools.reduce(lambda done, action: [*done, action], parts[:50], []) + parts[50:]


@passes
def by_recursion_on_lists(n, s):
    def go_back(states, s):
        if len(states) == 1:
            return [("back", states[0])]
        k = len(states) - 1 if s == 1 else splits(len(states), s)[0]
        there = [("step", i) for i in states[:k]]
        back = [("back", states[k])] if s == 1 else [("save", states[k]), *go_back(states[k:], s - 1)]
        return there + back + [("load", states[0]), *go_back(states[:k], s)]

    return go_back(list(range(n)), s)
