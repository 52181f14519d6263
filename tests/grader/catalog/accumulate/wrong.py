"""Wrong answers to accumulate, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with


def cut(batch, k):
    return jax.tree.map(lambda array: array.reshape(k, -1, *array.shape[1:]), batch)


def summed(loss, params, batch, k, **options):
    """The sums of all microbatches: of losses, of weights, of gradients."""

    def body(sums, rows):
        (total, weight), gradients = jax.value_and_grad(loss, has_aux=True)(params, rows)
        return jax.tree.map(jnp.add, sums, (total, weight, gradients)), None

    each = cut(batch, k)
    like = (*jax.eval_shape(loss, params, jax.tree.map(lambda array: array[0], each)), params)
    zeros = jax.tree.map(lambda array: jnp.zeros(array.shape, array.dtype), like)
    return jax.lax.scan(body, zeros, each, **options)[0]


def divided(tree, number):
    return jax.tree.map(lambda array: array / number, tree)


def right(loss, params, batch, k):
    total, weight, gradients = summed(loss, params, batch, k)
    return divided((total, gradients), weight)


def mean(loss, params, batch):
    total, weight = loss(params, batch)
    return total / weight


@fails_with(
    "peak",
    "times the size of one microbatch's activations",
    "at most 8",
    "before the second microbatch's forward pass",
    hint="peak_activations_gradients_several_microbatches",
)
def whole_batch(loss, params, batch, k):
    return jax.value_and_grad(lambda params: mean(loss, params, batch))(params)


def all_gradients_first(loss, params, batch, k):
    (totals, weights), gradients = jax.lax.map(
        lambda rows: jax.value_and_grad(loss, has_aux=True)(params, rows), cut(batch, k)
    )
    gradients = jax.tree.map(lambda array: jnp.sum(array, axis=0), gradients)
    return divided((jnp.sum(totals), gradients), jnp.sum(weights))


@fails_with(
    "peak",
    "times the size of one microbatch's activations",
    "before the second microbatch's forward pass",
    hint="peak_activations_gradients_several_microbatches",
)
def two_microbatches_for_sixteen(loss, params, batch, k):
    return right(loss, params, batch, 2 if k == 16 else k)


@fails_with(
    "recomputes",
    "1.4 times as many",
    "FLOPs, as many as without",
    "each microbatch's forward pass",
    hint="jax_value_grad_returns_value",
    beyond="MatmulsAtMost.max_ratio",
)
def checkpoints_in_the_loop(loss, params, batch, k):
    def value(params):
        totals, weights = jax.lax.map(jax.checkpoint(lambda rows: loss(params, rows)), cut(batch, k))
        return jnp.sum(totals) / jnp.sum(weights)

    return jax.value_and_grad(value)(params)


@fails_with(
    "recomputes",
    "2.0 times as many",
    "FLOPs, as many as without",
    "each microbatch's forward pass",
    hint=("peak_activations_gradients_several_microbatches", "jax_value_grad_returns_value"),
)
def each_microbatch_twice(loss, params, batch, k):
    twice = jax.tree.map(lambda array: jnp.concatenate([array, array]), batch)
    return right(loss, params, twice, 2 * k)


@fails_with(
    "wrong value", "it is the mean of the microbatches' means", "has twice the weight", hint="suppose_loss_returns_4_2"
)
def mean_of_means(loss, params, batch, k):
    def body(sums, rows):
        both = jax.value_and_grad(lambda params: mean(loss, params, rows))(params)
        return jax.tree.map(jnp.add, sums, both), None

    zeros = jax.tree.map(jnp.zeros_like, (jnp.zeros((), batch[0].dtype), params))
    return divided(jax.lax.scan(body, zeros, cut(batch, k))[0], k)


@fails_with(
    "wrong gradient",
    "w1 and w2 are wrong: it is the gradient of the mean of the microbatches' means",
    "has twice the weight",
    hint="value_right_so_sums_losses",
)
def gradients_of_means(loss, params, batch, k):
    def body(sums, rows):
        (total, weight), gradients = jax.value_and_grad(loss, has_aux=True)(params, rows)
        return jax.tree.map(jnp.add, sums, (total, weight, divided(gradients, weight * k))), None

    first = jax.tree.map(lambda array: array[0], cut(batch, k))
    like = (*jax.eval_shape(loss, params, first), params)
    zeros = jax.tree.map(lambda array: jnp.zeros(array.shape, array.dtype), like)
    total, weight, gradients = jax.lax.scan(body, zeros, cut(batch, k))[0]
    return total / weight, gradients


@fails_with(
    "wrong value",
    "the sum of all losses, not divided",
    "What number must you divide both the summed losses",
    hint="suppose_loss_returns_4_2",
)
def sums(loss, params, batch, k):
    total, _, gradients = summed(loss, params, batch, k)
    return total, gradients


@fails_with(
    "wrong gradient",
    "w1 and w2 are wrong: it is the gradient of the sum of all losses, not divided",
    "What number must you divide both the summed losses",
    hint="value_right_so_sums_losses",
)
def gradients_summed(loss, params, batch, k):
    total, weight, gradients = summed(loss, params, batch, k)
    return total / weight, gradients


@fails_with(
    "wrong gradient",
    "w1 and w2 are wrong: it is the gradient of the sum of all losses divided by `k`",
    "What number must you divide both the summed losses",
    hint="value_right_so_sums_losses",
)
def gradients_divided_by_k(loss, params, batch, k):
    total, weight, gradients = summed(loss, params, batch, k)
    return total / weight, divided(gradients, k)


@fails_with(
    "wrong value",
    "divided by `k` instead of by the sum",
    "What number must you divide both the summed losses",
    hint="suppose_loss_returns_4_2",
)
def all_divided_by_k(loss, params, batch, k):
    total, _, gradients = summed(loss, params, batch, k)
    return divided((total, gradients), k)


@fails_with(
    "wrong value",
    "divided by the number of rows",
    "What number must you divide both the summed losses",
    hint="suppose_loss_returns_4_2",
)
def divided_by_rows(loss, params, batch, k):
    total, _, gradients = summed(loss, params, batch, k)
    return divided((total, gradients), len(batch[0]))


def of_the_last(loss, params, batch, k):
    return right(loss, params, jax.tree.map(lambda array: array[-1], cut(batch, k)), 1)


@fails_with("wrong value", "of the last microbatch alone", "pass on to the next", hint="suppose_loss_returns_4_2")
def no_sums(loss, params, batch, k):
    return of_the_last(loss, params, batch, k)


@fails_with(
    "wrong gradient",
    "w1 and w2 are wrong: it is the gradient of the last microbatch alone",
    "pass on to the next",
    hint="value_right_so_sums_losses",
)
def no_sum_of_gradients(loss, params, batch, k):
    return right(loss, params, batch, k)[0], of_the_last(loss, params, batch, k)[1]


@fails_with("wrong value", "of the first microbatch alone", "Which rows of the batch", hint="suppose_loss_returns_4_2")
def always_the_first(loss, params, batch, k):
    first = jax.tree.map(lambda array: jnp.concatenate([array[: len(array) // k]] * k), batch)
    return right(loss, params, first, k)


@fails_with("wrong value", "without the last microbatch", "How many iterations", hint="suppose_loss_returns_4_2")
def one_turn_too_few(loss, params, batch, k):
    if k == 1:
        return right(loss, params, batch, k)
    return right(loss, params, jax.tree.map(lambda array: array[: -(len(array) // k)], batch), k - 1)


@fails_with("raises", "instead of a pair", "asks for a pair", hint="loss_returns_pair_params_batch")
def gradients_alone(loss, params, batch, k):
    return right(loss, params, batch, k)[1]


@fails_with("raises", "scalar", "Which option of `jax.value_and_grad`", hint="loss_returns_pair_params_batch")
def gradient_of_a_pair(loss, params, batch, k):
    return jax.value_and_grad(loss)(params, batch)


@fails_with("raises", "an operation to every array in a pytree", hint="loss_returns_pair_params_batch")
def batch_as_one_array(loss, params, batch, k):
    return right(loss, params, batch.reshape(k, -1), k)


@fails_with("wrong value", "nan", "the first and last of weight 0", hint="suppose_loss_returns_4_2")
def mean_carried_along(loss, params, batch, k):
    def body(so_far, rows):
        weight, *means = so_far
        (total, more), gradients = jax.value_and_grad(loss, has_aux=True)(params, rows)
        means = jax.tree.map(lambda mean, new: (mean * weight + new) / (weight + more), means, [total, gradients])
        return (weight + more, *means), None

    zeros = jnp.zeros((), batch[0].dtype), jnp.zeros((), batch[0].dtype), jax.tree.map(jnp.zeros_like, params)
    return jax.lax.scan(body, zeros, cut(batch, k))[0][1:]


@fails_with(
    "peak",
    "times the size of one microbatch's activations",
    "before the second microbatch's forward pass",
    hint="peak_activations_gradients_several_microbatches",
)
def all_gradients_first_of_single_rows(loss, params, batch, k):
    return (all_gradients_first if len(batch[0]) == k else right)(loss, params, batch, k)


@fails_with(
    "peak",
    "times the size of one microbatch's activations",
    "before the second microbatch's",
    hint="peak_activations_gradients_several_microbatches",
    beyond="PeakAtMost.most",
    steps=2,
)
def three_turns_at_once(loss, params, batch, k):
    total, weight, gradients = summed(loss, params, batch, k, unroll=3)
    return divided((total, gradients), weight)


@fails_with(
    "peak",
    "processes 16 rows at once",
    "Is that one microbatch for every k",
    hint="peak_activations_gradients_several_microbatches",
    beyond="InPieces.rows",
    steps=8,
)
def two_microbatches_at_a_time(loss, params, batch, k):
    pairs = k // 2
    end = pairs * 2 * (len(batch[0]) // k)
    parts = [summed(loss, params, jax.tree.map(lambda array: array[:end], batch), pairs)] if pairs else []
    parts += [summed(loss, params, jax.tree.map(lambda array: array[end:], batch), 1)] if k % 2 else []
    total, weight, gradients = jax.tree.map(lambda *each: sum(each), *parts)
    return divided((total, gradients), weight)


@fails_with("wrong value", "contain every `k`-th row", "are in your first microbatch", hint="suppose_loss_returns_4_2")
def every_kth_row(loss, params, batch, k):
    dealt_out = jax.tree.map(lambda array: array.reshape(-1, k, *array.shape[1:]).swapaxes(0, 1), batch)
    return right(loss, params, jax.tree.map(lambda array, own: own.reshape(array.shape), batch, dealt_out), k)


@fails_with("wrong value", "Which step", hint="suppose_loss_returns_4_2")
def row_by_row(loss, params, batch, k):
    return right(loss, params, batch, len(batch[0]))
