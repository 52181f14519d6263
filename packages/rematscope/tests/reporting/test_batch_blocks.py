"""Microbatches of losses that concatenate several batches, such as the chosen and rejected sequences of DPO."""

import jax
import jax.numpy as jnp
import pytest
from normal import normal
from sampling import few

import rematscope
from rematscope import PlanError, rewrite

BATCH, TOKENS, WIDTH = 8, 3, 4


def logits(w, x):
    h = jnp.tanh(x @ w["in"]) + w["position"]
    return jax.nn.silu(h @ w["hidden"]) + h


def log_probability(w, x):
    return jax.nn.log_softmax(logits(w, x), -1)[..., 0].sum(-1)


def of_pairs(a, b):
    return -jax.nn.log_sigmoid(a - b).mean()


def sliced(w, a, b):
    out = log_probability(w, jnp.concatenate([a, b]))
    return of_pairs(out[: len(a)], out[len(a) :])


def split(w, a, b):
    return of_pairs(*jnp.split(log_probability(w, jnp.concatenate([a, b])), 2))


def stacked_and_indexed(w, a, b):
    x = jnp.stack([a, b]).reshape(2 * len(a), TOKENS, WIDTH)
    out = logits(w, x).reshape(2, len(a), TOKENS, WIDTH)
    return of_pairs(out[0].sum((-1, -2)), out[1].sum((-1, -2)))


def interleaved(w, a, b):
    x = jnp.stack([a, b], 1).reshape(2 * len(a), TOKENS, WIDTH)
    out = log_probability(w, x)
    return of_pairs(out[0::2], out[1::2])


def four_blocks(w, a, b):
    out = log_probability(w, jnp.concatenate([a, b, -a, a + b]))
    quarter = len(out) // 4
    one, two, both = out[:quarter], out[quarter : 2 * quarter], out[2 * quarter :]
    return of_pairs(one + two, both.reshape(2, -1).sum(0)) + (both**2).mean()


def flattened_tokens(w, a, b):
    x = jnp.concatenate([a, b]).reshape(-1, WIDTH)
    out = jax.nn.relu(x @ w["in"]).reshape(2, len(a), TOKENS, WIDTH)
    return of_pairs(out[0].sum((-1, -2)), out[1].sum((-1, -2)))


def mean_of_all(w, a, b):
    return (logits(w, jnp.concatenate([a, b])) ** 2).mean()


def tiled(w, a, b):
    out = log_probability(w, jnp.tile(a, (2, 1, 1)) * jnp.concatenate([jnp.ones_like(b), b]))
    return of_pairs(*jnp.split(out, 2))


def discriminator(w, a, b):
    labels = jnp.concatenate([jnp.ones(len(a)), jnp.zeros(len(b))])
    return ((log_probability(w, jnp.concatenate([a, b])) - labels) ** 2).mean()


def labels_of_both(w, a, b):
    out, labels = logits(w, jnp.concatenate([a, b])), jnp.concatenate([a, b]).argmax(-1)
    picked = jnp.take_along_axis(out, labels[..., None], -1)[..., 0].sum(-1)
    return of_pairs(picked[: len(a)], picked[len(a) :])


def of_rows(w, a, b):
    out = logits(w, jnp.concatenate([a, b]))[:, 0]
    picked = out[jnp.arange(len(out)), jnp.concatenate([a, b])[:, 0].argmax(-1)]
    return of_pairs(*jnp.split(picked, 2))


def through_layers(w, a, b):
    def layer(h, _):
        return jax.checkpoint(lambda h: jnp.tanh(h @ w["hidden"]) + h)(h), None

    out = jax.lax.scan(layer, jnp.concatenate([a, b]), None, 2)[0].sum((-1, -2))
    return of_pairs(out[: len(a)], out[len(a) :])


def concatenated_inside(w, a, b):
    @jax.checkpoint
    def pair(a, b):
        out = log_probability(w, jnp.concatenate([a, b]))
        return of_pairs(out[: len(a)], out[len(a) :])

    return pair(a, b)


def nested(w, a, b):
    inner = jnp.concatenate([a, b])
    out = log_probability(w, jnp.concatenate([inner, 2 * inner]))
    return of_pairs(*jnp.split(out, 2)) + of_pairs(*jnp.split(out[: 2 * len(a)], 2))


AVERAGES = [
    sliced,
    split,
    stacked_and_indexed,
    interleaved,
    four_blocks,
    flattened_tokens,
    mean_of_all,
    tiled,
    discriminator,
]
AVERAGES += [labels_of_both, of_rows, through_layers, concatenated_inside, nested]


def contrastive(w, a, b):
    z = logits(w, jnp.concatenate([a, b])).reshape(2 * len(a), -1)
    return -jnp.diag(jax.nn.log_softmax(z @ z.T)).mean()


def shifted(w, a, b):  # the pairs are those of the next example
    out = log_probability(w, jnp.concatenate([a, b]))
    return of_pairs(out[: len(a)], jnp.roll(out[len(a) :], 1))


def across_blocks(w, a, b):  # the blocks end elsewhere
    out = log_probability(w, jnp.concatenate([a, b]))
    return of_pairs(out[len(a) // 2 : len(a)], out[: len(a) // 2]) + of_pairs(out[: len(a)], out[len(a) :])


def pairs_of_one_block(w, a, b):
    out = log_probability(w, jnp.concatenate([a, b])).reshape(2, -1, 2)
    return of_pairs(out[..., 0].max(0), out[0, :, 1] * jnp.cumsum(out[1, :, 0]))


def cumulative(w, a, b):
    return jnp.cumsum(log_probability(w, jnp.concatenate([a, b])))[:: len(a)].mean()


def sorted_examples(w, a, b):
    out = jnp.sort(log_probability(w, jnp.concatenate([a, b])))
    return of_pairs(out[: len(a)], out[len(a) :])


def with_one_batch(w, a, b):  # examples of the part of `b` meet those of another part of both
    out = log_probability(w, jnp.concatenate([a, b]))
    return (out * jnp.concatenate([b[:, 0, 0].repeat(2)])).mean()


def positions(w, a, b):
    out = log_probability(w, jnp.concatenate([a, b]))
    return (out * jnp.arange(len(out))).mean()


def dropout(w, a, b):
    x = jnp.concatenate([a, b])
    return (logits(w, x) * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape)).mean()


def normalized(w, a, b):
    h = logits(w, jnp.concatenate([a, b]))
    return ((h - h.mean(0)) ** 2).mean()


MIXED = [contrastive, shifted, across_blocks, cumulative, sorted_examples, with_one_batch, positions, dropout]
MIXED += [normalized, pairs_of_one_block]


def arguments(batch=BATCH):
    matrix, data = (WIDTH, WIDTH), (batch, TOKENS, WIDTH)
    *weights, a, b = normal(1, matrix, matrix, (TOKENS, WIDTH), data, data, dtype=float)
    return dict(zip(("in", "hidden", "position"), weights, strict=True)), a, b


def step_of(loss):
    def step(w, a, b):
        value, gradient = jax.value_and_grad(loss)(w, a, b)
        return value, jax.tree.map(jnp.subtract, w, gradient)

    return step


@pytest.mark.parametrize("count", few([4, 2]))
@pytest.mark.parametrize("loss", AVERAGES)
def test_losses_of_concatenated_batches_run_in_microbatches(loss, count):
    with jax.enable_x64(True):
        step, given = step_of(loss), arguments()
        found = rewrite(step, microbatches=count, in_axes=(None, 0, 0))(*given)
        for one, other in zip(*map(jax.tree.leaves, (found, step(*given))), strict=True):
            assert jnp.allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", MIXED)
def test_losses_that_mix_positions_of_concatenated_batches_are_refused(loss):
    with jax.enable_x64(True), pytest.raises(PlanError, match="not proved to be an average"):
        rewrite(step_of(loss), microbatches=2, in_axes=(None, 0, 0))(*arguments())


def test_a_report_proposes_microbatches_for_concatenated_batches():
    report = rematscope.report(step_of(split), *arguments(2**12), memory="2 MiB")
    assert not any(text.startswith("No microbatches") for text in report.advice)
