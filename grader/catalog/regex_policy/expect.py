"""What is expected of an answer; only the judge reads this."""

from grader.catalog.saved_by_name import draw, saving
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Saves

__all__ = ["draw", "error_questions", "hints", "mistakes", "requirements"]

mistakes = ()

error_questions = (
    (r"KeyError: 'name'", "What is a policy asked about besides names, and do those have a parameter `name`?"),
    (
        r"remat policy should be|return value of the polic",
        "A policy says yes or no. What does a match say, or a function of re that finds none?",
    ),
    (
        r"unterminated|unbalanced|nothing to repeat|PatternError",
        "Does your answer change the pattern, or cut it at its bars? What if the alternatives stand in brackets?",
    ),
    (r"positional argument|keyword", "With what does JAX call a policy: how many operands, and which parameters?"),
    (r"not callable", "regex_policy takes a pattern and returns a policy, a function. Does yours?"),
    (
        r"expected string|not subscriptable|attribute",
        "Which of the things that a policy gets is the name, a string?",
    ),
)

hints = (
    Hint(
        "A policy is asked about every operation, and a name is one of those. Which two questions must yours ask, and "
        "in which order?"
    ),
    Hint(
        "What is saved has no name at all. What does your policy say to an operation that is none, and what is the "
        "operation itself called?",
        after=("also saved",),
        says="intermediate value",
    ),
    Hint(
        "A name is saved that merely contains what the pattern describes, or begins with it. Which function of `re` "
        "asks about a name from end to end?",
        after=("also saved",),
        says="from end to end",
    ),
    Hint(
        "Print what your policy answers to each operation, as the page does. Which names should it say yes to, and "
        "does it read the pattern as a pattern?",
        after=("not saved",),
    ),
    Hint(
        'Try your policy alone: `regex_policy("a|b")` is a function. What does it return, as a type, for a name that '
        "matches, for one that does not, and for a product?",
        after=("raises", "wrong type"),
    ),
    Hint(
        "The right value, in the wrong memory. Which answers may a policy give, and which of them leave a value on the "
        "device?",
        after=("wrong memory",),
    ),
    Hint('What do `re.search`, `re.match` and `re.fullmatch` say of `"mlp"` and `"mlp_gate"`? Print all three.'),
    Hint(
        "Nearly the answer: a function of the operation, any operands and any parameters. It is true where the "
        'operation\'s `name` is `"name"` and `re.fullmatch` finds something in the parameter `name`. How does that '
        "become a `bool`?"
    ),
    Hint(
        "The pattern is right as it comes. Which function of `re` takes all of it, with its brackets and bars, and "
        "asks about a name from end to end?",
        after=("raises",),
        says="in brackets",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    # Of the scan the pattern describes "out" too, but no derivative needs it; the carry is an argument of each turn.
    described = case.structure["saved"]
    if case.structure["called"] == "jax.lax.scan":
        saved = ("input", *(name for name in ("mlp", "mlp_gate") if name in described))
        saved = tuple(f"all turns' {name}" for name in saved)
    else:
        saved = saving(case, described)[0]
    return [
        [
            Saves(
                saved,
                too_much="Does that value have a name, and does the pattern describe it from end to end?",
                too_little="Which names does the pattern describe, and does your policy say yes to each, as a bool?",
            )
        ]
    ]
