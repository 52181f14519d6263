"""What an answer is asked."""

from grader.exercises.spec import Question

parameters = ("op",)
ranges: dict = {}
signature = "predict_residuals(op)"
returns = "a list of names"


def cases(rng):
    """The page's operations, in an order drawn anew. There are no others to ask about."""
    operations = ["sin", "exp", "relu", "tanh", "log", "sigmoid", "cube", "add", "dot"]
    return tuple(Question(str(op), (str(op),)) for op in rng.permutation(operations))


shown = None
