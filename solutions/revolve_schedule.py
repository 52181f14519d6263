"""Worked answer to exercise 15: saving one state splits the problem into two smaller ones.

Take `k` steps and save the state that you reach. It splits the chain in two. The second part has `n - k` steps and
starts at the saved state. State 0 keeps its slot, so the second part has `s - 1` slots, including the one of its own
first state. Once the backward pass of the second part is complete, these slots are free, and the first part, of `k`
steps, has all `s` slots. So the schedule takes

    k + fewest(n - k, s - 1) + fewest(k, s)

steps, and the best `k` minimizes this sum. Both parts are problems of the same kind, so this is dynamic programming.
`functools.cache` stores the solution of each subproblem. With one slot there is no choice: every state is recomputed
from the first one.

Two equal parts are not optimal. Each step of the first part runs one more time, to reach the saved state, but the first
part has one slot more. For 10 steps and 3 slots, the only optimal `k` is 4, which gives parts of 4 and 6 steps.

Griewank and Walther ("Algorithm 799: revolve", 2000) proved that the minimum is `r n - C(s + r, r - 1)`, with the
smallest `r` for which `C(s + r, s)` is at least `n`, and gave a formula for an optimal `k`, so that no search is
needed.
"""

import functools


def revolve_schedule(n, s):
    """Return a schedule for the backward pass of a chain of steps, with at most s saved states and the fewest steps.

    Args:
      n: the number of steps, at least 1.
      s: the number of slots, at least 1; state 0 occupies one of them at the start.

    Returns:
      A list of pairs: `("step", i)`, `("save", i)`, `("load", i)` or `("back", i)`.
    """
    return actions(0, n, s)


def actions(start, end, slots):
    """Return the actions for the steps `start` to `end - 1`; state `start` is at hand and in one of the slots."""
    if end - start == 1:
        return [("back", start)]
    if slots == 1:
        last = end - 1
        return [*run_steps(start, last), ("back", last), ("load", start), *actions(start, last, slots)]
    middle = start + best(end - start, slots)[1]
    to_the_middle = [*run_steps(start, middle), ("save", middle)]
    return [*to_the_middle, *actions(middle, end, slots - 1), ("load", start), *actions(start, middle, slots)]


def run_steps(start, end):
    return [("step", i) for i in range(start, end)]


@functools.cache
def best(n, s):
    """Return (the fewest steps, the number of steps before the first save)."""
    if n == 1:
        return 0, None
    if s == 1:
        return n * (n - 1) // 2, None
    return min((k + best(n - k, s - 1)[0] + best(k, s)[0], k) for k in range(1, n))
