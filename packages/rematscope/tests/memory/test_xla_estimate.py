"""The peak predicted from the trace, compared with the bytes that XLA allocates on a CPU, for several models."""

import functools

import jax
import jax.numpy as jnp
import meshes
import optax
import optax.contrib
import pytest
from compiled_programs import array
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from releases import since
from sampling import sampled

from rematscope import measure, trace
from rematscope.ir.program import Literal
from rematscope.memory.xla_estimate.cpu_schedule import thunk_order
from rematscope.memory.xla_estimate.estimate import allocations
from rematscope.memory.xla_estimate.hlo_rewrites import rewrite_as_hlo


def normed(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def block(p, x, heads=4):
    batch, length, width = x.shape
    q, k, v = jnp.split(normed(x) @ p["qkv"], 3, -1)
    q, k, v = (t.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3) for t in (q, k, v))
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), q @ k.swapaxes(-1, -2), -1e9)
    y = jax.nn.softmax(scores, -1) @ v
    x = x + y.transpose(0, 2, 1, 3).reshape(x.shape) @ p["out"]
    return x + jax.nn.gelu(normed(x) @ p["up"]) @ p["down"]


def transformer(width, batch, length, layers=2, wrap=lambda f: f):
    def loss(layers, x):
        return jnp.mean(lax.scan(lambda x, p: (wrap(block)(p, x), None), x, layers)[0] ** 2)

    sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    return loss, {name: array(layers, *size) for name, size in sizes.items()}, array(batch, length, width)


def language_model(words, width, batch, length):
    """A model with tied embeddings. The gradient of the loss is scattered into the embedding matrix."""
    loss_of, layers, _ = transformer(width, batch, length, layers=1, wrap=jax.checkpoint)

    def loss(p, tokens):
        x = p["words"][tokens] + loss_of(p["layers"], p["words"][tokens])
        logits = x @ p["words"].T
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()

    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    return loss, {"words": array(words, width), "layers": layers}, tokens


def convolved(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def resnet(width, batch, side):
    def loss(blocks, x):
        for first, second in blocks:
            y = convolved(x, first)
            y = jax.nn.relu((y - y.mean((0, 1, 2))) * lax.rsqrt(y.var((0, 1, 2)) + 1e-5))
            x = jax.nn.relu(x + convolved(y, second))
        return jnp.mean(x**2)

    return loss, [(array(3, 3, width, width),) * 2] * 2, array(batch, side, side, width)


def depthwise(width, batch, side):
    """Convolutions of each feature by itself, as in ConvNeXt, with a matmul after each."""

    def loss(layers, x):
        for kernel, w in layers:
            numbers = ("NHWC", "HWIO", "NHWC")
            y = lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=width
            )
            x = x + jnp.tanh(y @ w)
        return jnp.mean(x**2)

    return loss, [(array(7, 7, 1, width), array(width, width))] * 2, array(batch, side, side, width)


def pooled(width, batch, side):
    """Each layer has a max pooling of four elements, and the last an average pooling."""

    def loss(layers, x):
        for w in layers:
            x = lax.reduce_window(jax.nn.relu(convolved(x, w)), -jnp.inf, lax.max, *((1, 2, 2, 1),) * 2, "VALID")
        return jnp.mean(lax.reduce_window(x, 0.0, lax.add, *((1, 2, 2, 1),) * 2, "VALID") ** 2)

    return loss, [array(3, 3, width, width)] * 2, array(batch, side, side, width)


def generator(width, batch, side):
    """Transposed convolutions that double the sides, each followed by a normalization with a scale."""

    def loss(layers, x):
        for w, scale in layers:
            x = lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.leaky_relu(normed(x) * scale)
        return jnp.mean((jnp.tanh(x) - 0.5) ** 2)

    return loss, [(array(4, 4, width, width), array(width))] * 2, array(batch, side, side, width)


def recurrent(outer, inner, batch, width):
    def loss(p, xs):
        def cell(h, x):
            h = jnp.tanh(h @ p["w"] + x @ p["u"])
            return h, h

        return jnp.mean(
            lax.scan(jax.checkpoint(lambda h, xs: lax.scan(cell, h, xs)), jnp.zeros((batch, width)), xs)[1] ** 2
        )

    return loss, {name: array(width, width) for name in "wu"}, array(outer, inner, batch, width)


def in_turns(steps, unroll, batch, width):
    """A reversed recurrent model: some steps are unrolled in the loop's body, and others follow the loop."""

    def loss(p, xs):
        def cell(h, x):
            h = jnp.tanh(h @ p["w"] + x @ p["u"])
            return h, h

        start = jnp.zeros((batch, width))
        return jnp.mean(lax.scan(jax.checkpoint(cell), start, xs, unroll=unroll, reverse=True)[1] ** 2)

    return loss, {name: array(width, width) for name in "wu"}, array(steps, batch, width)


def between_numbers(steps, width):
    """Arrays with equal elements that a loop reads."""

    def loss(ws, x):
        low, high, one = (lax.full((width, width), number) for number in (-0.5, 0.5, 1.0))

        def turn(x, w):
            y = x @ w
            return lax.select(y > one, low, lax.select(y < low, high, y)), None

        return jnp.sum(lax.scan(turn, x, ws)[0])

    return loss, array(steps, width, width), array(width, width)


def spectral(width, batch, side, modes=6, layers=2):
    """Matmuls of frequencies, and a last matmul whose derivative contracts an axis of length 1."""

    def mixed(p, x):
        found = jnp.fft.rfft2(x, axes=(1, 2))
        low = jnp.einsum("bxyi,xyio->bxyo", found[:, :modes, :modes], p["real"] + 1j * p["imaginary"])
        found = jnp.zeros_like(found).at[:, :modes, :modes].set(low)
        return jnp.fft.irfft2(found, s=x.shape[1:3], axes=(1, 2)) + x @ p["w"]

    def loss(p, x):
        for layer in p["layers"]:
            x = jax.nn.gelu(mixed(layer, x))
        return jnp.mean((x @ p["out"] - 0.5) ** 2)

    frequencies = array(modes, modes, width, width)
    layer = {"real": frequencies, "imaginary": frequencies, "w": array(width, width)}
    return loss, {"layers": [layer] * layers, "out": array(width, 1)}, array(batch, side, side, width)


def attended_edges(nodes, edges, width, heads=4, layers=2):
    """Attention over a graph's edges: values are gathered and summed, and so are their derivatives."""

    def layer(p, x, sender, receiver):
        h = (x @ p["w"]).reshape(nodes, heads, width // heads)
        scores = jax.nn.leaky_relu((h[sender] * p["a"]).sum(-1) + (h[receiver] * p["b"]).sum(-1))
        weights = jnp.exp(scores - jax.ops.segment_max(scores, receiver, nodes)[receiver])
        weights = weights / (jax.ops.segment_sum(weights, receiver, nodes)[receiver] + 1e-9)
        return jax.nn.elu(jax.ops.segment_sum(h[sender] * weights[..., None], receiver, nodes).reshape(nodes, width))

    def loss(ps, x, ends):
        for p in ps:
            x = layer(p, x, *ends)
        return jnp.mean(x**2)

    sizes = {"w": (width, width), "a": (heads, width // heads), "b": (heads, width // heads)}
    ends = jax.ShapeDtypeStruct((2, edges), jnp.int32)
    return loss, [{name: array(*size) for name, size in sizes.items()}] * layers, array(nodes, width), ends


def adapted(tasks, points, width):
    """Weights that an inner gradient step adapts to each task: matmuls of rows and of batches read the same weights."""

    def error(p, x):
        y = jax.nn.relu(jax.nn.relu(x @ p["in"]) @ p["hidden"]) @ p["out"]
        return jnp.mean((y - jnp.sin(x)) ** 2)

    def loss(p, xs):
        def task(x):
            return error(jax.tree.map(lambda w, g: w - 0.01 * g, p, jax.grad(error)(p, x)), x)

        return jnp.mean(jax.vmap(task)(xs))

    sizes = {"in": (1, width), "hidden": (width, width), "out": (width, 1)}
    return loss, {name: array(*size) for name, size in sizes.items()}, array(tasks, points, 1)


def private(rows, width):
    """Gradients per example, each clipped to norm 1 before they are summed."""

    def error(ws, x):
        for w in ws:
            x = jnp.tanh(x @ w)
        return jnp.sum(x**2)

    def step(ws, xs):
        each = jax.vmap(jax.grad(error), (None, 0))(ws, xs)
        norms = jnp.sqrt(sum(jnp.sum(g**2, (1, 2)) for g in each))
        return [w - jnp.tensordot(1 / jnp.maximum(norms, 1), g, 1) for w, g in zip(ws, each, strict=True)]

    return jax.jit(step), [array(width, width), array(width, 4)], array(rows, width)


def associative(length, width):
    """A linear recurrence as an associative scan, which slices out and interleaves every second element."""

    def loss(a, b):
        def step(first, then):
            return first[0] * then[0], then[0] * first[1] + then[1]

        return jnp.sum(jnp.sin(lax.associative_scan(step, (a, b))[1]))

    return loss, array(length, width), array(length, width)


def experts(count, tokens, width, hidden):
    def loss(p, x):
        expert = jnp.argmax(x @ p["route"], -1)
        order, sizes = jnp.argsort(expert), jnp.bincount(expert, length=count)
        y = lax.ragged_dot(jax.nn.silu(lax.ragged_dot(x[order], p["up"], sizes)), p["down"], sizes)
        return jnp.mean((x + jnp.zeros_like(x).at[order].set(y)) ** 2)

    sizes = {"route": (width, count), "up": (count, width, hidden), "down": (count, hidden, width)}
    return loss, {name: array(*size) for name, size in sizes.items()}, array(tokens, width)


def quotients(layers, rows, width):
    """Each layer is divided by a root per row, and then by a root of a broadcast array."""

    def loss(ws, x):
        for w in ws:
            x = jax.nn.relu(x @ w)
            x = jax.nn.relu((x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5))
            x = x * lax.rsqrt(jnp.broadcast_to(jnp.mean(x**2, -1, keepdims=True), x.shape) + 1e-5)
        return jnp.mean(x**2)

    return loss, [array(width, width)] * layers, array(rows, width)


def points(clouds, count, width):
    """The maximum over each point cloud. Its derivative is divided among equal elements."""

    def loss(ws, x):
        for w, b in ws:
            x = jax.nn.relu(x) @ w + b
        return jnp.mean(x.max(1) ** 2)

    sizes = [(width, 2 * width), (2 * width, 8 * width)]
    return loss, [(array(*size), array(size[1])) for size in sizes], array(clouds, count, width)


def tied(words, width, batch, length):
    """One embedding matrix for two sequences and the logits, which have a bias and a z-loss, except the last."""

    def loss(p, first, second):
        x = jnp.tanh(p["words"][first] + p["words"][second])
        logits = (x @ p["words"].T + p["bias"])[:, :-1]
        small = 1e-4 * jnp.mean(jax.nn.logsumexp(logits, -1) ** 2)
        return optax.softmax_cross_entropy_with_integer_labels(logits, first[:, 1:]).mean() + small

    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    return loss, {"words": array(words, width), "bias": array(words)}, tokens, tokens


def perceptron(layers, rows, width, activation=jax.nn.gelu):
    def loss(ws, x):
        for w in ws:
            x = activation(x @ w)
        return jnp.mean(x**2)

    return loss, [array(width, width)] * layers, array(rows, width)


def dropped(layers, rows, width):
    """A random mask for each layer, from a key that is an argument."""

    def loss(ws, x, key):
        for i, w in enumerate(ws):
            keep = jax.random.bernoulli(jax.random.fold_in(key, i), 0.9, x.shape)
            x = x + jax.nn.gelu(jnp.where(keep, x, 0) @ w)
        return jnp.mean(x**2)

    return loss, [array(width, width)] * layers, array(rows, width), jax.eval_shape(lambda: jax.random.key(0))


def halves(layers, rows, width):
    def loss(layers, x):
        for p in layers:
            x = x + (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]
        return jnp.mean(x.astype(jnp.float32) ** 2)

    sizes = {"gate": (width, 3 * width), "up": (width, 3 * width), "down": (3 * width, width)}
    half = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.bfloat16)
    return loss, [{name: half(size) for name, size in sizes.items()}] * layers, half((rows, width))


def physics(width, points):
    """A model whose derivatives are in the loss, so the loss contains the model four times."""

    def net(p, t, x):
        return jnp.tanh(jnp.tanh(jnp.stack([t, x]) @ p["in"]) @ p["hidden"]) @ p["out"]

    def loss(p, t, x):
        def residual(t, x):
            slope = jax.grad(net, 2)
            return jax.grad(net, 1)(p, t, x) + net(p, t, x) * slope(p, t, x) - 0.01 * jax.grad(slope, 2)(p, t, x)

        return jnp.mean(jax.vmap(residual)(t, x) ** 2)

    return (
        loss,
        {"in": array(2, width), "hidden": array(width, width), "out": array(width)},
        array(points),
        array(points),
    )


def stepping(loss, parameters, batch, donate, optimizer=None):
    optimizer = optimizer or optax.adam(1e-3)

    def step(parameters, state, x):
        updates, state = optimizer.update(jax.grad(loss)(parameters, x), state, parameters)
        return optax.apply_updates(parameters, updates), state

    return jax.jit(step, donate_argnums=(0, 1) * donate), parameters, jax.eval_shape(optimizer.init, parameters), batch


def preferred(words, width, length, layers=4):
    """A preference loss of two sequences, each through a scan that stacks gradients, which are scattered into zeros."""

    def likelihood(p, tokens):
        x = lax.scan(lambda x, w: (jnp.tanh(x @ w), None), p["words"][tokens], p["layers"])[0]
        found = jax.nn.log_softmax(x @ p["words"].T)
        return jnp.take_along_axis(found, tokens[:, None], -1).sum()

    def loss(p, pair):
        return jax.nn.softplus(likelihood(p, pair[1]) - likelihood(p, pair[0]))

    parameters = {"words": array(words, width), "layers": array(layers, width, width)}
    return loss, parameters, jax.ShapeDtypeStruct((2, length), jnp.int32)


def followed(layers, rows, width):
    """A model is trained on the predictions of a second model, whose weights are a moving average of the first's."""
    _, parameters, x = perceptron(layers, rows, width)

    def said(ws, x):
        for w in ws:
            x = jax.nn.relu(x @ w)
        return x.sum(-1)

    def step(ws, others, x, reward):
        wanted = jax.lax.stop_gradient(reward + 0.9 * said(others, x) * reward)
        gradients = jax.grad(lambda ws: jnp.mean((said(ws, x) - wanted) ** 2))(ws)
        norm = optax.tree.norm(gradients)
        ws = jax.tree.map(lambda w, g: w - g / (1 + norm), ws, gradients)
        return ws, jax.tree.map(lambda o, w: 0.99 * o + 0.01 * w, others, ws)

    return jax.jit(step, donate_argnums=(0, 1)), parameters, parameters, x, array(rows)


def divided(step, parameters, state, batch):
    """The step on eight devices: each has 1/8 of the batch and of every matrix's rows, and gathers the other rows."""
    over = meshes.mesh(d=8)

    def like(leaf, *spec):
        sharding = NamedSharding(over, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    def rows(tree):
        return jax.tree.map(lambda leaf: like(leaf, *(None,) * (len(leaf.shape) - 2), "d"), tree)

    def on_devices(parameters, state, batch):
        batch = jax.lax.with_sharding_constraint(batch, NamedSharding(over, PartitionSpec("d")))
        results = step(parameters, state, batch)
        return jax.tree.map(lambda x, like: lax.with_sharding_constraint(x, like.sharding), results, given)

    given = rows(parameters), jax.tree.map(lambda leaf: rows(leaf) if leaf.shape else like(leaf), state)
    return on_devices, *given, like(batch, "d")


CLIPPED = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
IF_FINITE = optax.apply_if_finite(optax.adamw(1e-3), 3)
MODELS = {
    "transformer": transformer(64, 4, 64),
    "language_model": language_model(2048, 32, 4, 64),
    "resnet": resnet(16, 4, 16),
    "small_sides": resnet(64, 4, 2),
    "private": private(64, 64),
    "depthwise": depthwise(64, 2, 6),
    "pooled": pooled(16, 4, 32),
    "generator": generator(16, 8, 8),
    "nested_rnn": recurrent(4, 16, 32, 64),
    "in_turns": in_turns(42, 4, 32, 64),
    "spectral": spectral(16, 4, 24),
    "attended_edges": attended_edges(256, 2048, 64),
    "adapted": adapted(16, 64, 32),
    "associative": associative(16, 4096),
    "experts": experts(4, 512, 64, 128),
    "dropped": dropped(2, 1024, 64),
    "halves": halves(3, 512, 64),
    "physics": physics(64, 1024),
    "perceptron": perceptron(4, 1024, 64),
    "exact": perceptron(4, 1024, 64, functools.partial(jax.nn.gelu, approximate=False)),
    "quotients": quotients(3, 1024, 64),
    "points": points(32, 32, 16),
    "tied": tied(1024, 32, 4, 64),
    "step": stepping(*transformer(64, 4, 64, wrap=jax.checkpoint), donate=False),
    "step_divided": divided(*stepping(*perceptron(4, 4096, 128), donate=False)),
    "step_donated": stepping(*perceptron(4, 1024, 64), donate=True),
    # Most bytes are parameters: copies of them, and the reuse of their buffers, decide.
    "step_lion": stepping(*perceptron(4, 16, 256), donate=True, optimizer=optax.lion(1e-4)),
    "step_muon": stepping(*perceptron(2, 16, 256), donate=True, optimizer=optax.contrib.muon(1e-3)),
    "step_clipped": stepping(*perceptron(4, 16, 256), donate=True, optimizer=CLIPPED),
    "step_accumulated": stepping(*perceptron(4, 16, 256), donate=True, optimizer=optax.MultiSteps(CLIPPED, 4)),
    "step_if_finite": stepping(*perceptron(4, 16, 256), donate=True, optimizer=IF_FINITE),
    "numbers": between_numbers(4, 256),
    "step_followed": followed(3, 16, 256),
    "step_preferred": stepping(*preferred(1024, 128, 256), donate=True),
}


@functools.cache
def measured(name):
    return measure(*MODELS[name])


@pytest.mark.slow
@since("0.11", "XLA on a CPU keeps unrolled checkpoints, and writes less of a loss over many words")
@pytest.mark.parametrize("name", sampled(list(MODELS), 6))
def test_the_peak_predicted_is_near_the_compiled_one(name):
    found = measured(name)
    (row,) = [row for row in found.rows if row.metric == "peak"]
    assert row.predicted == found.predicted_peak_bytes
    print(f"{name}: {row.predicted:,} predicted, {row.compiled:,} compiled, {100 * row.error:+.1f} %")
    assert abs(row.error) < 0.1


@pytest.mark.slow
def test_differences_of_a_cpus_programs_are_stated():
    assert "ragged_dot becomes a dense matmul" in " ".join(str(measured("experts")).split())
    assert not any("ragged_dot" in note for note in measured("perceptron").warnings)


def test_a_loops_input_and_output_tuples_take_two_more_steps_of_the_schedule():
    def f(w, x):
        late = lax.scan(lambda h, _: (jnp.sin(h), None), x, length=4)[0] @ w
        return late, x @ w @ w @ w @ w

    equations = trace(f, array(8, 8), array(8, 8)).forward.equations
    order = thunk_order(
        equations, (), lambda e: [[v] for v in e.inputs if not isinstance(v, Literal)], in_backward_body=False
    )
    found = [e.primitive for e in order if e.primitive in ("scan", "dot_general")]
    (loop,) = (e for e in order if e.primitive == "scan")
    (late,) = (e for e in order if e.primitive == "dot_general" and not set(loop.outputs).isdisjoint(e.inputs))
    assert found.index("scan") == 1  # its tuple takes the first step, like the first of four matmuls
    assert [e for e in order if e.primitive in ("scan", "dot_general")].index(late) >= 4


def test_buffers_of_equal_size_and_start_are_in_the_order_of_their_definition():
    def f(x):
        def body(x, _):
            return jnp.sin(x), tuple(jnp.cos(x + i) for i in range(16))

        return sum(jnp.sum(jnp.sin(stack)) for stack in lax.scan(body, x, length=4)[1])

    passes = trace(f, array(8, 8))
    (loop,) = (equation for equation in passes.forward.equations if equation.primitive == "scan")
    stacks = [each.value.name for each in allocations(passes).temporaries if each.start == 0]
    assert stacks == [value.name for value in loop.outputs if value.name in stacks] and len(stacks) > 30


@pytest.mark.parametrize(("dtype", "becomes"), [(jnp.float32, "select_n"), (jnp.bfloat16, "mul")])
def test_a_multiplication_by_a_mask_is_a_select_unless_it_is_widened(dtype, becomes):
    passes = trace(lambda x: x * (x > 0).astype(x.dtype), jax.ShapeDtypeStruct((8, 8), dtype))
    (product,) = (e for e in rewrite_as_hlo(passes.forward, "cpu").equations if e.outputs == passes.outputs)
    assert product.primitive == becomes
