"""What is expected of an answer; only the judge reads this."""

from jax.ad_checkpoint import Offloadable, Recompute, Saveable

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake, Saves


def sample_input(rng, argument):
    """Return values whose matmuls are large enough that sin(y) differs from y, and small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def reference(p1, p2):
    """What is right, and as plain as that."""
    return _joined(lambda first, second: second if _is_no(first) else first)(p1, p2)


def _is_no(said):
    return said is False or said is Recompute


def _joined(join):
    """An answer that asks both policies and makes one answer of theirs."""
    return lambda p1, p2: lambda *told, **parameters: join(p1(*told, **parameters), p2(*told, **parameters))


def _kept(said):
    return said is True or said is Saveable


def _first_of(chosen, otherwise):
    """The first of two answers that is chosen, or otherwise something else."""
    return _joined(lambda *said: next((each for each in said if chosen(each)), otherwise(*said)))


_HOST = Offloadable("device", "pinned_host")
_LOST = "What does your policy return where p1 or p2 offloads: the object that it got, or something else?"
_ASKED = "Which policy do you ask first, and when do you ask the other one?"

compared_with = "the policy that the page asks for"
otherwise = "What does each of the two policies return there, which is asked first, and what does yours return?"

mistakes = (
    KnownMistake(
        "it lets p2 win where both say yes, but p1 should win",
        _joined(lambda first, second: first if _is_no(second) else second),
        hint=_ASKED,
    ),
    KnownMistake(
        "it returns p1's answer, whatever p2 returns", lambda p1, p2: p1, hint="What if p1 says no and p2 says yes?"
    ),
    KnownMistake(
        "it returns p2's answer, whatever p1 returns", lambda p1, p2: p2, hint="When should it return p1's answer?"
    ),
    KnownMistake(
        "it treats Recompute, which means no, as a yes, as `or` and `if` do",
        _joined(lambda first, second: first or second),
        hint="Is `bool(Recompute)` true? How else can you tell that an answer means no?",
    ),
    KnownMistake(
        "it treats Recompute, which means no, as a yes, as `or` and `if` do, and asks p2 first",
        _joined(lambda first, second: second or first),
        hint="Is `bool(Recompute)` true? And which policy should win where both say yes?",
    ),
    KnownMistake(
        "it says yes only where both policies do, but one yes is enough",
        _joined(lambda first, second: second if not _is_no(first) else first),
        hint="What should it return where one policy says yes and the other says no?",
    ),
    KnownMistake(
        "it says yes only where both policies do, but one yes is enough; and it treats Recompute as a yes, as `and` "
        "does",
        _joined(lambda first, second: first and second),
        hint="What should it return where one policy says yes and the other says no? And is `bool(Recompute)` true?",
    ),
    KnownMistake(
        "it says no where both say yes",
        _joined(lambda first, second: _is_no(first) != _is_no(second)),
        hint="What should it return where both say yes?",
    ),
    KnownMistake(
        "it turns every offload into a plain yes, so that nothing leaves the device",
        _joined(lambda first, second: not (_is_no(first) and _is_no(second))),
        hint=_LOST,
    ),
    KnownMistake(
        "it turns the offloads of p1 into a plain yes",
        _joined(lambda first, second: second if _is_no(first) else True),
        hint=_LOST,
    ),
    KnownMistake(
        "it turns the offloads of p2 into a plain yes",
        _joined(lambda first, second: not _is_no(second) if _is_no(first) else first),
        hint=_LOST,
    ),
    KnownMistake(
        "it makes an Offloadable of its own, with another src or dst than the one that it got",
        _joined(
            lambda first, second: _HOST if isinstance(said := second if _is_no(first) else first, Offloadable) else said
        ),
        hint=_LOST,
    ),
    KnownMistake(
        "saving wins over offloading, but p1 should win, whatever it says",
        _first_of(_kept, lambda first, second: second if _is_no(first) else first),
        hint=_ASKED,
    ),
    KnownMistake(
        "offloading wins over saving, but p1 should win, whatever it says",
        _first_of(lambda said: isinstance(said, Offloadable), lambda first, second: second if _is_no(first) else first),
        hint=_ASKED,
    ),
    KnownMistake(
        "it does not count an Offloadable as a yes",
        _first_of(_kept, lambda *said: False),
        hint="Each Offloadable is an object of its own. How does your policy recognize one?",
    ),
    KnownMistake(
        "it does not count an Offloadable from p1 as a yes",
        _joined(lambda first, second: first if _kept(first) else second),
        hint="Each Offloadable is an object of its own. How does your policy recognize one?",
    ),
    KnownMistake(
        "it does not count Saveable as a yes",
        _first_of(lambda said: said is True or isinstance(said, Offloadable), lambda *said: False),
        hint="Which of JAX's three objects means the same as True?",
    ),
)

error_questions = (
    (
        r"policies should be a boolean",
        "That helper accepts only True and False. How could you handle answers that are neither True nor False?",
    ),
    (
        r"remat policy should be.* Got None",
        "What does your policy return where neither policy says yes? (A function without a return statement returns "
        "None.)",
    ),
    (
        r"unsupported operand|not supported",
        "A policy may return something that is neither True nor False. What does that line do with it?",
    ),
    (
        r"argument|^KeyError|^IndexError",
        "JAX calls a policy with the operation and its operands by position, and with parameters by keyword. Does "
        "yours take all of these, and pass all of them on?",
    ),
    (r"not callable", "Which value on that line is a policy, and which is a policy's answer?"),
)

hints = (
    Hint(
        "`either` is called once, and the policy that it returns is called for every operation. In which of these "
        "calls can you ask `p1` and `p2`?"
    ),
    Hint(
        "What is `bool(Recompute)`? That is what `or`, `and` and `if` go by. How else can you tell that an answer "
        "means no?",
        on_kinds=("wrong value",),
        on_text="treats Recompute",
    ),
    Hint(
        "One of the two policies returns an `Offloadable` for that value. Each of these is an object of its own. How "
        "does your policy recognize one, or can you do without recognizing them?",
        on_kinds=("wrong value",),
        on_text="Each Offloadable is an object",
    ),
    Hint(
        "Take a value for which only `p2` says yes. Does your policy call `p2` for it, and what does it make of the "
        "two answers?",
        on_kinds=("wrong value",),
        on_text="p1's answer, whatever",
    ),
    Hint(
        "If `p1` says yes, do you return its answer unchanged, with its own `src` and `dst`? And `p2`'s answer, if "
        "`p1` says no?",
        on_kinds=("wrong memory",),
    ),
    Hint(
        "What does your policy return if neither `p1` nor `p2` says yes?",
        on_kinds=("raises",),
        on_text="where neither policy says yes",
    ),
    Hint(
        "Nearly the answer: inside `either`, define a function of `operation, *operands, **parameters` that calls "
        "`p1`. If the answer is neither `False` nor `Recompute`, return it; otherwise return what `p2` returns. "
        "`either` returns this function."
    ),
    Hint(
        "The page calls `either(p1, p2)`, and `p1` should win. In which order does your `def` line take the two?",
        on_kinds=("argument order",),
        on_text="in the order (p2, p1)",
    ),
    Hint(
        "Whose answer should win where both say yes? And whose answer does your policy look at first?",
        on_kinds=("wrong value",),
        on_text="lets p2 win",
    ),
    Hint(
        "What should happen to a value that one policy wants to save, and the other does not?",
        on_kinds=("wrong value",),
        on_text="one yes is enough",
    ),
    Hint(
        "Suppose that both policies return True. What does your line make of these two answers?",
        on_kinds=("wrong value",),
        on_text="says no where both say yes",
    ),
    Hint(
        "Two of the answers on the page mean the same: save the value. Which of the two does your policy not "
        "recognize?",
        on_kinds=("wrong value",),
        on_text="count Saveable as a yes",
    ),
    Hint(
        "An `Offloadable` says where a value goes. Which variable in your policy holds the object that `p1` or `p2` "
        "returned, and where do you return it?",
        on_kinds=("wrong value",),
        on_text="or something else",
    ),
    Hint(
        "Does your policy look at the kind of an answer before it looks at which policy gave it? Which of the two "
        "should decide, according to the page?",
        on_kinds=("wrong value",),
        on_text="whatever it says",
    ),
    Hint(
        "Which of the two policies does your line call, and with which arguments? A policy that is not called is a "
        "function, and `or` and `and` treat any function as true.",
        on_kinds=("wrong value",),
        on_text="whatever p",
    ),
    Hint(
        "Your policy was asked the same question twice, and its answers differ. What does it store from one call to "
        "the next?",
        on_kinds=("wrong value",),
        on_text=", then ",
    ),
    Hint(
        "Both policies in that question say the same about all these operations, but yours does not. Where does it "
        "look at the operation, and does it need to?",
        on_kinds=("wrong value",),
        on_text=", about ",
    ),
    Hint(
        "Take the pair of answers that the finding names, and go through your policy with them, line by line. Which "
        "line decides what it returns?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "The page's `noted` records what a policy is called with. What is that for a matmul, and which of it does your "
        "policy pass to `p1` and `p2`?",
        on_kinds=("raises",),
        on_text="pass all of them on",
    ),
    Hint(
        "For which of the five possible answers does that line work? Do you have to compute with an answer in order to "
        "return it?",
        on_kinds=("raises",),
        on_text="neither True nor False",
    ),
    Hint(
        "`jax.checkpoint` calls what `either` returns, once for every operation. Do you define a function, and do you "
        "return it?",
        on_kinds=("wrong type",),
    ),
    *ABOUT_ERRORS,
)

_WHICH = (
    "What does each of the two policies return for that value, which of them do you ask first, and what does your "
    "policy make of the two answers?"
)
_PRINT = (
    "Print what each of the two policies returns for that value, and what yours returns. Which answers does yours "
    "count as a yes, and does it return an Offloadable unchanged?"
)


def _saves(case, *names, next=_WHICH, on_host=()):
    return (case,), (Saves(names, too_much=next, too_little=next, on_host=on_host),)


_REQUIREMENTS = (
    _saves("p1 saves hidden and squares, p2 saves squares and logits", "hidden", "logits", "squares"),
    _saves("p1 saves sines, p2 saves matmuls", "hidden", "logits", "sines"),
    _saves(
        "p1 offloads matmuls, p2 saves sines",
        *("hidden", "logits", "sines"),
        next=_PRINT,
        on_host=("hidden", "logits"),
    ),
    _saves(
        "p1 offloads hidden and saves squares, p2 saves hidden and logits",
        *("hidden", "logits", "squares"),
        next=_PRINT,
        on_host=("hidden",),
    ),
    _saves("p1 saves hidden, p2 offloads hidden and logits", "hidden", "logits", on_host=("logits",)),
    _saves("p1 offloads hidden and p2 offloads logits, both to the device", "hidden", "logits"),
)


def requirements(case):
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]
