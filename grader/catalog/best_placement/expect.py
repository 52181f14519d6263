"""What is expected of an answer; only the judge reads this."""

import functools

from grader.hints import Hint
from grader.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _chain(stages):
    return lambda x: functools.reduce(lambda x, stage: stage(x), stages, x)


mistakes = (
    Mistake(
        "this is the value with the last stage run first",
        lambda stages: _chain(stages[::-1]),
        "In which order do the stages stand in the list, and in which are they called?",
    ),
    Mistake(
        "this is the value without the last stage",
        lambda stages: _chain(stages[:-1]),
        "What becomes of the stage that is not wrapped?",
    ),
    Mistake(
        "this is the value of the last stage alone",
        lambda stages: stages[-1],
        "What does each stage get: x, or what the stage before has returned?",
    ),
)

error_questions = (
    (
        r"recursion",
        "A function that is defined in a loop and called later: which stage does it call then, the one of that turn, "
        "or the last?",
    ),
    (r"not callable", "Which of the values in that line is a function, and which is what a function returned?"),
    (r"positional argument", "best_placement takes the stages; what does the function that it returns take?"),
    (r"index|empty|unpack", "What does that line do with a list of one stage?"),
    (
        r"JAX type|[Tt]racer|abstract array|weak reference",
        "A stage takes an array, and jax.checkpoint takes a stage: does either of them get the whole list?",
    ),
)

hints = (
    Hint("With which stage does the backward pass begin? At that moment, how long ago did the forward pass run it?"),
    Hint(
        "Which stages are inside a checkpoint in your answer? Write the list for four stages. Is the last one on it?",
        after=("recomputes", "not saved"),
    ),
    Hint(
        "What is inside a stage is kept if no checkpoint is around that stage. Which stages have none in your answer?",
        after=("also saved",),
    ),
    Hint(
        "What goes from one checkpoint into the next is kept. How many values would be handed on in this way if one "
        "checkpoint held several stages?",
        after=("not saved",),
    ),
    Hint("For a list of one stage, which stages are wrapped? What do you get from `stages[:-1]` then?"),
    Hint(
        "Nearly the answer: return a function of `x`. In it, go through `stages[:-1]` with "
        "`x = jax.checkpoint(stage)(x)`, and then call `stages[-1]` as it is."
    ),
)


def _placed(case, wrapped, recomputed):
    """The inputs of the wrapped stages are saved (the first one's is x), and what the last stage keeps for itself."""
    return (
        (case,),
        (
            Recomputes(
                recomputed,
                too_many="Of which stage does the backward pass need the values first? Were they there a moment ago? "
                "And does any stage stand in the checkpoint of another?",
            ),
            Saves(
                (*wrapped, "the last stage's first cosine", "the last stage's second cosine"),
                too_much="Of which stage is that a value, and does that stage have a checkpoint of its own?",
                too_little="Whose value is that: does the last stage keep what it needs, and does each of the others "
                "have a checkpoint of its own, so that its output is handed on?",
            ),
        ),
    )


requirements = (
    _placed("four stages", ("stage 1's output", "stage 2's output"), recomputed=6),
    _placed("two stages, under vmap", (), recomputed=2),
    _placed("one stage", (), recomputed=0),
    (("four stages", "two stages, under vmap"), (AdvisesBarrier(),)),
)
