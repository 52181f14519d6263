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
        r"unhashable",
        "Does the function that makes the policy take a list of names, or each name as a separate argument?",
    ),
    without_name,
    (r"not callable", "Which value does that line call, and is it a function or what a function returned?"),
)

hints = (
    Hint(
        "JAX calls a policy for every operation, and each `checkpoint_name` is one of those. What should your policy "
        "return for the name to leave out, for every other name, and for all other operations?"
    ),
    Hint(
        "Which function takes the policy? Do you return the function that it returns?",
        on_kinds=("also saved",),
        on_text="Which function marks",
    ),
    Hint(
        "Your forward pass saves values that have no name in `f`. What does your policy return for operations other "
        "than `name`? Print its answers, as the page does.",
        on_kinds=("also saved",),
        on_text="intermediate value",
    ),
    Hint(
        "Does the extra residual have the name that should be left out? If so, does your policy compare it with "
        "`name` as one whole string, and leave it out for every shape and dtype?",
        on_kinds=("also saved",),
    ),
    Hint(
        "Does `jax.checkpoint` get your policy? Does the policy return True for the value in the finding? Only a name "
        "equal to `name` is left out, not one that begins or ends like it.",
        on_kinds=("not saved",),
    ),
    Hint(
        "You know the name to leave out, but not the names to save. Which policy in chapter 5 takes the names to leave "
        "out? Or, in a policy of your own: which operation, and which of its parameters, would you check?"
    ),
    Hint(
        "Nearly the answer: `save_any_names_but_these(name)` returns a policy. Pass it to `jax.checkpoint` together "
        "with `f`, and return the function that you get."
    ),
    asked_about_names,
    Hint(
        "A function such as `save_any_names_but_these` makes a policy; it is not one itself. Do you call it with the "
        "name, and pass what it returns as `policy=`?",
        on_kinds=("raises",),
        on_text="a function that makes one",
    ),
    Hint(
        "The page calls `all_but(f, name)`. In which order does your `def` line take the two?",
        on_kinds=("argument order",),
    ),
    run_once,
    other_operations,
    Hint(
        "`all_but(f, name)` returns a function that is called instead of `f`, with the same arguments. Do you return "
        "that function, or a policy, or the result of a call?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "A function that makes a policy from names takes each name as a separate argument, not a list of them. How "
        "many names do you have to pass?",
        on_kinds=("raises",),
        on_text="a list of names",
    ),
    *ABOUT_ERRORS,
)


_TOO_MUCH = (
    "Does that value have a name in f, and is it the name to leave out? What does your policy return for values "
    "without a name?"
)
_TOO_LITTLE = "Does your policy return True for every name in f other than the one to leave out?"


# The saved values, and the number of recomputed matmuls. For the other functions their structure gives both.
_PLAIN = {
    "one of three names": (("mlp_gate", "out"), 1),
    "a matmul without a name": (("pre_mix",), 1),
    "a name that f does not have": (("mlp", "mlp_gate", "out"), 0),
    "vmap over x, random names": (("mlp", "out"), 1),
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
