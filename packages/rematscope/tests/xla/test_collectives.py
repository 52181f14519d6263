"""Collectives and bytes of functions for many devices, in the trace and in what XLA is given and makes of it."""

import collections
import functools
import importlib.util
import json
import os
import re
import subprocess

import jax
import jax.numpy as jnp
import meshes
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from releases import since
from sampling import few
from wire_format import field

from rematscope import CollectiveStats, TargetError, fit, measure, trace
from rematscope.ir.collectives import collectives_of, link_bytes, tally_by_kind
from rematscope.ir.cost import program_cost
from rematscope.memory.xla_estimate.loop_invariants import with_moved
from rematscope.seconds.devices import DEVICES
from rematscope.xla.aot_topology import generation, topology
from rematscope.xla.collectives import chains_not_counted, collectives_in
from rematscope.xla.hlo import Module, read
from rematscope.xla.hlo_proto import Instruction, PrimitiveType, StackFrameIndex

LOWERED = {meshes.nested: since("0.10", "a shard_map within a shard_map can be lowered")}
PROGRAMS = [pytest.param(program, marks=LOWERED.get(program, ())) for program in meshes.PROGRAMS]


@pytest.mark.parametrize("policy", few(["names", "nothing"]))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_collectives_and_their_bytes_are_those_of_unoptimized_hlo(program, policy):
    f, shapes = program(meshes.under(policy))
    passes = trace(f, *shapes)
    lowered = jax.jit(jax.value_and_grad(f, argnums=tuple(range(len(shapes))))).lower(*shapes)
    module = read(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    found = passes.collectives()
    assert found == collectives_in(module, passes.devices)
    assert sum(tally.link_bytes for tally in found.values()) == passes.cost.link_bytes > 0


KINDS = "all-gather|reduce-scatter|all-reduce|all-to-all|collective-permute"


def executions(text):
    """How often each kind of collective runs, by the text of an optimized program: loops times their trip counts."""
    computations = {m[1]: m[2] for m in re.finditer(r"^(?:ENTRY )?%(\S+) \(.*?\{\n(.*?)^\}", text, re.M | re.S)}
    entry = re.search(r"^ENTRY %(\S+) \(", text, re.M)[1]

    def count(name):
        found = collections.Counter()
        for line in computations[name].splitlines():
            if called := re.search(
                r" (all-gather|reduce-scatter|all-reduce|all-to-all|collective-permute)(?:-start)?\(", line
            ):
                found[called[1]] += 1
            elif " while(" in line:
                times = int(re.search(r'"known_trip_count":\{"n":"(\d+)"', line)[1])
                for kind, runs in count(re.search(r"body=%(\S+?)[,\s]", line)[1]).items():
                    found[kind] += times * runs
            elif called := re.search(r" (?:call|fusion)\(.*(?:to_apply|calls)=%(\S+?)[,\s]", line):
                found += count(called[1])
        return found

    return count(entry)


@pytest.mark.parametrize("dimension", [0, 1])
def test_along_automatic_axes_a_reduce_scatter_sends_its_entire_operand(dimension):
    """XLA gathers the operand along them first, here from 4 devices; an all-reduce stays sharded along them."""
    over = meshes.mesh(manual=2, automatic=4)
    spec = P("automatic") if dimension == 0 else P(None, "automatic")

    def body(x):
        y = lax.with_sharding_constraint(jnp.tanh(x), spec)
        total = lax.psum(y, "manual")
        return lax.psum_scatter(y, "manual", tiled=True) + total[:16]

    def f(x):
        mapped = jax.shard_map(
            body, in_specs=P("manual"), out_specs=P("manual"), axis_names={"manual"}, check_vma=False
        )
        return mapped(x)

    block = 32 * 64 * 4
    with jax.set_mesh(over):
        shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
        try:
            jax.eval_shape(f, shape)
        except NotImplementedError:
            pytest.skip("this JAX refuses a sharding constraint inside a shard_map over some axes, as 0.7.2 does")
        found = tally_by_kind(collectives_of(trace(f, shape).forward))
        module = read(
            jax.jit(f).lower(shape).compile().runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
        )
    compiled = collectives_in(module, 8)
    assert found["reduce-scatter"] == compiled["reduce-scatter"] == CollectiveStats(1, block // 2)
    assert found["all-gather"].link_bytes == block * 3 // 4 <= compiled["all-gather"].link_bytes
    assert found["all-reduce"] == compiled["all-reduce"] == CollectiveStats(1, 2 * (block // 4) // 2)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "how"), [("plain", "loss"), ("nothing", "microbatches")])
@pytest.mark.parametrize("layers", few(meshes.LAYERS), ids=lambda program: program.__name__)
def test_loops_multiply_collectives(layers, policy, how):
    """Layers unrolled, in a scan, or in nested scans; alone, or in a scan over microbatches."""
    f, shapes = layers(meshes.under(policy))
    microbatches = 4 if how == "microbatches" else 1
    if how == "microbatches":
        f, shapes = meshes.microbatches(f, shapes)
    found = measure(f, *shapes)
    exchanges = {e.kind: e for e in found.collectives}
    count = 6 if layers is not meshes.fsdp_nested else 12  # weights, each in a layer of its own
    assert exchanges["all-gather"].predicted.count == microbatches * count * (2 if policy == "nothing" else 1)
    assert exchanges["reduce-scatter"].predicted.count == microbatches * count
    assert all(e.predicted == e.lowered for e in found.collectives)
    passes = found.trace
    programs = [passes.forward, passes.backward] if passes.step is None else [passes.step.program]
    moved = tally_by_kind(one for program in programs for one in collectives_of(with_moved(program)))
    assert {e.kind: e.compiled for e in found.collectives} == moved
    fewer = moved["all-gather"].count < exchanges["all-gather"].predicted.count
    assert fewer == (layers is meshes.fsdp_unrolled and how == "microbatches")
    said = f"{moved['all-gather'].count:,} instead of {exchanges['all-gather'].predicted.count:,} in total"
    assert fewer == (said in " ".join(str(found).split()))


@pytest.mark.slow
@pytest.mark.parametrize("policy", few(["nothing", "plain"]))
def test_where_the_compiler_divides_its_loops_multiply_too(policy):
    f, shapes = meshes.jit_layers(meshes.under(policy), batch=1024)
    step, given = meshes.microbatches(f, shapes)
    found = [measure(f, *shapes), measure(step, *given)]
    one, four = ({e.kind: e.compiled.count for e in m.collectives} for m in found)
    assert one["all-gather"] > 0 and four["all-gather"] == 4 * one["all-gather"]
    assert all("counts only the collectives that sharding constraints ask for" in " ".join(m.warnings) for m in found)


@pytest.mark.slow
@pytest.mark.parametrize("layers", few([meshes.jit_layers, *meshes.LAYERS], 2), ids=lambda program: program.__name__)
def test_the_collectives_of_a_compiled_program_agree_with_its_text(layers):
    f, shapes = meshes.microbatches(*layers(meshes.under("nothing")))
    compiled = jax.jit(f).lower(*shapes).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    found = collectives_in(read(module.as_serialized_hlo_module_proto()), 8)
    assert {kind: tally.count for kind, tally in found.items()} == executions(compiled.as_text())


SHARD, WHOLE = (field(2, PrimitiveType.BF16) + field(3, rows) + field(3, 1024) for rows in (32, 256))


def instruction(number, opcode, *operands, shape=SHARD, calls=(), target="", chain=""):
    attributes = field(68, field(1, field(1, b"chain_id") + field(2, chain.encode()))) if chain else b""
    used, called = (b"".join(field(which, n) for n in numbers) for which, numbers in ((36, operands), (38, calls)))
    named = field(2, opcode.encode()) + field(3, shape) + field(28, target.encode())
    trips = field(43, json.dumps({"known_trip_count": {"n": 4}}).encode()) if opcode == "while" else b""
    return Instruction(field(35, number) + named + used + called + attributes + trips)


def gather_in_chain(start):
    """A loop of four iterations as libtpu 0.0.50 writes it for a v5e:2x4: a gather in a chain of fusions, and one
    that is in none."""

    def fusion(number, target):
        gather = instruction(number + 1, "all-gather", number, shape=WHOLE, chain="0")
        ending = [instruction(number + 2, "custom-call", number + 1, target=target)] if target else []
        return [instruction(number, "parameter"), gather, *ending]

    parts = {1: fusion(10, start), 2: fusion(20, ""), 3: fusion(30, "AsyncCollectiveDone")}
    calls = [instruction(40 + part, "fusion", 40, calls=[part]) for part in parts]
    body = [instruction(40, "parameter"), *calls, instruction(50, "all-gather", 40, shape=WHOLE)]
    condition = [instruction(60, "parameter")]
    entry = [instruction(70, "parameter"), instruction(71, "while", 70, calls=[4, 5])]
    computations = parts | {4: body, 5: condition, 6: entry}
    return Module(computations, 6, {number: part[-1].id for number, part in computations.items()}, StackFrameIndex())


@pytest.mark.parametrize(("start", "gathers", "sentences"), [("AsyncCollectiveStart", 8, 0), ("AnotherStart", 4, 1)])
def test_a_collective_in_a_chain_of_fusions_counts_once(start, gathers, sentences):
    module = gather_in_chain(start)
    assert collectives_in(module, 8) == {"all-gather": CollectiveStats(gathers, gathers * 7 * 32 * 1024 * 2)}
    notes = chains_not_counted(module)
    assert len(notes) == sentences and all("all-gathers" in note and "not counted" in note for note in notes)


@since("0.12", "jax.reshard marks weights as reduced, and sums as unreduced")
def test_microbatches_with_unreduced_sums_share_one_all_reduce():
    over = meshes.mesh(AxisType.Explicit, d=8)

    def step(w, batches):
        weights = jax.reshard(w, P(reduced={"d"}))
        start = jax.reshard(jnp.zeros_like(w), P(unreduced={"d"}))

        def add(total, x):
            return total + jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(weights), None

        total, _ = lax.scan(add, start, batches)
        return w - 0.1 * jax.reshard(total, P())

    with jax.set_mesh(over):
        found = measure(step, meshes.like(over, shape=(64, 64)), meshes.like(over, None, "d", shape=(4, 64, 64)))
    (summed,) = found.collectives
    assert (summed.kind, summed.predicted.count) == ("all-reduce", 1)
    assert summed.predicted == summed.compiled


@pytest.mark.slow
@since("0.11", "XLA's peak on the CPU is nearer to what is live after an equation")
def test_gathers_that_move_out_of_a_loop_are_in_the_predicted_peak():
    f, shapes = meshes.microbatches(*meshes.fsdp_unrolled(meshes.under("nothing"), layers=6, width=128, batch=256))
    found = measure(f, *shapes)
    assert found.predicted_peak_bytes == pytest.approx(found.peak_bytes, rel=0.05)


def loop_around_a_sum(condition, step=1):
    """A step whose update sums over devices in a while loop."""
    over = meshes.mesh(d=8)

    def update(w):
        body = lambda state: (state[0] + step, 0.5 * lax.psum(state[1], "d"))  # noqa: E731
        return lax.while_loop(condition, body, (0, w))[1]

    def f(w, x):
        gradient = jax.grad(lambda w: jnp.sum(jnp.sin(w * x)))(w)
        return w - jax.shard_map(update, mesh=over, in_specs=P(), out_specs=P(), check_vma=False)(gradient)

    return f, [meshes.like(over, shape=(16,))] * 2


@pytest.mark.parametrize(
    "condition, step, times",
    [
        (lambda s: s[0] < 5, 1, 5),
        (lambda s: s[0] <= 6, 2, 4),
        (lambda s: s[0] > -3, -1, 3),
        (lambda s: s[0] != 9, 3, 3),
        (lambda s: lax.ge(jnp.int32(7), s[0]), 4, 2),
    ],
)
def test_a_while_loop_that_counts_multiplies(condition, step, times):
    f, shapes = loop_around_a_sum(condition, step)
    found = measure(f, *shapes, device="tpu v5e")
    (exchange,) = found.collectives
    assert exchange.predicted.count == exchange.lowered.count == exchange.compiled.count == times
    assert exchange.predicted.link_bytes == times * 2 * 16 * 4 * 7 // 8
    assert "not counted" not in " ".join(found.warnings)
    one = measure(*loop_around_a_sum(lambda s: s[0] < 1)[:1], *shapes, device="tpu v5e")
    sent = DEVICES["tpu v5e"].ring()
    assert (
        found.roofline.update - one.roofline.update >= (times - 1) * exchange.predicted.link_bytes / times / sent * 0.99
    )


@pytest.mark.parametrize(
    "condition",
    [lambda s: jnp.sum(s[1]) > 1, lambda s: (s[0] < 5) & (jnp.sum(s[1]) > 1), lambda s: s[0] < s[1][0].astype(int)],
    ids=["until it is small", "at most five", "as long as a value says"],
)
def test_a_loop_of_unknown_length_counts_as_one_iteration_with_a_note(condition):
    f, shapes = loop_around_a_sum(condition)
    found = measure(f, *shapes)
    (exchange,) = found.collectives
    assert exchange.predicted.count == exchange.lowered.count == exchange.compiled.count == 1
    assert "not counted: while" in " ".join(found.warnings)
    assert "Of a loop of unknown length, only one iteration is counted." in found.warnings


def test_of_branches_the_one_that_sends_most_counts():
    over = meshes.mesh(d=8)

    def body(w, x):
        twice = lambda w: lax.psum(lax.psum(w, "d") * 0.5, "d")  # noqa: E731
        return w - 0.1 * lax.cond(
            x[0] > 0, twice, lambda w: 1.0 * lax.psum(w, "d"), jax.grad(lambda w: jnp.sum(w**2))(w)
        )

    f = jax.shard_map(body, mesh=over, in_specs=P(), out_specs=P(), check_vma=False)
    found = measure(f, *[meshes.like(over, shape=(16,))] * 2)
    (exchange,) = found.collectives
    assert exchange.predicted == exchange.lowered == exchange.compiled
    assert exchange.compiled.count == 2
    assert program_cost(found.trace.step.program).link_bytes == exchange.predicted.link_bytes


@pytest.mark.parametrize(
    "kind, operand, result, sent",
    [
        ("all-gather", 100, 800, 700),
        ("reduce-scatter", 800, 100, 700),
        ("all-reduce", 800, 800, 1400),
        ("all-to-all", 800, 800, 700),
        ("collective-permute", 800, 800, 800),
    ],
)
def test_in_a_ring_of_eight(kind, operand, result, sent):
    """Each device sends its 100 bytes, or partial results of them, seven times; in an all-reduce 14 times."""
    assert link_bytes(kind, operand, result, 8) == sent


@functools.cache
def measured(policy):
    f, shapes = meshes.fsdp_layers(meshes.under(policy), layers=8, width=128, batch=8 * 256)
    return measure(f, *shapes)


@pytest.mark.slow
@since("0.11", "XLA's peak on the CPU is nearer to what is live after an equation")
def test_on_a_stack_of_layers_the_compiled_collectives_follow_the_prediction():
    plain, names, nothing = found = [measured(policy) for policy in ("plain", "names", "nothing")]
    for one in found:
        rows = {row.metric: row for row in one.rows}
        assert rows["arguments"].error == 0
        assert 0 <= rows["outputs"].compiled - rows["outputs"].predicted < 64  # XLA's table of what it returns
        assert one.predicted.peak_bytes == pytest.approx(one.peak_bytes, rel=0.2)
        assert {e.kind for e in one.collectives} == {"all-gather", "all-reduce", "reduce-scatter"}
        assert all(e.predicted == e.lowered == e.compiled for e in one.collectives)
    for more, less in ((plain, names), (names, nothing)):
        kept = [m.trace.device_bytes_by_kind()["computed"] for m in (more, less)]
        assert more.temp_bytes - less.temp_bytes == pytest.approx(kept[0] - kept[1], rel=0.05)
    assert names.time(runs=1).median > 0
    assert "compiled for cpu on each of 8 devices" in str(names) and "all-gather, sent" in str(names)


@pytest.mark.slow
def test_fit_is_about_the_memory_of_a_device():
    f, shapes = meshes.fsdp_layers(meshes.under("nothing"), layers=8, width=128, batch=8 * 256)
    least, most = (measured(policy).peak_bytes for policy in ("nothing", "names"))
    found = fit(f, *shapes, peak=(least + most) // 2)
    assert len(found.names) == 1 and least < found.chosen.peak_bytes < (least + most) // 2


def gathered_product(over):
    def body(w, x):
        return lax.pmean(jnp.mean(jnp.sin(x @ lax.all_gather(w, "d", tiled=True)) ** 2), "d")

    return jax.shard_map(body, mesh=over, in_specs=P("d"), out_specs=P())


def abstract(devices, kind=AxisType.Auto):
    return AbstractMesh((devices,), ("d",), axis_types=(kind,))


@pytest.mark.parametrize("carry", [True, False], ids=["arguments that say how they lie", "arguments that do not"])
def test_an_abstract_mesh_is_compiled_for_devices_that_are_here(carry):
    over = abstract(8)
    sharding = NamedSharding(over, P("d")) if carry else None
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding) for shape in ((16, 64), (8, 16))]
    found = measure(gathered_product(over), *shapes)
    assert found.argument_bytes == (16 * 64 + 8 * 16) * 4 // 8 + 4
    assert {e.kind: e.compiled.count for e in found.collectives}["all-gather"] == 1


@pytest.mark.slow
def test_more_devices_than_available_run_in_a_separate_process(monkeypatch):
    over = abstract(16)
    shapes = [meshes.like(over, "d", shape=shape) for shape in ((16, 64), (16, 16))]
    before = dict(os.environ)
    found = measure(gathered_product(over), *shapes)
    assert found.argument_bytes == (16 * 64 + 16 * 16) * 4 // 16 + 4
    assert found.compiled.peak_bytes > 0 and found.collectives[0].compiled.count == 1
    assert os.environ == before
    with pytest.raises(TargetError, match="XLA_FLAGS=--xla_force_host_platform_device_count=16"):
        found.time()
    failed = subprocess.CompletedProcess([], 1, stderr="Traceback\nno room.\n")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: failed)
    with pytest.raises(TargetError, match=r"XLA did not compile body for cpu: no room\. "):
        measure(gathered_product(over), *shapes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_shardings_over_more_devices_than_available_are_those_of_the_mesh(kind):
    """`jax.make_mesh` makes explicit axes by default."""
    over = abstract(16, kind)
    shape = meshes.like(over, "d", shape=(64, 4))
    found = measure(lambda x: jnp.sin(jnp.sin(x)), shape)
    assert found.argument_bytes == found.output_bytes - found.output_bytes % 128 == 2 * 64 * 4 * 4 // 16


def test_a_sharding_constraint_and_an_explicit_mesh_are_compiled_for_their_devices():
    over = meshes.mesh(d=8)
    shape = meshes.like(over, "d", shape=(64, 4))

    def constrained(x, w):
        return lax.with_sharding_constraint(jnp.sin(x @ w), NamedSharding(over, P("d")))

    found = measure(constrained, shape, jax.ShapeDtypeStruct((4, 4), jnp.float32))
    assert found.argument_bytes < 64 * 4 * 4 + 200  # an eighth of x, w, and an eighth of the cotangent, or all of it
    typed = meshes.mesh(AxisType.Explicit, d=8)
    shape = meshes.like(typed, "d", shape=(64, 4))
    found = measure(lambda x: jnp.sin(jnp.sin(x)), shape)
    assert found.argument_bytes == found.output_bytes - found.output_bytes % 128 == 2 * 64 * 4 * 4 // 8
    sharded = jax.device_put(jnp.ones((64, 4)), NamedSharding(over, P("d")))
    assert measure(lambda x: jnp.sum(jnp.sin(x)), sharded).argument_bytes == 64 * 4 * 4 // 8 + 4


def test_a_mesh_with_more_devices_than_gpus_is_refused(monkeypatch):
    f, shapes = meshes.fsdp(meshes.under("nothing"))
    monkeypatch.setattr(jax, "devices", lambda target: [object()])
    with pytest.raises(TargetError, match="body is for 8 devices, but JAX has 1 of GPU here"):
        measure(f, *shapes, target="gpu")


@pytest.mark.parametrize(
    "target, devices, name",
    [
        ("tpu v5e", 1, "v5e:2x2"),
        ("tpu v5e", 8, "v5e:2x4"),
        ("tpu v6e", 256, "v6e:16x16"),
        ("tpu v4", 4, "v4:2x2x1"),
        ("tpu v5p", 8, "v5p:2x2x2"),
        ("tpu v5p", 32, "v5p:2x4x4"),
        ("tpu v5e:4x4", 8, "v5e:4x4"),
        ("tpu7x", 8, "tpu7x:2x2x1"),
        ("tpu7x", 16, "tpu7x:2x2x2"),
    ],
)
def test_a_tpu_that_is_not_here_has_as_many_devices_as_the_mesh(target, devices, name):
    found, count = topology(target, devices)
    assert found == name and count >= devices and generation(target) == target.partition(":")[0]


def test_a_topology_with_too_few_chips_is_refused(monkeypatch):
    f, shapes = meshes.fsdp(meshes.under("nothing"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    with pytest.raises(TargetError, match="v5e:2x2 has 4 devices, but body is for 8 devices"):
        measure(f, *shapes, target="tpu v5e:2x2")


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu")
@pytest.mark.parametrize("target", ["tpu v5e:2x4", pytest.param("tpu7x:2x2x1", marks=pytest.mark.slow)])
def test_libtpu_compiles_for_a_topology_that_is_not_here(target):
    f, shapes = meshes.fsdp_layers(meshes.under("nothing"), layers=8, width=256, batch=8 * 256)
    found = measure(f, *shapes, target=target)
    predicted = next(row.predicted for row in found.rows if row.metric == "arguments")
    assert 0 <= found.argument_bytes - predicted <= 512  # a scalar takes so much
    assert {e.kind: e.lowered for e in found.collectives} == found.trace.collectives()
