"""What is expected of an answer; only the judge reads this."""

from dataclasses import dataclass

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake, Recomputes, Saves
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding


def sample_input(rng, argument):
    """Draw numbers so large that sines of their matmuls differ from these, and so small that rounding is small."""
    size = rng.uniform(0.3, 1, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


@dataclass(frozen=True)
class HoldsTheLast:
    """A barrier before the recomputation holds the last argument and none of the others."""

    names = ()

    def findings(self, seen):
        """Yield what is wrong with a case's behaviour."""
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
        """Return what a passing case has shown, as the end of a sentence."""
        return "its barrier holds the last argument, and no other"


mistakes = (
    KnownMistake(
        "it passes the arguments to f in another order",
        lambda f: lambda *arguments: f(*arguments[-2::-1], arguments[-1]),
        "In which order does your function pass its arguments to f?",
    ),
)

error_questions = (
    (
        r"prevent_cse|prefix|different lengths|different numbers",
        "How many arguments does f take in the failing case, and how many values does your prevent_cse have?",
    ),
    (
        r"dot_general|matmul|contracting",
        "In which order does f take its arguments, and in which order do you pass them?",
    ),
    (
        r"positional argument|unpack",
        "How many arguments does your function accept? It is called with as many as f takes, which may not be two.",
    ),
)

hints = (
    Hint(
        "The mini-example prints what the barrier holds for four values of `prevent_cse`. Which of them holds only the "
        "last of two arguments?"
    ),
    Hint(
        "`prevent_cse` needs one value per argument. Where does your answer learn how many arguments `f` takes?",
        on_kinds=("raises",),
    ),
    Hint(
        "The barrier should hold only the last argument. Which value should `prevent_cse` have for that argument, and "
        "which for all others? A checkpoint inside another one has a barrier of its own.",
        on_kinds=("no barrier",),
    ),
    Hint(
        "Your forward pass saves a value from inside `f`. Does `jax.checkpoint` wrap all of `f`, and does it have a "
        "policy that saves something?",
        on_kinds=("also saved",),
    ),
    Hint(
        "How often does the backward pass run each matmul of `f`? One checkpoint around `f` runs each of them once "
        "more.",
        on_kinds=("recomputes", "extra matmuls"),
    ),
    Hint(
        "Call your function and `f` with the same arrays, and compare the results. Then compare their gradients, "
        "argument by argument.",
        on_kinds=("wrong value", "wrong gradient", "wrong type", "argument order"),
    ),
    Hint(
        "The function that you return can take `*arguments`. It knows their number only when it is called, so it can "
        "call `jax.checkpoint` then."
    ),
    Hint(
        "Nearly the answer: return a function of `*arguments`. When called, it makes a checkpoint of `f` with "
        "`prevent_cse=(False, …, False, True)`, one value per argument, and calls it with the arguments."
    ),
    *ABOUT_ERRORS,
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
