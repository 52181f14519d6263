"""What an answer is asked."""

from grader.exercises.spec import Integers, Question

ranges = {"n": Integers(1, 110), "s": Integers(1, 20)}
signature = "revolve_schedule(n, s)"
returns = "a list of pairs such as ('step', 0)"


def cases(rng):
    """Draw some fifty pairs of numbers: the ends of both ranges, short chains, about as many slots as steps, and pairs
    from the whole range in which every number of slots occurs."""
    ends = [(n, s) for n in (1, 110) for s in (1, 20)]
    k = int(rng.integers(2, 20))
    short = [(int(rng.integers(2, 13)), int(rng.integers(1, 7))) for _ in range(8)]
    slots = [*rng.permutation(20), *rng.permutation(20)]
    anywhere = [(int(n), int(s) + 1) for n, s in zip(rng.integers(2, 110, len(slots)), slots, strict=True)]
    pairs = sorted({*ends, (k, k), (k + 1, k), (k + 2, k), (int(rng.integers(40, 110)), 1), *short, *anywhere})
    return tuple(case(rng, n, s) for n, s in pairs)


def case(rng, n, s):
    """Return the question for one pair of numbers."""
    return Question(f"n = {n}, s = {s}", (n, s), structure={"n": n, "s": s})


shown = None
