"""What is expected of an answer; only the judge reads this."""

import functools

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, KnownMistake, Recomputes, Saves


def sample_input(rng, argument):
    """Return values whose matmuls are large enough that sin(y) differs from y, and small enough to round little."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _chain(stages):
    return lambda x: functools.reduce(lambda x, stage: stage(x), stages, x)


def _last_twice(stages):
    return _chain([*stages, stages[-1]])


def _last_again(stages, which):
    """The stages of a loop are all the last one of it, `which`, when they are called."""
    return _chain([which] * (len(stages) - 1) + stages[-1:])


_IN_A_LOOP = "A function that is defined in a loop looks its stage up when it is called. Which stage does yours call?"

mistakes = (
    KnownMistake(
        "this is the value with the last stage run first",
        lambda stages: _chain(stages[::-1]),
        "In which order are the stages in the list, and in which order do you call them?",
    ),
    KnownMistake(
        "this is the value without the last stage",
        lambda stages: _chain(stages[:-1]),
        "Where does your answer call the stage that has no checkpoint?",
    ),
    KnownMistake(
        "this is the value with the last stage run twice",
        _last_twice,
        "Does your loop include the last stage, and which stage do you call after the loop?",
    ),
    KnownMistake(
        "this is the value of the first stage alone",
        lambda stages: stages[0],
        "Where does your function return: inside its loop or after it?",
    ),
    KnownMistake(
        "this is the value without the first stage",
        lambda stages: _chain(stages[1:]),
        "Which stages does your loop run, and which one do you call before or after it?",
    ),
    KnownMistake(
        "this is the value of the last stage alone",
        lambda stages: stages[-1],
        "With what do you call each stage: x, or what the previous stage returned?",
    ),
    KnownMistake(
        "this is the value with the last stage run instead of each of the others",
        lambda stages: _last_again(stages, stages[-1]),
        _IN_A_LOOP,
    ),
    KnownMistake(
        "this is the value with the second-to-last stage run instead of the stages before it",
        lambda stages: _last_again(stages, stages[max(len(stages) - 2, 0)]),
        _IN_A_LOOP,
    ),
    KnownMistake(
        "this is x itself",
        lambda stages: lambda x: x,
        "Your function is called more than once. Does it use a list of stages, or an iterator (a generator, map or "
        "zip), which is empty after the first loop?",
    ),
)

error_questions = (
    (
        r"unhashable type: '\w*Tracer|'function' object has no|has not called|Expected a callable",
        "jax.checkpoint takes a function and returns a function. Is stage(x) a function, and where do you call what "
        "jax.checkpoint returns?",
    ),
    (
        r"recursion",
        f"{_IN_A_LOOP} If it also calls f, as in f = lambda x: stage(f(x)), which f is that when it runs?",
    ),
    (
        r"checkpoint\(\) takes",
        "Which arguments does jax.checkpoint take by keyword only? Does this exercise need any besides the stage?",
    ),
    (r"not callable", "Which value does that line call, and is it a function or what a function returned?"),
    (r"positional argument", "best_placement takes the stages. What does the function that it returns take?"),
    (
        r"^Your answer changes the list",
        "Which line adds to the list or removes from it? The list belongs to the caller. How do you make a new one?",
    ),
    (r"index|empty|unpack", "What does that line do if the list has one stage?"),
    (
        r"JAX type|[Tt]racer|abstract array|weak reference",
        "A stage takes an array, and jax.checkpoint takes a stage. Does one of them get the whole list?",
    ),
)

hints = (
    Hint("With which stage does the backward pass begin? How long before that did the forward pass run this stage?"),
    Hint(
        "A function that is defined in a loop looks up its stage when it is called, after the loop has ended. Does a "
        "`lambda` of yours do that? `jax.checkpoint(stage)` without a `lambda` gets its stage at once.",
        on_kinds=("wrong value", "raises"),
        on_text="defined in a loop",
    ),
    Hint(
        "`best_placement(stages)` is called before there is an `x`. What should it return, and which function gets "
        "`x`?",
        on_kinds=("raises",),
        on_text="function that it returns take",
    ),
    Hint(
        "How many stages are inside each of your checkpoints? A value that is passed from one checkpoint to the next "
        "is saved. A value that is passed between two stages inside one checkpoint is not.",
        on_kinds=("not saved",),
        on_text="does not save stage",
    ),
    Hint(
        "For a list of four stages, write down which of them are inside a checkpoint in your answer. With which stage "
        "does the backward pass begin, and is it among them?",
        on_kinds=("not saved",),
        on_text=("does not save the last stage", "the last stage's first cosine"),
    ),
    Hint(
        "How does your answer recognize the last stage: by its position in the list, or by comparing functions? The "
        "same function can be in the list twice.",
        on_kinds=("recomputes", "also saved", "not saved"),
        on_text=("stage", "the same function"),
    ),
    Hint(
        "The values inside a stage are saved if the stage has no checkpoint. Which stages have none in your answer?",
        on_kinds=("also saved",),
        on_text=("first cosine, f", "checkpoint of its own"),
    ),
    Hint("If the list has one stage, which stages get a checkpoint in your answer? What is `stages[:-1]` then?"),
    Hint(
        "Nearly the answer: return a function of `x`. In it, loop over `stages[:-1]` with "
        "`x = jax.checkpoint(stage)(x)`, and then call `stages[-1]` without a checkpoint."
    ),
    Hint(
        "Your backward pass recomputes nothing in the cases that the finding names. Which function takes a stage and "
        "returns one that saves only its input?",
        on_kinds=("also saved",),
        on_text=("Which function marks", "stage 1's"),
    ),
    Hint(
        "Go through your answer with the list `[a, b, c]`, and write down what each stage is called with. Is it what "
        "the previous stage returned? Does each stage run once, and whose result do you return?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "Take a list of three stages. How many times does each stage run in the forward pass, and how many times in "
        "the backward pass?",
        on_kinds=("recomputes", "extra matmuls"),
    ),
    Hint(
        "`best_placement(stages)` runs no stage. It returns a function, defined inside by a `def` or a `lambda`. What "
        "does your `return` statement return?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "The list belongs to the caller, who uses it later. Which of your lines changes it, and which expression makes "
        "a new list?",
        on_kinds=("wrong type",),
        on_text="changes the list",
    ),
    Hint(
        "In `jax.checkpoint(stage)(x)`, which parentheses contain a function, and which contain an array? How many "
        "functions does `jax.checkpoint` take?",
        on_kinds=("raises",),
        on_text="jax.checkpoint take",
    ),
    Hint(
        "You can loop over a list any number of times, but over an iterator only once. Does your answer create the "
        "iterator once, or each time that your function is called with `x`?",
        on_kinds=("wrong value",),
        on_text="this is x itself",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    """The inputs of the wrapped stages are saved (that of the first is x), and the residuals of the last stage.

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
