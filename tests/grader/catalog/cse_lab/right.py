"""Right answers to cse_lab, spelled in many ways."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def layer(w, x):
    return jnp.sin(x @ w)


def arguments(n):
    cpu = jax.devices("cpu")[0]
    return [jax.device_put(jnp.ones((16, 16)), cpu)] * n, jax.device_put(jnp.ones((8, 16)), cpu)


def lower(n, prevent_cse):
    def loss(ws, x):
        for w in ws:
            x = jax.checkpoint(layer, prevent_cse=prevent_cse)(w, x)
        return jnp.sum(x)

    return jax.jit(jax.value_and_grad(loss)).lower(*arguments(n))


@passes
def on_arrays(n):
    both = [lower(n, prevent_cse) for prevent_cse in (True, False)]
    return {
        "compiled": tuple(b.compile().as_text().count(" dot(") for b in both),
        "lowered": tuple(b.as_text().count("dot_general") for b in both),
        "barriers": tuple(b.as_text().count("optimization_barrier") for b in both),
    }


@passes
def line_by_line(n):
    counts = {"barriers": [0, 0], "lowered": [0, 0], "compiled": [0, 0]}
    for i, prevent_cse in enumerate([True, False]):
        lowered = lower(n, prevent_cse)
        for line in lowered.as_text().splitlines():
            counts["barriers"][i] += bool(re.search(r"= stablehlo\.optimization_barrier", line))
            counts["lowered"][i] += bool(re.search(r"= stablehlo\.dot_general", line))
        for line in lowered.compile().as_text().splitlines():
            counts["compiled"][i] += bool(re.search(r"= \S+ dot\(", line))
    return counts


@passes
def in_xlas_own_words(n):
    def both(count):
        return np.array([count(lower(n, True)), count(lower(n, False))]).tolist()

    return {
        "barriers": both(lambda lowered: lowered.as_text("hlo").count(" opt-barrier(")),
        "lowered": both(lambda lowered: lowered.as_text("hlo").count(" dot(")),
        "compiled": both(lambda lowered: lowered.compile().as_text().count(" dot(")),
    }


@passes
def worked_out(n):
    """Whoever knows the rule may compute the numbers."""
    return {"barriers": (n, 0), "lowered": (4 * n - 1,) * 2, "compiled": (4 * n - 1, 3 * n - 1)}
