"""What is expected of an answer; only the judge reads this."""

import jax

from grader.exercises.feedback import read_feedback
from grader.exercises.peaks import PeakAtMost
from grader.exercises.requirements import MatmulsAtMost, Requirement, SavesAtMost

feedback = read_feedback(__file__)
mistake = feedback.mistake


def sample_input(rng, argument):
    """Draw water levels that differ from their sines by more than rounding."""
    return rng.uniform(0.5, 1.5, argument.shape).astype(argument.dtype)


def _run_steps(cond, body, x, max_steps):
    return jax.lax.fori_loop(0, max_steps, lambda _, x: jax.lax.cond(cond(x), body, lambda x: x, x), x)


mistakes = (
    mistake("ignores_max_steps", lambda cond, body, x, max_steps, c: jax.lax.while_loop(cond, body, x)),
    mistake(
        "always_takes_max_steps",
        lambda cond, body, x, max_steps, c: jax.lax.fori_loop(0, max_steps, lambda _, x: body(x), x),
    ),
    mistake(
        "more_than_max_steps",
        lambda cond, body, x, max_steps, c: _run_steps(cond, body, x, -(-max_steps // c) * c),
    ),
    mistake("fewer_than_max_steps", lambda cond, body, x, max_steps, c: _run_steps(cond, body, x, max_steps // c * c)),
    mistake("one_step_too_many", lambda cond, body, x, max_steps, c: body(_run_steps(cond, body, x, max_steps))),
    mistake("one_step_too_few", lambda cond, body, x, max_steps, c: _run_steps(cond, body, x, max_steps - 1)),
    mistake("returns_x", lambda cond, body, x, max_steps, c: x),
)


_TOO_HIGH = (
    "How many steps does your backward pass recompute at once, and what does it hold in memory for each of them?"
)


def requirements(case):
    most, c = case.structure["max_steps"], case.structure["c"]
    asked: list[list[Requirement]] = [
        [
            SavesAtMost(
                "each segment's first state",
                count=c,
                parts="states",
                too_much="Does your forward pass save a state for every step or for every segment? How many is that?",
                # Two halves are a stack of two states, the first of which is x.
                extra_parts=int(c == 1),
            )
        ]
    ]
    if most == 58:
        asked.append(
            [
                PeakAtMost(30, too_high=_TOO_HIGH, compiled=True, trip_count=most),
                MatmulsAtMost(
                    5,
                    too_many="How many times does your answer run the first step in total? From which saved states "
                    "could the backward pass recompute instead?",
                ),
            ]
        )
    # The segments' first states, twice since a loop may copy them; the states of one segment; what a step needs.
    elif (limit := 2 * c + -(-most // c) + 8) <= most:  # otherwise the states of all steps fit too
        asked.append([PeakAtMost(limit, too_high=_TOO_HIGH)])
    return asked
