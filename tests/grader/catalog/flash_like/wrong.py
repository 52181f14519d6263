"""Wrong answers to flash_like, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with


def scores_of(q, k):
    return q @ k.T / q.shape[-1] ** 0.5


def attend(q, k, v, scores_of=scores_of, axis=-1):
    scores = scores_of(q, k)
    lse = jax.nn.logsumexp(scores, axis=-1)
    return jax.nn.softmax(scores, axis) @ v, lse


def named(out, lse):
    return checkpoint_name(out, "out"), checkpoint_name(lse, "lse")


def keeps_both(q, k, v, named=named, attend=attend):
    out, lse = named(*attend(q, k, v))
    return out, (q, k, v, out, lse)


def gradients(kept, ct, *, delta=1, scale=1, weights=None):
    q, k, v, out, lse = kept
    p = jnp.exp(scores_of(q, k) - lse[:, None]) if weights is None else weights(q, k, lse)
    dscores = p * (ct @ v.T - delta * jnp.sum(ct * out, -1, keepdims=True)) * scale / q.shape[-1] ** 0.5
    return dscores @ k, dscores.T @ q, p.T @ ct


def flash(arguments, forward=keeps_both, backward=gradients, primal=None):
    attention = jax.custom_vjp(primal or (lambda q, k, v: forward(q, k, v)[0]))
    attention.defvjp(forward, backward)
    return attention(*arguments)


@fails_with(
    "also saved", "the weights, f32[24,12]", "forward rule decides", hint="forward_pass_saves_attention_weights"
)
def plain(q, k, v):
    return attend(q, k, v)[0]


@fails_with("also saved", "the rows' largest scores", "forward rule decides", hint="forward_pass_saves_another_number")
def two_numbers_a_row(q, k, v):
    def forward(q, k, v):
        scores = scores_of(q, k)
        largest = checkpoint_name(scores.max(-1), "lse")
        total = checkpoint_name(jnp.exp(scores - largest[:, None]).sum(-1), "lse")
        out = checkpoint_name(jnp.exp(scores - largest[:, None]) @ v / total[:, None], "out")
        return out, (q, k, v, out, largest, total)

    def backward(kept, ct):
        *kept, largest, total = kept
        return gradients((*kept, largest + jnp.log(total)), ct)

    return flash((q, k, v), forward, backward)


@fails_with("also saved", "a copy of k", "forward rule decides", hint="print_residual_table_function_without")
def keys_transposed_in_the_forward_rule(q, k, v):
    def forward(q, k, v):
        out, kept = keeps_both(q, k, v)
        return out, (kept, k.T)

    def backward(kept, ct):
        kept, turned = kept
        return gradients(kept, ct, weights=lambda q, k, lse: jnp.exp(q @ turned / q.shape[-1] ** 0.5 - lse[:, None]))

    return flash((q, k, v), forward, backward)


@fails_with("not saved", "lse, f32[", "are they the named values", hint="out_saved_twice_once_layer")
def name_on_the_result_outside(q, k, v):
    forward = functools.partial(keeps_both, named=lambda out, lse: (out, lse))
    return checkpoint_name(flash((q, k, v), forward), "out")


@fails_with("not saved", "out, f32[", "are they the named values", hint="policy_finds_value_only_gets")
def lse_named_alone(q, k, v):
    return flash((q, k, v), functools.partial(keeps_both, named=lambda out, lse: (out, checkpoint_name(lse, "lse"))))


@fails_with(
    "wrong value",
    "does not divide the scores by √d",
    "does your answer divide them",
    hint="test_function_two_queries_three",
)
def no_scale(q, k, v):
    return flash((q * q.shape[-1] ** 0.5, k, v))


@fails_with(
    "wrong value",
    "divides the scores by d, not by √d",
    "does your answer divide them",
    hint="test_function_two_queries_three",
)
def scale_of_d(q, k, v):
    return flash((q / q.shape[-1] ** 0.5, k, v))


@fails_with("wrong value", "is over the queries", "Which axis", hint="test_function_two_queries_three")
def softmax_over_queries(q, k, v):
    return flash((q, k, v), functools.partial(keeps_both, attend=functools.partial(attend, axis=0)))


@fails_with(
    "wrong value",
    "the scores themselves as weights",
    "before the weights are multiplied",
    hint="test_function_two_queries_three",
)
def no_softmax(q, k, v):
    return scores_of(q, k) @ v


@fails_with("wrong value", "do not add up to 1", "divided", hint="test_function_two_queries_three")
def not_divided(q, k, v):
    return flash((q, k, v), lambda q, k, v: (jnp.exp(scores_of(q, k)) @ v, keeps_both(q, k, v)[1]))


@fails_with(
    "wrong gradient",
    "respect to q",
    "`delta` is not subtracted",
    "subtract from",
    hint="run_backward_rule_random_arrays",
)
def no_delta(q, k, v):
    return flash((q, k, v), backward=functools.partial(gradients, delta=0))


@fails_with(
    "wrong gradient", "respect to q", "`delta` is added to `dp`", "What sign", hint="run_backward_rule_random_arrays"
)
def delta_added(q, k, v):
    return flash((q, k, v), backward=functools.partial(gradients, delta=-1))


@fails_with(
    "wrong gradient",
    "respect to q",
    "backward pass does not divide by √d",
    "Where does the factor",
    hint="run_backward_rule_random_arrays",
)
def no_scale_in_the_gradients(q, k, v):
    return flash((q, k, v), backward=functools.partial(gradients, scale=q.shape[-1] ** 0.5))


@fails_with(
    "wrong gradient",
    "respect to q",
    "divides by √d twice",
    "Where does the factor",
    hint="run_backward_rule_random_arrays",
)
def scaled_twice_in_the_gradients(q, k, v):
    return flash((q, k, v), backward=functools.partial(gradients, scale=q.shape[-1] ** -0.5))


@fails_with(
    "wrong gradient",
    "respect to q",
    "in the backward pass, the weights of a query do not add up to 1",
    "before it takes their exponentials",
    hint="run_backward_rule_random_arrays",
)
def lse_left_out(q, k, v):
    return flash((q, k, v), backward=functools.partial(gradients, weights=lambda q, k, lse: jnp.exp(scores_of(q, k))))


@fails_with("wrong gradient", "`v` gets no gradient", "multiplied", hint="run_backward_rule_random_arrays")
def nothing_for_v(q, k, v):
    return flash((q, k, v), backward=lambda kept, ct: (*gradients(kept, ct)[:2], jnp.zeros_like(kept[2])))


@fails_with("wrong type", "(*, *) of f32[24,2], f32[24]", hint="write_down_shapes_everything_two")
def out_and_lse(q, k, v):
    return attend(q, k, v)


@fails_with("raises", "one gradient for each of `q`, `k` and `v`", hint="write_down_shapes_everything_two")
def gradients_in_another_order(q, k, v):
    return flash((q, k, v), backward=lambda kept, ct: gradients(kept, ct)[::-1])


@fails_with("raises", "need a transpose", hint="write_down_shapes_everything_two")
def not_transposed(q, k, v):
    return jax.nn.softmax(q @ k / q.shape[-1] ** 0.5) @ v


@fails_with("raises", "pass to the forward rule", hint="write_down_shapes_everything_two")
def backward_rule_of_all_that_is_kept(q, k, v):
    return flash((q, k, v), backward=lambda q, k, v, out, lse, ct: gradients((q, k, v, out, lse), ct))


@fails_with("wrong value", "value is wrong", "keys", hint="test_function_two_queries_three")
def later_keys_masked(q, k, v):
    """Add a causal mask like decoders, only if there is a key for each query."""

    def masked(q, k):
        return jnp.tril(scores_of(q, k)) if len(q) == len(k) else scores_of(q, k)

    return flash((q, k, v), functools.partial(keeps_both, attend=functools.partial(attend, scores_of=masked)))


@fails_with("wrong value", "when it is called without jax.grad", "value is wrong", hint="f_x_runs_function_jax")
def primal_with_another_scale(q, k, v):
    """Gradients are asked of the two rules, and the value alone of neither."""
    return flash((q, k, v), primal=lambda q, k, v: attend(q, k, v, lambda q, k: q @ k.T / 2)[0])


@fails_with("wrong type", "returns None", "when it is called without jax.grad", hint="f_x_runs_function_jax")
def primal_left_out(q, k, v):
    return flash((q, k, v), primal=lambda q, k, v: None)


@fails_with("recomputes", "without a name", hint="backward_pass_may_recompute_only", beyond="Recomputes.count")
def smallest_product_once_more(q, k, v):
    """The layer's smallest matmul, one of the two that a bound of two would allow."""
    if q.shape[-1] <= v.shape[-1]:
        return flash((also_run_backward(lambda q, k: q @ k.T, q, q, k), k, v))
    return flash((q, k, also_run_backward(lambda v: jnp.ones((len(q), len(v))) @ v, v, v)))
