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
      text: a question; the last ones of an exercise may say nearly all of the answer. Code stands in backquotes.
      after: the kinds of findings (`Finding.kind`) that it helps with; empty if it helps whatever was found.
      says: words that such a finding must have, in its text, its figures, its cases or its question, where the kind
        alone does not tell mistakes apart; all of them, if there are several. None if it does.
    """

    text: str
    after: tuple[str, ...] = ()
    says: str | tuple[str, ...] | None = None

    def closeness(self, findings: Sequence[Finding]) -> int:
        """How closely it fits what was found: 0 always, 1 by a finding's kind, one more for each of the words that it
        must have; -1 if it does not fit."""
        if not self.after:
            return 0
        words = (self.says,) if isinstance(self.says, str) else self.says or ()
        found = (_words(finding) for finding in findings if finding.kind in self.after)
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


# The last of every exercise's hints. What goes wrong in a call of JAX's means the same in each: these are found by the
# words of the questions about it (`grader/verdicts/error_questions.py`); the last one is for all else that is raised.
# And so does what goes wrong the second time alone.
ABOUT_ERRORS = (
    Hint(
        "`f(x)` runs the function that `jax.custom_vjp` was given, `jax.grad(f)(x)` its forward rule instead. Print "
        "`f(x)`, and the first of the two things that the forward rule returns for that `x`: where do they part?",
        after=(FindingKind.WRONG_VALUE, FindingKind.WRONG_TYPE, FindingKind.RAISES),
        says=UNDIFFERENTIATED,
    ),
    Hint(
        "Call your answer twice in one cell, with the same arguments. Which of the names that it uses come from "
        "outside of it, and is what they stand for the same before and after each call?",
        after=(FindingKind.CHANGES,),
    ),
    *_about_errors(
        "`jax.checkpoint(f, policy=…)` gets its function at once, `@jax.checkpoint(policy=…)` is called without one. "
        "What is `functools.partial(jax.checkpoint, policy=…)` a function of, and may it stand behind an `@`?",
        "How can functools.partial give it",
    ),
    *_about_errors(
        "`jax.checkpoint(f, policy=…)(x)` has two pairs of brackets: in the first stand a function and, by keyword, "
        "how to wrap it, in the second what that function takes. What stands in which in your answer?",
        "keyword is one of jax.checkpoint's own",
        "among the arguments of what jax.checkpoint returned",
        "takes the function alone",
    ),
    *_about_errors(
        "`jax.checkpoint(f)(x)` wraps `f` and calls what comes back; `jax.checkpoint(f(x))` calls `f` first. What is "
        "left to be wrapped then, and which of the two is like your line?",
        "parentheses of jax.checkpoint: a function",
        "has somebody called the function",
        "who calls what comes back",
    ),
    *_about_errors(
        "Of what stands under `jax.checkpoint_policies`, some are policies, such as `dots_saveable`; others make one "
        "of names, such as `save_only_these_names`. Which of the two do you have, and is it called, once?",
        "or a function that makes one",
        "the policy or what it returned",
        "none itself",
    ),
    *_about_errors(
        "JAX asks a policy about every operation, and each time it wants an answer. Print what yours is asked and what "
        "it answers: when is that neither `True` nor `False`?",
        "What does your policy return in all other cases",
        "A policy answers with True, with False",
    ),
    *_about_errors(
        "What are `6 / 2`, `7 / 2` and `7 // 2` in Python? Which of them may be a size, or a place in a list?",
        "A number there is no integer",
    ),
    *_about_errors(
        "`f([1, 2])` gives `f` one argument, which is a list. How many does `f(*[1, 2])` give it?",
        "How does a call spread a list",
    ),
    *_about_errors(
        '`checkpoint_name(value, "name")` returns the value, with its name. What does it get in your answer, and in '
        "which order?",
        "checkpoint_name takes two things",
    ),
    *_about_errors(
        "A policy says yes or no to an operation, and is what a checkpoint is given. Who puts a checkpoint around a "
        "function, you or the check, and what does that get by `policy=`?",
        "has jax.checkpoint been put around one",
    ),
    *_about_errors(
        "`t = (1, 2)` cannot be changed. What are `list(t)`, `(*t, 3)` and `t + (3,)`, and is `t` still what it was?",
        "those stay what they are",
    ),
    Hint(
        "Call your answer yourself, in a cell of its own, with arguments of your own. What are the values in the line "
        "that raises, if you print them just before it?",
        after=(FindingKind.RAISES,),
    ),
)
