"""What is expected of an answer; only the judge reads this."""

import functools

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _chain(stages):
    return lambda x: functools.reduce(lambda x, stage: stage(x), stages, x)


def _last_twice(stages):
    return _chain([*stages, stages[-1]])


def _last_again(stages, which):
    """The stages of a loop are all the last one of it, `which`, when they are called."""
    return _chain([which] * (len(stages) - 1) + stages[-1:])


_IN_A_LOOP = "A function that is defined in a loop and called later: which stage does it call then?"

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
        "this is the value with the last stage run twice",
        _last_twice,
        "Does your loop go over the last stage too, and what comes behind the loop?",
    ),
    Mistake(
        "this is the value of the first stage alone",
        lambda stages: stages[0],
        "Where does your function return: in its loop, or behind it?",
    ),
    Mistake(
        "this is the value without the first stage",
        lambda stages: _chain(stages[1:]),
        "Which stages does your loop go over, and which one is run before or behind it?",
    ),
    Mistake(
        "this is the value of the last stage alone",
        lambda stages: stages[-1],
        "What does each stage get: x, or what the stage before has returned?",
    ),
    Mistake(
        "this is the value with the last stage run in place of each of the others",
        lambda stages: _last_again(stages, stages[-1]),
        _IN_A_LOOP,
    ),
    Mistake(
        "this is the value with the last stage but one run in place of those before it",
        lambda stages: _last_again(stages, stages[max(len(stages) - 2, 0)]),
        _IN_A_LOOP,
    ),
    Mistake(
        "this is x itself",
        lambda stages: lambda x: x,
        "Your function is called twice: does it hold a list of stages, or something that is empty once a loop has been "
        "through it, as a generator, map or zip is?",
    ),
)

error_questions = (
    (
        r"unhashable type: '\w*Tracer|'function' object has no|has not called|Expected a callable",
        "jax.checkpoint takes a function and returns one: is stage(x) a function, and who calls what comes back?",
    ),
    (
        r"recursion",
        f"{_IN_A_LOOP} And where such a function calls f, as in f = lambda x: stage(f(x)), which f is that by then?",
    ),
    (
        r"checkpoint\(\) takes",
        "Which arguments does jax.checkpoint take by keyword only? And does this exercise need more than the stage?",
    ),
    (r"not callable", "Which of the values in that line is a function, and which is what a function returned?"),
    (r"positional argument", "best_placement takes the stages; what does the function that it returns take?"),
    (
        r"^Your answer changes the list",
        "Which line puts something into the list or takes something out? The list belongs to whoever calls you: how do "
        "you make one of your own?",
    ),
    (r"index|empty|unpack", "What does that line do with a list of one stage?"),
    (
        r"JAX type|[Tt]racer|abstract array|weak reference",
        "A stage takes an array, and jax.checkpoint takes a stage: does either of them get the whole list?",
    ),
)

hints = (
    Hint("With which stage does the backward pass begin? At that moment, how long ago did the forward pass run it?"),
    Hint(
        "The functions of a loop look their stage up when they are called, and the loop is over by then. What is in "
        "a `lambda` of yours, and does `jax.checkpoint(stage)` without one have its stage at once?",
        after=("wrong value", "raises"),
        says="defined in a loop",
    ),
    Hint(
        "`best_placement(stages)` is called before there is any `x`. What does it return, and who calls that with `x`?",
        after=("raises",),
        says="function that it returns take",
    ),
    Hint(
        "How many stages are inside each of your checkpoints? What goes from one checkpoint into the next is kept, and "
        "what goes from stage to stage inside one is not.",
        after=("not saved",),
        says="does not save stage",
    ),
    Hint(
        "Which stages are inside a checkpoint in your answer? Write the list for four stages. Where does the backward "
        "pass begin, and is that stage on your list?",
        after=("not saved",),
        says="does not save the last stage",
    ),
    Hint(
        "How do you know which stage is the last: by its place in the list, or by what function it is? The same "
        "function may stand in two places.",
        after=("recomputes", "also saved", "not saved"),
        says=("stage", "the same function"),
    ),
    Hint(
        "What is inside a stage is kept if no checkpoint is around that stage. Which stages have none in your answer?",
        after=("also saved",),
        says=("first cosine, f", "checkpoint of its own"),
    ),
    Hint("For a list of one stage, which stages are wrapped? What do you get from `stages[:-1]` then?"),
    Hint(
        "Nearly the answer: return a function of `x`. In it, go through `stages[:-1]` with "
        "`x = jax.checkpoint(stage)(x)`, and then call `stages[-1]` as it is."
    ),
    Hint(
        "Nothing of your answer is computed again. What takes a stage, and returns a function that keeps only its "
        "input?",
        after=("also saved",),
        says=("Which function marks", "stage 1's"),
    ),
    Hint(
        "Go through your answer with the list `[a, b, c]`, and write down what each stage gets: is that what the one "
        "before has returned? Does each stage run once, and which one's result comes back?",
        after=("wrong value",),
    ),
    Hint(
        "Count for a list of three: how often does each stage run in your forward pass, and how often again in the "
        "backward pass?",
        after=("recomputes", "extra matmuls"),
    ),
    Hint(
        "`best_placement(stages)` runs no stage. It returns a function, made by a `def` or a `lambda` inside: is that "
        "what stands behind your `return`?",
        after=("wrong type",),
    ),
    Hint(
        "The list is the caller's, and is used again. Which of your lines changes it, and what makes a new list?",
        after=("wrong type",),
        says="changes the list",
    ),
    Hint(
        "`jax.checkpoint(stage)(x)`: which brackets hold a function, and which hold an array? How many functions does "
        "`jax.checkpoint` take at a time?",
        after=("raises",),
        says="jax.checkpoint take",
    ),
    Hint(
        "A list can be gone through as often as you like. What happens to an iterator when it has been gone through "
        "once, and when does your answer do that: when it is made, or each time that it is called with x?",
        after=("wrong value",),
        says="this is x itself",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    """The inputs of the wrapped stages are saved (the first one's is x), and what the last stage keeps for itself.

    Lists with the same function in several places come after those without, so that a finding that they alone show says
    so.
    """
    n = case.structure["n"]
    asked = [
        Recomputes(
            2 * (n - 1),
            too_many="Of which stage does the backward pass need the values first? Were they there a moment ago? And "
            "does any stage stand in the checkpoint of another?",
        ),
        Saves(
            (
                *(f"stage {number}'s output" for number in range(1, n - 1)),
                "the last stage's first cosine",
                "the last stage's second cosine",
            ),
            too_much="Of which stage is that a value, and does that stage have a checkpoint of its own?",
            too_little="Whose value is that: does the last stage keep what it needs, and does each of the others have "
            "a checkpoint of its own, so that its output is handed on?",
        ),
    ]
    groups = [[], asked] if case.structure["same"] else [asked, []]
    return [*groups, [AdvisesBarrier()] if n > 1 else []]
