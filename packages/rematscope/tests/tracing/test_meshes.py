"""Functions for many devices: both programs run, and bytes, work and collectives are those of one device."""

import collections
import functools

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from releases import since

from rematscope import CollectiveStats, LintKind, lint, measure, print_fwd_bwd, residual_table, trace
from rematscope.ir import collectives
from rematscope.ir.collectives import collectives_of, tally_by_kind

running = since("0.11", "the CPU's devices come to an end with turns in a shard_map within another")


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(p, marks=[*[pytest.mark.slow] * (i % 4 > 0), *[running] * (p is meshes.nested)])
        for i, p in enumerate(meshes.PROGRAMS)
    ],
    ids=lambda program: program.__name__,
)
def test_both_programs_run_as_jax_differentiates(program):
    f, shapes = program(meshes.under(["plain", "nothing", "names"][meshes.PROGRAMS.index(program) % 3]))
    passes = trace(f, *shapes)
    arguments = meshes.arrays(shapes)

    @jax.jit
    def both(arguments):
        output, *residuals = passes.forward(*jax.tree.leaves(arguments))
        return output, residuals, passes.backward(*residuals, jnp.float32(1))

    output, residuals, gradients = both(arguments)
    value, expected = jax.jit(jax.value_and_grad(f, argnums=tuple(range(len(arguments)))))(*arguments)
    for mine, theirs in zip([output, *gradients], [value, *jax.tree.leaves(expected)], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    for residual, array in zip(passes.residuals, residuals, strict=True):
        here = array.addressable_shards[0].data.nbytes
        assert residual.device_bytes == here or (
            residual in passes.unresolved_shardings and residual.device_bytes >= here
        )


def again(passes):
    return collections.Counter(
        {
            name: sum(times for e, times in passes.backward.walk() if (e.primitive, e.role) == (name, "R"))
            for name in {e.primitive for e, _ in passes.backward.walk() if collectives.collective_kind(e.primitive)}
        }
    )


def fsdp_layer(policy):
    """A layer of 256 wide in float32, its weights and its batch of 32 times 64 over 8 devices."""
    over = meshes.mesh(d=8)

    def layer(w1, w2, x):
        w1, w2 = (checkpoint_name(lax.all_gather(w, "d", tiled=True), name) for w, name in ((w1, "w1"), (w2, "w2")))
        return x + checkpoint_name(jax.nn.gelu(checkpoint_name(x @ w1, "h")), "g") @ w2

    def body(w1, w2, x):
        f = layer if policy is None else jax.checkpoint(layer, policy=policy)
        return lax.pmean(jnp.mean(f(w1, w2, x) ** 2), "d")

    f = jax.shard_map(body, mesh=over, in_specs=P("d"), out_specs=P())
    return f, [meshes.like(over, "d", shape=s) for s in ((256, 1024), (1024, 256), (32, 64, 256))]


saving = jax.checkpoint_policies.save_only_these_names


@pytest.mark.parametrize(
    "policy, nbytes, gathered_again, gathered",
    [
        pytest.param(None, 7_602_176, 0, 2, marks=since("0.11", "a GELU saves one array less")),
        (saving(), 262_144, 2, 4),
        (saving("h"), 1_310_720, 2, 4),
        (saving("w1", "w2", "h"), 3_407_872, 0, 2),
    ],
)
def test_an_fsdp_layer_has_bytes_per_device_and_repeated_all_gathers(policy, nbytes, gathered_again, gathered):
    f, shapes = fsdp_layer(policy)
    passes = trace(f, *shapes)
    scalars = passes.device_bytes_by_kind()["computed"] - nbytes
    assert 0 <= scalars <= 20 and passes.bytes_by_kind()["computed"] >= 8 * nbytes
    assert again(passes)["all_gather"] == gathered_again
    assert passes.forward.count("all_gather") + passes.backward.count("all_gather") == gathered
    assert passes.recompute_cost.link_bytes == gathered_again * 1024 * 1024 * 7 // 8
    assert (passes.axes, passes.devices, passes.opaque_primitives, passes.unresolved_shardings) == ({"d": 8}, 8, (), ())


def test_flops_are_counted_per_device():
    f, shapes = fsdp_layer(None)
    products = [e for e, _ in trace(f, *shapes).forward.walk() if e.primitive == "dot_general"]
    assert [e.inputs[0].shape[0] for e in products] == [4, 4]
    assert trace(f, *shapes).cost.flops == pytest.approx(6 * 2 * 4 * 64 * 256 * 1024, rel=0.02)  # of six matmuls


def test_under_automatic_axes_the_compilers_shardings_are_predicted_and_marked():
    over = meshes.mesh(d=8)
    shape = meshes.like(over, "d", shape=(64, 4))
    passes = trace(lambda x: jnp.sin(jnp.sin(x)), shape)
    assert [r.device_bytes for r in passes.unresolved_shardings] == [128, 128]
    assert (
        "the sharding of 2 residuals is an estimate, the compiler decides"
        in residual_table(lambda x: jnp.sin(jnp.sin(x)), shape).total
    )

    def constrained(x):
        return jnp.sin(lax.with_sharding_constraint(jnp.sin(x), NamedSharding(over, P("d"))))

    assert trace(constrained, shape).axes == {"d": 8}


@pytest.mark.parametrize("layout", ["NHWC", "HWNC"])
def test_the_result_of_a_convolution_is_sharded_like_its_images(layout):
    over = meshes.mesh(d=8)

    def f(x, w):
        y = lax.conv_general_dilated(jnp.sin(x), w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", layout))
        return jnp.sin(y).sum()

    kernel = meshes.like(over, shape=(3, 3, 3, 4))
    passes = trace(f, meshes.like(over, "d", shape=(16, 8, 8, 3)), kernel)
    part = jax.ShapeDtypeStruct((2, 8, 8, 3), jnp.float32)
    alone = trace(f, part, jax.ShapeDtypeStruct(kernel.shape, jnp.float32))
    assert passes.saved_device_bytes() == alone.saved_bytes() and passes.cost.flops == alone.cost.flops


def test_a_constraint_that_shards_another_axis_exchanges_all_shards():
    over = meshes.mesh(d=8)

    def turned(x):
        x = lax.with_sharding_constraint(jnp.sin(x), NamedSharding(over, P("d")))
        return jnp.sin(lax.with_sharding_constraint(x, NamedSharding(over, P(None, "d"))))

    passes = trace(turned, meshes.like(over, "d", shape=(16, 32)))
    assert passes.collectives() == {"all-to-all": CollectiveStats(2, 2 * (4 * 16 * 32 // 8) * 7 // 8)}


def _scan_under_automatic_axes(name):
    """Return a function of a sharded weight and a sharded batch that has a loop, and shapes of both arguments."""
    over = meshes.mesh(d=4, e=2)
    weight, batch = meshes.like(over, None, "e", shape=(64, 64)), meshes.like(over, "d", shape=(32, 64))
    constrained = NamedSharding(over, P("d", None))

    def layer(c, w):
        c = jnp.sin(c @ w)
        return lax.with_sharding_constraint(c, constrained) if name == "constrained" else c

    def f(w, x):
        match name:
            case "fori_loop":
                return lax.fori_loop(0, 5, lambda _, c: layer(c, w), x).sum()
            case "unchanged":
                carry = lax.scan(lambda c, _: ((layer(c[0], w * c[1][0, 0]), c[1]), None), (x, x), None, length=5)[0]
                return carry[0].sum() + (carry[1] ** 2).sum()
            case "nested":
                outer = functools.partial(lax.fori_loop, 0, 2, lambda _, c: layer(c, w))
                return lax.fori_loop(0, 3, lambda _, c: outer(c), x).sum()
            case _:
                return lax.scan(lambda c, _: (layer(c, w), None), x, None, length=5)[0].sum()

    return f, (weight, batch)


@since("0.10", "the shardings that older releases choose were not compared")
@pytest.mark.parametrize("name", ["scan", "fori_loop", "constrained", "unchanged", "nested"])
def test_a_sharding_counts_as_known_only_if_xla_gives_a_residual_that_sharding(name):
    f, shapes = _scan_under_automatic_axes(name)
    passes = trace(f, *shapes)
    arrays = jax.jit(passes.forward)(*meshes.arrays(shapes))[1:]
    for residual, array in zip(passes.residuals, arrays, strict=True):
        here = array.addressable_shards[0].data.nbytes
        assert residual.device_bytes == here or residual in passes.unresolved_shardings


@since("0.10", "the shapes of what a function returns say how it is divided")
def test_on_explicit_axes_types_give_the_shapes_per_device():
    over = meshes.mesh(AxisType.Explicit, d=4, e=2)
    shapes = meshes.like(over, "d", "e", shape=(64, 4)), meshes.like(over, "d", "e", shape=(64, 4))

    def f(x, y):
        return jnp.sin(x) * y

    passes = trace(f, *shapes)
    assert [r.device_bytes for r in passes.residuals] == [64 * 4 * 4 // 8] * len(passes.residuals)
    whole = trace(f, *(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes))
    assert passes.unresolved_shardings == () and 8 * passes.cost.flops == whole.cost.flops > 0


def test_sharded_arrays_and_shapes_give_the_same_bytes_per_device():
    over = meshes.mesh(d=8)
    shape = meshes.like(over, "d", shape=(64, 4))
    given = [jax.device_put(np.ones((64, 4), np.float32), shape.sharding), shape]
    assert [trace(jnp.sin, x).forward.inputs[0].device_bytes for x in given] == [128, 128]


def test_a_shard_maps_body_is_shown_with_the_mesh_axes(capsys):
    f, shapes = meshes.fsdp(meshes.under("nothing"))
    print_fwd_bwd(f, *shapes)
    shown = capsys.readouterr().out
    for text in (
        "on each device of d=8:",
        "all_gather(w1[d], 'd')",
        "on each of 8 devices",
        "over links",
        "R    a = all_gather",
    ):
        assert text in shown


def test_scalars_returned_from_a_shard_map_are_not_recomputed():
    over = meshes.mesh(d=8)

    def body(x):
        scale = jnp.sum(jnp.sin(x))
        return lax.psum(jnp.sum(jax.checkpoint(lambda x, s: jnp.sin(s * x))(x, scale)), "d")

    f = jax.shard_map(body, mesh=over, in_specs=P("d"), out_specs=P())
    passes = trace(f, meshes.like(over, "d", shape=(64,)))
    roles = {e.primitive: e.role for e, _ in passes.backward.walk() if e.primitive in ("squeeze", "mul")}
    assert passes.backward.count("mul", role="R") == 1, roles
    assert passes.backward.count("squeeze", role="R") == 0
    assert [r.primitive for r in passes.residuals if r.shape == (8,)] == ["reduce_sum"]


def test_on_explicit_axes_the_collectives_that_types_imply_are_counted():
    over = meshes.mesh(AxisType.Explicit, d=8)

    def whole(w):
        return checkpoint_name(jax.sharding.reshard(w, NamedSharding(over, P())), "gathered")

    def layer(w1, w2, x):
        return x + jax.nn.gelu(x @ whole(w1)) @ whole(w2)

    def f(policy):
        return lambda *args: jnp.mean(jax.checkpoint(layer, policy=policy)(*args) ** 2)

    shapes = [meshes.like(over, "d", shape=shape) for shape in ((16, 64), (64, 16), (32, 16))]
    assert trace(f(saving()), *shapes).collectives("R") == {"all-gather": CollectiveStats(2, 2 * 16 * 64 * 4 * 7 // 8)}
    assert trace(f(saving("gathered")), *shapes).collectives("R") == {}
    measured = measure(f(saving()), *shapes)
    for exchange in measured.collectives:  # XLA joins several sums in one instruction
        assert exchange.predicted.link_bytes == exchange.compiled.link_bytes > 0
    assert [e.kind for e in measured.collectives] == ["all-gather", "all-reduce"]


def test_on_explicit_axes_a_matmul_over_a_sharded_dimension_is_reduced_unless_unreduced():
    over = meshes.mesh(AxisType.Explicit, d=8)
    shapes = meshes.like(over, None, "d", shape=(32, 64)), meshes.like(over, "d", None, shape=(64, 16))

    def product(spec):
        return lambda h, w: jnp.einsum("bh,hd->bd", h, w, out_sharding=NamedSharding(over, spec))

    def forward(spec):
        return tally_by_kind(collectives_of(trace(product(spec), *shapes).forward))

    assert forward(P()) == {"all-reduce": CollectiveStats(1, 2 * 32 * 16 * 4 * 7 // 8)}
    assert forward(P("d")) == {"reduce-scatter": CollectiveStats(1, 32 * 16 * 4 * 7 // 8)}
    turned = trace(lambda x: jax.sharding.reshard(x, NamedSharding(over, P("d"))), shapes[0])
    assert tally_by_kind(collectives_of(turned.forward)) == {
        "all-to-all": CollectiveStats(1, 32 * 64 * 4 // 8 * 7 // 8)
    }


def test_axes_with_one_name_in_two_meshes_are_distinguished():
    """A step of two parts may lay its eight devices out in two ways: `d` is 8 long, then 4."""

    def layer(w, x):
        gathered = lax.all_gather(w, "d", tiled=True)
        return jnp.sin(lax.axis_index("d") * 1.0) * jnp.sin(x @ gathered)

    def f(w, x):
        for over in (meshes.mesh(d=8), meshes.mesh(d=4, e=2)):
            x = jax.checkpoint(jax.shard_map(layer, mesh=over, in_specs=P("d"), out_specs=P("d")))(w, x)
        return jnp.sum(x)

    passes = trace(f, *[jax.ShapeDtypeStruct((16, 16), jnp.float32)] * 2)
    whole = 16 * 16 * 4
    assert passes.collectives("R") == {"all-gather": CollectiveStats(2, whole * 7 // 8 + whole * 3 // 4)}
    products = {e.outputs[0] for e, _ in passes.forward.walk() if e.primitive == "dot_general"}
    assert [v.device_bytes for v in sorted(products, key=lambda v: v.shape)] == [whole // 8, whole // 4]
    indices = [e.outputs[0] for e, _ in passes.backward.walk() if e.primitive == "axis_index"]
    assert len({passes.forward_value_of[index] for index in indices}) == len(indices) == 2


def test_a_constraint_under_automatic_axes_gathers_operands_of_known_sharding():
    over = meshes.mesh(d=8)

    def layer(w, x):
        return jnp.sin(x @ lax.with_sharding_constraint(w, NamedSharding(over, P())))

    shapes = [meshes.like(over, "d", shape=(16, 64)), meshes.like(over, "d", shape=(32, 16))]
    passes = trace(lambda *args: jnp.sum(jax.checkpoint(layer)(*args)), *shapes)
    assert passes.collectives("R") == {"all-gather": CollectiveStats(1, 16 * 64 * 4 * 7 // 8)}
    assert passes.has_auto_sharded_work  # the compiler decides how the matmul is sharded


def test_shardings_given_to_jit_determine_the_bytes_per_device():
    over = meshes.mesh(d=8)
    split = NamedSharding(over, P("d"))
    f = jax.jit(lambda w, x: jnp.sum(jnp.sin(x @ w)), in_shardings=(NamedSharding(over, P()), split))
    passes = trace(f, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((16, 64), (32, 16))))
    assert [v.device_bytes for v in passes.forward.inputs] == [16 * 64 * 4, 32 * 16 * 4 // 8]
    assert passes.mesh == over


def test_a_replicated_argument_is_saved_as_an_argument():
    """JAX saves a copy of each device, which under jit is the argument itself."""
    f, shapes = meshes.data_parallel(meshes.under("plain"))
    passes = trace(f, *shapes)
    kinds = {r.array.name: (r.kind, r.device_bytes) for r in passes.residuals if r.kind == "argument"}
    assert kinds == {"w1": ("argument", 4096), "w2": ("argument", 4096), "x": ("argument", 256)}
    assert {"w1", "w2", "x"} <= {name for row in residual_table(f, *shapes).rows for name in row.values}


@pytest.mark.parametrize(
    "program, kinds",
    [
        (meshes.nested, {LintKind.NESTED, LintKind.NOT_NEEDED}),
        (meshes.ring_attention, {LintKind.TOO_LATE, LintKind.WHOLE_MODEL}),
    ],
)
def test_lint_looks_into_shard_maps(program, kinds):
    f, shapes = program(meshes.under("nothing"))
    assert {finding.kind for finding in lint(f, *shapes).findings} == kinds
