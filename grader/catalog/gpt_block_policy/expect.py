"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import Hint
from grader.exercises.requirements import Saves


def draw(rng, argument):
    """Numbers whose products neither vanish nor grow."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = ()  # a policy changes no value

error_questions = (
    (r"^KeyError: 'name'", "What is a policy asked about besides names, and do those have a parameter `name`?"),
    (r"^KeyError|^UnboundLocalError", "For which entry of the menu does that line run, and do you have all five?"),
    (r"unhashable", "Does the function that makes a policy take a list of names, or names?"),
    (
        r"remat policy should be|takes \d+ positional|missing \d+ required|unexpected keyword",
        "JAX calls a policy with an operation, its operands, and parameters by keyword, and wants yes or no. Is what "
        "you return such a function?",
    ),
    (r"returns None", "What do you return for that entry? A policy that saves nothing is a function too."),
    (r"not a function", "What takes names, and makes a policy of them?"),
)

hints = (
    Hint(
        "What does an entry say: what is saved, or what is computed again? Which entry saves nothing at all, and which "
        "one saves most?"
    ),
    Hint(
        "Which function of chapter 5 makes a policy from names? How do you hand it the names of a list one by one?",
        after=("wrong type", "raises"),
    ),
    Hint(
        "Full of what, and minimal what? How much does `jax.checkpoint` compute again if it is given no policy, and "
        "which of the two words says that?",
        after=("also saved",),
        says="\nfull\n",
    ),
    Hint(
        "`mlpwi_activated` is no projection, its name only begins like that of one. How does your policy compare "
        "names?",
        after=("also saved",),
        says="_activated",
    ),
    Hint(
        "Which of the page's names is the value that was saved too much? In which lines of the menu does it stand?",
        after=("also saved",),
    ),
    *(
        Hint(
            "Blocks spell their projections differently. Which of the page's names mean the same, in another block, as "
            "those that you have?",
            after=("not saved",),
            says=f"does not save {name},",
        )
        for name in ("qkv_proj", "mlpwi", "mlpwi_0")
    ),
    Hint(
        "In what do `minimal` and `minimal_with_context` differ, and where does your answer make that difference?",
        after=("not saved",),
        says="does not save context,",
    ),
    Hint(
        "The block of chapter 9 never needs `mlpwo` again. Is that so in every block, and does your policy know for "
        "which one it will be used?",
        after=("not saved",),
        says="does not save mlpwo,",
    ),
    Hint(
        "Does the name that is missing stand in your list for that entry, spelled as on the page? And do the names get "
        "to the policy one by one?",
        after=("not saved",),
    ),
    Hint(
        "Nearly the answer: a dict from each entry to a tuple of names. The tuples can be built from each other: that "
        "of `minimal` begins with that of `save_qkv_proj`. And `save_only_these_names` takes them with a star."
    ),
)

_TOO_MUCH = (
    "Which line of the page's menu has that value? If none has: does your policy compare names as a whole, and what "
    "does it say to what has no name?"
)
_TOO_LITTLE = (
    "Which of the page's names belong to this line of the menu? Do you have every spelling that blocks use, and also "
    "what only some blocks need again?"
)


def _saves(entry, *names):
    return (entry,), (Saves(names, too_much=_TOO_MUCH, too_little=_TOO_LITTLE),)


_QKV = ("query_proj", "key_proj", "value_proj", "qkv_proj")
_PROJECTIONS = (*_QKV, "out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")

_REQUIREMENTS = (
    _saves("full"),
    _saves("save_out_proj", "out_proj"),
    _saves("save_qkv_proj", *_QKV),
    _saves("minimal", *_PROJECTIONS),
    _saves("minimal_with_context", *_PROJECTIONS, "context"),
)


def requirements(case):
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]
