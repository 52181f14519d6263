"""What an answer is asked."""

from grader.exercises.spec import Question

parameters = ("n",)
ranges: dict = {}
signature = "cse_lab(n)"
returns = "a dict of three pairs of integers, {'barriers': …, 'lowered': …, 'compiled': …},"


def cases(rng):
    """One layer, and a number of them drawn anew. More would tell no more and take longer to compile."""
    return Question("one layer", (1,)), Question("several layers", (int(rng.integers(3, 6)),))


shown = None
