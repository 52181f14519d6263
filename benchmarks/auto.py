"""Compare `auto` with one checkpoint per layer on models without names: the tables of docs/auto.md.

    python benchmarks/auto.py [cpu | "tpu v5e" | …] ["LSTM, 96 steps" …]
    python benchmarks/auto.py --times ["LSTM, 96 steps" …]
    python benchmarks/auto.py --sweep
    python benchmarks/auto.py --chains

Both variants of each model are compiled. The limit of `auto` is the compiled peak of the checkpoints, then a limit with
80 % of their temporaries. The script prints the temporaries and the recompute of both variants: FLOPs and
transcendentals in addition to those of the function without checkpoints. For a TPU, whose on-chip memory would hold all
residuals of small models, the models are wider and in bfloat16.

`--times` runs both steps alternately on this machine at the same limit, and prints the ratio of `auto`'s time to the
checkpoints': its median and quartiles. `--sweep` runs three models at twelve limits each, from the peak without a
checkpoint downward. `--chains` runs chains of 16, 64 and 256 layers at the peaks of one checkpoint per layer, of √n
segments, and of recursive checkpoints. There the recompute is counted in layers, next to the count of Revolve with as
many slots as `auto` saves values.
"""

import functools
import math
import statistics
import sys
import time

import jax
import jax.numpy as jnp
from jax import lax

from rematscope import PlanError, auto, measure


def shape(*lengths, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(lengths, dtype)


def norm(x, scale):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def attention(p, x, y, heads):
    q, k, v = ((a @ p[n]).reshape(*a.shape[:2], heads, -1).swapaxes(1, 2) for a, n in ((x, "q"), (y, "k"), (y, "v")))
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    return (weights @ v).swapaxes(1, 2).reshape(x.shape) @ p["o"]


def gpt_layer(x, p):
    y = norm(x, p["s1"])
    x = x + attention(p, y, y, 4)
    return x + jax.nn.gelu(norm(x, p["s2"]) @ p["up"]) @ p["down"]


def float32_layer(x, p):
    """A layer of a GPT in bfloat16 that computes norms and softmax in float32, with 8 heads."""

    def wide_norm(x, scale):
        return norm(x.astype(jnp.float32), 1.0).astype(x.dtype) * scale

    y = wide_norm(x, p["s1"])
    q, k, v = ((y @ p[n]).reshape(*y.shape[:2], 8, -1).swapaxes(1, 2) for n in "qkv")
    scores = (q @ k.swapaxes(-1, -2)).astype(jnp.float32) / q.shape[-1] ** 0.5
    x = x + (jax.nn.softmax(scores).astype(x.dtype) @ v).swapaxes(1, 2).reshape(x.shape) @ p["o"]
    return x + jax.nn.gelu(wide_norm(x, p["s2"]) @ p["up"]) @ p["down"]


def cross_layer(x, p):
    x = x + attention(p, norm(x, p["s1"]), p["memory"], 4)
    return x + jax.nn.gelu(norm(x, p["s2"]) @ p["up"]) @ p["down"]


def moe_layer(x, p):
    gates = jax.nn.softmax(x @ p["gate"])
    hidden = jax.nn.gelu(jnp.einsum("btd,edf->btef", norm(x, p["s1"]), p["up"]))
    return x + jnp.einsum("bte,btef,efd->btd", gates, hidden, p["down"])


def conv_layer(x, p):
    y = x
    for n in ("c1", "c2"):
        dims = ("NHWC", "HWIO", "NHWC")
        y = jax.nn.relu(norm(lax.conv_general_dilated(y, p[n], (1, 1), "SAME", dimension_numbers=dims), 1.0))
    return x + y


def mixer_layer(x, p):
    x = x + (jax.nn.gelu(norm(x, p["s1"]).swapaxes(1, 2) @ p["tokens"]) @ p["back"]).swapaxes(1, 2)
    return x + jax.nn.silu(norm(x, p["s2"]) @ p["up"]) @ p["down"]


def block_parameters(d, tokens=None, shape=shape):
    p = {n: shape(d, d) for n in "qkvo"} | {"up": shape(d, 4 * d), "down": shape(4 * d, d)}
    p |= {"s1": shape(d), "s2": shape(d)}
    return p | ({"memory": shape(*tokens)} if tokens else {})


def mixer_parameters(d, tokens, hidden, shape=shape):
    """Return the weights that a `mixer_layer` reads. A compiled plan counts unused arguments, as checkpoints do not."""
    p = {n: array for n, array in block_parameters(d, shape=shape).items() if n not in "qkvo"}
    return p | {"tokens": shape(tokens, hidden), "back": shape(hidden, tokens)}


def expert_parameters(d, shape=shape):
    return {"gate": shape(d, 4), "up": shape(4, d, d), "down": shape(4, d, d), "s1": shape(d)}


def unrolled(layer, checkpoint):
    def model(ps, x):
        for p in ps:
            x = (jax.checkpoint(layer) if checkpoint else layer)(x, p)
        return jnp.mean(x**2)

    return model


def scanned(layer, checkpoint):
    def body(x, p):
        return layer(x, p), None

    def model(ps, x):
        return jnp.mean(lax.scan(jax.checkpoint(body) if checkpoint else body, x, ps)[0] ** 2)

    return model


def stacked(p, count):
    return jax.tree.map(lambda s: shape(count, *s.shape, dtype=s.dtype), p)


def selective_layer(x, p):
    """A state space whose step depends on the input (Mamba), as an associative scan."""
    u, z = jnp.split(norm(x, p["s"]) @ p["in"], 2, -1)
    u = jax.nn.silu(u)
    step = jax.nn.softplus(u @ p["step"])[..., None]
    pair = jnp.exp(-step * jnp.exp(p["decay"])), step * (u @ p["write"])[:, :, None] * u[..., None]
    _, states = lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), pair, axis=1)
    return x + (jnp.sum(states * (u @ p["read"])[:, :, None], -1) * jax.nn.silu(z)) @ p["out"]


def lstm(checkpoint):
    def step(p, carry, x):
        h, c = carry
        i, g, f, o = jnp.split(x @ p["w"] + h @ p["u"] + p["b"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def model(p, xs):
        each = functools.partial(step, p)
        zero = jnp.zeros((xs.shape[1], p["u"].shape[0]), xs.dtype)
        return jnp.mean(lax.scan(jax.checkpoint(each) if checkpoint else each, (zero, zero), xs)[1] ** 2)

    return model


def messages(checkpoint):
    """A graph network with messages along edges. Every layer reads the edges' features and endpoints."""

    def layer(p, h, edges, ends):
        pairs = jnp.concatenate([h[ends[0]], h[ends[1]], edges], -1)
        summed = jax.ops.segment_sum(jax.nn.relu(pairs @ p["m1"]) @ p["m2"], ends[1], h.shape[0])
        return norm(h + jax.nn.relu(jnp.concatenate([h, summed], -1) @ p["u1"]) @ p["u2"], p["s"])

    def model(ps, h, edges, ends):
        for p in ps:
            h = (jax.checkpoint(layer) if checkpoint else layer)(p, h, edges, ends)
        return jnp.mean(h**2)

    return model


def unet(checkpoint):
    """A U-Net: convolutions at three resolutions, with skip connections from the encoder to the decoder."""

    def block(p, x):
        for n in ("c1", "c2"):
            dims = ("NHWC", "HWIO", "NHWC")
            y = lax.conv_general_dilated(x, p[n], (1, 1), "SAME", dimension_numbers=dims)
            x = jax.nn.silu(norm(y, 1.0))
        return x

    def model(ps, x):
        each = jax.checkpoint(block) if checkpoint else block
        skips = []
        for p in ps[:3]:
            x = each(p, x)
            skips.append(x)
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = each(ps[3], x)
        for p, skip in zip(ps[4:], skips[::-1], strict=True):
            x = each(p, jnp.concatenate([jnp.repeat(jnp.repeat(x, 2, 1), 2, 2), skip], -1))
        return jnp.mean(x**2)

    return model


def in_microbatches(checkpoint):
    """A GPT in a loop over microbatches that adds up their losses."""

    def model(ps, x):
        def part(total, x):
            return total + unrolled(gpt_layer, checkpoint)(ps, x), None

        return lax.scan(part, 0.0, x)[0]

    return model


def in_equinox(d, x):
    """A model in Equinox, whose parameters are attributes of objects."""
    import equinox as eqx

    class Layer(eqx.Module):
        attention: eqx.nn.MultiheadAttention
        norms: list
        mlp: eqx.nn.MLP

        def __init__(self, key):
            self.attention = eqx.nn.MultiheadAttention(4, d, key=key, dtype=x.dtype)
            self.norms = [eqx.nn.LayerNorm(d, dtype=x.dtype)] * 2
            self.mlp = eqx.nn.MLP(d, d, 4 * d, 1, jax.nn.gelu, key=key, dtype=x.dtype)

        def __call__(self, x):
            y = jax.vmap(self.norms[0])(x)
            x = x + self.attention(y, y, y)
            return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))

    made = eqx.filter_eval_shape(lambda: [Layer(jax.random.key(0)) for _ in range(4)])
    arrays, rest = eqx.partition(made, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def make(checkpoint):
        def model(arrays, x):
            for a, b in zip(arrays, rest, strict=True):
                layer = jax.vmap(lambda x, a, b=b: eqx.combine(a, b)(x), (0, None))
                x = (jax.checkpoint(layer) if checkpoint else layer)(x, a)
            return jnp.mean(x**2)

        return model

    return make, (arrays, x)


def in_flax(d, x):
    """The same model in Flax, with `nn.remat` as the checkpoint."""
    from flax import linen

    class Layer(linen.Module):
        @linen.compact
        def __call__(self, x):
            dense, norm = (functools.partial(kind, dtype=x.dtype) for kind in (linen.Dense, linen.LayerNorm))
            x = x + linen.MultiHeadDotProductAttention(4, dtype=x.dtype)(norm()(x))
            return x + dense(d)(linen.gelu(dense(4 * d)(norm()(x))))

    def net(checkpoint):
        kind = linen.remat(Layer) if checkpoint else Layer
        return linen.Sequential([kind(name=f"layer{i}") for i in range(4)])

    def make(checkpoint):
        return lambda variables, x: jnp.mean(net(checkpoint).apply(variables, x) ** 2)

    return make, (jax.eval_shape(net(False).init, jax.random.key(0), x), x)


D, X = 128, shape(8, 128, 128)
MODELS = {
    "GPT, 6 layers": (functools.partial(unrolled, gpt_layer), ([block_parameters(D)] * 6, X)),
    "GPT, 8 layers in a scan": (functools.partial(scanned, gpt_layer), (stacked(block_parameters(D), 8), X)),
    "cross attention, 4 layers": (
        functools.partial(unrolled, cross_layer),
        ([block_parameters(D, (8, 64, D))] * 4, X),
    ),
    "experts, 4 layers": (
        functools.partial(unrolled, moe_layer),
        ([expert_parameters(D)] * 4, X),
    ),
    "residual convolutions, 6 blocks": (
        functools.partial(unrolled, conv_layer),
        ([{n: shape(3, 3, 32, 32) for n in ("c1", "c2")}] * 6, shape(8, 28, 28, 32)),
    ),
    "mixer, 6 layers in a scan": (
        functools.partial(scanned, mixer_layer),
        (stacked(mixer_parameters(D, 128, 256), 6), X),
    ),
    "selective state spaces, 4 layers in a scan": (
        functools.partial(scanned, selective_layer),
        (
            stacked(
                {"s": shape(64), "in": shape(64, 256), "step": shape(128, 128), "out": shape(128, 64)}
                | {n: shape(128, 8) for n in ("decay", "write", "read")},
                4,
            ),
            shape(4, 64, 64),
        ),
    ),
    "LSTM, 96 steps": (lstm, ({"w": shape(64, 1024), "u": shape(256, 1024), "b": shape(1024)}, shape(96, 64, 64))),
    "messages on a graph, 6 layers": (
        messages,
        (
            [{"m1": shape(144, 128), "m2": shape(128, 64), "u1": shape(128, 128), "u2": shape(128, 64), "s": shape(64)}]
            * 6,
            shape(1024, 64),
            shape(6000, 16),
            jax.ShapeDtypeStruct((2, 6000), jnp.int32),
        ),
    ),
    "U-Net, 7 blocks": (
        unet,
        (
            [
                {"c1": shape(3, 3, i, o), "c2": shape(3, 3, o, o)}
                for i, o in ((8, 16), (16, 32), (32, 64), (64, 64), (128, 32), (64, 16), (32, 16))
            ],
            shape(8, 48, 48, 8),
        ),
    ),
    "GPT, 4 layers in 4 microbatches": (in_microbatches, ([block_parameters(D)] * 4, shape(4, 4, 128, D))),
    "Equinox, 4 layers": in_equinox(D, X),
    "Flax, 4 layers": in_flax(D, X),
}


def wide(d=1024, batch=64):
    """Models that are too large for a TPU's on-chip memory."""
    of = functools.partial(shape, dtype=jnp.bfloat16)
    x, block = of(batch, 512, d), functools.partial(block_parameters, d, shape=of)
    mixer = stacked(mixer_parameters(d, 512, d, of), 6)
    cells = {"w": of(d, 4 * d), "u": of(d, 4 * d), "b": of(4 * d)}
    return {
        "GPT, 4 layers": (functools.partial(unrolled, gpt_layer), ([block()] * 4, x)),
        "GPT, 4 layers, softmax in float32": (
            functools.partial(unrolled, float32_layer),
            ([block()] * 4, of(batch // 4, 512, d)),
        ),
        "GPT, 8 layers in a scan": (functools.partial(scanned, gpt_layer), (stacked(block(), 8), x)),
        "cross attention, 4 layers": (functools.partial(unrolled, cross_layer), ([block((batch, 256, d))] * 4, x)),
        "experts, 4 layers": (functools.partial(unrolled, moe_layer), ([expert_parameters(d, of)] * 4, x)),
        "mixer, 6 layers in a scan": (functools.partial(scanned, mixer_layer), (mixer, x)),
        "LSTM, 96 steps": (lstm, (cells, of(96, 16 * batch, d))),
        "Equinox, 4 layers": in_equinox(d, x),
        "Flax, 4 layers": in_flax(d, x),
    }


def recomputed(trace):
    """Return the recomputed FLOPs and transcendentals."""
    return trace.recompute_cost.flops + trace.recompute_cost.transcendentals


def sweep(names=("GPT, 6 layers", "GPT, 8 layers in a scan", "cross attention, 4 layers"), limits=12):
    print("| | limit | compiled | share of the limit | recomputed |\n|---|---:|---:|---:|---:|")
    for name in names:
        make, args = MODELS[name]
        plain = measure(make(False), *args)
        fixed = plain.peak_bytes - plain.temp_bytes
        for i in range(limits):
            limit = fixed + int(plain.temp_bytes * (1 - i / limits))
            try:
                found = auto(make(False), peak=limit).plan(*args)
            except PlanError:
                print(f"| {name} | {limit / 2**20:.1f} MiB | none fits | | |", flush=True)
                continue
            peak = found.measurement.peak_bytes
            print(
                f"| {name} | {limit / 2**20:.1f} MiB | {peak / 2**20:.1f} MiB | {100 * peak / limit:.0f} % "
                f"| {found.recomputed / 1e6:,.0f} M |",
                flush=True,
            )


def chain(layers, variant=None):
    """Return `layers` layers x → sin(x @ w): without a checkpoint, or with checkpoints of the given variant."""

    def run(ws, x):
        for w in ws:
            x = jnp.sin(x @ w)
        return x

    def segments(ws, x, size=None):
        size = size or math.isqrt(len(ws))
        for start in range(0, len(ws), size):
            x = jax.checkpoint(run)(ws[start : start + size], x)
        return x

    def halves(ws, x):
        if len(ws) <= 2:
            return run(ws, x)
        half = len(ws) // 2
        return halves(ws[half:], jax.checkpoint(halves)(ws[:half], x))

    each = functools.partial(segments, size=1)
    f = {None: run, "one checkpoint per layer": each, "√n segments": segments, "recursive": halves}[variant]
    return lambda ws, x: jnp.sum(f(ws, x))


def revolve(links, slots):
    """Return Revolve's number of recomputed forward steps (Griewank and Walther, 2000)."""
    repeats = next(r for r in range(links) if math.comb(slots + r, slots) >= links)
    return repeats * links - (math.comb(slots + repeats, repeats - 1) if repeats else 0) - (links - 1)


def chains():
    print("| layers | checkpoints | temporaries | `auto` | recomputed layers | `auto` | Revolve | seconds |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    state, work = 4096 * 64 * 4, 2 * 4096 * 64 * 64 + 4096 * 64  # per layer: bytes, and FLOPs plus one sine per element
    for layers in (16, 64, 256):
        args = [shape(64, 64)] * layers, shape(4096, 64)
        for variant in ("one checkpoint per layer", "√n segments", "recursive"):
            measured = measure(chain(layers, variant), *args)
            start = time.perf_counter()
            try:
                found = auto(chain(layers), peak=measured.peak_bytes).plan(*args)
                row = [f"{found.measurement.temp_bytes / 2**20:.1f} MiB", f"{found.recomputed / work:.0f}"]
                row.append(revolve(layers + 1, found.saved_bytes // state))  # states between matmuls, and both ends
            except PlanError:
                row = ["none fits", "", ""]
            seconds = time.perf_counter() - start
            print(
                f"| {layers} | {variant} | {measured.temp_bytes / 2**20:.1f} MiB | {row[0]} "
                f"| {recomputed(measured.trace) / work:.0f} | {row[1]} | {row[2]} | {seconds:.0f} |",
                flush=True,
            )


def filled(shapes):
    """Return arrays of these shapes: small random values, and consecutive integers for integer dtypes."""

    def fill(i, leaf):
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jax.random.randint(jax.random.key(i), leaf.shape, 0, 1000, leaf.dtype)
        return 0.1 * jax.random.normal(jax.random.key(i), leaf.shape, leaf.dtype)

    leaves, tree = jax.tree.flatten(shapes)
    return jax.tree.unflatten(tree, [fill(i, leaf) for i, leaf in enumerate(leaves)])


def times(*names, repeats=21):
    print("| | `auto`'s step, of the checkpoints' | quartiles | seconds to find |\n|---|---:|---:|---:|")
    for name in names or MODELS:
        make, args = MODELS[name]
        start = time.perf_counter()
        try:
            found = auto(make(False), peak=measure(make(True), *args).peak_bytes).plan(*args)
        except PlanError:
            print(f"| {name} | none fits | | |", flush=True)
            continue
        seconds = time.perf_counter() - start
        arrays = filled(args)
        wanted = tuple(
            i for i, arg in enumerate(args) if all(jnp.issubdtype(a.dtype, jnp.floating) for a in jax.tree.leaves(arg))
        )
        steps = [jax.jit(jax.value_and_grad(f, wanted)) for f in (found.function, make(True))]
        taken = [[], []]
        for repeat in range(repeats + 1):
            for step, each in zip(steps, taken, strict=True):
                start = time.perf_counter()
                jax.block_until_ready(step(*arrays))
                each += [time.perf_counter() - start] if repeat else []  # the first iteration compiles
        low, middle, high = statistics.quantiles(a / b for a, b in zip(*taken, strict=True))
        print(f"| {name} | {middle:.2f} | {low:.2f}…{high:.2f} | {seconds:.0f} |", flush=True)


def main(target="cpu", *names):
    print(f"| {target} | temporaries, one checkpoint per layer | `auto` | recomputed | `auto` | seconds |")
    print("|---|---:|---:|---:|---:|---:|")
    models = MODELS if target == "cpu" else wide()
    for name in names or models:
        make, args = models[name]
        layers = measure(make(True), *args, target=target)
        work = recomputed(layers.trace)
        for part in (1, 0.8):
            start = time.perf_counter()
            limit = layers.peak_bytes - int((1 - part) * layers.temp_bytes)
            try:
                found = auto(make(False), peak=limit, target=target).plan(*args)
                row = [f"{found.measurement.temp_bytes / 2**20:.1f} MiB", f"{found.recomputed / 1e6:,.0f} M"]
            except PlanError:
                row = ["none fits", ""]
            seconds = time.perf_counter() - start
            print(
                f"| {name}, {100 * part:.0f} % | {layers.temp_bytes / 2**20:.1f} MiB | {row[0]} | {work / 1e6:,.0f} M "
                f"| {row[1]} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--times"]:
        times(*sys.argv[2:])
    else:
        {"--sweep": sweep, "--chains": chains}.get(sys.argv[-1], functools.partial(main, *sys.argv[1:]))()
