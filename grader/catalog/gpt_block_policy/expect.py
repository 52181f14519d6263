"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake, Saves


def sample_input(rng, argument):
    """Draw numbers whose products neither vanish nor grow."""
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
    """Return the policy of an entry."""
    return _saving(lambda entry, value: value in _MENU[entry])(name)


def _saving(says):
    """Return an answer whose policies save a value if `says(entry, name)`; the name may be _UNNAMED."""
    return lambda entry: (
        lambda operation, *_, **parameters: says(entry, parameters["name"] if operation.name == "name" else _UNNAMED)
    )


def _any(says):
    """Return an answer that saves a value if `says(its name, name)` for any name of the entry."""
    return _saving(lambda entry, value: value is not _UNNAMED and any(says(value, name) for name in _MENU[entry]))


compared_with = "the policy that the page's menu describes"
otherwise = (
    "Which entries of the page's menu save that name, if any? Does the answer of your policy depend on anything other "
    "than the name?"
)

_WHOLE = "How does your policy compare names? Other blocks have names that are similar to the page's names."

mistakes = (
    KnownMistake("it also saves names that start with one of the page's names", _any(str.startswith), hint=_WHOLE),
    KnownMistake("it also saves names that end with one of the page's names", _any(str.endswith), hint=_WHOLE),
    KnownMistake(
        "it also saves names that contain one of the page's names",
        _any(lambda value, name: name in value),
        hint=_WHOLE,
    ),
    KnownMistake(
        "it also saves names that are part of one of the page's names",
        _any(lambda value, name: value in name),
        hint=_WHOLE,
    ),
    KnownMistake(
        "it also saves names that differ from the page's names in case",
        _any(lambda value, name: value.lower() == name),
        hint=_WHOLE,
    ),
    KnownMistake(
        "it also saves names that differ from the page's names in spaces",
        _any(lambda value, name: value.strip() == name),
        hint=_WHOLE,
    ),
    KnownMistake(
        "it saves what should be recomputed, and recomputes what should be saved",
        _saving(lambda entry, value: value not in _MENU[entry]),
        hint="Does a policy return True for a value to save, or for a value to recompute?",
    ),
    KnownMistake(
        "`full` saves everything, but it should save nothing",
        _saving(lambda entry, value: entry == "full" or value in _MENU[entry]),
        hint="`full` says how much is recomputed. What does a policy save when everything is recomputed?",
    ),
    KnownMistake(
        "`minimal_with_context` saves the same as `minimal`",
        _saving(lambda entry, value: value in _MENU[entry.removesuffix("_with_context")]),
        hint="Which name does `minimal_with_context` save that `minimal` does not?",
    ),
    KnownMistake(
        "`minimal` also saves what only `minimal_with_context` should save",
        _saving(lambda entry, value: value in _MENU["minimal_with_context" if entry == "minimal" else entry]),
        hint="Which name does `minimal_with_context` save that `minimal` does not?",
    ),
)

error_questions = (
    (
        r"^KeyError: 'name'",
        "JAX asks a policy about every operation. Do operations other than `name` have a parameter `name`?",
    ),
    (
        r"^KeyError|^UnboundLocalError",
        "For which entry of the menu does that line fail? Does your code cover all five?",
    ),
    (
        r"unhashable",
        "The function that makes a policy from names takes each name as a separate argument. Do you pass it one list?",
    ),
    (
        r"remat policy should be(?![\s\S]*Got None)|takes \d+ positional|missing \d+ required|unexpected keyword",
        "JAX calls a policy with an operation, its operands, and parameters as keyword arguments, and expects True or "
        "False. Do you return such a function?",
    ),
    (r"returns None", "What do you return for that entry? A policy that saves nothing is a function too."),
    (r"not a function", "Which function makes a policy from names?"),
)

hints = (
    Hint(
        "Write down for each entry of the menu which names its policy saves. Which entry saves nothing, and which "
        "entry saves the most?"
    ),
    Hint(
        "Which function of chapter 5 makes a policy from names? It takes each name as a separate argument.",
        on_kinds=("wrong type", "raises"),
        on_text="a policy from names",
    ),
    Hint(
        "`full` and `minimal` say how much is recomputed, not how much is saved. What does `jax.checkpoint` without a "
        "policy recompute, and which of the two words describes that?",
        on_kinds=("also saved",),
        on_text=("\nfull\nWhich", "mlpwi_activated, "),  # the finding is for `full` alone, and for what no entry saves
    ),
    Hint(
        "`mlpwi_activated` is the output of the activation, and no entry saves it. Is it in one of your lists, or does "
        "your policy accept every name that starts with `mlpwi`?",
        on_kinds=("also saved",),
        on_text=": mlpwi_activated,",
    ),
    Hint(
        "Which of the page's names does your forward pass save for that entry but should not? Look up which entries of "
        "the menu save it.",
        on_kinds=("also saved",),
    ),
    *(
        Hint(
            "Blocks differ: one matmul or three make queries, keys and values, and an MLP is gated or not. Does your "
            "entry list the page's names for all of these blocks?",
            on_kinds=("not saved",),
            on_text=f"does not save {name},",
        )
        for name in ("qkv_proj", "mlpwi", "mlpwi_0")
    ),
    Hint(
        "Which name does `minimal_with_context` save in addition to those of `minimal`? Where does your answer add it?",
        on_kinds=("not saved",),
        on_text="does not save context,",
    ),
    Hint(
        "Chapter 10's block does not need `mlpwo` in its backward pass, but other blocks do. A policy does not know "
        "which block it is used for, so it has to save every projection that the menu asks for.",
        on_kinds=("not saved",),
        on_text="does not save mlpwo,",
    ),
    Hint(
        "Is the missing name in your list for that entry, spelled as on the page? Does the policy get each name as "
        "a separate string?",
        on_kinds=("not saved",),
    ),
    Hint(
        "Nearly the answer: make a dict from each entry to a tuple of names. The tuple of `minimal` starts with that "
        "of `save_qkv_proj`, and so on. Return `save_only_these_names(*names)` for the entry's names."
    ),
    Hint(
        "Which `return` does your function reach for that entry? It must return a policy there too: "
        "`jax.checkpoint_policies.nothing_saveable` is one that saves nothing.",
        on_kinds=("wrong type",),
        on_text="None",
    ),
    Hint(
        "The menu has five entries. Call your function with each of them: which call fails?",
        on_kinds=("raises",),
        on_text="cover all five",
    ),
    Hint(
        "JAX also asks a policy about operations without a name, such as matmuls and sines. Check that the operation "
        "is `name` before you look at `parameters['name']`.",
        on_kinds=("raises",),
        on_text="have a parameter `name`",
    ),
    Hint(
        "JAX calls the function that `gpt_block_policy` returns once per operation. Does that function return True or "
        "False, or does it return another function?",
        on_kinds=("raises",),
        on_text="expects True or False",
    ),
    Hint(
        "Which comparison of two strings is true only if they are equal? Use no other comparison of names.",
        on_kinds=("wrong value",),
        on_text="it also saves names that",
    ),
    Hint(
        "The check asks about the same name several times, for values of several dtypes and shapes, and your policy "
        "gives different answers. What does it look at other than the name, or remember between calls?",
        on_kinds=("wrong value",),
        on_text="; ",
    ),
    Hint(
        "The menu lists names, not operations. What should your policy return when JAX asks it about a matmul itself?",
        on_kinds=("wrong value",),
        on_text="asked about dot_general",
    ),
    Hint(
        "Call your policy as the check does: for that entry, with that operation. Which line of yours decides the "
        "answer?",
        on_kinds=("wrong value",),
    ),
    *ABOUT_ERRORS,
)

_TOO_MUCH = (
    "Which entry of the page's menu saves that value? If no entry does: does your policy compare whole names, and what "
    "does it return for operations that have no name?"
)
_TOO_LITTLE = (
    "Which of the page's names belong to this entry? List the names for every kind of block, and also the names that "
    "only some blocks need in their backward pass."
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
