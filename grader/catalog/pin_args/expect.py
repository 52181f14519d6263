"""What is expected of an answer; only the judge reads this."""

from dataclasses import dataclass

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake, Recomputes, Saves
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.3, 1, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


@dataclass(frozen=True)
class HoldsTheLast:
    """In front of what is computed again, a barrier holds the last argument and none of the others."""

    names = ()

    def findings(self, seen):
        """What stands against a case's behaviour."""
        *free, last = seen.arguments
        held = [name for name in seen.arguments if name in seen.held]
        if held == [last]:
            return
        too_much = [name for name in free if name in held]
        text = f"Your barrier holds {' and '.join(too_much)}, so that what needs it waits for the cotangent."
        if last not in held:
            text = f"No barrier holds {last}" + (f", and one holds {' and '.join(too_much)}." * bool(too_much) or ".")
        yield Finding(
            FindingKind.NO_BARRIER,
            text,
            expected=f"{last} held, {' and '.join(free)} free",
            got=f"{' and '.join(held)} held" if held else "nothing held",
            next="What does prevent_cse say of each argument, in the order in which f takes them?",
        )

    def claim(self, seen):
        """What has been shown once nothing does, as the end of a sentence."""
        return "its barrier holds the last argument, and no other"


mistakes = (
    Mistake(
        "this is what f computes with its arguments in another order",
        lambda f: lambda *arguments: f(*arguments[-2::-1], arguments[-1]),
        "In which order does your function hand its arguments on?",
    ),
)

error_questions = (
    (
        r"prevent_cse|prefix|different lengths|different numbers",
        "How many arguments has f in the case where this is seen, and how many answers does your prevent_cse have?",
    ),
    (r"dot_general|matmul|contracting", "In which order does f take its arguments, and in which does yours pass them?"),
    (r"positional argument|unpack", "With how many arguments is your function called? Not every f has two."),
)

hints = (
    Hint("The page shows what each `prevent_cse` holds. Which line is what you want, for a function of two arguments?"),
    Hint(
        "One answer for each argument: when does your function know how many there are?",
        after=("raises",),
    ),
    Hint(
        "The barrier should hold one argument only. Which one is that, and what does `prevent_cse` say of the others?",
        after=("no barrier",),
    ),
    Hint(
        "Something from inside `f` is kept. Is all of `f` in a checkpoint, and is there a policy that keeps anything?",
        after=("also saved",),
    ),
    Hint("How many checkpoints are there around `f`, one in the other?", after=("recomputes", "extra matmuls")),
    Hint(
        "Call your function and `f` with the same arrays, and compare. Then compare their gradients, one by one.",
        after=("wrong value", "wrong gradient", "wrong type", "argument order"),
    ),
    Hint(
        "`prevent_cse` may be a tree as the arguments are. If the weights came as one tuple, how many answers would do "
        "for any number of them?"
    ),
    Hint(
        "Nearly the answer: return a function of `*arguments` that makes its checkpoint when it is called, with "
        "`False` for each argument but the last. How do you write that tuple?"
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return [
        [
            Saves((), too_much="Is all of f in a checkpoint, without a policy that keeps something?"),
            Recomputes(case.structure["weights"], too_many="How many checkpoints does your answer put around f?"),
        ],
        [HoldsTheLast()],
    ]
