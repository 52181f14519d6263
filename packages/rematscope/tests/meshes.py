"""Layers on meshes of eight devices, as trainers write them: each for any policy of its checkpoints."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

POLICIES = {
    "nothing": jax.checkpoint_policies.nothing_saveable,
    "names": jax.checkpoint_policies.save_only_these_names("h", "gathered", "summed"),
}


def mesh(kind=AxisType.Auto, **axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(kind,) * len(axes))


def like(over, *spec, shape, dtype=np.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(over, P(*spec)))


def gathered(w, axis="d", at=0):
    return checkpoint_name(lax.all_gather(w, axis, axis=at, tiled=True), "gathered")


def varying(x, axis):
    """Return a carry that varies over devices from the start, as JAX requires."""
    return lax.pcast(x, axis, to="varying") if hasattr(lax, "pcast") else lax.pvary(x, axis)


def mlp(w1, w2, x):
    return jax.nn.gelu(checkpoint_name(x @ w1, "h")) @ w2


def sharded_mlp(wrap, over, **options):
    """Return an MLP whose weights are sharded over the axis d and gathered where they are used, and its arguments."""

    def body(w1, w2, x):
        layer = wrap(lambda w1, w2, x: x + mlp(gathered(w1), gathered(w2), x))
        return lax.pmean(jnp.mean(layer(w1, w2, x) ** 2), "d")

    f = jax.shard_map(body, mesh=over, in_specs=P("d"), out_specs=P(), **options)
    return f, [like(over, "d", shape=shape) for shape in ((16, 64), (64, 16), (8, 4, 16))]


def fsdp(wrap):
    return sharded_mlp(wrap, mesh(d=8))


def fsdp_layers(wrap, layers=3, width=16, batch=8):
    """A stack of such layers, in a scan."""
    over = mesh(d=8)

    def body(ws, us, x):
        layer = wrap(lambda w1, w2, x: x + mlp(gathered(w1), gathered(w2), x))
        x, _ = lax.scan(lambda x, w: (layer(*w, x), None), x, (ws, us))
        return lax.pmean(jnp.mean(x**2), "d")

    f = jax.shard_map(body, mesh=over, in_specs=(P(None, "d"), P(None, "d"), P("d")), out_specs=P())
    ws, us = (layers, width, 4 * width), (layers, 4 * width, width)
    return f, [
        like(over, None, "d", shape=ws),
        like(over, None, "d", shape=us),
        like(over, "d", shape=(batch, width)),
    ]


def data_parallel(wrap):
    """Weights are everywhere, and their gradients are summed."""
    over = mesh(d=8)

    def body(w1, w2, x):
        return lax.pmean(jnp.mean(wrap(mlp)(w1, w2, x) ** 2), "d")

    f = jax.shard_map(body, mesh=over, in_specs=(P(), P(), P("d")), out_specs=P())
    return f, [like(over, shape=(16, 64)), like(over, shape=(64, 16)), like(over, "d", shape=(32, 16))]


def tensor_parallel(wrap):
    """Attention by heads and an MLP by columns, each summed at its end (Megatron-LM, arXiv:1909.08053)."""
    over = mesh(d=8)
    col, row = P(None, "d"), P("d", None)
    spec = {"q": col, "k": col, "v": col, "o": row, "up": col, "down": row}
    shapes = dict.fromkeys("qkvo", (16, 16)) | {"up": (16, 64), "down": (64, 16)}

    def layer(p, x):
        q, k, v = (x @ p[name] for name in "qkv")
        scores = checkpoint_name(q @ k.swapaxes(-1, -2), "h")
        x += checkpoint_name(lax.psum(jax.nn.softmax(scores) @ v @ p["o"], "d"), "summed")
        return x + checkpoint_name(lax.psum(jax.nn.gelu(x @ p["up"]) @ p["down"], "d"), "summed")

    def body(p, x):
        return jnp.mean(wrap(layer)(p, x) ** 2)

    f = jax.shard_map(body, mesh=over, in_specs=(spec, P()), out_specs=P())
    weights = {name: like(over, *spec[name], shape=shape) for name, shape in shapes.items()}
    return f, [weights, like(over, shape=(2, 8, 16))]


def sequence_parallel(wrap):
    """The sequence is sharded between the matmuls: gathered before, scattered after them (arXiv:2205.05198)."""
    over = mesh(d=8)

    def layer(up, down, x):
        h = jax.nn.gelu(checkpoint_name(gathered(x, at=1) @ up, "h"))
        return x + lax.psum_scatter(h @ down, "d", scatter_dimension=1, tiled=True)

    def body(up, down, x):
        return lax.pmean(jnp.mean(wrap(layer)(up, down, x) ** 2), "d")

    f = jax.shard_map(body, mesh=over, in_specs=(P(None, "d"), P("d"), P(None, "d")), out_specs=P())
    return f, [
        like(over, None, "d", shape=(16, 64)),
        like(over, "d", shape=(64, 16)),
        like(over, None, "d", shape=(2, 16, 16)),
    ]


def expert_parallel(wrap):
    """Each device has an expert; tokens are sent to the experts and back (GShard, arXiv:2006.16668)."""
    over = mesh(e=8)

    def layer(w1, w2, x):
        there = checkpoint_name(lax.all_to_all(x, "e", 0, 1, tiled=True), "gathered")
        return x + lax.all_to_all(mlp(w1[0], w2[0], there), "e", 1, 0, tiled=True)

    def body(w1, w2, x):
        return lax.pmean(jnp.mean(wrap(layer)(w1, w2, x) ** 2), "e")

    f = jax.shard_map(body, mesh=over, in_specs=(P("e"), P("e"), P(None, "e")), out_specs=P())
    shapes = (8, 16, 32), (8, 32, 16), (8, 32, 16)
    return f, [
        like(over, "e", shape=shapes[0]),
        like(over, "e", shape=shapes[1]),
        like(over, None, "e", shape=shapes[2]),
    ]


def pipeline(wrap):
    """Each device is a stage; microbatches go from one to the next (GPipe, arXiv:1811.06965)."""
    over = mesh(stage=8)

    def body(w1, w2, x):
        here = lax.axis_index("stage")
        stage = wrap(lambda x: jnp.tanh(mlp(w1[0], w2[0], x)))

        def step(carried, i):
            given = jnp.where(here == 0, varying(x[i % 4], "stage"), carried)
            made = stage(given)
            return lax.ppermute(made, "stage", [(j, (j + 1) % 8) for j in range(8)]), made

        _, made = lax.scan(step, varying(jnp.zeros_like(x[0]), "stage"), jnp.arange(4 + 7))
        return lax.psum(jnp.where(here == 7, jnp.mean(made[7:] ** 2), 0.0), "stage")

    f = jax.shard_map(body, mesh=over, in_specs=(P("stage"), P("stage"), P()), out_specs=P())
    return f, [
        like(over, "stage", shape=(8, 16, 32)),
        like(over, "stage", shape=(8, 32, 16)),
        like(over, shape=(4, 2, 16)),
    ]


def ring_attention(wrap):
    """Keys and values go round (arXiv:2310.01889)."""
    over = mesh(d=8)

    def attention(q, k, v):
        def step(carry, _):
            k, v, total, weight = carry
            scores = jnp.exp(checkpoint_name(q @ k.T, "h"))
            total, weight = total + scores @ v, weight + jnp.sum(scores, 1)
            k, v = (lax.ppermute(a, "d", [(j, (j + 1) % 8) for j in range(8)]) for a in (k, v))
            return (k, v, total, weight), None

        start = k, v, jnp.zeros_like(q), jnp.zeros_like(q[:, 0])
        (_, _, total, weight), _ = lax.scan(step, start, None, length=8)
        return total / weight[:, None]

    def body(q, k, v):
        return lax.pmean(jnp.mean(wrap(attention)(q, k, v) ** 2), "d")

    f = jax.shard_map(body, mesh=over, in_specs=P("d"), out_specs=P())
    return f, [like(over, "d", shape=(32, 8))] * 3


def two_axes(wrap):
    """Weights sharded across both axes: gathered along one axis, summed along the other."""
    over = mesh(data=2, model=4)

    def layer(up, down, x):
        h = jax.nn.gelu(checkpoint_name(x @ gathered(up, "data"), "h"))
        return x + checkpoint_name(lax.psum(h @ gathered(down, "data", 1), "model"), "summed")

    def body(up, down, x):
        return lax.pmean(jnp.mean(wrap(layer)(up, down, x) ** 2), "data")

    f = jax.shard_map(body, mesh=over, in_specs=(P("data", "model"), P("model", "data"), P("data")), out_specs=P())
    return f, [
        like(over, "data", "model", shape=(16, 64)),
        like(over, "model", "data", shape=(64, 16)),
        like(over, "data", shape=(8, 16)),
    ]


def hybrid_fsdp(wrap):
    """HSDP: weights sharded across one axis and replicated along the other, along which their gradients are summed."""
    over = mesh(replica=2, fsdp=4)

    def body(w1, w2, x):
        layer = wrap(lambda w1, w2, x: x + mlp(gathered(w1, "fsdp"), gathered(w2, "fsdp"), x))
        return lax.pmean(jnp.mean(layer(w1, w2, x) ** 2), ("replica", "fsdp"))

    both = ("replica", "fsdp")
    f = jax.shard_map(body, mesh=over, in_specs=(P("fsdp"), P("fsdp"), P(both)), out_specs=P())
    return f, [
        like(over, "fsdp", shape=(16, 64)),
        like(over, "fsdp", shape=(64, 16)),
        like(over, both, shape=(16, 16)),
    ]


def pipeline_fsdp(wrap):
    """A pipeline's microbatches; the weights of each stage are sharded, and gathered in each iteration."""
    over = mesh(stage=4, fsdp=2)

    def body(w, x):
        here = lax.axis_index("stage")
        stage = wrap(lambda x: jnp.tanh(x @ gathered(w[0], "fsdp")))

        def step(carried, i):
            made = stage(jnp.where(here == 0, varying(x[i % 4], "stage"), carried))
            return lax.ppermute(made, "stage", [(j, (j + 1) % 4) for j in range(4)]), made

        _, made = lax.scan(step, varying(jnp.zeros_like(x[0]), "stage"), jnp.arange(4 + 3))
        loss = lax.psum(jnp.where(here == 3, jnp.mean(made[3:] ** 2), 0.0), "stage")
        return lax.pmean(loss, "fsdp")

    f = jax.shard_map(body, mesh=over, in_specs=(P("stage", "fsdp"), P(None, "fsdp")), out_specs=P())
    return f, [like(over, "stage", "fsdp", shape=(4, 16, 16)), like(over, None, "fsdp", shape=(4, 4, 16))]


def mapped_layers(wrap):
    """A shard_map within the checkpoint of each layer, jit and scan around it."""
    over = mesh(d=8)
    inner = jax.shard_map(
        jax.jit(lambda w1, w2, x: x + mlp(gathered(w1), gathered(w2), x)),
        mesh=over,
        in_specs=P("d"),
        out_specs=P("d"),
    )

    def f(ws, us, x):
        layer = wrap(inner)
        x, _ = lax.scan(lambda x, w: (layer(*w, x), None), x, (ws, us))
        return jnp.sum(x**2)

    return f, [
        like(over, None, "d", shape=(3, 16, 64)),
        like(over, None, "d", shape=(3, 64, 16)),
        like(over, "d", shape=(8, 16)),
    ]


def unchecked(wrap):
    """Without JAX's account of what varies."""
    over = mesh(d=8)

    def body(w1, w2, x):
        scale = jnp.mean(x)
        layer = wrap(lambda w1, w2, x: x + scale * mlp(gathered(w1), gathered(w2), x))
        return lax.pmean(jnp.mean(layer(w1, w2, x) ** 2), "d")

    f = jax.shard_map(body, mesh=over, in_specs=P("d"), out_specs=P(), check_vma=False)
    return f, [like(over, "d", shape=shape) for shape in ((16, 64), (64, 16), (8, 4, 16))]


def some_axes(wrap):
    """Mapped over one axis of two; over the other the compiler divides."""
    return sharded_mlp(wrap, mesh(d=4, rest=2), axis_names={"d"})


def explicit(wrap):
    """A layer on a mesh with explicit axes, where types contain the sharding."""
    return sharded_mlp(wrap, mesh(AxisType.Explicit, d=8))


def nested(wrap):
    """A shard_map over one axis within a shard_map over another axis, with a branch and a loop.

    It always has a checkpoint: JAX 0.12 does not compile residuals that the inner shard_map returns.
    """
    over = mesh(data=2, model=4)
    turn = [(j, (j + 1) % 4) for j in range(4)]

    def layer(w, x):
        x = lax.fori_loop(0, 3, lambda i, x: lax.ppermute(jnp.sin(x), "model", turn), x)
        x = lax.cond(lax.axis_index("model") > 1, jnp.tanh, jnp.cos, x)
        return lax.psum(checkpoint_name(x @ w, "h"), "model")

    def body(w, x):
        inner = jax.shard_map(
            wrap(jax.checkpoint(layer)), in_specs=(P("model"), P(None, "model")), out_specs=P(), axis_names={"model"}
        )
        return lax.pmean(jnp.mean(inner(w, x) ** 2), "data")

    f = jax.shard_map(body, mesh=over, in_specs=(P(), P("data")), out_specs=P(), axis_names={"data"})
    return f, [like(over, "model", shape=(16, 64)), like(over, "data", shape=(8, 16))]


def fsdp_unrolled(wrap, layers=3, width=16, batch=8):
    """A stack of such layers, one after the other."""
    over = mesh(d=8)

    def body(weights, x):
        for w1, w2 in weights:
            x = wrap(lambda w1, w2, x: x + mlp(gathered(w1), gathered(w2), x))(w1, w2, x)
        return lax.pmean(jnp.mean(x**2), "d")

    f = jax.shard_map(body, mesh=over, in_specs=(P("d"), P("d")), out_specs=P())
    weights = [tuple(like(over, "d", shape=s) for s in ((width, 4 * width), (4 * width, width))) for _ in range(layers)]
    return f, [weights, like(over, "d", shape=(batch, width))]


def fsdp_nested(wrap, layers=(2, 3), width=16, batch=8):
    """A stack of such layers, in a scan of scans."""
    over = mesh(d=8)

    def body(ws, us, x):
        layer = wrap(lambda w1, w2, x: x + mlp(gathered(w1), gathered(w2), x))

        def group(x, w):
            return lax.scan(lambda x, w: (layer(*w, x), None), x, w)[0], None

        return lax.pmean(jnp.mean(lax.scan(group, x, (ws, us))[0] ** 2), "d")

    split = P(None, None, "d")
    f = jax.shard_map(body, mesh=over, in_specs=(split, split, P("d")), out_specs=P())
    ws, us = ((*layers, *shape) for shape in ((width, 4 * width), (4 * width, width)))
    return f, [*(like(over, None, None, "d", shape=s) for s in (ws, us)), like(over, "d", shape=(batch, width))]


def jit_layers(wrap, layers=3, width=64, batch=64):
    """A scan over layers whose weights are sharded only by the arguments' shardings: XLA gathers them."""
    over = mesh(d=8)

    def f(ws, us, x):
        layer = wrap(lambda w1, w2, x: x + mlp(w1, w2, x))
        x, _ = lax.scan(lambda x, w: (layer(*w, x), None), x, (ws, us))
        return jnp.mean(x**2)

    ws, us = (layers, width, 4 * width), (layers, 4 * width, width)
    return f, [*(like(over, None, "d", shape=s) for s in (ws, us)), like(over, "d", shape=(batch, width))]


def microbatches(loss, shapes, count=4):
    """A training step that adds up the gradients of microbatches in a scan."""
    *weights, x = shapes
    batch = like(x.sharding.mesh, None, "d", shape=(count, *x.shape))

    def step(weights, batch):
        def one(sums, x):
            return jax.tree.map(jnp.add, sums, jax.grad(lambda w: loss(*w, x))(weights)), None

        sums, _ = lax.scan(one, jax.tree.map(jnp.zeros_like, weights), batch)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, sums)

    return step, [weights, batch]


LAYERS = [fsdp_unrolled, fsdp_layers, fsdp_nested]

PROGRAMS = [
    fsdp, fsdp_layers, data_parallel, tensor_parallel, sequence_parallel, expert_parallel, pipeline, ring_attention,
    two_axes, hybrid_fsdp, pipeline_fsdp, mapped_layers, unchecked, some_axes, explicit, nested,
]  # fmt: skip


def under(policy):
    """Return a function that puts a checkpoint with a policy around a layer; `"plain"` means none."""
    if policy == "plain":
        return lambda f: f
    return functools.partial(jax.checkpoint, policy=POLICIES[policy])


def arrays(shapes, seed=0):
    """Return arrays with the shapes' shardings."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda s: jax.device_put(0.3 * rng.standard_normal(s.shape, s.dtype), s.sharding), shapes)
