"""What is expected of an answer; only the judge reads this."""

from jax.ad_checkpoint import Offloadable, Recompute, Saveable

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Values whose matmuls are large enough that sin(y) differs from y, and small enough to round little.
sample_input = signed_values(0.3, 1.2)


def reference(p1, p2):
    """Return a right answer in its simplest form."""
    return _joined_policy(lambda first, second: second if _is_no(first) else first)(p1, p2)


def _is_no(said):
    return said is False or said is Recompute


def _joined_policy(join):
    """Return an answer that asks both policies and makes one answer of theirs."""
    return lambda p1, p2: lambda *told, **parameters: join(p1(*told, **parameters), p2(*told, **parameters))


def _is_saved(said):
    return said is True or said is Saveable


def _first_of(chosen, otherwise):
    """Return the first of two answers that is chosen, or otherwise something else."""
    return _joined_policy(lambda *said: next((each for each in said if chosen(each)), otherwise(*said)))


_HOST = Offloadable("device", "pinned_host")


mistakes = (
    mistake("lets_p2_win_both_say", _joined_policy(lambda first, second: first if _is_no(second) else second)),
    mistake("returns_p1_whatever_p2_returns", lambda p1, p2: p1),
    mistake("returns_p2_whatever_p1_returns", lambda p1, p2: p2),
    mistake("treats_recompute_means_no_yes", _joined_policy(lambda first, second: first or second)),
    mistake("treats_recompute_means_no_yes_asks", _joined_policy(lambda first, second: second or first)),
    mistake(
        "says_yes_only_both_policies", _joined_policy(lambda first, second: second if not _is_no(first) else first)
    ),
    mistake("says_yes_only_both_policies_one", _joined_policy(lambda first, second: first and second)),
    mistake("says_no_both_say_yes", _joined_policy(lambda first, second: _is_no(first) != _is_no(second))),
    mistake(
        "turns_every_offload_plain_yes", _joined_policy(lambda first, second: not (_is_no(first) and _is_no(second)))
    ),
    mistake("turns_offloads_p1_plain_yes", _joined_policy(lambda first, second: second if _is_no(first) else True)),
    mistake(
        "turns_offloads_p2_plain_yes",
        _joined_policy(lambda first, second: not _is_no(second) if _is_no(first) else first),
    ),
    mistake(
        "makes_offloadable_own_another_src",
        _joined_policy(
            lambda first, second: _HOST if isinstance(said := second if _is_no(first) else first, Offloadable) else said
        ),
    ),
    mistake(
        "saving_wins_over_offloading_p1", _first_of(_is_saved, lambda first, second: second if _is_no(first) else first)
    ),
    mistake(
        "offloading_wins_over_saving_p1",
        _first_of(lambda said: isinstance(said, Offloadable), lambda first, second: second if _is_no(first) else first),
    ),
    mistake("not_count_offloadable_yes", _first_of(_is_saved, lambda *said: False)),
    mistake(
        "not_count_offloadable_p1_yes", _joined_policy(lambda first, second: first if _is_saved(first) else second)
    ),
    mistake(
        "not_count_saveable_yes",
        _first_of(lambda said: said is True or isinstance(said, Offloadable), lambda *said: False),
    ),
)


_WHICH = (
    "What does each of the two policies return for that value, which of them do you ask first, and what does your "
    "policy make of the two answers?"
)
_PRINT = (
    "Print what each of the two policies returns for that value, and what yours returns. Which answers does yours "
    "count as a yes, and does it return an Offloadable unchanged?"
)


def _saves_of_case(case, *names, next=_WHICH, on_host=()):
    return (case,), (Saves(names, too_much=next, too_little=next, on_host=on_host),)


_REQUIREMENTS = (
    _saves_of_case("p1 saves hidden and squares, p2 saves squares and logits", "hidden", "logits", "squares"),
    _saves_of_case("p1 saves sines, p2 saves matmuls", "hidden", "logits", "sines"),
    _saves_of_case(
        "p1 offloads matmuls, p2 saves sines",
        *("hidden", "logits", "sines"),
        next=_PRINT,
        on_host=("hidden", "logits"),
    ),
    _saves_of_case(
        "p1 offloads hidden and saves squares, p2 saves hidden and logits",
        *("hidden", "logits", "squares"),
        next=_PRINT,
        on_host=("hidden",),
    ),
    _saves_of_case("p1 saves hidden, p2 offloads hidden and logits", "hidden", "logits", on_host=("logits",)),
    _saves_of_case("p1 offloads hidden and p2 offloads logits, both to the device", "hidden", "logits"),
)


def requirements(case):
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]
