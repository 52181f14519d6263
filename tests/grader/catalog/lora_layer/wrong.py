"""Wrong answers to lora_layer, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.lax import stop_gradient
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
keeping = policies.save_only_these_names


def multiply(x, weight, pair, stop=stop_gradient):
    y = x @ stop(weight)
    return y if pair is None else y + checkpoint_name(x @ pair[0], "narrow") @ pair[1]


def layer(frozen, adapters, x, multiply=multiply):
    h = checkpoint_name(multiply(x, frozen["up"], adapters.get("up")), "h")
    z = checkpoint_name(jax.nn.silu(h), "activated")
    return multiply(z, frozen["down"], adapters.get("down"))


def right(frozen, adapters, x, multiply=multiply):
    return jax.checkpoint(lambda *given: layer(*given, multiply), policy=keeping("h", "narrow"))(frozen, adapters, x)


@fails_with("also saved", "sigmoid(h), f32[", hint="saves_more")
def no_checkpoint(frozen, adapters, x):
    return layer(frozen, adapters, x)


@fails_with("not saved", "x @ a of up", hint="narrow_product_missing")
def only_h_saved(frozen, adapters, x):
    return jax.checkpoint(layer, policy=keeping("h"))(frozen, adapters, x)


@fails_with("also saved", "the frozen matmul of up", hint="saves_terms_of_h")
def policy_for_matmuls(frozen, adapters, x):
    return jax.checkpoint(layer, policy=policies.dots_saveable)(frozen, adapters, x)


@fails_with("extra matmuls", "size of a frozen weight", hint="saves_merged_weight")
def gradient_of_the_whole_weight(frozen, adapters, x):
    """The adapters' gradients follow from that of their product, a matmul of the weight's size."""

    @jax.custom_vjp
    def wide(x, a, b, narrow):
        return narrow @ b

    def backward(kept, ct):
        x, a, b, narrow = kept
        of_product = x.T @ ct
        return ct @ b.T @ a.T, of_product @ b.T, narrow.T @ ct, jnp.zeros_like(narrow)

    wide.defvjp(lambda *given: (given[-1] @ given[-2], given), backward)

    def each(x, weight, pair):
        y = x @ stop_gradient(weight)
        if pair is None:
            return y
        narrow = checkpoint_name(stop_gradient(x @ pair[0]), "narrow")
        return y + wide(x, *pair, narrow)

    return right(frozen, adapters, x, each)


@fails_with("wrong gradient", "the frozen weights get a gradient", hint="no_gradient_for_frozen")
def nothing_stopped(frozen, adapters, x):
    return right(frozen, adapters, x, lambda *given: multiply(*given, stop=lambda w: w))


@fails_with(
    "wrong gradient",
    "up_a, up_b and x",
    "no gradient passes through the matmuls with the frozen weights",
    hint="gradient_of_x_and_adapters",
)
def stopped_after_the_matmul(frozen, adapters, x):
    def each(x, weight, pair):
        y = stop_gradient(x @ weight)
        return y if pair is None else y + checkpoint_name(x @ pair[0], "narrow") @ pair[1]

    return right(frozen, adapters, x, each)


@fails_with("wrong gradient", "up_a and up_b are zero everywhere", hint="gradient_of_x_and_adapters")
def adapters_stopped(frozen, adapters, x):
    return right(frozen, stop_gradient(adapters), x)


@fails_with("wrong gradient", " up", hint="gradient_of_x_and_adapters")
def only_down_stopped(frozen, adapters, x):
    down = stop_gradient(frozen["down"])
    return right({"up": frozen["up"], "down": down}, adapters, x, lambda *given: multiply(*given, stop=lambda w: w))


@fails_with("wrong value", "ignores the adapters", hint="one_row_by_hand")
def frozen_layer(frozen, adapters, x):
    return right(frozen, {}, x)


@fails_with("wrong value", "divides the adapters' contribution by the rank", hint="one_row_by_hand")
def scaled_by_the_rank(frozen, adapters, x):
    return right(frozen, {key: (a, b / a.shape[1]) for key, (a, b) in adapters.items()}, x)


@fails_with("wrong value", "`silu` to the layer's result", hint="one_row_by_hand")
def activated_twice(frozen, adapters, x):
    return jax.nn.silu(right(frozen, adapters, x))


@fails_with("wrong value", hint="one_row_by_hand")
def gelu(frozen, adapters, x):
    h = multiply(x, frozen["up"], adapters.get("up"))
    return multiply(jax.nn.gelu(h), frozen["down"], adapters.get("down"))


@fails_with("wrong value", "each adapter replaces its frozen weight", hint="one_row_by_hand")
def adapters_in_place(frozen, adapters, x):
    return right(
        frozen, adapters, x, lambda x, w, pair: x @ stop_gradient(w) if pair is None else x @ pair[0] @ pair[1]
    )


@fails_with("also saved", "in float16", hint="saves_activated")
def half_precision_left_out(frozen, adapters, x):
    return (layer if x.dtype == jnp.float16 else right)(frozen, adapters, x)


@fails_with("raises", "Which keys does `adapters` have", hint="one_row_by_hand")
def both_adapters_assumed(frozen, adapters, x):
    return right(frozen, {"up": adapters["up"], "down": adapters["down"]}, x)


@fails_with("raises", "In what order are `a` and `b` multiplied", hint="one_row_by_hand")
def factors_swapped(frozen, adapters, x):
    return right(frozen, {key: (b, a) for key, (a, b) in adapters.items()}, x)


@fails_with("raises", "dictionaries", hint="one_row_by_hand")
def tuples_assumed(frozen, adapters, x):
    up, down = frozen.values()
    a, b, _ = adapters.get("up", adapters.get("down"))
    return jax.nn.silu(x @ up + x @ a @ b) @ down


@fails_with(
    "recomputes", "Which matmul does the backward pass recompute", hint="counts_matmuls", beyond="Recomputes.count"
)
def one_more_matmul_in_the_backward_pass(frozen, adapters, x):
    x = also_run_backward(lambda x, up: x @ up, x, x, frozen["up"])
    return right(frozen, adapters, x)
