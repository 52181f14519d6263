"""Right answers to cse_lab, spelled in many ways."""

import dataclasses
import functools
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def lower(layer, w, x, n, prevent_cse):
    def loss(ws, x):
        for w in ws:
            x = jax.checkpoint(layer, prevent_cse=prevent_cse)(w, x)
        return jnp.sum(x)

    return jax.jit(jax.value_and_grad(loss)).lower([w] * n, x)


@passes
def on_arrays(layer, w, x, n):
    cpu = jax.devices("cpu")[0]
    w, x = (jax.device_put(jnp.ones(each.shape), cpu) for each in (w, x))
    both = [lower(layer, w, x, n, prevent_cse) for prevent_cse in (True, False)]
    return {
        "compiled": tuple(b.compile().as_text().count(" dot(") for b in both),
        "lowered": tuple(b.as_text().count("dot_general") for b in both),
        "barriers": tuple(b.as_text().count("optimization_barrier") for b in both),
    }


@passes
def in_xlas_own_words(*asked):
    def both(count):
        return np.array([count(lower(*asked, True)), count(lower(*asked, False))]).tolist()

    return {
        "barriers": both(lambda lowered: lowered.as_text("hlo").count(" opt-barrier(")),
        "lowered": both(lambda lowered: lowered.as_text("hlo").count(" dot(")),
        "compiled": both(lambda lowered: lowered.compile().as_text().count(" dot(")),
    }


@dataclasses.dataclass
class Lab:
    layer: Callable
    w: jax.ShapeDtypeStruct
    x: jax.ShapeDtypeStruct
    n: int

    def loss(self, prevent_cse, ws, x):
        layer = jax.checkpoint(self.layer, prevent_cse=prevent_cse)
        return functools.reduce(lambda x, w: layer(w, x), ws, x).sum()

    @functools.cached_property
    def lowered(self):
        programs = [jax.value_and_grad(functools.partial(self.loss, each)) for each in (True, False)]
        return [jax.jit(program).trace([self.w] * self.n, self.x).lower() for program in programs]

    def counts(self, text, word):
        return [len(re.findall(word, text(lowered))) for lowered in self.lowered]


@passes
def as_a_class(layer, w, x, n):
    lab = Lab(layer, w, x, n)
    return {
        "barriers": lab.counts(lambda lowered: lowered.as_text(), r"optimization_barrier\b"),
        "lowered": lab.counts(lambda lowered: lowered.as_text(), r"dot_general\b"),
        "compiled": lab.counts(lambda lowered: lowered.compile().as_text(), r" dot\("),
    }
