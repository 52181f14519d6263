"""Time the search of `auto`: a table of benchmarks/README.md.

    python benchmarks/search.py ["GPT, 24 layers" …]

For each model the limit is the peak of one checkpoint per layer. All figures are seconds of processor time, summed over
all threads: JAX's own trace of the value and gradient; the trace of the function and its split into the programs that
all choices share; the solver; the search without XLA's compiles, also as a multiple of JAX's trace; and these compiles.
"""

import contextlib
import functools
import sys
import time

import jax
import jax.numpy as jnp
import scipy
from auto import MODELS, block_parameters, conv_layer, gpt_layer, scanned, shape, stacked, unrolled

from rematscope import PlanError, auto, measure, trace
from rematscope.scheduling.linearize import linearize
from rematscope.tracing.checkpoints import called_once

D, X = 128, shape(8, 128, 128)


def gpt(layers):
    return functools.partial(unrolled, gpt_layer), ([block_parameters(D)] * layers, X)


def in_a_scan(layers):
    return functools.partial(scanned, gpt_layer), (stacked(block_parameters(D), layers), X)


def convolutions(blocks):
    kernels = [{n: shape(3, 3, 32, 32) for n in ("c1", "c2")}] * blocks
    return functools.partial(unrolled, conv_layer), (kernels, shape(8, 28, 28, 32))


def flax(layers):
    """Return a model of Flax layers, with `nn.remat` as the checkpoint."""
    from flax import linen

    class Layer(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = x + linen.MultiHeadDotProductAttention(4)(linen.LayerNorm()(x))
            return x + linen.Dense(D)(linen.gelu(linen.Dense(4 * D)(linen.LayerNorm()(x))))

    def net(checkpoint):
        kind = linen.remat(Layer) if checkpoint else Layer
        return linen.Sequential([kind(name=f"layer{i}") for i in range(layers)])

    def make(checkpoint):
        return lambda variables, x: jnp.mean(net(checkpoint).apply(variables, x) ** 2)

    return make, (jax.eval_shape(net(False).init, jax.random.key(0), X), X)


SEARCHED = {
    "GPT, 8 layers in a scan": functools.partial(in_a_scan, 8),
    "GPT, 48 layers in a scan": functools.partial(in_a_scan, 48),
    "GPT, 6 layers": functools.partial(gpt, 6),
    "GPT, 12 layers": functools.partial(gpt, 12),
    "GPT, 24 layers": functools.partial(gpt, 24),
    "GPT, 48 layers": functools.partial(gpt, 48),
    "Flax, 12 layers": functools.partial(flax, 12),
    "Flax, 24 layers": functools.partial(flax, 24),
    "residual convolutions, 24 blocks": functools.partial(convolutions, 24),
    "residual convolutions, 48 blocks": functools.partial(convolutions, 48),
    "U-Net, 7 blocks": lambda: MODELS["U-Net, 7 blocks"],
}


class Clock:
    """Measure processor time in seconds, in total and in chosen functions."""

    def __init__(self):
        self.spent, self.calls = {}, {}

    @contextlib.contextmanager
    def watching(self, what, owner, name):
        """Count the time spent in a function while this context is active."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args, **kwargs):
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[what] = self.spent.get(what, 0.0) + time.process_time() - start
                self.calls[what] = self.calls.get(what, 0) + 1

        setattr(owner, name, timed)
        try:
            yield
        finally:
            setattr(owner, name, function)


def seconds(run):
    start = time.process_time()
    made = run()
    return time.process_time() - start, made


def programs(f, args):
    """Return the inputs of a search."""
    return linearize(trace(called_once(f, args, {}), *args))


def searched(name):
    make, args = SEARCHED[name]()
    layers = measure(make(True), *args)
    inexact = tuple(
        i for i, arg in enumerate(args) if all(jnp.issubdtype(a.dtype, jnp.inexact) for a in jax.tree.leaves(arg))
    )
    jax_trace = min(
        seconds(lambda: jax.jit(jax.value_and_grad(make(False), inexact)).trace(*args))[0] for _ in range(3)
    )
    tracing, made = min((seconds(lambda: programs(make(False), args)) for _ in range(3)), key=lambda one: one[0])
    clock = Clock()
    with contextlib.ExitStack() as watched:
        for what, owner, function in (
            ("XLA", jax.stages.Lowered, "compile"),
            ("solver", scipy.optimize, "milp"),
            ("solver", scipy.optimize, "linprog"),
        ):
            watched.enter_context(clock.watching(what, owner, function))
        try:
            whole, found = seconds(lambda: auto(make(False), peak=layers.peak_bytes).plan(*args))
        except PlanError:
            return f"| {name} | none fits |"
    ours = whole - clock.spent["XLA"]
    return (
        f"| {name} | {sum(1 for _ in made.primal.walk()):,} | {jax_trace:.2f} | {tracing:.2f} "
        f"| {clock.spent['solver']:.1f} | **{ours:.1f}** | {ours / jax_trace:.0f} | {clock.spent['XLA']:.1f} "
        f"| {len(found.trials)} |"
    )


def main(*names):
    programs(*(lambda make, args: (make(False), args))(*gpt(1)))
    print("| | operations | JAX's trace | programs | solver | search | of traces | XLA | compiles |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in names or SEARCHED:
        print(searched(name), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
