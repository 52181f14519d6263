"""Wrong answers to checkpointed_while, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
LONG, SHORT = ALL = ("60 steps at most with 7 checkpoints", "17 steps at most with 3 checkpoints")


def bounded(cond, body, x, max_steps):
    """Keeps something of each step."""
    return jax.lax.scan(lambda x, _: (jax.lax.cond(cond(x), body, lambda x: x, x), None), x, length=max_steps)[0]


def segments(step, x, count, length):
    """A scan of scans; `step` takes a state and its number."""

    @jax.checkpoint
    def segment(x, numbers):
        return jax.lax.scan(lambda x, number: (step(x, number), None), x, numbers)

    return jax.lax.scan(segment, x, jnp.arange(count * length).reshape(count, length))[0]


def in_segments(cond, body, x, max_steps, count, length):
    def step(x, number):
        return jax.lax.cond((number < max_steps) & cond(x), body, lambda x: x, x)

    return segments(step, x, count, length)


def right(cond, body, x, max_steps, c):
    return in_segments(cond, body, x, max_steps, c, -(-max_steps // c))


def from_the_start(cond, body, x, max_steps, down=1):
    """Keeps only x, and runs up to each step from there; `down` is by how much the backward pass counts down."""
    body, brought_along = jax.closure_convert(body, x)

    @jax.custom_vjp
    def run(x, brought_along):
        return forward(x, brought_along)[0]

    def forward(x, brought_along):
        last, taken = jax.lax.while_loop(
            lambda now: (now[1] < max_steps) & cond(now[0]),
            lambda now: (body(now[0], *brought_along), now[1] + 1),
            (x, 0),
        )
        return last, (x, taken, brought_along)

    def backward(kept, cotangent):
        x, taken, brought_along = kept

        def back(now):
            left, gradients = now
            state = jax.lax.fori_loop(0, left - 1, lambda _, x: body(x, *brought_along), x)
            cotangent, *others = jax.vjp(body, state, *brought_along)[1](gradients[0])
            return left - down, [cotangent, *map(jnp.add, gradients[1:], others)]

        gradients = [cotangent, *map(jnp.zeros_like, brought_along)]
        cotangent, *others = jax.lax.while_loop(lambda now: now[0] > 0, back, (taken, gradients))[1]
        return cotangent, others

    run.defvjp(forward, backward)
    return run(x, brought_along)


@fails_with("raises", "Reverse-mode differentiation does not work", "Which of JAX's loops knows?", cases=ALL)
def while_loop_alone(cond, body, x, max_steps, c):
    return jax.lax.while_loop(
        lambda now: cond(now[0]) & (now[1] < max_steps), lambda now: (body(now[0]), now[1] + 1), (x, 0)
    )[0]


@fails_with("raises", "Attempted boolean conversion", "What decides that when the program runs?", cases=ALL)
def python_loop(cond, body, x, max_steps, c):
    taken = 0
    while cond(x) and taken < max_steps:
        x, taken = body(x), taken + 1
    return x


@fails_with("also saved", "every step's cosine, f32[60,", "as much as 60 states", "every step, or", cases=ALL)
def no_checkpoint(cond, body, x, max_steps, c):
    return bounded(cond, body, x, max_steps)


@fails_with("also saved", "every state, f32[60,", "as much as 60 states", "7 states at most", cases=ALL)
def checkpoint_around_body(cond, body, x, max_steps, c):
    return bounded(cond, jax.checkpoint(body), x, max_steps)


@fails_with("also saved", "f32[9,", "as much as 9 states", "7 states at most", cases=ALL)
def c_steps_a_segment(cond, body, x, max_steps, c):
    return in_segments(cond, body, x, max_steps, -(-max_steps // c), c)


@fails_with("peak", "vectors of x's size in memory", "30 at most", "run again at once", cases=(LONG,))
def checkpoint_around_all(cond, body, x, max_steps, c):
    return jax.checkpoint(lambda x: bounded(cond, body, x, max_steps))(x)


@fails_with("recomputes", "16.2 times as many", "How often is the first step run", cases=(LONG,))
def from_the_start_for_each_step(cond, body, x, max_steps, c):
    return from_the_start(cond, body, x, max_steps)


@fails_with("does not end", "20,000 turns", "in the backward pass too?")
def counts_down_by_nothing(cond, body, x, max_steps, c):
    return from_the_start(cond, body, x, max_steps, down=0)


@fails_with("raises", "UnexpectedTracerError", "jax.closure_convert", cases=(SHORT,))
def rule_without_what_body_brings_along(cond, body, x, max_steps, c):
    @jax.custom_vjp
    def run(x):
        return bounded(cond, body, x, max_steps)

    run.defvjp(lambda x: (run(x), x), lambda x, ct: jax.vjp(lambda x: bounded(cond, body, x, max_steps), x)[1](ct))
    return run(x)


@fails_with("wrong gradient", "with respect to levels is NaN", "no finite derivative", cases=(SHORT,))
def both_sides_taken(cond, body, x, max_steps, c):
    def step(x, number):
        return jnp.where((number < max_steps) & cond(x), body(x), x)

    return segments(step, x, c, -(-max_steps // c))


@fails_with("wrong gradient", "with respect to holes is zero everywhere", cases=(SHORT,))
def no_gradient_of_what_body_brings_along(cond, body, x, max_steps, c):
    body, brought_along = jax.closure_convert(body, x)
    brought_along = jax.lax.stop_gradient(brought_along)
    return right(cond, lambda x: body(x, *brought_along), x, max_steps, c)


@fails_with("wrong value", "after more than max_steps steps", "What if c does not divide", cases=(LONG,))
def whole_segments(cond, body, x, max_steps, c):
    return right(cond, body, x, -(-max_steps // c) * c, c)


@fails_with("wrong value", "fewer than max_steps steps", "What if c does not divide", cases=(LONG,))
def no_more_than_whole_segments(cond, body, x, max_steps, c):
    return right(cond, body, x, max_steps // c * c, c)


@fails_with("wrong value", "though cond was false before", "once cond is false", cases=(SHORT,))
def cond_never_asked(cond, body, x, max_steps, c):
    return right(lambda x: True, body, x, max_steps, c)


@fails_with("wrong value", "goes on for more than max_steps steps", "What ends your loop", cases=(LONG,))
def no_bound(cond, body, x, max_steps, c):
    return right(cond, body, x, 3 * max_steps, c)


@fails_with("wrong value", "one step too many", "the condition or the step?", cases=(LONG,))
def step_before_condition(cond, body, x, max_steps, c):
    return right(cond, body, body(x), max_steps, c)


@fails_with("wrong value", "one step too few", "begin to count", cases=(LONG,))
def counted_from_one(cond, body, x, max_steps, c):
    return right(cond, body, x, max_steps - 1, c)


@fails_with("wrong type", "(*, *)", "What should checkpointed_while", cases=ALL)
def with_the_steps(cond, body, x, max_steps, c):
    return right(cond, body, x, max_steps, c), jnp.float32(max_steps)
