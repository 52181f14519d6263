"""What is expected of an answer; only the judge reads this."""

from grader.catalog.saved_by_name import sample_input, saving
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Saves

feedback = read_feedback(__file__)

__all__ = ["feedback", "mistakes", "requirements", "sample_input"]

mistakes = ()


def requirements(case):
    actions = case.structure["actions"]
    saved, offloaded = ([name for name in actions if actions[name] == action] for action in ("save", "offload"))
    if case.structure["called"] == "jax.lax.scan":
        # No derivative needs "out". The carry is an argument of the body.
        on_host = tuple(f"all iterations' {name}" for name in offloaded if name != "out")
        keys = "all iterations' input", *(f"all iterations' {name}" for name in saved if name != "out"), *on_host
    else:
        keys, on_host = saving(case, [*saved, *offloaded])[0], saving(case, offloaded)[0]
    return [
        [
            Saves(
                keys,
                on_host=on_host,
                too_much="Does that value have a name? Which is the first rule whose pattern matches the whole name, "
                "and what is that rule's action?",
                too_little="Which is the first rule whose pattern matches the whole name of that value, and what does "
                "your policy return for that value?",
            )
        ]
    ]
