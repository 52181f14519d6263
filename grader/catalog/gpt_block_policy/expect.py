"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake, Saves


def draw(rng, argument):
    """Numbers whose products neither vanish nor grow."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


_QKV = ("query_proj", "key_proj", "value_proj", "qkv_proj")
_PROJECTIONS = (*_QKV, "out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")
_MENU = {
    "full": (),
    "save_out_proj": ("out_proj",),
    "save_qkv_proj": _QKV,
    "minimal": _PROJECTIONS,
    "minimal_with_context": (*_PROJECTIONS, "context"),
}
_UNNAMED = object()


def reference(name):
    """The policy that an entry stands for."""
    return _saving(lambda entry, value: value in _MENU[entry])(name)


def _saving(says):
    """An answer whose policies say of each value's name, or of _UNNAMED, whether it is saved."""
    return lambda entry: (
        lambda operation, *_, **parameters: says(entry, parameters["name"] if operation.name == "name" else _UNNAMED)
    )


def _any(says):
    """An answer that compares a value's name with those of the entry, and says yes if any of them matches."""
    return _saving(lambda entry, value: value is not _UNNAMED and any(says(value, name) for name in _MENU[entry]))


compared_with = "the menu that is asked for"
otherwise = (
    "In which lines of the page's menu does that name stand, or what has none? What does your policy look at besides "
    "names?"
)

_WHOLE = "How does your policy compare names? Which other names might there be, in somebody else's block?"

mistakes = (
    Mistake("names that only begin like one of the page's count too", _any(str.startswith), next=_WHOLE),
    Mistake("names that only end like one of the page's count too", _any(str.endswith), next=_WHOLE),
    Mistake(
        "names that have one of the page's in them count too", _any(lambda value, name: name in value), next=_WHOLE
    ),
    Mistake("names that are part of one of the page's count too", _any(lambda value, name: value in name), next=_WHOLE),
    Mistake(
        "names that differ in capital letters count too",
        _any(lambda value, name: value.lower() == name),
        next=_WHOLE,
    ),
    Mistake("names that differ in spaces count too", _any(lambda value, name: value.strip() == name), next=_WHOLE),
    Mistake(
        "it says what is computed again where it should say what is saved, and the other way round",
        _saving(lambda entry, value: value not in _MENU[entry]),
        next="What does a policy's yes mean: keep it, or compute it again?",
    ),
    Mistake(
        "`full` saves everything, and it should save nothing",
        _saving(lambda entry, value: entry == "full" or value in _MENU[entry]),
        next="Full of what? How much is computed again where nothing is saved?",
    ),
    Mistake(
        "`minimal` and `minimal_with_context` are the same",
        _saving(lambda entry, value: value in _MENU[entry.removesuffix("_with_context")]),
        next="Which name do the two lines of the menu differ in?",
    ),
    Mistake(
        "`minimal` saves what only `minimal_with_context` is to save",
        _saving(lambda entry, value: value in _MENU["minimal_with_context" if entry == "minimal" else entry]),
        next="Which name do the two lines of the menu differ in?",
    ),
)

error_questions = (
    (r"^KeyError: 'name'", "What is a policy asked about besides names, and do those have a parameter `name`?"),
    (r"^KeyError|^UnboundLocalError", "For which entry of the menu does that line run, and do you have all five?"),
    (
        r"unhashable",
        "Does the function that makes a policy of them take a list of names, or names?",
    ),
    (
        r"remat policy should be(?![\s\S]*Got None)|takes \d+ positional|missing \d+ required|unexpected keyword",
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
        says="policy of them",
    ),
    Hint(
        "Full of what, and minimal what? How much does `jax.checkpoint` compute again if it is given no policy, and "
        "which of the two words says that?",
        after=("also saved",),
        says=("\nfull\nWhich", "mlpwi_activated, "),  # there alone, and what no entry saves
    ),
    Hint(
        "`mlpwi_activated` is no projection, its name only begins like that of one. How does your policy compare "
        "names?",
        after=("also saved",),
        says="also saves mlpwi_activated",
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
    Hint(
        "Go through your function with that entry. Does it come to a `return`, and is there a policy behind it? JAX "
        "has one that says no to everything.",
        after=("wrong type",),
        says="None",
    ),
    Hint(
        "The menu has five lines. For which of them does your function find nothing?",
        after=("raises",),
        says="do you have all five",
    ),
    Hint(
        "A policy is asked about products and sines too, which have no name. What must it know about an operation "
        "before it looks at `parameters['name']`?",
        after=("raises",),
        says="besides names",
    ),
    Hint(
        "Which function does JAX call with an operation: the one that you return, or one that yours would return? And "
        "does that answer with yes or no?",
        after=("raises",),
        says="wants yes or no",
    ),
    Hint(
        "Which comparison of two strings is true only if they are the same? Do you need any other one?",
        after=("wrong value",),
        says="count too",
    ),
    Hint(
        "The same name was asked about for values of several dtypes and shapes, and more than once. What else than the "
        "name does your policy look at, or remember?",
        after=("wrong value",),
        says="; ",
    ),
    Hint(
        "Does the menu speak of operations or of names? What does your policy say to a product that has another name?",
        after=("wrong value",),
        says="asked about dot_general",
    ),
    Hint(
        "Ask your policy as the verdict did: about that name, for that entry. Which of your lines answers?",
        after=("wrong value",),
    ),
    *ABOUT_ERRORS,
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


_REQUIREMENTS = (
    _saves("full"),
    _saves("save_out_proj", "out_proj"),
    _saves("save_qkv_proj", *_QKV),
    _saves("minimal", *_PROJECTIONS),
    _saves("minimal_with_context", *_PROJECTIONS, "context"),
)


def requirements(case):
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]
