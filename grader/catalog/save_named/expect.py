"""What is expected of an answer; only the judge reads this."""

from grader.catalog.saved_by_name import (
    asked_about_names,
    mistakes,
    other_operations,
    run_once,
    sample_input,
    saving,
    too_many,
    without_name,
)
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Requirement, Saves

__all__ = ["error_questions", "hints", "mistakes", "requirements", "sample_input"]


error_questions = (
    (r"save_\w+\(\) got an", "Do you pass policy= a policy or a function that makes one?"),
    (
        r"unhashable|not iterable",
        "Does the function that makes the policy take a list of names, or each name as a separate argument?",
    ),
    (r"^IndexError", "How many names can there be? What does that line do if the list is empty?"),
    without_name,
    (r"not callable", "Which value does that line call, and is it a function or what a function returned?"),
)

hints = (
    Hint(
        "`jax.checkpoint(f)` returns a function. Do you know the arguments of `f` when `save_named` is called, and do "
        "you need them?"
    ),
    Hint(
        'In the mini-example, the function that makes the policy gets `"up"`. Does it get strings in your answer, or '
        "one list of strings? How does a call spread a list over several arguments?",
        on_kinds=("raises",),
        on_text="unhashable",
    ),
    Hint(
        "Does `jax.checkpoint` get a policy at all? Does that policy return True for each string in `names`?",
        on_kinds=("not saved",),
    ),
    Hint(
        'In the mini-example, the function that makes the policy gets `"up"`. Does it get strings in your answer, or '
        "one tuple of strings? How does a call spread a tuple over several arguments?",
        on_kinds=("not saved",),
    ),
    Hint(
        "Which function takes the policy? Do you return the function that it returns, also if `names` is empty?",
        on_kinds=("also saved",),
        on_text="Which function marks",
    ),
    Hint(
        "Your forward pass saves values that have no name in `f`. What does your policy return for operations other "
        "than `name`?",
        on_kinds=("also saved",),
        on_text="intermediate value",
    ),
    Hint(
        "Is the name of the extra residual in `names`, or is it only similar to a name in the list? How does your "
        "policy compare the two?",
        on_kinds=("also saved",),
    ),
    Hint(
        "Nearly the answer: one line of the mini-example makes a policy from a name, and another wraps `f`. Combine "
        'the two, and replace `"up"` with all of your `names`, unpacked.'
    ),
    asked_about_names,
    Hint(
        "A function such as `save_only_these_names` makes a policy; it is not one itself. Do you call it with the "
        "names, and pass what it returns as `policy=`?",
        on_kinds=("raises",),
        on_text="a function that makes one",
    ),
    Hint(
        "The page calls `save_named(f, names)`. In which order does your `def` line take the two?",
        on_kinds=("argument order",),
    ),
    run_once,
    other_operations,
    Hint(
        "`save_named(f, names)` returns a function that is called instead of `f`, with the same arguments. Do you "
        "return that function, or a policy, or the result of a call?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "Call your function without any names: `save_named(f, [])`. Which line looks up a name that is not there?",
        on_kinds=("raises",),
        on_text="if the list is empty",
    ),
    *ABOUT_ERRORS,
)


_TOO_MUCH = (
    "For which names does your policy return True: exactly those in the list, each compared as a whole? What does it "
    "return for values without a name?"
)
_TOO_LITTLE = "Which policy does jax.checkpoint get, and is it made from all of the names, each as a separate argument?"


# The saved values, and the number of recomputed matmuls. For the other functions their structure gives both.
_PLAIN = {
    "one of three names": (("mlp",), 2),
    "two of three names": (("mlp_gate", "out"), 1),
    "a list with a name that f does not have": (("h",), 0),
    "vmap over x, random names": (("mlp", "out"), 1),
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
