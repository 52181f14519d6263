"""Wrong answers to checkpointed_while, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with


def bounded(cond, body, x, max_steps):
    """Saves a value of each step."""
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
    """Saves only x, and recomputes each step from x. `down` is the backward pass's decrement."""
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


@fails_with(
    "raises",
    "Reverse-mode differentiation does not work",
    "Which of JAX's loops has a fixed number",
    hint="jax_differentiate_loop_backwards_knows",
)
def while_loop_alone(cond, body, x, max_steps, c):
    return jax.lax.while_loop(
        lambda now: cond(now[0]) & (now[1] < max_steps), lambda now: (body(now[0]), now[1] + 1), (x, 0)
    )[0]


@fails_with(
    "raises", "Attempted boolean conversion", "makes that decision at run time", hint="while_need_python_bool_traced"
)
def python_loop(cond, body, x, max_steps, c):
    taken = 0
    while cond(x) and taken < max_steps:
        x, taken = body(x), taken + 1
    return x


@fails_with(
    "also saved",
    "every step's cosine, f32[58,",
    "as much as 58 states",
    "for every step or",
    hint="forward_pass_saves_more_states",
)
def no_checkpoint(cond, body, x, max_steps, c):
    return bounded(cond, body, x, max_steps)


@fails_with(
    "also saved", "the first states of segments of c steps, f32[", "at most", hint="many_iterations_outer_loop_take"
)
def c_steps_a_segment(cond, body, x, max_steps, c):
    return in_segments(cond, body, x, max_steps, -(-max_steps // c), c)


@fails_with("wrong value", "even if `cond` returns False earlier", hint="test_loop_cond_lambda_x")
def as_many_checkpoints_as_steps(cond, body, x, max_steps, c):
    return right((lambda x: True) if c == max_steps else cond, body, x, max_steps, c)


@fails_with("wrong value", "it returns `x` unchanged", "do you return?", hint="test_loop_cond_lambda_x")
def first_state_returned(cond, body, x, max_steps, c):
    right(cond, body, x, max_steps, c)
    return x * 1.0


def checkpoint_around_all(cond, body, x, max_steps, c):
    return jax.checkpoint(lambda x: bounded(cond, body, x, max_steps))(x)


@fails_with(
    "does not end", "20,000 iterations", "also in the backward pass?", hint="counter_state_changes_iteration_loop"
)
def counts_down_by_nothing(cond, body, x, max_steps, c):
    return from_the_start(cond, body, x, max_steps, down=0)


@fails_with("raises", "UnexpectedTracerError", "jax.closure_convert", hint="test_parts_separately_one_step")
def rule_without_what_body_brings_along(cond, body, x, max_steps, c):
    @jax.custom_vjp
    def run(x):
        return bounded(cond, body, x, max_steps)

    run.defvjp(lambda x: (run(x), x), lambda x, ct: jax.vjp(lambda x: bounded(cond, body, x, max_steps), x)[1](ct))
    return run(x)


@fails_with("wrong gradient", "with respect to x is NaN", "infinite derivative", hint="jnp_going_body_x_x")
def both_sides_taken(cond, body, x, max_steps, c):
    def step(x, number):
        return jnp.where((number < max_steps) & cond(x), body(x), x)

    return segments(step, x, c, -(-max_steps // c))


@fails_with("wrong gradient", " holes", "zero everywhere", hint="gradients_reach_arrays_body_closes")
def no_gradient_of_what_body_brings_along(cond, body, x, max_steps, c):
    body, brought_along = jax.closure_convert(body, x)
    brought_along = jax.lax.stop_gradient(brought_along)
    return right(cond, lambda x: body(x, *brought_along), x, max_steps, c)


@fails_with("wrong value", "takes more than `max_steps` steps", "does not divide", hint="test_loop_cond_lambda_x")
def whole_segments(cond, body, x, max_steps, c):
    return right(cond, body, x, -(-max_steps // c) * c, c)


@fails_with("wrong value", "fewer than `max_steps` steps", "does not divide", hint="test_loop_cond_lambda_x")
def no_more_than_whole_segments(cond, body, x, max_steps, c):
    return right(cond, body, x, max_steps // c * c, c)


@fails_with(
    "wrong value",
    "until `cond` returns False, even beyond `max_steps` steps",
    "What stops your loop",
    hint="test_loop_cond_lambda_x",
)
def no_bound(cond, body, x, max_steps, c):
    """In every case, cond is false after fewer than 200 steps."""
    return right(cond, body, x, max_steps + 200, c)


@fails_with("wrong value", "one step too few", "start counting", hint="test_loop_cond_lambda_x")
def counted_from_one(cond, body, x, max_steps, c):
    return right(cond, body, x, max_steps - 1, c)


@fails_with("wrong type", "(*, *)", "What should checkpointed_while", hint="test_parts_separately_one_step")
def with_the_steps(cond, body, x, max_steps, c):
    return right(cond, body, x, max_steps, c), jnp.float32(max_steps)


@fails_with("wrong value", "one step too many", "does your loop check them", hint="test_loop_cond_lambda_x")
def one_step_more_where_segments_come_out_even(cond, body, x, max_steps, c):
    more = max_steps % c == 0
    return in_segments(cond, body, x, max_steps + more, c, -(-max_steps // c) + more)


@fails_with("peak", "one operation at a time", "recompute at once", hint="forward_pass_saves_few_enough")
def checkpoint_around_all_but_58(cond, body, x, max_steps, c):
    return (right if max_steps == 58 else checkpoint_around_all)(cond, body, x, max_steps, c)


def step_by_step(step, x, max_steps, c):
    """A scan of scans; `step` takes a pair of a state and the number of steps taken, and returns the next one."""
    segment = jax.checkpoint(lambda pair, _: jax.lax.scan(step, pair, length=-(-max_steps // c)))
    return jax.lax.scan(segment, (x, 0), length=c)[0]


@fails_with(
    "wrong type",
    "returns a tuple that contains an int32 array",
    "What should checkpointed_while",
    hint="test_parts_separately_one_step",
)
def with_the_number_of_steps(cond, body, x, max_steps, c):
    def step(pair, _):
        x, taken = pair
        return jax.lax.cond((taken < max_steps) & cond(x), lambda: (body(x), taken + 1), lambda: (x, taken)), None

    return step_by_step(step, x, max_steps, c)


@fails_with("wrong value", "value is wrong", "Which step", hint="test_loop_cond_lambda_x")
def sides_exchanged(cond, body, x, max_steps, c):
    def step(pair, _):
        x, taken = pair
        return jax.lax.cond((taken < max_steps) & cond(x), lambda: (x, taken), lambda: (body(x), taken + 1)), None

    return step_by_step(step, x, max_steps, c)[0]


@fails_with("raises", "callable", "This call needs a function", hint="test_parts_separately_one_step")
def sides_called(cond, body, x, max_steps, c):
    def step(pair, _):
        x, taken = pair
        return jax.lax.cond((taken < max_steps) & cond(x), (body(x), taken + 1), (x, taken)), None

    return step_by_step(step, x, max_steps, c)[0]


@fails_with(
    "also saved",
    "as much as",
    "for every segment",
    hint="forward_pass_saves_more_states",
    beyond="SavesAtMost.extra_parts",
)
def a_segment_too_many(cond, body, x, max_steps, c):
    count = c + (c > 1)
    return in_segments(cond, body, x, max_steps, count, -(-max_steps // count))


@fails_with(
    "peak",
    "peak memory",
    "at most 30",
    "recompute at once",
    hint="forward_pass_saves_few_enough",
    beyond="PeakAtMost.most",
)
def two_segments_for_the_most_steps(cond, body, x, max_steps, c):
    count = 2 if max_steps == 58 else c
    return in_segments(cond, body, x, max_steps, count, -(-max_steps // count))


@fails_with(
    "recomputes",
    "times as many",
    "run the first step in total",
    hint="go_back_through_step_50",
    beyond="MatmulsAtMost.max_ratio",
)
def from_the_start_of_few_segments_for_each_step(cond, body, x, max_steps, c):
    if max_steps != 58:
        return right(cond, body, x, max_steps, c)
    for length in (18, 18, 18, 4):
        x = from_the_start(cond, body, x, length)
    return x
