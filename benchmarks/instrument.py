"""Time rematscope's views in units of JAX's own trace of the model: `python benchmarks/instrument.py`.

All views run in this process, one after the other, on a 12-layer transformer (d = 1024, 8 × 512 tokens, float32, layers
unrolled). JAX's caches are cleared before each call that traces, and the call's time includes JAX's own tracing. The
ratios should hold on other machines too. `--quick` leaves out the original view, which runs the model and needs 13 GB.
`--layers 4 16 64 256` shows instead how the times grow with the number of layers (narrow ones, since the shapes do not
matter); with `--flax`, the layers are Flax modules, which have a third more equations each.
(The file is not called inspect.py because that would hide Python's own module.)
"""

import argparse
import contextlib
import functools
import gc
import io
import resource
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import rich.text
from jax import lax
from jax.ad_checkpoint import checkpoint_name, print_saved_residuals
from rich.console import Console
from rich.table import Table

from rematscope import ResidualTable, SideBySide, lint, liveness, plan, print_fwd_bwd, trace
from rematscope.render.view import plain_text

LAYERS, D, HEADS, BATCH, TOKENS = 12, 1024, 16, 8, 512
REPEATS = 5


def norm(x, scale):
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale


def attention(p, x, heads):
    batch, tokens, d = x.shape
    q, k, v = ((x @ p[name]).reshape(batch, tokens, heads, d // heads) for name in ("q", "k", "v"))
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // heads) ** -0.5
    causal = lax.broadcasted_iota(jnp.int32, (tokens, tokens), 0) >= lax.broadcasted_iota(
        jnp.int32, (tokens, tokens), 1
    )
    weights = jax.nn.softmax(jnp.where(causal, logits, -1e9))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ p["out"]


def block(p, x, heads):
    x = x + attention(p, norm(x, p["norm1"]), heads)
    return x + jax.nn.gelu(norm(x, p["norm2"]) @ p["up"]) @ p["down"]


def block_shapes(d, hidden, layers=()):
    shapes = {"q": (d, d), "k": (d, d), "v": (d, d), "out": (d, d), "up": (d, hidden), "down": (hidden, d)}
    shapes |= {"norm1": (d,), "norm2": (d,)}
    return {name: jax.ShapeDtypeStruct((*layers, *shape), jnp.float32) for name, shape in shapes.items()}


def unrolled(params, x):
    for p in params:
        x = block(p, x, HEADS)
    return jnp.mean(x * x)


def scanned(heads):
    def loss(params, x):
        x, _ = lax.scan(jax.checkpoint(lambda x, p: (block(p, x, heads), None)), x, params)
        return jnp.mean(x * x)

    return loss


MODEL = ([block_shapes(D, 4 * D)] * LAYERS, jax.ShapeDtypeStruct((BATCH, TOKENS, D), jnp.float32))


# What is measured.


def trace_vjp_and_pullback(f, *args):
    """Trace both passes to jaxprs, the minimum that any view needs."""
    jaxpr, (out, pullback) = jax.make_jaxpr(lambda *args: jax.vjp(f, *args), return_shape=True)(*args)
    return jaxpr, jax.make_jaxpr(lambda pullback, ct: pullback(ct))(pullback, out)


def seed_print_fwd_bwd(f, *args, **kwargs) -> None:
    """Show the view that this project grew from, as published except for its patch of rich; it runs `f`."""
    args, in_tree = jax.tree.flatten((args, kwargs))

    def f_(*args):
        args, kwargs = jax.tree.unflatten(in_tree, args)
        return f(*args, **kwargs)

    fwd = jax.make_jaxpr(lambda *args: jax.vjp(f_, *args))(*args).jaxpr
    y, f_vjp = jax.vjp(f_, *args)
    res, in_tree = jax.tree.flatten(f_vjp)

    def g_(*args):
        *res, y = args
        f_vjp = jax.tree.unflatten(in_tree, res)
        return f_vjp(y)

    bwd = jax.make_jaxpr(g_)(*res, y).jaxpr

    table = Table(show_header=False, show_lines=True, padding=(1, 2, 0, 2), box=None)
    table.add_row("[bold green]forward computation:", "[bold green]backward computation:")
    table.add_row(rich.text.Text.from_ansi(str(fwd)), rich.text.Text.from_ansi(str(bwd)))
    Console(width=240).print(table)


def seconds(run, clock=time.perf_counter) -> float:
    jax.clear_caches()
    gc.collect()  # do not time the cleanup of the previous run
    start = clock()
    run()
    return clock() - start


def median_times(*runs, rounds=REPEATS) -> list[float]:
    """Return the median time of each of `runs`, measured round-robin so that a busy machine slows all equally."""
    times = [[seconds(run) for run in runs] for _ in range(rounds)]
    return list(map(statistics.median, zip(*times, strict=True)))


def silently(show, *args):
    def run():
        with contextlib.redirect_stdout(io.StringIO()):
            show(*args)

    return run


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes; macOS counts in bytes, Linux in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def with_names(count):
    """Return a model of so many layers, each with a name, and the shapes of its arguments."""

    def loss(params, x):
        for p in params:
            x = checkpoint_name(block(p, x, 4), "x")
        return jnp.mean(x * x)

    return loss, [block_shapes(64, 256)] * count, jax.ShapeDtypeStruct((2, 16, 64), jnp.float32)


def of_flax(count):
    """Return a Flax model of so many layers, and the shapes of its arguments."""
    from flax import linen

    class Layer(linen.Module):
        @linen.compact
        def __call__(self, x):
            y = linen.LayerNorm()(x)
            x = x + linen.MultiHeadDotProductAttention(4)(y, mask=linen.make_causal_mask(x[..., 0]))
            return x + linen.Dense(64)(linen.gelu(linen.Dense(256)(linen.LayerNorm()(x))))

    net, x = linen.Sequential([Layer() for _ in range(count)]), jax.ShapeDtypeStruct((2, 16, 64), jnp.float32)
    return lambda params, x: jnp.mean(net.apply(params, x) ** 2), jax.eval_shape(net.init, jax.random.key(0), x), x


def growth(model, counts) -> None:
    """Print each view's processor time and number of lines at 80 columns, for a growing number of layers."""
    took = functools.partial(seconds, clock=time.process_time)
    columns = ["layers", "equations", "JAX", "trace", "text", "lines", "page", "table", "lines", "liveness"]
    table = Table(*columns, "lint", "plan", box=None, title="seconds of processor time")

    for count in counts:
        loss, *args = model(count)
        jax_alone = took(silently(trace_vjp_and_pullback, loss, *args))
        traced = took(silently(trace, loss, *args))
        passes = trace(loss, *args)
        equations = sum(1 for program in (passes.forward, passes.backward) for _ in program.walk())
        row = [str(count), f"{equations:,}", f"{jax_alone:.2f}", f"{traced:.2f}"]
        for view in (SideBySide(passes), ResidualTable(passes)):
            row.append(f"{took(lambda view=view: plain_text(view, 80)):.2f}")
            row.append(str(len(plain_text(view, 80).splitlines())))
            if isinstance(view, SideBySide):
                row.append(f"{took(view.html):.2f}")
        row.append(f"{took(silently(liveness, loss, *args)):.2f}")
        row += [f"{took(silently(look, loss, *args)):.1f}" for look in (lint, functools.partial(plan, saved=1.0))]
        table.add_row(*row)
    Console(width=110).print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out the seed's view, which runs the model")
    parser.add_argument("--layers", nargs="+", type=int, metavar="N", help="show how all of it grows with these")
    parser.add_argument("--flax", action="store_true", help="layers that are modules of Flax")
    asked = parser.parse_args()
    if asked.layers:
        return growth(of_flax if asked.flax else with_names, asked.layers)
    quick = asked.quick

    view = silently(print_fwd_bwd, unrolled, *MODEL)
    silently(print_fwd_bwd, jnp.sin, 1.0)()  # load modules that are imported on first use
    before = peak_bytes()
    runs = {
        "jax.make_jaxpr of jax.vjp and its pullback": silently(trace_vjp_and_pullback, unrolled, *MODEL),
        "rematscope.trace": silently(trace, unrolled, *MODEL),
        "print_saved_residuals": silently(print_saved_residuals, unrolled, *MODEL),
        "rematscope.print_fwd_bwd": view,
    }
    times = dict(zip(runs, median_times(*runs.values()), strict=True))
    grown, arrays = peak_bytes() - before, sum(a.nbytes for a in jax.live_arrays())
    base, traced, _, viewed = times.values()
    weights = sum(s.size * s.dtype.itemsize for s in jax.tree.leaves(MODEL))

    # A transformer of the size of Llama 70B (80 layers, d = 8192, 64 heads, 28672 hidden) and a small one.
    big = (block_shapes(8192, 28672, (80,)), jax.ShapeDtypeStruct((8, 4096, 8192), jnp.float32))
    tiny = (block_shapes(16, 64, (80,)), jax.ShapeDtypeStruct((2, 8, 16), jnp.float32))
    runs = {"trace, Llama-70B-sized": (scanned(64), *big), "trace, tiny": (scanned(4), *tiny)}
    scans = median_times(*(silently(trace, *arguments) for arguments in runs.values()), rounds=5 * REPEATS)
    huge, small = scans
    times |= zip(runs, scans, strict=True)

    if not quick:
        concrete = jax.tree.map(lambda s: 0.02 * jax.random.normal(jax.random.key(0), s.shape), MODEL)
        jax.block_until_ready(concrete)
        times["seed's print_fwd_bwd"] = seconds(silently(seed_print_fwd_bwd, unrolled, *concrete))

    table = Table("", "seconds", "× jax.make_jaxpr", box=None)
    for name, duration in times.items():
        table.add_row(name, f"{duration:.3f}", f"{duration / base:.2f}")
    for column in table.columns[1:]:
        column.justify = "right"
    console = Console(width=100)
    console.print(table)
    console.print()

    met = [
        _print_verdict(console, "trace / jax's own tracing", traced / base, "at most", 3),
        _print_verdict(console, "trace, Llama-70B-sized / tiny, 80 layers in a scan", huge / small, "at most", 1.2),
        _print_verdict(console, "peak memory grown / bytes of the model", grown / weights, "at most", 0.1),
        _print_verdict(console, "bytes of arrays alive / bytes of the model", arrays / weights, "at most", 0.001),
    ]
    if not quick:
        seed = times["seed's print_fwd_bwd"]
        met.append(_print_verdict(console, "seed's print_fwd_bwd / rematscope's", seed / viewed, "at least", 50))
    return 0 if all(met) else 1


def _print_verdict(console, what, figure, bound, target) -> bool:
    met = figure <= target if bound == "at most" else figure >= target
    console.print(f"{'met   ' if met else 'MISSED'}  {what}: {figure:.3g} ({bound} {target})", highlight=False)
    return met


if __name__ == "__main__":
    sys.exit(main())
