"""What is expected of an answer; only the judge reads this."""

import functools

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Values whose matmuls are large enough that sin(y) differs from y, and small enough to round little.
sample_input = signed_values(0.5, 1.5)


def _compose_stages(stages):
    return lambda x: functools.reduce(lambda x, stage: stage(x), stages, x)


def _repeat_stage(stages, which):
    """Return the stages of a loop as they are when called: all are the last one, `which`."""
    return _compose_stages([which] * (len(stages) - 1) + stages[-1:])


mistakes = (
    mistake("reverse_order", lambda stages: _compose_stages(stages[::-1])),
    mistake("without_last_stage", lambda stages: _compose_stages(stages[:-1])),
    mistake("last_stage_twice", lambda stages: _compose_stages([*stages, stages[-1]])),
    mistake("first_stage_alone", lambda stages: stages[0]),
    mistake("without_first_stage", lambda stages: _compose_stages(stages[1:])),
    mistake("last_stage_alone", lambda stages: stages[-1]),
    mistake("last_stage_everywhere", lambda stages: _repeat_stage(stages, stages[-1])),
    mistake(
        "second_to_last_stage_everywhere",
        lambda stages: _repeat_stage(stages, stages[max(len(stages) - 2, 0)]),
    ),
    mistake("returns_x", lambda stages: lambda x: x),
)


def requirements(case):
    """Require a checkpoint around each stage whose input is an argument or takes less memory than its residuals.

    Lists with repeated functions come last, so that a finding that only they show says so.
    """
    sizes, width = case.structure["sizes"], case.arguments[0].shape[-1]
    wrapped = [number == 1 or each.cosines * each.width > width for number, each in enumerate(sizes, 1)]
    saved = []
    for number, each in enumerate(sizes, 1):
        if not wrapped[number - 1]:
            saved += [f"stage {number}'s cosine {cosine}" for cosine in range(1, each.cosines + 1)]
        elif number > 1:
            saved.append(f"stage {number - 1}'s output")
    asked = [
        Recomputes(
            sum(wrapped),
            too_many="Which stages does the backward pass recompute, and is the input of each of them smaller than its "
            "residuals? Is any stage inside another stage's checkpoint?",
        ),
        Saves(
            tuple(saved),
            too_much="Is that value a stage's input, or one of a stage's residuals? If you made the opposite decision "
            "for that stage, what would be saved instead, and how large is that?",
            too_little="Is that value a stage's input, or one of a stage's residuals? Compare the bytes of that "
            "stage's input and residuals. Does each checkpoint contain exactly one stage?",
        ),
    ]
    groups = [[], asked] if case.structure["same"] else [asked, []]
    return [*groups, [AdvisesBarrier()]]
