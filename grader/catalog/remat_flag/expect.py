"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    Mistake(
        "this is what f computes for the other value of the flag",
        lambda f: lambda *arguments: f(*arguments[:-1], not arguments[-1]),
        next="Where does your answer learn the flag, and does it learn it anew in each call?",
    ),
    Mistake(
        "this is what f computes for True both times",
        lambda f: lambda *arguments: f(*arguments[:-1], True),
        next="A checkpoint keeps what it has traced, for the same function and shapes: does it see a new function, or "
        "a new static argument, for the new flag?",
    ),
)

error_questions = (
    (
        r"^TracerBoolConversionError",
        "Inside jax.checkpoint an argument is a tracer, which has no value that `if` could look at, unless it is named "
        "as static, by position. How does the flag get in, in your answer, and at which position, in the cases where "
        "this is seen?",
    ),
    (
        r"static_argnums",
        "static_argnums counts the arguments that are passed by position. How many are those in the case where this is "
        "seen, and which of them is the flag?",
    ),
    (
        r"Non-hashable static",
        "Which of the two gets the flag first, jax.checkpoint or jax.jit, and which of them knows that it is static?",
    ),
    (r"keyword argument", "Is there such a keyword? The flag is the last argument, and f may call it what it likes."),
    (
        r"between instances of 'int' and 'str'|'str' object cannot be interpreted",
        "static_argnums names an argument by its place: is what it gets a number?",
    ),
    (
        r"takes \d+ positional arguments? but \d+ were given",
        "How many arrays does yours take before the flag, and how many has the f in the case where this is seen?",
    ),
    (r"missing \d+ required", "What is given to remat_flag: f and its arguments, or f alone?"),
)

hints = (
    Hint(
        "Inside `jax.checkpoint` every argument is a tracer, the flag too. Which parameter of `jax.checkpoint` says "
        "that an argument stays a Python value? Or could the flag get in without being an argument at all?",
    ),
    Hint(
        "The functions have different numbers of arrays before the flag: the verdict says in which it is seen. How do "
        "you count from the end, in Python?",
        after=("raises",),
        says="static_argnums counts",
    ),
    Hint(
        "Is it seen in every case, or in some? If in some: at which position is the flag there, and where does your "
        "answer look for it? If in every one: which of the page's six attempts is like yours?",
        after=("raises",),
        says="Bool",
    ),
    Hint(
        "Must the flag be an argument of what is checkpointed? How else can a function come to know a value?",
        after=("raises",),
    ),
    Hint(
        "When is the flag known: when `remat_flag(f)` is called, or when what it returns is called?",
        after=("wrong value",),
    ),
    Hint(
        "`jax.checkpoint` traces a function once, and remembers that. Which function do you give it in the second "
        "call: the one of the first, or a new one?",
        after=("wrong value",),
        says="both times",
    ),
    Hint(
        "Does your answer trace `f` once a call, for the flag at hand, or for both values?",
        after=("extra matmuls", "recomputes"),
    ),
    Hint(
        "Nearly the answer: `static_argnums` takes positions, and -1 is the last one. Or return a function of "
        "`*arguments` that takes the flag off the end, wraps a function of the other arguments that passes it on, and "
        "calls that.",
    ),
    Hint(
        "Is `f` inside `jax.checkpoint` in every case, whatever its flag, its dtype, and the number and shapes of "
        "its arrays? And is what that makes the function that you return?",
        after=("also saved",),
        says="Which function marks",
    ),
    Hint(
        "A policy says what may be saved. What should be saved here, besides the arguments, and what does "
        "`jax.checkpoint` do if it is given none?",
        after=("also saved",),
    ),
    Hint(
        "What does `remat_flag(f)` have to return: a value, nothing, or a function? Which of your lines hands it out?",
        after=("wrong type",),
    ),
    Hint(
        "Which keywords does `jax.checkpoint` take? One of the pitfalls on the page is about a keyword that is gone.",
        after=("raises",),
        says="Is there such a keyword",
    ),
    Hint(
        "Where one stands in the other, both have to know that the flag is static. Is a `jax.jit` needed here at all?",
        after=("raises",),
        says="Which of the two gets the flag first",
    ),
    Hint(
        "`remat_flag` gets `f` alone. When do the arrays and the flag arrive, and which function gets them?",
        after=("raises",),
        says="or f alone",
    ),
    Hint(
        "Something from inside `f` is kept in the cases that the finding names, and in no other. With how many arrays "
        "is your function called there, and is `f` inside `jax.checkpoint` for that many?",
        after=("also saved",),
        says="none of the usual ones",
    ),
    Hint(
        "One function here takes an array and the flag, another six arrays and the flag. How does a `def` take as many "
        "arguments as come, and where is the flag among them?",
        after=("raises",),
        says="before the flag, and how many",
    ),
    Hint(
        "`static_argnums=2` is the argument at place 2, counted from 0; what it is called does not matter. At which "
        "place is the flag, whatever comes before it?",
        after=("raises",),
        says="what it gets a number",
    ),
    *ABOUT_ERRORS,
)

_TOO_MUCH = "Is all of f inside jax.checkpoint, for both values of the flag, and without a policy?"
_TOO_MANY = "How often does your answer trace f, for a flag that has one value?"

_REQUIREMENTS = (
    (
        (
            "f(x, soft) under vmap",
            "f(w1, w2, x, True)",
            "f(w1, w2, x, False)",
            "f(w, x, True) and then f(w, x, False)",
            "f(x, True) and then f(x, False), of a scalar",
        ),
        (
            Saves(
                (),
                too_much=_TOO_MUCH,
            ),
            Recomputes(dots=2, too_many=_TOO_MANY),
            AdvisesBarrier(),
        ),
    ),
)


def requirements(case):
    if products := case.structure.get("products"):
        return [(), (Saves((), too_much=_TOO_MUCH), Recomputes(dots=products, too_many=_TOO_MANY))]
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]
