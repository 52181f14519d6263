"""What is expected of an answer; only the judge reads this."""

from grader.catalog.saved_by_name import (
    asked_about_names,
    draw,
    gradients_handed_on,
    mistakes,
    run_once,
    saving,
    too_many,
)
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Requirement, Saves

__all__ = ["draw", "error_questions", "hints", "mistakes", "requirements"]


error_questions = (
    (r"save_\w+\(\) got an", "What do you give as policy=, a policy or a function that makes one?"),
    (r"unhashable|not iterable", "Does the function that makes a policy take a list of names, or names?"),
    (r"^IndexError", "How many names may there be? What if there is none?"),
    (
        r"^KeyError: 'name'",
        "What is a policy asked about besides names, and do those have a parameter `name`?",
    ),
    (r"not callable", "Which of the values in that line is a function, and which is what a function returned?"),
)

hints = (
    Hint(
        "Is what `jax.checkpoint(f)` returns a value or a function? Do you know `f`'s arguments here, and do you need "
        "them?"
    ),
    Hint(
        'In the mini-example the policy got `"up"`. What does it get in your answer: strings, or one list of strings? '
        "How does Python hand over the elements of a list as single arguments?",
        after=("raises",),
        says="unhashable",
    ),
    Hint(
        "Does `jax.checkpoint` get a policy at all, and is that made from all of `names`?",
        after=("not saved",),
    ),
    Hint(
        'In the mini-example the policy got `"up"`. What does it get in your answer: strings, or one tuple of strings? '
        "How does Python hand over the elements of a tuple as single arguments?",
        after=("not saved",),
    ),
    Hint(
        "Which function takes the policy, and is what that returns what you return, for an empty list too?",
        after=("also saved",),
        says="Which function marks",
    ),
    Hint(
        "What does your policy say to what has no name?",
        after=("also saved",),
        says="intermediate value",
    ),
    Hint(
        "Has the value that was saved too much a name that is in the list, or only one that begins like it?",
        after=("also saved",),
    ),
    Hint(
        "Nearly the answer: which line of the mini-example makes a policy from a name, and which wraps `f`? Put the "
        'two together, with all of your `names`, unpacked, where `"up"` stands.'
    ),
    asked_about_names,
    Hint(
        "`save_only_these_names` with its parentheses is one thing, and without them another: which of the two is "
        "asked about operations, and which makes the one that is?",
        after=("raises",),
        says="a function that makes one",
    ),
    Hint(
        "The page calls `save_named(f, names)`. Which of the two comes first in your `def` line?",
        after=("argument order",),
    ),
    run_once,
    gradients_handed_on,
    Hint(
        "`save_named(f, names)` returns a function that is called in place of `f`, with `f`'s arguments. What does "
        "your `return` hand out: that, a policy, or something that has been called already?",
        after=("wrong type",),
    ),
    Hint(
        "Call your function with no name at all, `save_named(f, [])`. Which line asks for a name that is not there "
        "then?",
        after=("raises",),
        says="What if there is none",
    ),
    *ABOUT_ERRORS,
)


_TOO_MUCH = (
    "To which names does your policy say yes? Are they exactly the given ones, each as a whole? And what does it say "
    "to what has no name?"
)
_TOO_LITTLE = "Which policy do you give to jax.checkpoint, and is each of the names handed to it as a name?"


# What is saved, and how many products are computed again; of the other functions that follows from their structure.
_PLAIN = {
    "one name of three": (("mlp",), 2),
    "two names of three": (("mlp_gate", "out"), 1),
    "a list, with a name that is not there": (("h",), 0),
    "vmap over x, names drawn anew": (("mlp", "out"), 1),
    "an empty list": ((), 1),
}


def requirements(case):
    """Simple functions come first, one after the other; then all others together."""
    plain = case.name in _PLAIN
    saved, again = _PLAIN[case.name] if plain else saving(case, case.structure["names"])
    groups: list[tuple[Requirement, ...]] = [()] * (len(_PLAIN) + 2)
    groups[list(_PLAIN).index(case.name) if plain else -2] = (
        Saves(saved, too_much=_TOO_MUCH, too_little=_TOO_LITTLE),
        Recomputes(again, too_many=too_many),
    )
    groups[-1] = (AdvisesBarrier(),) if plain and saved else ()
    return groups
