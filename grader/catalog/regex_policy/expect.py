"""What is expected of an answer; only the judge reads this."""

from grader.catalog.saved_by_name import sample_input, saving
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Saves

__all__ = ["error_questions", "hints", "mistakes", "requirements", "sample_input"]

mistakes = ()

error_questions = (
    (
        r"KeyError: 'name'",
        "JAX asks a policy about every operation. Do operations other than `name` have a parameter `name`?",
    ),
    (
        r"remat policy should be|return value of the polic",
        "A policy returns True or False. What do the functions of `re` return for a match, and for no match?",
    ),
    (
        r"unterminated|unbalanced|nothing to repeat|PatternError",
        "Does your answer change the pattern or split it at `|`? A group such as `(a|b)` must stay whole.",
    ),
    (
        r"positional argument|keyword",
        "JAX calls a policy with an operation, any number of operands, and keyword arguments. Which does yours accept?",
    ),
    (r"not callable", "regex_policy takes a pattern and returns a policy, which is a function. Does yours?"),
    (
        r"expected string|not subscriptable|attribute",
        "Which of the arguments that a policy gets is the name, a string?",
    ),
)

hints = (
    Hint(
        "JAX asks a policy about every operation, and `checkpoint_name` is one of them. How does your policy recognize "
        "that operation, and how does it get the name?"
    ),
    Hint(
        "Your policy saves a value without a name. What does it return for an operation that is not `name`, such as a "
        "matmul?",
        on_kinds=("also saved",),
        on_text="intermediate value",
    ),
    Hint(
        "Take a value that the check says should not be saved. Does `re.fullmatch(pattern, name)` find a match for its "
        "name? Save a value only if it does, with the pattern and the name unchanged.",
        on_kinds=("also saved",),
    ),
    Hint(
        "Print what your policy returns for each operation, as the page does. For which names does it return False "
        "although `re.fullmatch(pattern, name)` finds a match?",
        on_kinds=("not saved",),
    ),
    Hint(
        'Call your policy yourself: `regex_policy("a|b")` is a function. What type does it return for a name that '
        "matches, for a name that does not, and for a matmul?",
        on_kinds=("raises", "wrong type"),
    ),
    Hint(
        "Your forward pass saves the right value in the wrong memory. Which results can a policy return, and which of "
        "them save the value on the device?",
        on_kinds=("wrong memory",),
    ),
    Hint(
        'Print `re.search("mlp", "mlp_gate")`, and the same with `re.match` and `re.fullmatch`. Which of the three '
        "compares the whole name?"
    ),
    Hint(
        "Nearly the answer: return a function of the operation, `*operands` and `**parameters`. It returns True if the "
        'operation\'s `name` is `"name"` and `re.fullmatch(pattern, parameters["name"])` is not None.'
    ),
    Hint(
        "Pass the pattern to `re` unchanged, with its groups and its `|`. Which function of `re` compares a whole name "
        "with it?",
        on_kinds=("raises",),
        on_text="must stay whole",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    # In the scan the pattern matches "out" too, but no derivative needs it; the carry is an argument of the body.
    described = case.structure["saved"]
    if case.structure["called"] == "jax.lax.scan":
        saved = ("input", *(name for name in ("mlp", "mlp_gate") if name in described))
        saved = tuple(f"all iterations' {name}" for name in saved)
    else:
        saved = saving(case, described)[0]
    return [
        [
            Saves(
                saved,
                too_much="Does that value have a name, and does the pattern match the name from end to end?",
                too_little="Which names does the pattern match, and does your policy return True for each of them?",
            )
        ]
    ]
