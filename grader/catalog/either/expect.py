"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import Hint
from grader.exercises.requirements import Saves


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
        after=("not saved",),
        says="does not save sines",
    ),
    Hint(
        "One of the answers to that value is an `Offloadable`. How do you recognise those: by `is`, by `==` or by "
        "`isinstance`? Or can you do without recognising them?",
        after=("not saved", "wrong memory"),
        says="isinstance",
    ),
    Hint(
        "Take a value to which `p2` alone says yes. Does your policy ask `p2` about it at all, and what does it make "
        "of the two answers?",
        after=("not saved", "also saved"),
    ),
    Hint(
        "Where the first policy claims a value, is its answer handed on as it is, with its own `src` and `dst`? And is "
        "the second one's, where the first says no?",
        after=("wrong memory",),
    ),
    Hint("What do you return where neither says yes?", after=("raises",)),
    Hint(
        "Nearly the answer: inside `either`, define a function of `operation, *operands, **parameters`. It asks `p1`. "
        "If that is neither `False` nor `Recompute`, it returns that. Otherwise it returns what `p2` says. And "
        "`either` returns the function."
    ),
)

_WHICH = (
    "What does each of the two policies say to that value, which of them is asked first, and what does your policy "
    "make of the two answers?"
)
_PRINT = (
    "Print what each of the two policies answers to that value, and what yours returns. Which answers does yours take "
    "for a yes, and how does it recognise an Offloadable: by `is` or by `isinstance`?"
)


def _saves(case, *names, next=_WHICH, on_host=()):
    return (case,), (Saves(names, too_much=next, too_little=next, on_host=on_host),)


_REQUIREMENTS = (
    _saves("p1 saves hidden and squares while p2 saves squares and logits", "hidden", "logits", "squares"),
    _saves("p1 saves sines while p2 saves products", "hidden", "logits", "sines"),
    _saves(
        "p1 offloads products while p2 saves sines",
        *("hidden", "logits", "sines"),
        next=_PRINT,
        on_host=("hidden", "logits"),
    ),
    _saves(
        "p1 offloads hidden and saves squares while p2 saves hidden and logits",
        *("hidden", "logits", "squares"),
        next=_PRINT,
        on_host=("hidden",),
    ),
    _saves("p1 saves hidden while p2 offloads hidden and logits", "hidden", "logits", on_host=("logits",)),
    _saves("p1 offloads hidden and p2 logits from device to device", "hidden", "logits"),
)


def requirements(case):
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]
