"""What is expected of an answer; only the judge reads this."""

import jax

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.peaks import PeakAtMost
from grader.exercises.requirements import MatmulsAtMost, Mistake, Requirement, SavesAtMost


def draw(rng, argument):
    """Numbers of water in tanks, whose sines are not about equal to them."""
    return rng.uniform(0.5, 1.5, argument.shape).astype(argument.dtype)


def _steps(cond, body, x, max_steps):
    return jax.lax.fori_loop(0, max_steps, lambda _, x: jax.lax.cond(cond(x), body, lambda x: x, x), x)


_UNEVEN = "How many steps have your segments, all taken together? What if c does not divide max_steps?"

mistakes = (
    Mistake(
        "this is the value of the loop that goes on for more than max_steps steps, until cond is false",
        lambda cond, body, x, max_steps, c: jax.lax.while_loop(cond, body, x),
        "What ends your loop after max_steps steps?",
    ),
    Mistake(
        "this is the value after max_steps steps, though cond was false before",
        lambda cond, body, x, max_steps, c: jax.lax.fori_loop(0, max_steps, lambda _, x: body(x), x),
        "What does one of your steps do once cond is false?",
    ),
    Mistake(
        "this is the value after more than max_steps steps",
        lambda cond, body, x, max_steps, c: _steps(cond, body, x, -(-max_steps // c) * c),
        _UNEVEN,
    ),
    Mistake(
        "this is the value after fewer than max_steps steps, though cond was still true",
        lambda cond, body, x, max_steps, c: _steps(cond, body, x, max_steps // c * c),
        _UNEVEN,
    ),
    Mistake(
        "this is the value after one step too many",
        lambda cond, body, x, max_steps, c: body(_steps(cond, body, x, max_steps)),
        "Which comes first in a while loop, the condition or the step?",
    ),
    Mistake(
        "this is the value after one step too few",
        lambda cond, body, x, max_steps, c: _steps(cond, body, x, max_steps - 1),
        "With which number does your loop begin to count, and for which numbers does it go on?",
    ),
    Mistake(
        "this is x itself",
        lambda cond, body, x, max_steps, c: x,
        "Does your loop take a step where cond is true, and which of the things that go round in it do you return?",
    ),
)

error_questions = (
    (
        r"Reverse-mode",
        "What would a loop have to keep that does not know how many steps it will take? Which of JAX's loops knows?",
    ),
    (
        r"UnexpectedTracer",
        "cond and body bring arrays along. Which of your functions has a rule of its own, and is it given them? "
        "jax.closure_convert makes them arguments.",
    ),
    (
        r"boolean conversion",
        "Python asks there whether a traced value is true. What decides that when the program runs?",
    ),
    (r"must be a pair", "Which two things does the body of a scan return? body returns one."),
    (
        r"carry|identical types|same type|length|integer|float",
        "Which of the things that go round there changes its shape or dtype? Are all counts integers?",
    ),
    (r"positional argument", "cond and body take the state and nothing else. What does a scan call its body with?"),
)

hints = (
    Hint(
        "How many steps the loop will take nobody knows beforehand, but it is at most `max_steps`. A scan always takes "
        "as many turns. What should a turn do once `cond` is false?"
    ),
    Hint(
        "Something of each step is kept. Exercise 16 began so too. What did one turn of its outer loop do, and what "
        "was around it?",
        after=("also saved",),
    ),
    Hint(
        "How many turns does your outer loop take, and how many the inner one? Which of the two numbers is `c`?",
        after=("also saved",),
        says="segments of c steps",
    ),
    Hint(
        "Nothing of each step is kept, until the backward pass runs the loop again. How many steps does one of your "
        "checkpoints hold?",
        after=("peak",),
    ),
    Hint(
        "To go back through step 50, the state before it is wanted; then the one before step 49. From which state does "
        "your backward pass set out each time? Could it keep some of those that it comes by?",
        after=("recomputes",),
    ),
    Hint(
        "`jnp.where(going_on, body(x), x)` takes both sides: `body` runs though nobody uses what it returns. What is "
        "the derivative of the square root at 0, and what is zero times that? Which function of JAX takes one side?",
        after=("wrong gradient",),
        says="NaN",
    ),
    Hint(
        "Do gradients reach the arrays that `body` brings along? And is the derivative taken of those steps only that "
        "were taken?",
        after=("wrong gradient",),
    ),
    Hint(
        "Take `cond = lambda x: x < n` and `body = lambda x: x + 1`, begin at 0, and print what your loop returns with "
        "`max_steps=10`, for `c` of 4 and of 5, for `n` of 5, 10 and 20. Is it 5, 10 and 10?",
        after=("wrong value",),
    ),
    Hint(
        "JAX goes backwards through a loop if it knows the number of turns when it traces: a scan, or a `fori_loop` "
        "between two plain numbers. Which number of turns do you know then?",
        after=("raises",),
        says="Reverse-mode",
    ),
    Hint(
        "Try the pieces alone: one step, `jax.lax.cond(…, body, lambda x: x, x)`, and one scan of a few steps. What "
        "does each take, and what does it return?",
        after=("raises", "wrong type"),
    ),
    Hint(
        "Which number goes up or down in each turn of your loop, and what does it begin with?", after=("does not end",)
    ),
    Hint(
        "Nearly the answer: `c` segments of `-(-max_steps // c)` steps each, a scan of scans. One segment is in a "
        "checkpoint. One step is a `jax.lax.cond`. How does a step learn its number, so that those beyond `max_steps` "
        "do nothing?"
    ),
    Hint(
        "`if`, `while`, `and` and `or` ask Python, which knows no numbers while JAX traces. What do `&`, `|` and "
        "`jax.lax.cond` do in their place?",
        after=("raises",),
        says="whether a traced value is true",
    ),
    *ABOUT_ERRORS,
)


_TOO_HIGH = (
    "How much of the loop does your backward pass run again at once, and what does it keep of a step while it does?"
)


def requirements(case):
    most, c = case.structure["max_steps"], case.structure["c"]
    asked: list[list[Requirement]] = [
        [
            SavesAtMost(
                "each segment's first state",
                count=c,
                parts="states",
                too_much="What does your forward pass keep something of: every step, or every segment? How many are "
                "there?",
                # Two halves are a stack of two states, the first of which is x.
                spare=int(c == 1),
            )
        ]
    ]
    if most == 58:
        asked.append(
            [
                PeakAtMost(30, too_high=_TOO_HIGH, compiled=True, turns=most),
                MatmulsAtMost(
                    5,
                    too_many="How often is the first step run, all in all? From which states could the "
                    "backward pass set out instead?",
                ),
            ]
        )
    # The segments' first states, twice since a loop may hand them on; the states of a segment; what a step needs.
    elif (room := 2 * c + -(-most // c) + 8) <= most:  # else all steps' states are no more
        asked.append([PeakAtMost(room, too_high=_TOO_HIGH)])
    return asked
