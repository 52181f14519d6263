"""What is expected of an answer; only the judge reads this."""

from grader.hints import Hint
from grader.requirements import Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = ()  # a policy changes no value

error_questions = (
    (
        r"policies should be a boolean",
        "That helper knows True and False only. What else may a policy answer, and what would you do with it?",
    ),
    (
        r"remat policy should be",
        "What does your policy return where neither of the two says yes? (A function without a return returns None.)",
    ),
    (r"unsupported operand", "A policy may answer with something that is neither True nor False: what do you do then?"),
    (
        r"argument|^KeyError|^IndexError",
        "JAX calls a policy with the operation and its operands by position, and with parameters by keyword. Does "
        "yours take all of those, and hand all of them on?",
    ),
    (r"not callable", "Which of the values in that line is a policy, and which is a policy's answer?"),
)

hints = (
    Hint(
        "`either` is called once, and what it returns is called for every operation. Which of the two can know what "
        "the policies say?"
    ),
    Hint(
        "Is `Recompute` true? `bool(Recompute)` tells you what `or` and `if` make of it. How else can you find out "
        "that an answer means no?",
        after=("not saved", "also saved"),
    ),
    Hint(
        "Where the first policy claims a value, is its answer handed on as it is? And is the second one's, where the "
        "first says no?",
        after=("wrong memory",),
    ),
    Hint("What do you return where neither says yes?", after=("raises",)),
    Hint(
        "Nearly the answer: inside `either`, define a function of `operation, *operands, **parameters`. It asks `p1`. "
        "If that is neither `False` nor `Recompute`, it returns that. Otherwise it returns what `p2` says. And "
        "`either` returns the function."
    ),
)


def _saves(case, *names, on_host=()):
    saves = Saves(
        names,
        too_much="What does each of the two policies say to that value, which of them is asked first, and what does "
        "your policy make of the two answers?",
        too_little="Which of the two policies says yes to that value, and what does the other one say: False or "
        "Recompute?",
        on_host=on_host,
    )
    return (case,), (saves,)


requirements = (
    _saves("two that say yes or no", "a", "b", "c"),
    _saves("a name, or products", "a", "b", "d"),
    _saves("products offloaded, or a name", "a", "b", "d", on_host=("a", "b")),
    _saves("the first offloads", "a", "b", "c", on_host=("a",)),
    _saves("the second offloads", "a", "b", on_host=("b",)),
)
