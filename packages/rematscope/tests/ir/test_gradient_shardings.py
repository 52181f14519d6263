"""The predicted shardings of gradients under automatic axes, compared with those that XLA chooses."""

import functools
import itertools

import jax
import jax.numpy as jnp
import meshes
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sampling import sampled

from rematscope import liveness, measure, trace
from rematscope.memory.xla_estimate.estimate import estimate_compiled_bytes

PROGRAMS = ("unrolled", "scan", "microbatches", "tied weights")
CONSTRAINTS = ("none", "activations", "weights", "both")
LAYERS, WIDTH, HIDDEN, ROWS, WORDS = 3, 64, 128, 256, 192
CASES = tuple(itertools.product(PROGRAMS, CONSTRAINTS, (False, True)))


def a_step(program, constrained, updates, **axes):
    """Return a function that takes gradients, optionally with an update of the parameters, and its arguments."""
    mesh = meshes.mesh(**axes)
    rows, columns = ("rows" if "rows" in axes else None), ("columns" if "columns" in axes else None)

    def constraint(x, *spec):
        return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    activation = constraint if constrained in ("activations", "both") else lambda x, *_: x
    weight = constraint if constrained in ("weights", "both") else lambda w, *_: w

    @jax.checkpoint
    def layer(x, w):
        up, down = weight(w["up"], None, columns), weight(w["down"], columns, None)
        return activation(x + jnp.tanh(activation(x @ up, rows, columns)) @ down, rows, None)

    def loss(p, x):
        x = activation(p["words"][x] if program == "tied weights" else x, rows, None)
        if program == "unrolled":
            for w in p["layers"]:
                x = layer(x, w)
        else:
            x, _ = lax.scan(lambda x, w: (layer(x, w), None), x, p["layers"])
        if program == "tied weights":
            return jnp.mean(jax.nn.logsumexp(activation(x @ p["words"].T, rows, columns), -1))
        return jnp.mean(x * x)

    def gradient(p, x):
        if program != "microbatches":
            return jax.grad(loss)(p, x)
        parts = x.reshape(ROWS // 4, 4, WIDTH).swapaxes(0, 1)
        parts = constraint(parts, None, rows) if constrained in ("activations", "both") else parts
        first = jax.tree.map(jnp.zeros_like, p)
        return lax.scan(lambda sums, x: (jax.tree.map(jnp.add, sums, jax.grad(loss)(p, x)), None), first, parts)[0]

    def step(p, x):
        gradients = gradient(p, x)
        return gradients, jax.tree.map(lambda p, g: p - 0.1 * g, p, gradients) if updates else ()

    def stacked(*spec, shape):
        if program == "unrolled":
            return meshes.like(mesh, *spec, shape=shape)
        return meshes.like(mesh, None, *spec, shape=(LAYERS, *shape))

    layers = {
        "up": stacked(rows, columns, shape=(WIDTH, HIDDEN)),
        "down": stacked(columns, rows, shape=(HIDDEN, WIDTH)),
    }
    p = {"layers": [layers] * LAYERS if program == "unrolled" else layers}
    if program == "tied weights":
        p["words"] = meshes.like(mesh, columns, rows, shape=(WORDS, WIDTH))
        x = jax.ShapeDtypeStruct((ROWS,), jnp.int32, sharding=NamedSharding(mesh, P(rows)))
    else:
        x = meshes.like(mesh, rows, shape=(ROWS, WIDTH))
    return step, (p, x)


def figures(case, **axes):
    function, args = a_step(*case, **axes)
    passes = trace(function, *args)
    shapes = [v.on_device.shape for v in passes.step.program.outputs]
    saved = passes.device_bytes_by_kind()
    peaks = estimate_compiled_bytes(passes), liveness(function, *args).peak_bytes
    return shapes, saved, peaks, passes.cost.flops, passes.cost.link_bytes


@pytest.mark.parametrize("case", sampled([case for case in CASES if case[2]], 4), ids=str)
@pytest.mark.parametrize(("axis", "other"), [("rows", "columns"), ("columns", "rows")])
def test_an_axis_of_size_one_changes_no_figure(case, axis, other):
    assert figures(case, **{axis: 8}) == figures(case, **{axis: 8, other: 1})


def test_an_axis_of_size_one_leaves_its_dimension_to_another_axis():
    over = meshes.mesh(rows=8, columns=1)
    args = meshes.like(over, "columns", shape=(16, 64)), meshes.like(over, "rows", shape=(16, 64))
    made = jax.jit(jnp.add).lower(*args).compile()
    (result,) = trace(jnp.add, *args).outputs
    assert result.on_device.shape == (2, 64) == made.output_shardings.shard_shape((16, 64))


@functools.cache
def compiled(**axes):
    """Return the shapes of each device's shards of the results, for all cases."""
    functions, args = zip(*(a_step(*case, **axes) for case in CASES), strict=True)

    def all_of_them(args):
        return [function(*each) for function, each in zip(functions, args, strict=True)]

    made = jax.jit(all_of_them).lower(args).compile()
    shapes = jax.tree.map(lambda v, s: s.shard_shape(v.shape), jax.eval_shape(all_of_them, args), made.output_shardings)
    return dict(zip(CASES, (jax.tree.leaves(each, is_leaf=_is_shape) for each in shapes), strict=True))


def _is_shape(leaf):
    return isinstance(leaf, tuple) and all(isinstance(n, int) for n in leaf) and leaf != ()


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    "axes",
    [
        {"rows": 4, "columns": 2},
        *(
            pytest.param(axes, marks=pytest.mark.slow)
            for axes in ({"rows": 8}, {"columns": 8}, {"rows": 2, "columns": 4})
        ),
    ],
    ids=str,
)
def test_gradients_are_sharded_as_xla_shards_them(case, axes):
    shapes, *_ = figures(case, **axes)
    assert shapes == compiled(**axes)[case]


def test_a_constraint_on_each_slice_does_not_bind_a_stack():
    over = meshes.mesh(rows=8)

    def doubled(x, y):
        _, stack = lax.scan(lambda _, row: (0, lax.with_sharding_constraint(row, NamedSharding(over, P()))), 0, x)
        return stack, stack * y

    args = meshes.like(over, None, "rows", shape=(4, 16)), meshes.like(over, None, "rows", shape=(4, 16))
    shardings = jax.jit(doubled).lower(*args).compile().output_shardings
    passes = trace(doubled, *args)
    assert (
        [v.on_device.shape for v in passes.outputs] == [(4, 2), (4, 2)] == [s.shard_shape((4, 16)) for s in shardings]
    )
    assert not passes.outputs[0].placement.is_explicit


def test_branches_and_iterations_compute_the_shards_that_are_read():
    over = meshes.mesh(rows=8)
    args = meshes.like(over, shape=(16, 64)), meshes.like(over, None, "rows", shape=(16, 64))

    def f(x, y):
        chosen = lax.cond(x[0, 0] > 0, lambda x: 2 * jnp.sin(x), lambda x: 3 * jnp.sin(x), x)
        stack = lax.scan(lambda _, row: (0, 2 * row), 0, x)[1]
        return (chosen + stack) * y

    equations = {each.primitive: each for each in trace(f, *args).forward.equations}
    assert {v.on_device.shape for body in equations["cond"].bodies for v in body.outputs} == {(16, 8)}
    assert [v.on_device.shape for v in equations["scan"].bodies[-1].outputs] == [(8,)]


def test_a_value_that_one_reader_shards_is_sharded_for_others():
    over = meshes.mesh(rows=8)
    args = meshes.like(over, shape=(16, 64)), meshes.like(over, "rows", shape=(16, 64))

    def f(x, y):
        doubled = 2 * x
        return doubled * y, jnp.sin(doubled)

    predicted = [v.on_device.shape for v in trace(f, *args).outputs]
    shardings = jax.jit(f).lower(*args).compile().output_shardings
    assert predicted == [(2, 64), (2, 64)] == [s.shard_shape((16, 64)) for s in shardings]


def test_the_larger_operand_keeps_a_mesh_axis():
    over = meshes.mesh(rows=8)
    small, large = meshes.like(over, "rows", shape=(16, 64)), meshes.like(over, None, "rows", shape=(64, 32))
    equal = meshes.like(over, "rows", shape=(32, 64))
    table, words = large, jax.ShapeDtypeStruct((16,), jnp.int32, sharding=NamedSharding(over, P("rows")))

    def results(small, equal, large, table, words):
        return small @ large, equal @ large, table[words]

    args = small, equal, large, table, words
    shardings = jax.jit(results).lower(*args).compile().output_shardings
    predicted = [v.on_device.shape for v in trace(results, *args).outputs]
    assert predicted == [(16, 4), (4, 32), (16, 4)]
    assert predicted == [s.shard_shape(v.shape) for v, s in zip(trace(results, *args).outputs, shardings, strict=True)]


@pytest.mark.parametrize("rows", [2, 3])
def test_a_dimension_that_an_axis_does_not_divide_is_padded(rows):
    over = meshes.mesh(rows=4, columns=2)

    def loss(weights, x):
        for w in weights:
            x = lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(over, P("rows")))
        return jnp.sum(jnp.sin(x))

    weights = [meshes.like(over, None, shape=shape) for shape in ((128, 64), (64, 32), (32, 48))]
    found = measure(jax.jit(jax.grad(loss)), weights, meshes.like(over, None, shape=(rows, 128)))
    assert found.trace.cost.flops == pytest.approx(found.cost.flops, rel=0.05)
