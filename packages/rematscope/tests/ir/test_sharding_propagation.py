"""The predicted shardings of values without annotations, compared with those that XLA chooses."""

import jax
import jax.numpy as jnp
import meshes
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from rematscope import trace

OVER = meshes.mesh(data=4, model=2)

OPERATIONS = {
    "elementwise": lambda x, w, v: jnp.sin(x) * 2 + x,
    "scaled": lambda x, w, v: x.mean(0, keepdims=True) * jnp.sin(x),
    "scaled in three axes": lambda x, w, v: v.max((0, 1), keepdims=True) * jnp.sin(v),
    "masked": lambda x, w, v: jnp.where(v.sum((0, 2), keepdims=True) > 0, jnp.zeros((1, 1, 6)), jnp.cos(v)),
    "clipped": lambda x, w, v: jnp.clip(jnp.sin(x), x.min(0, keepdims=True), 1.0),
    "columns": lambda x, w, v: x @ w,
    "rows": lambda x, w, v: (x @ w) @ w.T,
    "batched": lambda x, w, v: jnp.einsum("ab,acd->acbd", x, v),
    "gathered weights": lambda x, w, v: x.reshape(64, 16) @ lax.with_sharding_constraint(w, NamedSharding(OVER, P())),
    "sum": lambda x, w, v: v.sum(-1) + v.max(1, keepdims=True).mean(2),
    "turned": lambda x, w, v: v.transpose(1, 0, 2).reshape(4, -1, 3, 2),
    "merged": lambda x, w, v: v.reshape(-1, 6),
    "repeated": lambda x, w, v: jnp.broadcast_to(x[:, None], (64, 4, 16)),
    "parts": lambda x, w, v: jnp.concatenate([x[:, 4:], x[:, :4]], 1),
    "heads": lambda x, w, v: jnp.split(x @ w, 2, -1)[1].reshape(64, 4, 4),
    "words": lambda x, w, v: w[jnp.argmax(x, -1)],
    "running": lambda x, w, v: jnp.cumsum(jnp.sort(x, -1), -1),
    "looped": lambda x, w, v: lax.scan(lambda h, _: ((h := jnp.tanh(h + x @ w @ w.T)), h), x, None, length=3)[1],
    "carried": lambda x, w, v: lax.scan(lambda h, w: (h + x * w[0], None), jnp.zeros((64, 16)), w)[0],
    "chosen": lambda x, w, v: lax.cond(x[0, 0] > 0, lambda: x, lambda: 2 * x),
}


@pytest.fixture(scope="module")
def divided():
    """For each operation what a device has of its result: predicted, and as XLA has it."""
    shapes = [
        meshes.like(OVER, "data", shape=(64, 16)),
        meshes.like(OVER, None, "model", shape=(16, 32)),
        meshes.like(OVER, "data", shape=(64, 4, 6)),
    ]

    def all_of_them(*args):
        return [operation(*args) for operation in OPERATIONS.values()]

    compiled = jax.jit(all_of_them).lower(*shapes).compile()
    predicted = trace(all_of_them, *shapes).outputs
    pairs = zip(predicted, compiled.output_shardings, strict=True)
    return dict(zip(OPERATIONS, [(v.on_device.shape, s.shard_shape(v.shape)) for v, s in pairs], strict=True))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_result_is_divided_as_xla_divides_it(divided, name):
    predicted, compiled = divided[name]
    assert predicted == compiled


def stacked(x, weights):
    return lax.scan(lambda x, w: (x + jnp.tanh(x @ w[0]) @ w[1], None), x, weights)[0]


def one_by_one(x, weights):
    for up, down in zip(*weights, strict=True):
        x = x + jnp.tanh(x @ up) @ down
    return x


INITIAL = {
    "argument": lambda x, square, tokens: x,
    "elementwise": lambda x, square, tokens: jnp.sin(x),
    "centered": lambda x, square, tokens: x - x.mean(1, keepdims=True),
    "transposed": lambda x, square, tokens: jnp.sin(x.swapaxes(0, 1)).swapaxes(0, 1),
    "matmul": lambda x, square, tokens: x @ square,
    "words": lambda x, square, tokens: square[tokens],
    "broadcast": lambda x, square, tokens: jnp.broadcast_to(tokens[..., None].astype(x.dtype), x.shape),
    "sliced": lambda x, square, tokens: jnp.concatenate([x[:, 1:], x[:, :1]], 1),
    "constrained": lambda x, square, tokens: lax.with_sharding_constraint(x @ square, NamedSharding(OVER, P("data"))),
}


@pytest.mark.parametrize("loop", [stacked, one_by_one])
def test_layers_and_their_input_compete_for_an_axis_as_in_xla(loop):
    shapes = [
        meshes.like(OVER, "data", shape=(16, 8, 32)),
        meshes.like(OVER, shape=(32, 32)),
        meshes.like(OVER, "data", shape=(16, 8), dtype=jnp.int32),
        (meshes.like(OVER, None, "data", shape=(3, 32, 64)), meshes.like(OVER, None, None, "data", shape=(3, 64, 32))),
    ]

    def all_of_them(x, square, tokens, weights):
        return [loop(initial(x, square, tokens), weights) for initial in INITIAL.values()]

    compiled = jax.jit(all_of_them).lower(*shapes).compile().output_shardings
    predicted = trace(all_of_them, *shapes).outputs
    found = dict(
        zip(
            INITIAL,
            ((v.on_device.shape, s.shard_shape(v.shape)) for v, s in zip(predicted, compiled, strict=True)),
            strict=True,
        )
    )
    assert {name: a for name, (a, _) in found.items()} == {name: b for name, (_, b) in found.items()}


@pytest.mark.parametrize("axes", [("data", None), (None, "model"), ("data", "model")])
def test_a_scatter_is_sharded_like_its_batch_and_its_readers(axes):
    shapes = [meshes.like(OVER, *axes, shape=(16, 64)), meshes.like(OVER, axes[0], shape=(16, 3), dtype=jnp.int32)]

    def loss(x, labels):
        return jnp.sum(jnp.sin(jnp.take_along_axis(x * x, labels, 1)))

    (scatter,) = (e for e in trace(loss, *shapes).backward.all_equations() if e.primitive.startswith("scatter"))
    compiled = jax.jit(jax.grad(loss)).lower(*shapes).compile().output_shardings
    assert [v.on_device.shape for v in (scatter.inputs[0], *scatter.outputs)] == [compiled.shard_shape((16, 64))] * 2
