"""Hints: steps towards an answer, one at a time. Which one comes next depends on what the last check found."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from grader.verdicts.error_questions import UNDIFFERENTIATED
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding


@dataclass(frozen=True)
class Hint:
    """One step towards an answer.

    Attributes:
      text: a question; the last ones of an exercise may give nearly all of the answer. Code is in backquotes.
      on_kinds: the kinds of findings (`Finding.kinds`) that it helps with; empty if it always helps.
      on_text: words that such a finding must contain, in its text, its figures, its cases or its question, if the kind
        alone does not tell mistakes apart; all of them, if there are several. None if it does.
    """

    text: str
    on_kinds: tuple[str, ...] = ()
    on_text: str | tuple[str, ...] | None = None

    def closeness(self, findings: Sequence[Finding]) -> int:
        """How closely it fits what was found: 0 always, 1 by a finding's kind, one more for each of the words that it
        must have; -1 if it does not fit."""
        if not self.on_kinds:
            return 0
        words = (self.on_text,) if isinstance(self.on_text, str) else self.on_text or ()
        found = (_words(finding) for finding in findings if finding.kinds.intersection(self.on_kinds))
        return 1 + len(words) if any(all(word in said for word in words) for said in found) else -1


def _words(finding: Finding) -> str:
    # Not its source: that is the learner's, and a comment in it is no finding.
    said = (finding.text, finding.expected, finding.got, *finding.cases, finding.next)
    return "\n".join(words for words in said if words)


def next_hint(hints: Sequence[Hint], findings: Sequence[Finding], given: Collection[int]) -> int | None:
    """Which hint comes next: the first of those that fit most closely what was found.

    Args:
      hints: the exercise's hints, in their order.
      findings: those of the last check; empty if there was none.
      given: indices of the hints that have been given.

    Returns:
      An index into `hints`, or None if none is left.
    """
    # Arguments in the wrong order explain everything else that was found.
    swapped = [finding for finding in findings if finding.kind is FindingKind.ARGUMENT_ORDER]
    closeness = {index: hint.closeness(swapped or findings) for index, hint in enumerate(hints) if index not in given}
    fitting = [index for index, close in closeness.items() if close >= 0]
    return max(fitting, key=closeness.__getitem__, default=None)


def _about_errors(text: str, *says: str) -> tuple[Hint, ...]:
    return tuple(Hint(text, (FindingKind.RAISES,), words) for words in says)


# The last hints of every exercise. Mistakes in calling JAX mean the same in each; their hints are found by words of the
# questions about them (`grader/verdicts/error_questions.py`). The last hint is for all other exceptions.
ABOUT_ERRORS = (
    Hint(
        "`f(x)` runs the function that `jax.custom_vjp` wraps; `jax.grad(f)(x)` runs its forward rule instead. Print "
        "`f(x)` and the first result of the forward rule for the same `x`. Where do they differ?",
        on_kinds=(FindingKind.WRONG_VALUE, FindingKind.WRONG_TYPE, FindingKind.RAISES),
        on_text=UNDIFFERENTIATED,
    ),
    Hint(
        "Call your answer twice in one cell with the same arguments. Which names does it use from outside the "
        "function, and do their values change between the calls?",
        on_kinds=(FindingKind.CHANGES,),
    ),
    *_about_errors(
        "`@jax.checkpoint(policy=…)` calls `jax.checkpoint` without a function. What does "
        "`functools.partial(jax.checkpoint, policy=…)` return, and can you use it as a decorator?",
        "use functools.partial to set the policy",
    ),
    *_about_errors(
        "`jax.checkpoint(f, policy=…)(x)` has two pairs of parentheses. The first takes the function and options of "
        "`jax.checkpoint`; the second takes the function's arguments. Which of your values are in the wrong pair?",
        "keyword belongs to jax.checkpoint",
        "passed as an argument of a checkpointed function",
        "takes one positional argument, the function",
    ),
    *_about_errors(
        "`jax.checkpoint(f)(x)` wraps `f` and calls the result. `jax.checkpoint(f(x))` calls `f` first, so nothing is "
        "left to wrap. Which of the two does your line do?",
        "parentheses of jax.checkpoint: a function",
        "Did you forget to call it",
        "takes a function and returns a function",
    ),
    *_about_errors(
        "Some functions in `jax.checkpoint_policies` are policies, such as `dots_saveable`. Others make a policy from "
        "names, such as `save_only_these_names`. Which kind do you use, and do you call it exactly once if it makes a "
        "policy?",
        "or a function that makes one",
        "or its result?",
        "not a policy. Which",
    ),
    *_about_errors(
        "JAX calls a policy for every operation and needs a result each time. Print the arguments and the result of "
        "yours. When is the result neither `True` nor `False`?",
        "What does your policy return in all other cases",
        "A policy returns True, False",
    ),
    *_about_errors(
        "What are `6 / 2`, `7 / 2` and `7 // 2` in Python? Which of them can be a size or an index?",
        "needs an integer but got a float",
    ),
    *_about_errors(
        "`f([1, 2])` passes one argument to `f`, a list. How many arguments does `f(*[1, 2])` pass?",
        "How do you unpack a list",
    ),
    *_about_errors(
        '`checkpoint_name(value, "name")` returns the value with its name. Which arguments do you pass, and in which '
        "order?",
        "checkpoint_name takes a value and a name",
    ),
    *_about_errors(
        "A policy decides for one operation whether to save its result; `jax.checkpoint` wraps a function. Does this "
        "exercise ask for a policy or for a checkpointed function?",
        "wrap your policy in jax.checkpoint",
    ),
    *_about_errors(
        "A tuple `t = (1, 2)` cannot be changed. What are `list(t)`, `(*t, 3)` and `t + (3,)`, and is `t` the same "
        "afterwards?",
        "ranges cannot be changed",
    ),
    *_about_errors(
        "An answer gets its values from its arguments and gives its result back with `return`. Which of your lines "
        "asks the user for a value, or ends the program?",
        "Which line ends the program",
        "Which line calls input()",
    ),
    Hint(
        "Call your answer in a new cell with arguments of your own. Print the values just before the line that raises "
        "the error. Which one is not what you expect?",
        on_kinds=(FindingKind.RAISES,),
    ),
)
