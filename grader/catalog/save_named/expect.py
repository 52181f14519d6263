"""What is expected of an answer; only the judge reads this."""

from grader.catalog.saved_by_name import sample_input, saving, too_many, twice_the_value
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Requirement, Saves

feedback = read_feedback(__file__)

mistakes = (feedback.mistake("twice_the_value", twice_the_value),)

__all__ = ["feedback", "mistakes", "requirements", "sample_input"]


_TOO_MUCH = (
    "For which names does your policy return True: exactly those in the list, each compared as a whole? What does it "
    "return for values without a name?"
)
_TOO_LITTLE = (
    "Which policy do you pass to jax.checkpoint? Is it made from all names, each passed as a separate argument?"
)


# The saved values, and the number of recomputed matmuls. For the other functions their structure gives both.
_PLAIN = {
    "one of three names": (("mlp",), 2),
    "two of three names": (("mlp_gate", "out"), 1),
    "a list with a name that f does not have": (("h",), 0),
    "vmap over x, random names": (("mlp", "out"), 1),
    "an empty list": ((), 1),
}


def requirements(case):
    """Require the named residuals and no other recompute: first for single simple functions, then for all others."""
    plain = case.name in _PLAIN
    saved, again = _PLAIN[case.name] if plain else saving(case, case.structure["names"])
    groups: list[tuple[Requirement, ...]] = [()] * (len(_PLAIN) + 2)
    groups[list(_PLAIN).index(case.name) if plain else -2] = (
        Saves(saved, too_much=_TOO_MUCH, too_little=_TOO_LITTLE),
        Recomputes(again, too_many=too_many),
    )
    groups[-1] = (AdvisesBarrier(),) if plain and saved else ()
    return groups
