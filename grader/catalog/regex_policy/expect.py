"""What is expected of an answer; only the judge reads this."""

from grader.catalog.saved_by_name import sample_input, saving
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Saves

feedback = read_feedback(__file__)

__all__ = ["feedback", "mistakes", "requirements", "sample_input"]

mistakes = ()


def requirements(case):
    # In the scan the pattern matches "out" too, but no derivative needs it; the carry is an argument of the body.
    described = case.structure["saved"]
    if case.structure["called"] == "jax.lax.scan":
        saved = ("input", *(name for name in ("mlp", "mlp_gate") if name in described))
        saved = tuple(f"all iterations' {name}" for name in saved)
    else:
        saved = saving(case, described)[0]
    return [
        [
            Saves(
                saved,
                too_much="Does that value have a name, and does the pattern match the name from end to end?",
                too_little="Which names does the pattern match, and does your policy return True for each of them?",
            )
        ]
    ]
