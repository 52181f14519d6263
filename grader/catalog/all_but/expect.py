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
    (r"unhashable", "Does the function that makes a policy take a list of names, or names?"),
    (
        r"^KeyError: 'name'",
        "What is a policy asked about besides names, and do those have a parameter `name`?",
    ),
    (r"not callable", "Which of the values in that line is a function, and which is what a function returned?"),
)

hints = (
    Hint(
        "A policy is asked about every operation, and a name is one of those. What must yours say to another name than "
        "the given one, what to the given one, and what to all that is no name?"
    ),
    Hint(
        "Which function takes the policy, and is what that returns what you return?",
        after=("also saved",),
        says="Which function marks",
    ),
    Hint(
        "What does your policy say to what has no name? Print its answers, as the page does.",
        after=("also saved",),
        says="intermediate value",
    ),
    Hint(
        "Is the value that was saved too much the given one? How did the policy come by its name: as what to keep, or "
        "as what to leave out, and whole or letter by letter?",
        after=("also saved",),
    ),
    Hint(
        "Does `jax.checkpoint` get a policy at all? And which names may `f` have besides the given one: is a name that "
        "merely begins or ends like it another one?",
        after=("not saved",),
    ),
    Hint(
        "You know the name to leave out, but not those to keep. Which of the policies in chapter 5 is made from names "
        "to leave out? Or else: what would you ask about an operation, and its parameter, in a policy of your own?"
    ),
    Hint(
        "Nearly the answer: `save_any_names_but_these` takes names and makes a policy. Give it `name`, give what it "
        "returns to `jax.checkpoint` together with `f`, and return the function that you get."
    ),
    asked_about_names,
    Hint(
        "`save_any_names_but_these` with its parentheses is one thing, and without them another: which of the two "
        "is asked about operations, and which makes the one that is?",
        after=("raises",),
        says="a function that makes one",
    ),
    Hint(
        "The page calls `all_but(f, name)`. Which of the two comes first in your `def` line?",
        after=("argument order",),
    ),
    run_once,
    gradients_handed_on,
    Hint(
        "`all_but(f, name)` returns a function that is called in place of `f`, with `f`'s arguments. What does your"
        " `return` hand out: that, a policy, or something that has been called already?",
        after=("wrong type",),
    ),
    Hint(
        "How many names does your answer have to hand over, one or a list of them? What does the function that "
        "makes the policy take?",
        after=("raises",),
        says="a list of names, or names",
    ),
    *ABOUT_ERRORS,
)


_TOO_MUCH = "Does that value have a name in f, and is it the given one? What does your policy say to what has no name?"
_TOO_LITTLE = "Which names does f have besides the given one, and does your policy say yes to each of them?"


# What is saved, and how many products are computed again; of the other functions that follows from their structure.
_PLAIN = {
    "one name of three": (("mlp_gate", "out"), 1),
    "a product without a name": (("pre_mix",), 1),
    "a name that is not there": (("mlp", "mlp_gate", "out"), 0),
    "vmap over x, names drawn anew": (("mlp", "out"), 1),
}


def requirements(case):
    """Simple functions come first, one after the other; then all others together."""
    plain = case.name in _PLAIN
    if plain:
        saved, again = _PLAIN[case.name]
    else:
        saved, again = saving(case, {value.name for value in case.structure["values"]} - {case.structure["left_out"]})
    groups: list[tuple[Requirement, ...]] = [()] * (len(_PLAIN) + 2)
    groups[list(_PLAIN).index(case.name) if plain else -2] = (
        Saves(saved, too_much=_TOO_MUCH, too_little=_TOO_LITTLE),
        Recomputes(again, too_many=too_many),
    )
    groups[-1] = (AdvisesBarrier(),) if plain and saved else ()
    return groups
