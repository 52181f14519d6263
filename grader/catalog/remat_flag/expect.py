"""What is expected of an answer; only the judge reads this."""

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Values whose matmuls are large enough that sin(y) differs from y, and small enough to round little.
sample_input = signed_values(0.3, 1.2)


mistakes = (
    mistake("opposite_flag", lambda f: lambda *arguments: f(*arguments[:-1], not arguments[-1])),
    *(
        mistake("constant_flag", lambda f, flag=flag: lambda *arguments: f(*arguments[:-1], flag), flag=flag)
        for flag in (True, False)
    ),
    mistake("flag_of_first_call", lambda f: _with_the_first_flag(f)),
)


def _with_the_first_flag(f):
    flags = []

    def g(*arguments):
        flags.append(arguments[-1])
        return f(*arguments[:-1], flags[0])

    return g


_TOO_MUCH = "Is all of f inside jax.checkpoint, for both values of the flag, and without a policy?"
_TOO_MANY = "How many times does your answer trace f for one value of the flag?"


def requirements(case):
    asked = [Saves((), too_much=_TOO_MUCH), Recomputes(case.structure.get("products", 2), too_many=_TOO_MANY)]
    if "products" not in case.structure:
        asked.append(AdvisesBarrier())
    return [asked]
