"""What is expected of an answer; only the judge reads this."""

import jax

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.peaks import PeakAtMost
from grader.exercises.requirements import KnownMistake, MatmulsAtMost, Requirement, SavesAtMost


def sample_input(rng, argument):
    """Draw water levels that differ from their sines by more than rounding."""
    return rng.uniform(0.5, 1.5, argument.shape).astype(argument.dtype)


def _steps(cond, body, x, max_steps):
    return jax.lax.fori_loop(0, max_steps, lambda _, x: jax.lax.cond(cond(x), body, lambda x: x, x), x)


_UNEVEN = "How many steps do all of your segments run in total? Check a `c` that does not divide `max_steps`."

mistakes = (
    KnownMistake(
        "it takes more than max_steps steps, until cond is false",
        lambda cond, body, x, max_steps, c: jax.lax.while_loop(cond, body, x),
        "What stops your loop after max_steps steps?",
    ),
    KnownMistake(
        "it always takes max_steps steps, although cond was false earlier",
        lambda cond, body, x, max_steps, c: jax.lax.fori_loop(0, max_steps, lambda _, x: body(x), x),
        "What does a step of your loop return once cond is false?",
    ),
    KnownMistake(
        "it takes more than max_steps steps",
        lambda cond, body, x, max_steps, c: _steps(cond, body, x, -(-max_steps // c) * c),
        _UNEVEN,
    ),
    KnownMistake(
        "it takes fewer than max_steps steps, although cond was still true",
        lambda cond, body, x, max_steps, c: _steps(cond, body, x, max_steps // c * c),
        _UNEVEN,
    ),
    KnownMistake(
        "it takes one step too many",
        lambda cond, body, x, max_steps, c: body(_steps(cond, body, x, max_steps)),
        "A while loop checks its condition before each step, and `python_while` also counts the steps. When does your "
        "loop check the condition and its counter?",
    ),
    KnownMistake(
        "it takes one step too few",
        lambda cond, body, x, max_steps, c: _steps(cond, body, x, max_steps - 1),
        "At which number does your loop start counting, and at which number does it stop?",
    ),
    KnownMistake(
        "it returns x unchanged",
        lambda cond, body, x, max_steps, c: x,
        "Does your loop run body while cond is true, and which element of its carry do you return?",
    ),
)

error_questions = (
    (
        r"Reverse-mode",
        "A loop with an unknown number of iterations cannot save residuals, because their number would be unknown "
        "too. Which of JAX's loops has a fixed number of iterations?",
    ),
    (
        r"UnexpectedTracer",
        "cond and body close over arrays. Which of your functions has a custom_vjp rule, and does it get these arrays "
        "as arguments? jax.closure_convert turns them into arguments.",
    ),
    (
        r"boolean conversion",
        "Python asks on that line whether a traced value is true, but the value is known only when the program runs. "
        "Which function of JAX makes that decision at run time?",
    ),
    (r"must be a pair", "A scan body returns a pair: the next carry and an output. What does your body return?"),
    (
        r"carry|identical types|same type|length|integer|float",
        "Which element of the carry changes its shape or dtype in that loop? Are all counters integers?",
    ),
    (
        r"positional argument",
        "cond and body take only the state. Which arguments does the loop pass to the function that you give it?",
    ),
)

hints = (
    Hint(
        "JAX cannot know the number of steps when it traces the loop, but the number is at most `max_steps`. A "
        "`jax.lax.scan` always runs all of its iterations. What should an iteration return once `cond` is false?"
    ),
    Hint(
        "Your forward pass saves more than `c` states. How many iterations does your outer loop take, and is each of "
        "them one whole segment in a `jax.checkpoint`, as in exercise 16?",
        on_kinds=("also saved",),
    ),
    Hint(
        "How many iterations does your outer loop take, and how many does the inner loop take? `c` is the number of "
        "segments, not their length.",
        on_kinds=("also saved",),
        on_text="segments of c steps",
    ),
    Hint(
        "Your forward pass saves few enough states, so the backward pass is what needs the memory. How many steps does "
        "it recompute at once? Does a scan run your segments one after another?",
        on_kinds=("peak",),
    ),
    Hint(
        "To go back through step 50, the backward pass needs the state before it, and then the state before step 49. "
        "From which saved state does yours recompute each of them? Saved states in between avoid most of these steps.",
        on_kinds=("recomputes",),
    ),
    Hint(
        "`jnp.where(going_on, body(x), x)` computes both sides, so `body` also runs after the loop has ended. Its "
        "derivative may be infinite there, and zero times infinity is NaN. Use `jax.lax.cond`, which runs one branch.",
        on_kinds=("wrong gradient",),
        on_text="NaN",
    ),
    Hint(
        "Do gradients also reach the arrays that `body` closes over? And does your backward pass go through exactly "
        "the steps that the loop took?",
        on_kinds=("wrong gradient",),
    ),
    Hint(
        "Test your loop with `cond = lambda x: x < n`, `body = lambda x: x + 1`, `x = 0` and `max_steps=10`. With `n` "
        "of 5, 10 and 20 it should return 5, 10 and 10, for `c` of 4 and of 5.",
        on_kinds=("wrong value",),
    ),
    Hint(
        "JAX can differentiate a loop backwards if it knows the number of iterations when it traces: a `scan`, or a "
        "`fori_loop` between two Python integers. Which number of iterations do you know then?",
        on_kinds=("raises",),
        on_text="Reverse-mode",
    ),
    Hint(
        "Test the parts separately: one step, `jax.lax.cond(going_on, body, lambda x: x, x)`, and a scan of a few "
        "steps. What does each of them take, and what does it return?",
        on_kinds=("raises", "wrong type"),
    ),
    Hint(
        "Which counter or state changes in each iteration of your loop, in the backward pass too, and which condition "
        "on it ends the loop?",
        on_kinds=("does not end",),
    ),
    Hint(
        "Nearly the answer: scan over `c` segments, each a `jax.checkpoint` around a scan of `-(-max_steps // c)` "
        "steps. A step is a `jax.lax.cond`. Add a counter to the carry, so that a step beyond `max_steps` returns its "
        "carry unchanged."
    ),
    Hint(
        "`if`, `while`, `and` and `or` need a Python bool, but a traced value has no value yet. Use `&`, `|` and "
        "`jax.lax.cond` instead.",
        on_kinds=("raises",),
        on_text="whether a traced value is true",
    ),
    *ABOUT_ERRORS,
)


_TOO_HIGH = (
    "How many steps does your backward pass recompute at once, and what does it save for each of them meanwhile?"
)


def requirements(case):
    most, c = case.structure["max_steps"], case.structure["c"]
    asked: list[list[Requirement]] = [
        [
            SavesAtMost(
                "each segment's first state",
                count=c,
                parts="states",
                too_much="Does your forward pass save something for every step, or for every segment? How many?",
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
                    too_many="How often does your answer run the first step in total? From which saved states could "
                    "the backward pass recompute instead?",
                ),
            ]
        )
    # The segments' first states, twice since a loop may copy them; the states of one segment; what a step needs.
    elif (room := 2 * c + -(-most // c) + 8) <= most:  # otherwise the states of all steps fit too
        asked.append([PeakAtMost(room, too_high=_TOO_HIGH)])
    return asked
