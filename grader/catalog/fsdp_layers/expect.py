"""What is expected of an answer; only the judge reads this."""

import functools

import jax.numpy as jnp

from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import GathersLayers, Recomputes, Saves, ShardsGradients

feedback = read_feedback(__file__)
mistake = feedback.mistake


def sample_input(rng, argument):
    """Return rows whose sines differ from them, and weights that let neither values nor their errors grow."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    if argument.ndim == 3:
        size /= (argument.shape[1] * len(size) / 2) ** 0.5
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _make_layers(step, chosen=lambda weights: weights):
    def layers(params, x, mesh):
        return functools.reduce(step, zip(*map(chosen, params), strict=True), x)

    return layers


def _layer(x, weights):
    up, down = weights
    return x + jnp.sin(x @ up) @ down


mistakes = (
    mistake("does_not_add_x", _make_layers(lambda x, weights: _layer(x, weights) - x)),
    mistake("reverse_order", _make_layers(_layer, lambda weights: weights[::-1])),
    mistake(
        "first_layer_everywhere", _make_layers(_layer, lambda weights: jnp.broadcast_to(weights[:1], weights.shape))
    ),
    mistake("without_last_layer", _make_layers(_layer, lambda weights: weights[:-1])),
)


def requirements(case):
    layers = case.structure["L"]
    up, down, _ = case.arguments
    one_layer = sum(weight.size // layers * weight.dtype.itemsize for weight in (up, down))
    return [
        [
            Saves(
                ("every layer's x", "every layer's h"),
                too_much="Which of these values are computed outside of a checkpoint, and which does a policy save?",
                too_little="Does your checkpoint have a policy that saves `h`? Does it contain one layer or several?",
                by_hand=True,  # with prevent_cse=False, which is right inside a scan, there is no barrier to see
            )
        ],
        [
            GathersLayers(
                1,
                of=one_layer,
                layers=layers,
                too_few="Which sharding constraint makes each weight whole in this pass? Which matmul uses its result?",
                at_once="Is the constraint that gathers a weight inside or outside the loop over layers?",
                too_many="Which array does this pass gather twice, or gather although it is not a weight?",
            )
        ],
        [
            Recomputes(
                count=0, too_many="Which matmul does the backward pass recompute? With `h` saved, it recomputes none."
            )
        ],
        [
            ShardsGradients(
                whole="The transpose of a sharding constraint is the same constraint on the gradient. Which constraint "
                "is the last one on the gradient's path back to `params`?"
            )
        ],
    ]
