"""Microbatches of weighted means: each microbatch divides by the sum of the weights of the whole batch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from normal import normal
from sampling import few, sampled

from rematscope import PlanError, report, rewrite
from rematscope.reporting.flat_step import FlatStep
from rematscope.reporting.traced_step import TracedStep

AXES = (None, 0, 0)
TOLERANCE = 1e-12  # in float64


def arguments(kind="some"):
    """Weights, sequences and labels of 12 sequences of 3 tokens; -1 is no label."""
    w, x = normal(0, (4, 4), (12, 3, 4), dtype=jnp.float64)
    labels = jnp.asarray(np.random.default_rng(1).integers(-1, 4, (12, 3)))
    return w, x, {"some": labels, "first half": labels.at[:6].set(-1), "none": jnp.full_like(labels, -1)}[kind]


def logits_of(w, x):
    return jnp.tanh(x @ w) @ w.T


def errors_of(w, x, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits_of(w, x), jnp.maximum(labels, 0))


def mask_of(labels, dtype=jnp.float64):
    return (labels >= 0).astype(dtype)


def divided_by(divisor, dtype=jnp.float64):
    def loss(w, x, labels):
        mask = mask_of(labels, dtype)
        return (errors_of(w, x, labels) * mask).sum() / divisor(mask)

    return loss


def weights_per_token(w, x, labels):
    weights = jnp.abs(x[..., 0]) * mask_of(labels)
    return jnp.average(errors_of(w, x, labels), weights=weights)


def normalized_weights(w, x, labels):
    mask = mask_of(labels)
    return jnp.sum(errors_of(w, x, labels) * (mask / (mask.sum() + 1e-8)))


def smoothed(w, x, labels):
    mask, targets = mask_of(labels), optax.smooth_labels(jax.nn.one_hot(labels, 4), 0.1)
    return (optax.softmax_cross_entropy(logits_of(w, x), targets) * mask).sum() / mask.sum().clip(1)


def two_masks(w, x, labels):
    errors, even = errors_of(w, x, labels), mask_of(labels % 2)
    return divided_by(jnp.sum)(w, x, labels) + 0.3 * (errors**2 * even).sum() / (1e-3 + even.sum())


def with_regularizers(w, x, labels):
    return divided_by(jnp.sum)(w, x, labels) + 0.1 * jnp.mean(logits_of(w, x) ** 2) + 0.01 * jnp.sum(w**2)


def in_scanned_layers(w, x, labels):
    layer = jax.checkpoint(lambda h, row: (jnp.tanh(h @ w * row), None))
    return divided_by(lambda mask: jnp.maximum(mask.sum(), 1))(w, lax.scan(layer, x, w)[0], labels)


@jax.checkpoint
def in_a_checkpoint(w, x, labels):
    mask = mask_of(labels)
    errors = jax.checkpoint(errors_of, policy=jax.checkpoint_policies.dots_saveable)(w, x, labels)
    return (errors * mask).sum() / (mask.sum() + 1e-5)


@jax.custom_vjp
def scaled(x):
    return jnp.sin(x)


scaled.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * jnp.cos(x),))


@jax.custom_jvp
def squared(x):
    return x * x


squared.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))


def with_custom_rules(w, x, labels):
    return divided_by(jnp.sum)(w, squared(scaled(x @ w)), labels)


def random_mask(w, x, labels):
    mask = jax.random.bernoulli(jax.random.key(3), 0.5, labels.shape)
    return jnp.where(mask, errors_of(w, x, labels), 0).sum() / mask.sum()


def with_dropout(w, x, labels):
    dropped = jnp.where(jax.random.bernoulli(jax.random.key(4), 0.5, x.shape), x @ w, 0)
    return divided_by(jnp.sum)(w, dropped, labels)


def per_class(w, x, labels):
    """The mean of the means of the classes, and a mean with weights that are large for rare classes."""
    classes, errors = jax.nn.one_hot(labels, 4), errors_of(w, x, labels)
    counts = classes.sum((0, 1))
    means = jnp.einsum("bt,btc->c", errors, classes) / jnp.maximum(counts, 1)
    weights = (labels.size / (1 + counts))[jnp.maximum(labels, 0)] * mask_of(labels)
    return means.mean() + (errors * weights).sum() / weights.sum()


def per_example(w, x, labels):
    mask = mask_of(labels)
    each = (errors_of(w, x, labels) * mask).sum(1) / jnp.maximum(mask.sum(1), 1)
    present = mask.any(1)
    return (each * present).sum() / (1e-6 + present.sum())


def safe(w, x, labels):
    mask = mask_of(labels)
    total, count = (errors_of(w, x, labels) * mask).sum(), mask.sum()
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 0.0)


def mean_of_masks(w, x, labels):
    mask = mask_of(labels)
    return jnp.mean(errors_of(w, x, labels) * mask) / jnp.mean(mask) + jnp.mean(mask)


def normalized_data(w, x, labels):
    return errors_of(w, (x - x.mean((0, 1))) / (1e-3 + x.std((0, 1))), labels).mean()


def mixed(w, x, labels):
    order = jax.random.permutation(jax.random.key(1), len(x))
    return errors_of(w, 0.7 * x + 0.3 * x[order], labels).mean()


def valid_positions(w, x, labels):
    valid = jnp.arange(len(x)) < 5
    return (errors_of(w, x, labels) * valid[:, None]).sum() / (3 * valid.sum())


LOSSES = {
    "sum": divided_by(jnp.sum),
    "integers": divided_by(jnp.sum, jnp.int32),
    "booleans": divided_by(jnp.sum, bool),
    "epsilon": divided_by(lambda mask: mask.sum() + 1e-5),
    "tiny": divided_by(lambda mask: mask.sum() + np.finfo(np.float64).tiny),
    "maximum": divided_by(lambda mask: jnp.maximum(mask.sum(), 1)),
    "where": lambda w, x, labels: errors_of(w, x, labels).mean(where=labels >= 0),
    "average": lambda w, x, labels: jnp.average(errors_of(w, x, labels), weights=mask_of(labels)),
    "optax": lambda w, x, labels: optax.losses.kl_divergence(
        jax.nn.log_softmax(logits_of(w, x)), jax.nn.softmax(x)
    ).mean(where=labels >= 0),
    "plain sum": lambda w, x, labels: errors_of(w, x, labels).sum(),
    "vmap": lambda w, x, labels: jnp.average(jax.vmap(errors_of, (None, 0, 0))(w, x, labels), weights=labels + 2),
    "jit": jax.jit(lambda w, x, labels: divided_by(jax.jit(jnp.sum))(w, x, labels)),
} | {
    f.__name__: f
    for f in (
        weights_per_token, normalized_weights, smoothed, two_masks, with_regularizers, in_scanned_layers,
        with_custom_rules, random_mask, with_dropout, per_class, per_example, safe, mean_of_masks, normalized_data,
        mixed, valid_positions,
    )
} | {"checkpoint": in_a_checkpoint}  # fmt: skip


def metrics(w, x, labels):
    mask, logits = mask_of(labels), logits_of(w, x)
    right = (jnp.argmax(logits, -1) == labels) * mask
    return {
        "accuracy": right.sum() / jnp.maximum(mask.sum(), 1),
        "right": right.sum(),
        "tokens": (labels >= 0).sum(),
        "mask": mask.mean(),
        "each": right,
        "norm": jnp.sum(w**2),
    }


def step_of(loss):
    @jax.jit
    def step(w, x, labels):
        def with_metrics(w):
            return loss(w, x, labels), metrics(w, x, labels)

        (value, found), gradient = jax.value_and_grad(with_metrics, has_aux=True)(w)
        return w - gradient, value, jnp.exp(value), found

    return step


def check(step, several, count, tolerance=TOLERANCE, axes=AXES, **options):
    """Compare all results of a step, for several arguments, with those of its microbatches."""
    changed = rewrite(step, microbatches=count, in_axes=axes, **options)
    for args in several:
        expected, found = step(*args), changed(*args)
        assert jax.tree.structure(expected) == jax.tree.structure(found)
        for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_allclose(np.float64(other), np.float64(one), rtol=tolerance, atol=tolerance)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("count", few([3, 2, 4]))
@pytest.mark.parametrize("name", sampled([*LOSSES], 6))
def test_a_weighted_mean_gives_the_results_of_the_whole_batch(name, count):
    check(step_of(LOSSES[name]), map(arguments, ("some", "first half", "none")), count)


def mean_of_all(w, x, labels):
    return divided_by(lambda mask: mask.sum() + 1e-5)(w, x, labels)


def with_adam(w, x, labels):
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-2))
    value, gradient = jax.value_and_grad(mean_of_all)(w, x, labels)
    updates, state = optimizer.update(gradient, optimizer.init(w), w)
    return optax.apply_updates(w, updates), state, value


def with_a_count_of_the_step(w, x, labels):
    """The loss closes over the number of tokens."""
    count = mask_of(labels).sum()
    gradient = jax.grad(lambda w: (errors_of(w, x, labels) * mask_of(labels)).sum() / jnp.maximum(count, 1))(w)
    return w - gradient


def of_a_sum(w, x, labels):
    """The gradient of a sum, divided by the number of tokens, as trainers that add up gradients compute it."""

    def loss(w):
        return (errors_of(w, x, labels) * mask_of(labels)).sum(), mask_of(labels).sum()

    (value, count), gradient = jax.value_and_grad(loss, has_aux=True)(w)
    return w - gradient / count, value / count


def of_two_losses(w, x, labels):
    """The second loss reads the first gradient, and has a mask of its own."""
    updated = w - jax.grad(mean_of_all)(w, x, labels)
    return updated, jax.value_and_grad(mean_of_all)(updated, jnp.sin(x), -1 - labels)


def in_a_jit(w, x, labels):
    return w - jax.jit(jax.grad(mean_of_all))(w, x, labels)


def as_pullback(w, x, labels):
    value, pullback, count = jax.vjp(lambda w: (mean_of_all(w, x, labels), mask_of(labels).sum()), w, has_aux=True)
    return w - pullback(jnp.ones_like(value))[0], value, count


STEPS = [with_adam, with_a_count_of_the_step, of_a_sum, of_two_losses, in_a_jit, as_pullback]


@pytest.mark.parametrize("count", few([3, 4]))
@pytest.mark.parametrize("step", few(STEPS, 2))
def test_a_step_with_weighted_means_gives_the_same_results(step, count):
    check(step, [arguments(), arguments("first half")], count)


@pytest.mark.parametrize("place", few(["layers", "whole", "loops"]))
def test_a_weighted_mean_with_new_checkpoints_gives_the_same_results(place):
    def loss(w, x, labels):
        for _ in range(4):
            x = jnp.tanh(jnp.sin(x @ w) @ w)
        return in_a_checkpoint(w, x, labels) if place == "whole" else in_scanned_layers(w, x, labels)

    check(step_of(loss), [arguments()], 3, checkpoint=place)


def test_the_batch_may_be_the_second_axis():
    def step(w, x, labels):
        return step_of(two_masks)(w, x.swapaxes(0, 1), labels.T)[:2]

    w, x, labels = arguments()
    check(step, [(w, x.swapaxes(0, 1), labels.T)], 3, axes=(None, 1, 1))


@pytest.mark.parametrize("dtype", few([jnp.bfloat16, jnp.float32]))
def test_low_precision_gives_the_same_results_up_to_rounding(dtype):
    def loss(w, x, labels):
        return divided_by(lambda mask: mask.sum() + 1e-5, dtype)(w.astype(dtype), x.astype(dtype), labels)

    check(step_of(lambda *args: loss(*args).astype(jnp.float32)), [arguments()], 4, 16 * float(jnp.finfo(dtype).eps))


def test_a_sum_of_weights_that_is_almost_zero_is_not_divided_further():
    """A microbatch must not divide by a fourth of the smallest normal number, which XLA replaces with 0."""

    def step(w, x, labels):
        mask = mask_of(labels, jnp.float32)
        return w - jax.grad(lambda w: (errors_of(w, x, labels) * mask).sum() / (mask.sum() + 2.0**-126))(w)

    w, x, labels = arguments("none")
    check(step, [(w.astype(jnp.float32), x.astype(jnp.float32), labels)], 4, 1e-6)


def weights_of_parameters(w, x, labels):
    weights = jax.nn.sigmoid(x @ w[0])
    return (errors_of(w, x, labels) * weights).sum() / (weights.sum() + 1e-5)


def stopped_weights(w, x, labels):
    weights = lax.stop_gradient(jnp.exp(-errors_of(w, x, labels)))
    return (errors_of(w, x, labels) * weights).sum() / jnp.maximum(weights.sum(), 1)


def normalized_weights_of_parameters(w, x, labels):
    weights = jax.nn.sigmoid(x @ w[0])
    return (errors_of(w, x, labels) * (weights / weights.sum())).sum()


@pytest.mark.parametrize("loss", [weights_of_parameters, stopped_weights, normalized_weights_of_parameters])
def test_a_division_by_a_sum_that_depends_on_parameters_is_refused_and_named(loss):
    with pytest.raises(
        PlanError, match=r"no rule covers div in test_whole_values.py.*weights that depend on parameters"
    ):
        rewrite(step_of(loss), microbatches=2, in_axes=AXES)(*arguments())


def test_weights_that_depend_on_another_gradient_are_refused():
    def step(w, x, labels):
        gradient = jax.grad(lambda w: errors_of(w, x, labels).mean())(w)
        weights = jnp.abs(x @ gradient[0])
        return w - jax.grad(lambda w: (errors_of(w, x, labels) * weights).sum() / weights.sum())(w)

    with pytest.raises(PlanError, match="no rule covers div"):
        rewrite(step, microbatches=2, in_axes=AXES)(*arguments())


def test_a_jitted_gradient_that_runs_for_two_masks_is_refused():
    def step(w, x, labels):
        gradient = jax.jit(jax.grad(mean_of_all))
        return w - gradient(w, x, labels) - gradient(w, x, -1 - labels)

    with pytest.raises(PlanError, match="no rule covers div"):
        rewrite(step, microbatches=2, in_axes=AXES)(*arguments())


def differentiated_weights(wrap, w, x, labels):
    """A transformation around the gradient differentiates the weights."""

    def gradient(v):
        weights = jax.nn.sigmoid(x @ v[0])
        return jax.grad(lambda w: (errors_of(w, x, labels) * weights).sum() / weights.sum())(w)

    return jax.jvp(wrap(gradient), (w,), (jnp.ones_like(w),))


def differentiated_statistics(wrap, w, x, labels):
    """A transformation around the gradient differentiates a factor of the data that the loss computes."""

    def gradient(scale):
        def loss(w):
            return errors_of(w, x, labels).mean() + ((x * scale).mean() + x.max()) * (w**2).sum()

        return jax.value_and_grad(loss)(w)

    (value, found), (rate, _) = jax.jvp(wrap(gradient), (2.0,), (1.0,))
    return w - found, value, rate


def mapped_weights(wrap, w, x, labels):
    """A transformation around the gradient maps the weights, with the parameters of several models."""

    def gradient(w, scale):
        mask = scale * mask_of(labels)
        return jax.grad(lambda w: (errors_of(w, x, labels) * mask).sum() / (1 + mask.sum()))(w)

    return jax.vmap(wrap(gradient))(jnp.stack([w, w.T]), jnp.array([1.0, 2.0]))


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint], ids=["plain", "jit", "checkpoint"])
@pytest.mark.parametrize("step", [differentiated_weights, differentiated_statistics, mapped_weights])
def test_weights_that_a_transformation_around_the_gradient_follows_are_refused(step, wrap):
    def wrapped(w, x, labels):
        return step(wrap, w, x, labels)

    with pytest.raises(PlanError, match=r"no rule covers|not proved to be an average"):
        rewrite(wrapped, microbatches=2, in_axes=AXES)(*arguments())


def test_weights_that_a_transformation_around_the_step_differentiates_are_those_of_the_whole_batch():
    w, x, labels = arguments()

    def value(scale, make):
        def step(w, x, labels):
            mask = mask_of(labels)
            return w - jax.grad(lambda w: (errors_of(w, x, labels) * mask).sum() / (scale * mask).sum())(w)

        return jnp.sum(make(step)(w, x, labels) ** 3)

    divided = jax.grad(lambda scale: value(scale, lambda step: rewrite(step, microbatches=3, in_axes=AXES)))(1.5)
    np.testing.assert_allclose(divided, jax.grad(lambda scale: value(scale, lambda step: step))(1.5), rtol=TOLERANCE)


def test_python_numbers_among_auxiliary_results_stay_numbers():
    def step(w, x, labels):
        def loss(w):
            return mean_of_all(w, x, labels), {"count": 3, "rate": 0.5, "flag": True, "length": len(x)}

        (value, rest), gradient = jax.value_and_grad(loss, has_aux=True)(w)
        return (w - gradient if rest["count"] > 2 else w), value, rest

    *_, rest = rewrite(step, microbatches=3, in_axes=AXES)(*arguments())
    assert rest == {"count": 3, "rate": 0.5, "flag": True, "length": 12}
    assert {key: type(value) for key, value in rest.items()} == {
        "count": int,
        "rate": float,
        "flag": bool,
        "length": int,
    }


def test_a_refusal_names_the_operation_and_not_the_sum_of_weights_that_it_reads():
    def chosen(w, x, labels):
        count = mask_of(labels).sum() + 1e-5
        return lax.cond(count > 2, lambda v: v / count, jnp.zeros_like, (errors_of(w, x, labels) * labels).sum())

    with pytest.raises(PlanError, match=r"no rule covers cond in test_whole_values\.py"):
        rewrite(step_of(chosen), microbatches=2, in_axes=AXES)(*arguments())


def test_metrics_that_are_no_means_are_refused():
    def step(w, x, labels):
        def loss(w):
            return mean_of_all(w, x, labels), jnp.sqrt(mean_of_all(w, x, labels))

        return jax.value_and_grad(loss, has_aux=True)(w)

    with pytest.raises(PlanError, match=r"is not proved to be an average over the microbatches: no rule covers sqrt"):
        rewrite(step, microbatches=2, in_axes=AXES)(*arguments())


def test_a_weighted_mean_is_proved_without_loops_over_examples(monkeypatch):
    """Such loops are for steps with `jax.vmap`. Their traces take longer than the rest of the proof."""
    traced = []
    monkeypatch.setattr(TracedStep, "in_loops", property(traced.append))

    def step(w, x, labels):
        return w - jax.grad(divided_by(jnp.sum))(w, x, labels)

    rewrite(step, microbatches=3, in_axes=AXES)(*arguments())
    assert not traced


def test_a_report_divides_a_step_with_a_weighted_mean():
    def step(w, x, mask):
        def loss(w):
            h = x
            for _ in range(4):
                h = jnp.tanh(h @ w)
            return jnp.sum(mask * h.sum(-1)) / (jnp.sum(mask) + 1e-5)

        return w - jax.grad(loss)(w)

    args = jnp.ones((8, 8)), jnp.ones((4096, 8)), jnp.ones(4096)
    found = report(step, *args, memory="700 KiB")
    assert found.best is not None and found.best.changes.microbatches > 1
    expected = step(*args)
    np.testing.assert_allclose(found.best.function(*args), expected, rtol=1e-6)


def test_the_traces_of_the_proof_are_those_of_the_microbatches(monkeypatch):
    """The step as written and the step with values of the whole batch are traced for the batch and for a part each."""
    counts, trace_step = [], FlatStep.jaxpr

    def counted(step, count, change):
        counts.append(count)
        return trace_step(step, count, change)

    monkeypatch.setattr(FlatStep, "jaxpr", counted)

    def step(w, x, labels):
        return w - jax.grad(divided_by(jnp.sum))(w, x, labels)

    rewrite(step, microbatches=3, in_axes=AXES)(*arguments())
    assert counts == [1, 3, 1, 3]
