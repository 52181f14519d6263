"""What an answer is asked."""

from grader.exercises.spec import Question

parameters = ("n", "s")
ranges: dict = {}
signature = "revolve_schedule(n, s)"
returns = "a list of pairs such as ('step', 0)"


def cases(rng):
    """Lengths and numbers of slots drawn anew. For a long chain the usual schedules differ in how many steps they take,
    so that the number tells which it was."""
    few, several = int(rng.integers(4, 8)), int(rng.integers(6, 9))
    return (
        Question("one step", (1, int(rng.integers(1, 4)))),
        Question("one slot", (few, 1)),
        Question("more slots than steps", (several, several + int(rng.integers(1, 4)))),
        Question("a long chain", (int(rng.integers(94, 109)), int(rng.integers(4, 7)))),
    )


shown = None
