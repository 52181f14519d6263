"""What an answer is asked."""

from grader.exercise import Question

parameters = ("op",)
signature = "predict_residuals(op)"
returns = "a list of names"


def cases(rng):
    """The five operations, in an order drawn anew. There are no others to ask about."""
    return tuple(Question(str(op), (str(op),)) for op in rng.permutation(["sin", "exp", "relu", "tanh", "dot"]))


shown = None
