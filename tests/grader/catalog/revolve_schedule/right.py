"""Right answers to revolve_schedule, spelled in many ways."""

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
