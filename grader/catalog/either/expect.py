"""What is expected of an answer; only the judge reads this."""

from jax.ad_checkpoint import Offloadable, Recompute, Saveable

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
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
_LOST = "What does your policy return where a policy offloads: the answer that it was given, or one that it makes?"
_ASKED = "In which order do you ask the two, and when do you ask the other one?"

compared_with = "the policy that is asked for"
otherwise = "What does each of the two say there, which is asked first, and what does yours make of what they say?"

mistakes = (
    Mistake(
        "p2 is asked first, or wins where both say yes, and the first is to win",
        _joined(lambda first, second: first if _is_no(second) else second),
        next=_ASKED,
    ),
    Mistake("it says what p1 says, whatever p2 does", lambda p1, p2: p1, next="What if p1 says no, and p2 does not?"),
    Mistake("it says what p2 says, whatever p1 does", lambda p1, p2: p2, next="When is p1's answer the one to give?"),
    Mistake(
        "it takes Recompute, which means no, for a yes, as `or` and `if` do",
        _joined(lambda first, second: first or second),
        next="Is `bool(Recompute)` true? How else do you find out that an answer means no?",
    ),
    Mistake(
        "it takes Recompute, which means no, for a yes, as `or` and `if` do, and asks p2 first",
        _joined(lambda first, second: second or first),
        next="Is `bool(Recompute)` true? And which of the two is to win where both say yes?",
    ),
    Mistake(
        "it says yes where both do, and one is enough",
        _joined(lambda first, second: second if not _is_no(first) else first),
        next="What are you to say where one says yes and the other one no?",
    ),
    Mistake(
        "it says yes where both do, and one is enough, and takes Recompute for a yes, as `and` does",
        _joined(lambda first, second: first and second),
        next="What are you to say where one says yes and the other one no? And is `bool(Recompute)` true?",
    ),
    Mistake(
        "it says no where both say yes",
        _joined(lambda first, second: _is_no(first) != _is_no(second)),
        next="What are you to say where both say yes?",
    ),
    Mistake(
        "it makes a plain yes of every offload, so that nothing leaves the device",
        _joined(lambda first, second: not (_is_no(first) and _is_no(second))),
        next=_LOST,
    ),
    Mistake(
        "it makes a plain yes of what p1 offloads",
        _joined(lambda first, second: second if _is_no(first) else True),
        next=_LOST,
    ),
    Mistake(
        "it makes a plain yes of what p2 offloads",
        _joined(lambda first, second: not _is_no(second) if _is_no(first) else first),
        next=_LOST,
    ),
    Mistake(
        "it makes an Offloadable of its own, with other places than the one it was given",
        _joined(
            lambda first, second: _HOST if isinstance(said := second if _is_no(first) else first, Offloadable) else said
        ),
        next=_LOST,
    ),
    Mistake(
        "keeping wins over offloading, and the first is to win, whatever it says",
        _first_of(_kept, lambda first, second: second if _is_no(first) else first),
        next=_ASKED,
    ),
    Mistake(
        "offloading wins over keeping, and the first is to win, whatever it says",
        _first_of(lambda said: isinstance(said, Offloadable), lambda first, second: second if _is_no(first) else first),
        next=_ASKED,
    ),
    Mistake(
        "an Offloadable is no yes to it",
        _first_of(_kept, lambda *said: False),
        next="How do you recognise an Offloadable: by `is`, by `==` or by `isinstance`?",
    ),
    Mistake(
        "an Offloadable of p1's is no yes to it",
        _joined(lambda first, second: first if _kept(first) else second),
        next="How do you recognise an Offloadable: by `is`, by `==` or by `isinstance`?",
    ),
    Mistake(
        "Saveable is no yes to it",
        _first_of(lambda said: said is True or isinstance(said, Offloadable), lambda *said: False),
        next="Which of JAX's three objects means the same as True?",
    ),
)

error_questions = (
    (
        r"policies should be a boolean",
        "That helper knows True and False only. What would you do with answers that are neither True nor False?",
    ),
    (
        r"remat policy should be.* Got None",
        "What does your policy return where neither of the two says yes? (A function without a return returns None.)",
    ),
    (
        r"unsupported operand|not supported",
        "A policy may answer with something that is neither True nor False: what do you do then?",
    ),
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
        after=("wrong value",),
        says="takes Recompute",
    ),
    Hint(
        "One of the answers to that value is an `Offloadable`. How do you recognise those: by `is`, by `==` or by "
        "`isinstance`? Or can you do without recognising them?",
        after=("wrong value",),
        says="by `==`",
    ),
    Hint(
        "Take a value to which `p2` alone says yes. Does your policy ask `p2` about it at all, and what does it make "
        "of the two answers?",
        after=("wrong value",),
        says="what p1 says, whatever",
    ),
    Hint(
        "Where the first policy claims a value, is its answer handed on as it is, with its own `src` and `dst`? And is "
        "the second one's, where the first says no?",
        after=("wrong memory",),
    ),
    Hint("What do you return where neither says yes?", after=("raises",), says="neither of the two"),
    Hint(
        "Nearly the answer: inside `either`, define a function of `operation, *operands, **parameters`. It asks `p1`. "
        "If that is neither `False` nor `Recompute`, it returns that. Otherwise it returns what `p2` says. And "
        "`either` returns the function."
    ),
    Hint(
        "Whose answer counts where both say yes? And whose does your policy look at before it looks at the other one?",
        after=("wrong value",),
        says="p2 is asked first",
    ),
    Hint(
        "Whose answer counts where both say yes? And whose does your policy look at before it looks at the other one?",
        after=("argument order",),
    ),
    Hint(
        "What is to become of a value that `p1` wants to keep, and that `p2` does not ask for?",
        after=("wrong value",),
        says="one is enough",
    ),
    Hint(
        "Put True for both answers into your line. What does it make of them?",
        after=("wrong value",),
        says="says no where both say yes",
    ),
    Hint(
        "The page has two answers that mean the same: keep it. Which of the two does your line not know?",
        after=("wrong value",),
        says="Saveable is no yes",
    ),
    Hint(
        "An `Offloadable` knows where a value goes. Which name in your policy stands for that very object, and where "
        "do you return it?",
        after=("wrong value",),
        says="one that it makes",
    ),
    Hint(
        "Does your policy look at what an answer is before it looks at whose it is? Which of the two does the page ask "
        "for?",
        after=("wrong value",),
        says="whatever it says",
    ),
    Hint(
        "Which of the two policies is called in your line, and with what? A function that nobody calls is true, "
        "whatever it would answer.",
        after=("wrong value",),
        says="whatever p",
    ),
    Hint(
        "Your policy was asked the same thing twice, and its answers differ. What does it keep from one call to the "
        "next?",
        after=("wrong value",),
        says=", then ",
    ),
    Hint(
        "The two policies of the question say the same about all operations, and yours does not. Where does it look at "
        "the operation, and does it need to?",
        after=("wrong value",),
        says=", about ",
    ),
    Hint(
        "Take the pair of answers that the verdict names, and go through your policy with them, line by line. Which "
        "line decides?",
        after=("wrong value",),
    ),
    Hint(
        "The page's `noted` writes down what a policy is asked. What is it given for a product, and what of that does "
        "your policy give to `p1`?",
        after=("raises",),
        says="hand all of them on",
    ),
    Hint(
        "Which of the five answers can that line compute with? Do you have to compute with an answer in order to hand "
        "it on?",
        after=("raises",),
        says="neither True nor False",
    ),
    Hint(
        "`jax.checkpoint` calls what `either` returns, once for every operation. Is what you return a function, and is "
        "there a `return` in front of it?",
        after=("wrong type",),
    ),
    *ABOUT_ERRORS,
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
