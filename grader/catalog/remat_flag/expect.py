"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, KnownMistake, Recomputes, Saves


def sample_input(rng, argument):
    """Return values whose matmuls are large enough that sin(y) differs from y, and small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


_WHERE = "Where does your function get the flag, and does it use the flag of each call?"

mistakes = (
    KnownMistake(
        "this is what f computes for the opposite value of the flag",
        lambda f: lambda *arguments: f(*arguments[:-1], not arguments[-1]),
        hint=_WHERE,
    ),
    *(
        KnownMistake(
            f"this is what f computes for {flag}, whatever the flag is",
            lambda f, flag=flag: lambda *arguments: f(*arguments[:-1], flag),
            hint=_WHERE,
        )
        for flag in (True, False)
    ),
    KnownMistake(
        "this is what f computes for the flag of the first call, in later calls too",
        lambda f: _with_the_first_flag(f),
        hint="jax.checkpoint reuses its trace for the same function and shapes. Does it get a new function, or a new "
        "static argument, when the flag changes?",
    ),
)


def _with_the_first_flag(f):
    flags = []

    def g(*arguments):
        flags.append(arguments[-1])
        return f(*arguments[:-1], flags[0])

    return g


error_questions = (
    (
        r"^TracerBoolConversionError",
        "Inside jax.checkpoint an argument is a tracer without a value, unless static_argnums gives its position. How "
        "does your answer pass the flag, and at which position, in the cases that the finding names?",
    ),
    (
        r"static_argnums",
        "static_argnums counts the arguments that are passed by position. How many of those are there in the case that "
        "the finding names, and which is the flag?",
    ),
    (
        r"Non-hashable static",
        "Which gets the flag first, jax.checkpoint or jax.jit, and which of them knows that it is static?",
    ),
    (
        r"keyword argument",
        "Is there such a keyword? The flag is the last argument, and each f has its own name for it.",
    ),
    (
        r"between instances of 'int' and 'str'|'str' object cannot be interpreted",
        "static_argnums takes the position of an argument. Do you pass it a number?",
    ),
    (
        r"takes \d+ positional arguments? but \d+ were given",
        "How many arrays does your function take before the flag, and how many does f take in that case?",
    ),
    (r"missing \d+ required", "The grader calls remat_flag with f alone. Does yours take anything else?"),
)

hints = (
    Hint(
        "Inside `jax.checkpoint` every argument is a tracer, and so is the flag. Which parameter of `jax.checkpoint` "
        "says that an argument stays a Python value? Or can a function know the flag without taking it as an argument?",
    ),
    Hint(
        "The functions take different numbers of arrays before the flag. The finding names the case that fails. How do "
        "you count positions from the end in Python?",
        on_kinds=("raises",),
        on_text="static_argnums counts",
    ),
    Hint(
        "Does every case fail, or only some? If some: at which position is the flag there, and where does your answer "
        "expect it? If all: which of the page's six attempts is like yours?",
        on_kinds=("raises",),
        on_text="Bool",
    ),
    Hint(
        "Does the flag have to be an argument of the checkpointed function? How else can a function get a value?",
        on_kinds=("raises",),
    ),
    Hint(
        "When is the flag known: when `remat_flag(f)` is called, or when the function that it returns is called?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "`jax.checkpoint` traces a function once and reuses the trace. Which function do you pass to it in the second "
        "call: the same as in the first call, or a new one?",
        on_kinds=("wrong value",),
        on_text="of the first call",
    ),
    Hint(
        "Does one call of your function trace `f` once, for the flag that it gets? Or twice, perhaps for both values "
        "of the flag?",
        on_kinds=("extra matmuls", "recomputes"),
    ),
    Hint(
        "Nearly the answer: `static_argnums` takes positions, and -1 is the last one. Or return a function of "
        "`*arguments` that takes the flag off the end, and calls a checkpointed function of the other arguments that "
        "passes the flag to `f`.",
    ),
    Hint(
        "Is `f` inside `jax.checkpoint` in every case: for both flags, both dtypes, and any number and shapes of "
        "arrays? Do you return the function that `jax.checkpoint` returns?",
        on_kinds=("also saved",),
        on_text="Which function marks",
    ),
    Hint(
        "A policy says which values may be saved. Which values should be saved here besides the arguments, and what "
        "does `jax.checkpoint` save without a policy?",
        on_kinds=("also saved",),
    ),
    Hint(
        "What should `remat_flag(f)` return: a value, nothing, or a function? Which of your lines returns it?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "Which keywords does `jax.checkpoint` take? One of the page's pitfalls is about a keyword that was removed.",
        on_kinds=("raises",),
        on_text="Is there such a keyword",
    ),
    Hint(
        "If `jax.jit` is inside `jax.checkpoint` or around it, both must know that the flag is static. Do you need "
        "`jax.jit` here at all?",
        on_kinds=("raises",),
        on_text="gets the flag first",
    ),
    Hint(
        "`remat_flag` gets only `f`. When are the arrays and the flag passed, and to which function?",
        on_kinds=("raises",),
        on_text="with f alone",
    ),
    Hint(
        "Your forward pass saves values from inside `f` in the cases that the finding names. How many arrays does your "
        "function get there, and is `f` inside `jax.checkpoint` for that number?",
        on_kinds=("also saved",),
        on_text="intermediate value",
    ),
    Hint(
        "One function here takes an array and the flag, another takes six arrays and the flag. How does a `def` accept "
        "any number of arguments, and where is the flag among them?",
        on_kinds=("raises",),
        on_text="before the flag, and how many",
    ),
    Hint(
        "`static_argnums=2` means the argument at position 2, counted from 0, whatever its name is. At which position "
        "is the flag, for any number of arrays before it?",
        on_kinds=("raises",),
        on_text="pass it a number",
    ),
    *ABOUT_ERRORS,
)

_TOO_MUCH = "Is all of f inside jax.checkpoint, for both values of the flag, and without a policy?"
_TOO_MANY = "How many times does your answer trace f, for one value of the flag?"


def requirements(case):
    asked = [Saves((), too_much=_TOO_MUCH), Recomputes(case.structure.get("products", 2), too_many=_TOO_MANY)]
    if "products" not in case.structure:
        asked.append(AdvisesBarrier())
    return [asked]
