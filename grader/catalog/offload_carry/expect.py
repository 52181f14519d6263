"""What is expected of an answer; only the judge reads this."""

import functools

import jax.numpy as jnp

from grader.catalog.scan_layers import expect as scan_layers
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


sample_input = scan_layers.sample_input


def _apply_layers(weights):
    return lambda layer: lambda ws, x: functools.reduce(lambda x, w: layer(w, x), weights(ws), x)


mistakes = (
    mistake("reverse_order", _apply_layers(lambda ws: ws[::-1])),
    mistake("without_last_layer", _apply_layers(lambda ws: ws[:-1])),
    mistake("first_layer_everywhere", _apply_layers(lambda ws: jnp.broadcast_to(ws[0], ws.shape))),
    mistake("last_layer_alone", _apply_layers(lambda ws: ws[-1:])),
    mistake("returns_x", lambda layer: lambda ws, x: x),
)


def requirements(case):
    kept = ("the layers' inputs",)
    return [
        [
            Saves(
                kept,
                too_much="Which value does the backward pass of a layer start from? Does this value have a name inside "
                "the checkpoint, and does a policy offload only that name to `pinned_host`?",
                too_little="How many layers does one checkpoint contain, and does its policy offload the carry?",
                by_hand=True,  # where all residuals go to the host, there is no barrier to see
                on_host=kept,
            )
        ],
        [
            Recomputes(
                case.structure["L"],
                too_many="How many times does one iteration call layer, and how many nested checkpoints contain "
                "that call?",
            )
        ],
    ]
