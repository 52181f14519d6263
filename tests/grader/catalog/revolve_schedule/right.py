"""Right answers to revolve_schedule, spelled in many ways."""

import dataclasses
import enum
import functools

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
def the_last_of_the_best_splits(n, s):
    return tuple(by_splitting(n, s, lambda n, s: splits(n, s)[-1]))


@passes
def with_a_stack(n, s):
    """Without recursion: the remaining work is on a stack. State 0 is saved once more."""
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
    """Generators, and a table that is shared by all questions."""

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
