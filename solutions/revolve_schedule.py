"""Worked answer to exercise 17: save one state, and there are two smaller chains.

Go `k` steps ahead and save the state there. It cuts the chain in two. The back part has `n - k` steps and begins at the
saved state. State 0 keeps its slot, so the back part has `s - 1`, its own beginning included. Once the backward pass is
through with it, all of these are free: the front part, of `k` steps, has `s` again. So a schedule takes

    k + fewest(n - k, s - 1) + fewest(k, s)

steps, and the best `k` makes this smallest. Both parts are tasks of the same kind. A table of their answers, which
`functools.cache` keeps, makes the search quick. One slot leaves no choice: each step begins anew from the first state.

Equal parts are not the best: every step of the front part is taken once more than those of the back part, just to reach
the saved state, and on the other hand the front part has one slot more. For 10 steps and 3 slots, 4 and 6 are the only
best ones.

Griewank and Walther ("Algorithm 799: revolve", 2000) showed that the smallest number is `r n - C(s + r, r - 1)`, with
the least `r` for which `C(s + r, s)` is at least `n`, and found a best `k` without any search.
"""

import functools


def revolve_schedule(n, s):
    """Goes back through a chain of steps with at most `s` states in memory, in the fewest steps.

    Args:
      n: the number of steps, at least 1.
      s: the number of slots, at least 1; state 0 is in one of them from the beginning.

    Returns:
      A list of pairs: `("step", i)`, `("save", i)`, `("load", i)` or `("back", i)`.
    """
    return actions(0, n, s)


def actions(start, end, slots):
    """Goes back through the steps `start` to `end - 1`. State `start` is at hand, and in one of the slots."""
    if end - start == 1:
        return [("back", start)]
    if slots == 1:
        last = end - 1
        return [*steps(start, last), ("back", last), ("load", start), *actions(start, last, slots)]
    middle = start + best(end - start, slots)[1]
    to_the_middle = [*steps(start, middle), ("save", middle)]
    return [*to_the_middle, *actions(middle, end, slots - 1), ("load", start), *actions(start, middle, slots)]


def steps(start, end):
    return [("step", i) for i in range(start, end)]


@functools.cache
def best(n, s):
    """(the fewest steps, after how many of them the first state is saved)."""
    if n == 1:
        return 0, None
    if s == 1:
        return n * (n - 1) // 2, None
    return min((k + best(n - k, s - 1)[0] + best(k, s)[0], k) for k in range(1, n))
