"""What an answer is asked."""

from grader.exercises.spec import Question

parameters = ("s", "b", "h", "a", "t", "mode")
ranges: dict = {}
signature = "activation_bytes(s, b, h, a, t, mode)"
returns = "an integer"


def cases(rng):
    """Every mode, with sizes drawn anew. All divisions come out even."""
    modes = "tensor", "tensor+sequence", "tensor+selective", "tensor+sequence+selective", "full"
    return tuple(Question(mode, (*_sizes(rng), mode)) for mode in modes)


def _sizes(rng):
    """s, b, h, a, t. The width of a head is a prime and divides none of the others: then the attention matrix is
    no simple multiple of the rest, and a number of bytes tells how it was come by."""
    t, heads, tokens = int(rng.choice([3, 5, 7])), int(rng.integers(2, 5)), int(rng.integers(20, 30))
    width = int(rng.choice([31, 37, 41, 43, 47]))
    return tokens * t, int(rng.integers(2, 5)), heads * t * width, heads * t, t


shown = None
