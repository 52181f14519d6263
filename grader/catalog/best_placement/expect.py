"""What is expected of an answer; only the judge reads this."""

import functools

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Values whose matmuls are large enough that sin(y) differs from y, and small enough to round little.
sample_input = signed_values(0.5, 1.5)


def _compose(stages):
    return lambda x: functools.reduce(lambda x, stage: stage(x), stages, x)


def _last_twice(stages):
    return _compose([*stages, stages[-1]])


def _last_again(stages, which):
    """Return the stages of a loop as they are when called: all are the last one, `which`."""
    return _compose([which] * (len(stages) - 1) + stages[-1:])


mistakes = (
    mistake("value_last_stage_run_first", lambda stages: _compose(stages[::-1])),
    mistake("value_without_last_stage", lambda stages: _compose(stages[:-1])),
    mistake("value_last_stage_run_twice", _last_twice),
    mistake("value_first_stage_alone", lambda stages: stages[0]),
    mistake("value_without_first_stage", lambda stages: _compose(stages[1:])),
    mistake("value_last_stage_alone", lambda stages: stages[-1]),
    mistake("value_last_stage_run_instead", lambda stages: _last_again(stages, stages[-1])),
    mistake("value_second_last_stage_run", lambda stages: _last_again(stages, stages[max(len(stages) - 2, 0)])),
    mistake("x_itself", lambda stages: lambda x: x),
)


def requirements(case):
    """Require that the inputs of the wrapped stages (that of the first is x) and the last stage's residuals are saved.

    Lists with the same function in several places come after those without, so that a finding that they alone show says
    so.
    """
    n = case.structure["n"]
    asked = [
        Recomputes(
            2 * (n - 1),
            too_many="Which stage's values does the backward pass need first, and when were they computed? And is any "
            "stage inside the checkpoint of another?",
        ),
        Saves(
            (
                *(f"stage {number}'s output" for number in range(1, n - 1)),
                "the last stage's first cosine",
                "the last stage's second cosine",
            ),
            too_much="Which stage computes that value, and does that stage have a checkpoint of its own?",
            too_little="Does the last stage compute that value? It should have no checkpoint. Or is it the output of "
            "another stage? Each of those needs a checkpoint of its own.",
        ),
    ]
    groups = [[], asked] if case.structure["same"] else [asked, []]
    return [*groups, [AdvisesBarrier()] if n > 1 else []]
