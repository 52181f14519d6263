"""What is expected of an answer; only the judge reads this."""

from dataclasses import dataclass

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Recomputes, Saves
from grader.verdicts.verdict import Finding, FindingKind

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Numbers so large that sines of their matmuls differ from these, and so small that rounding is small.
sample_input = signed_values(0.3, 1)


@dataclass(frozen=True)
class HoldsTheLast:
    """A barrier before the recomputation holds the last argument and none of the others."""

    names = ()

    def findings(self, seen):
        """Yield findings about a case."""
        *free, last = seen.arguments
        held = [name for name in seen.arguments if name in seen.held]
        if held == [last]:
            return
        too_much = [name for name in free if name in held]
        text = (
            f"Your barrier also holds {' and '.join(too_much)}, so recomputation that uses it waits for the cotangent."
        )
        if last not in held:
            text = f"No barrier holds {last}" + (f", but one holds {' and '.join(too_much)}." * bool(too_much) or ".")
        yield Finding(
            FindingKind.NO_BARRIER,
            text,
            expected=f"{last} held, {' and '.join(free)} free",
            got=f"{' and '.join(held)} held" if held else "nothing held",
            next="Which value does prevent_cse have for each argument, in the order in which f takes them?",
        )

    def claim(self, seen):
        """Return the claim about a case that passes, as the end of a sentence."""
        return "its barrier holds the last argument, and no other"


mistakes = (
    mistake("passes_arguments_f_another_order", lambda f: lambda *arguments: f(*arguments[-2::-1], arguments[-1])),
)


def requirements(case):
    return [
        [
            Saves((), too_much="Does jax.checkpoint wrap all of f, without a policy that saves something?"),
            Recomputes(
                case.structure["weights"], too_many="How many nested checkpoints does your answer put around f?"
            ),
        ],
        [HoldsTheLast()],
    ]
