"""What an answer is asked."""

from grader.exercises.spec import OneOf, Question

OPERATIONS = "sin", "exp", "relu", "tanh", "log", "sigmoid", "cube", "add", "dot"

ranges = {"op": OneOf(OPERATIONS)}
signature = "predict_residuals(op)"
returns = "a list of names"


def cases(rng):
    """Return questions on the page's operations, in random order. There are no other operations."""
    order = [OPERATIONS[i] for i in rng.permutation(len(OPERATIONS))]
    return tuple(Question(op, (op,), structure={"op": op}) for op in order)


shown = None
