"""Wrong answers to two_checkpoints, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with


def layer(W, x):
    return jnp.sin(W @ x)


def net(W1, W2, W3, x):
    return layer(W3, layer(W2, layer(W1, x)))


def run(weights, x):
    return functools.reduce(lambda x, W: layer(W, x), weights, x)


def in_two(W1, W2, W3, x, after_first, wrap=jax.checkpoint, run=run):
    """Two checkpoints; the first ends after layer 1 or after layer 2."""
    first, second = ((W1,), (W2, W3)) if after_first else ((W1, W2), (W3,))
    return wrap(run)(second, wrap(run)(first, x))


def right(W1, W2, W3, x, **how):
    return in_two(W1, W2, W3, x, len(W1) < len(W2), **how)


@fails_with(
    "also saved",
    "layer 1's cosine, f32[",
    "layer 3's cosine",
    "Which function",
    hint="backward_pass_recomputes_nothing_write",
)
def no_checkpoint(W1, W2, W3, x):
    return net(W1, W2, W3, x)


@fails_with(
    "also saved", "one extra residual", "'s output, f32[", "Which of the two outputs", hint="one_checkpoint_too_many"
)
def one_per_layer(W1, W2, W3, x):
    for W in (W1, W2, W3):
        x = jax.checkpoint(layer)(W, x)
    return x


@fails_with(
    "also saved",
    "layer 2's output, f32[",
    "does not save layer 1's output",
    "Which of the two outputs",
    hint="boundary_at_the_wider_output",
)
def always_after_layer_2(W1, W2, W3, x):
    return in_two(W1, W2, W3, x, False)


@fails_with("not saved", "'s output", hint="mini_example_exponential_output_was")
def an_outer_one_around_both(W1, W2, W3, x):
    return jax.checkpoint(right)(W1, W2, W3, x)


@fails_with("raises", "TracerBoolConversionError", "plain Python integers", hint="widths_are_python_integers")
def by_the_values(W1, W2, W3, x):
    return in_two(W1, W2, W3, x, jnp.sum(layer(W1, x) ** 2) < jnp.sum(W2**2))


@fails_with(
    "also saved", "layer 1's matmul", "layer 2's matmul", "layer 3's matmul", hint="value_passed_checkpoint_saved_since"
)
def only_the_sines(W1, W2, W3, x):
    sin = jax.checkpoint(jnp.sin)
    return sin(W3 @ sin(W2 @ sin(W1 @ x)))


@fails_with("also saved", "layer 1's matmul", "layer 3's matmul", hint="forward_pass_saves_matmuls_instead")
def products_by_policy(W1, W2, W3, x):
    return jax.checkpoint(net, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)(W1, W2, W3, x)


@fails_with("also saved", "layer 1's cosine", hint="layers_step_outside_every_checkpoint")
def everything_saveable(W1, W2, W3, x):
    return right(
        W1, W2, W3, x, wrap=functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.everything_saveable)
    )


def by_hand(backward):
    """`net` with a custom rule, which saves the narrower output."""

    @jax.custom_vjp
    def answer(W1, W2, W3, x):
        return net(W1, W2, W3, x)

    def forward(W1, W2, W3, x):
        h1 = layer(W1, x)
        h2 = layer(W2, h1)
        return layer(W3, h2), (W1, W2, W3, x, h1 if len(W1) < len(W2) else h2)

    answer.defvjp(forward, lambda saved, ct: backward(*saved, ct))
    return answer


def layers_back(W1, W2, W3, x, h1, h2, y1, y2, y3, ct):
    d3 = ct * jnp.cos(y3)
    d2 = (d3 @ W3) * jnp.cos(y2)
    d1 = (d2 @ W2) * jnp.cos(y1)
    return jnp.outer(d1, x), jnp.outer(d2, h1), jnp.outer(d3, h2), d1 @ W1


@fails_with("wrong value", "the last layer's sine is missing", hint="checkpoint_changes_neither_value_nor")
def last_sine_forgotten(W1, W2, W3, x):
    return W3 @ layer(W2, layer(W1, x))


@fails_with("wrong gradient", " W1", "wrong", hint="define_own_gradient_rule_stop")
def half_a_gradient(W1, W2, W3, x):
    def backward(W1, W2, W3, x, saved, ct):
        y1 = W1 @ x
        h1 = saved if len(W1) < len(W2) else jnp.sin(y1)
        y2 = W2 @ h1
        h2 = jnp.sin(y2) if len(W1) < len(W2) else saved
        dW1, *others = layers_back(W1, W2, W3, x, h1, h2, y1, y2, W3 @ h2, ct)
        return dW1 / 2, *others

    return by_hand(backward)(W1, W2, W3, x)


@fails_with("wrong gradient", " x", "zero everywhere", hint="define_own_gradient_rule_stop")
def x_stopped(W1, W2, W3, x):
    return net(W1, W2, W3, jax.lax.stop_gradient(x))


@fails_with("raises", "shapes", "the weights are the left operand", hint="write_shapes_table_below_w1")
def weights_on_the_right(W1, W2, W3, x):
    layer = jax.checkpoint(lambda W, x: jnp.sin(jnp.dot(x, W)))
    return layer(W3, layer(W2, layer(W1, x)))


@fails_with("argument order", "(x, W1, W2, W3)", hint="write_shapes_table_below_w1")
def x_first(x, W1, W2, W3):
    return net(W1, W2, W3, x)


@fails_with("wrong type", "a function that it has not called", hint="jax_checkpoint_layer_w1_x")
def not_called(W1, W2, W3, x):
    return jax.checkpoint(net)


@fails_with(
    "wrong type",
    "a function that it has not called",
    "Where do you call the function",
    hint="jax_checkpoint_layer_w1_x",
)
def a_value_checkpointed_and_returned(W1, W2, W3, x):
    return jax.checkpoint(layer(W3, layer(W2, layer(W1, x))))


# Answers that are right for some inputs that the page allows and wrong for others.


@fails_with("also saved", "layer 1's cosine, f16[", hint="backward_pass_recomputes_nothing_write")
def not_in_half_precision(W1, W2, W3, x):
    return (net if x.dtype == jnp.float16 else right)(W1, W2, W3, x)


@fails_with("also saved", "layer 1's cosine", hint="backward_pass_recomputes_nothing_write")
def not_under_jit(W1, W2, W3, x):
    return (net if "DynamicJaxpr" in type(x).__name__ else right)(W1, W2, W3, x)


made_once: dict[str, jax.Array] = {}


@fails_with(
    "raises",
    "was traced in an earlier call",
    "after the traced function has returned",
    hint="stores_value_one_call_uses",
)
def a_table_made_in_the_first_call(W1, W2, W3, x):
    """Under jax.jit the table is a traced value, and nothing any more once that is through."""

    def scaled(x):
        if "ones" not in made_once:
            made_once["ones"] = jnp.arange(1.0) + 1
        return (x * made_once["ones"][0]).astype(x.dtype)

    return jax.jit(scaled)(right(W1, W2, W3, x))


@fails_with(
    "recomputes",
    "recomputes 4 matmuls",
    "From which saved value",
    hint="value_backward_pass_recompute_layer",
    beyond="Recomputes.count",
)
def first_product_once_more(W1, W2, W3, x):
    return right(W1, W2, W3, also_run_backward(lambda x, W: W @ x, x, x, W1))
