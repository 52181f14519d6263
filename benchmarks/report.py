"""Time `rematscope.report` in units of JAX's own trace of the step: `python benchmarks/report.py`.

The step is a transformer with unrolled layers and Adam: 12 layers have about 3,400 equations, 70 layers have about
19,000. Each row is one report whose capacity the step misses by a factor. Times are processor times of this process.
The predicted peak takes the place of the compiled one, so that nothing is compiled: the compiler's time is not that of
the report. `--layers 12 70` and `--factors 1.5 3 8` choose the rows.
"""

import argparse
import functools
import time
import types
from unittest import mock

import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.table import Table

import rematscope
from rematscope import jax_compat
from rematscope.reporting.rewrite import Changes
from rematscope.reporting.subject import Subject

WIDTH, BATCH, TOKENS, WORDS, HEADS = 64, 32, 64, 256, 4


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def attention(x, p):
    batch, tokens, width = x.shape
    q, k, v = (t.reshape(batch, tokens, HEADS, -1) for t in jnp.split(x @ p["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // HEADS) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ p["out"]


def training_step(layers):
    """Return a training step and shapes of its arguments."""
    sizes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    layer = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in sizes.items()}
    params = {"embed": jax.ShapeDtypeStruct((WORDS, WIDTH), jnp.float32), "layers": [layer] * layers}
    optimizer = optax.adam(1e-3)

    def loss(params, tokens, targets):
        x = params["embed"][tokens]
        for p in params["layers"]:
            x = x + attention(norm(x), p)
            x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
        logits = norm(x) @ params["embed"].T
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    @jax.jit
    def step(params, state, tokens, targets):
        value, gradient = jax.value_and_grad(loss)(params, tokens, targets)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    tokens = jax.ShapeDtypeStruct((BATCH, TOKENS), jnp.int32)
    return step, (params, jax.eval_shape(optimizer.init, params), tokens, tokens)


def equations(jaxpr):
    """Return the number of equations of a program, with the bodies of its jits in place of the calls."""
    count = 0
    for eqn in jax_compat.body_of(jaxpr)[0].eqns:
        count += sum(map(equations, jax_compat.bodies(eqn))) if eqn.primitive.name in ("jit", "pjit") else 1
    return count


def predicted(subject, changes):
    """Return a measurement that says what is predicted."""
    nbytes = subject.traced(changes).memory.peak_bytes
    return types.SimpleNamespace(
        memory=types.SimpleNamespace(peak_bytes=nbytes), peak_or_infinity=nbytes, out_of_memory=False
    )


def timed(f, *args):
    """Return what a function returns, and its processor time."""
    jax.clear_caches()
    start = time.process_time()
    found = f(*args)
    return found, time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 70])
    parser.add_argument("--factors", type=float, nargs="+", default=[3.0])
    options = parser.parse_args()
    table = Table("layers", "equations", "factor", "JAX's trace (s)", "report (s)", "report / trace", "changes traced")
    for layers in options.layers:
        step, args = training_step(layers)
        jaxpr, once = timed(jax.make_jaxpr(step), *args)
        peak = Subject(step, args, {}, None, "cpu").traced(Changes()).memory.peak_bytes
        for factor in options.factors:
            with mock.patch.object(Subject, "compiled", predicted):
                report = functools.partial(rematscope.report, step, *args, memory=int(peak / factor))
                found, seconds = timed(report)
            cells = layers, equations(jaxpr), factor, once, seconds, seconds / once, len(found.fixes)
            table.add_row(*(f"{cell:,.1f}" if isinstance(cell, float) else f"{cell:,}" for cell in cells))
    Console().print(table)


if __name__ == "__main__":
    main()
