"""What is expected of an answer; only the judge reads this."""

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Numbers whose matmuls neither vanish nor grow.
sample_input = signed_values(0.3, 1.2)


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
    return _policy_saving(lambda entry, value: value in _MENU[entry])(name)


def _policy_saving(says):
    """Return an answer whose policies save a value if `says(entry, name)`; the name may be _UNNAMED."""
    return lambda entry: (
        lambda operation, *_, **parameters: says(entry, parameters["name"] if operation.name == "name" else _UNNAMED)
    )


def _policy_of_names(says):
    """Return an answer that saves a value if `says(its name, name)` for any name of the entry."""
    return _policy_saving(
        lambda entry, value: value is not _UNNAMED and any(says(value, name) for name in _MENU[entry])
    )


mistakes = (
    mistake("names_with_same_start", _policy_of_names(str.startswith)),
    mistake("names_with_same_end", _policy_of_names(str.endswith)),
    mistake("names_that_contain_a_name", _policy_of_names(lambda value, name: name in value)),
    mistake("names_inside_a_name", _policy_of_names(lambda value, name: value in name)),
    mistake("names_in_other_case", _policy_of_names(lambda value, name: value.lower() == name)),
    mistake("names_with_spaces", _policy_of_names(lambda value, name: value.strip() == name)),
    mistake("saved_and_recomputed_swapped", _policy_saving(lambda entry, value: value not in _MENU[entry])),
    mistake(
        "full_saves_everything",
        _policy_saving(lambda entry, value: entry == "full" or value in _MENU[entry]),
    ),
    mistake(
        "with_context_saves_no_context",
        _policy_saving(lambda entry, value: value in _MENU[entry.removesuffix("_with_context")]),
    ),
    mistake(
        "minimal_saves_context",
        _policy_saving(lambda entry, value: value in _MENU["minimal_with_context" if entry == "minimal" else entry]),
    ),
)


_TOO_MUCH = (
    "Which entry of the page's menu saves that value? If no entry does, does your policy compare whole names, and what "
    "does it return for operations that have no name?"
)
_TOO_LITTLE = (
    "Which of the page's names belong to this entry? List the names for every kind of block, and also the names that "
    "only some blocks need in their backward pass."
)


def _saves_of_entry(entry, *names):
    return (entry,), (Saves(names, too_much=_TOO_MUCH, too_little=_TOO_LITTLE),)


_REQUIREMENTS = (
    _saves_of_entry("full"),
    _saves_of_entry("save_out_proj", "out_proj"),
    _saves_of_entry("save_qkv_proj", *_QKV),
    _saves_of_entry("minimal", *_PROJECTIONS),
    _saves_of_entry("minimal_with_context", *_PROJECTIONS, "context"),
)


def requirements(case):
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]
