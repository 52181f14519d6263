"""The compiled program of both passes: figures equal XLA's own, and predictions where both must agree."""

import functools
import importlib.util
import json
import os
import pathlib
import re
import types

import jax
import jax.numpy as jnp
import pytest
import zoo
from compiled_programs import SCANNED, UNROLLED, allowed, array, compiled, scanned, unrolled
from jax import lax
from releases import since

from rematscope import TargetError, estimate_time, liveness, measure, trace
from rematscope.seconds.devices import DEVICES
from rematscope.xla.aot_topology import ABSENT
from rematscope.xla.buffers import LiveRange, Schedule, _live_bytes
from rematscope.xla.out_of_memory import out_of_memory


@functools.cache
def measured(kind, wrap):
    f, args = {"scanned": (scanned, SCANNED), "unrolled": (unrolled, UNROLLED)}[kind]
    return measure(f(wrap) if wrap else f(), *args)


# Memory.


@since("0.10", "XLA's peak is the sum of its parts")
def test_memory_is_xla_s_analysis():
    found = measured("unrolled", None)
    analysis = compiled(jax.value_and_grad(unrolled(), argnums=(0, 1)), *UNROLLED).memory_analysis()
    # The loss's cotangent is an input in addition to the arguments.
    assert found.argument_bytes == analysis.argument_size_in_bytes + 4
    assert found.output_bytes == pytest.approx(analysis.output_size_in_bytes, abs=64)
    assert found.temp_bytes == pytest.approx(analysis.temp_size_in_bytes, rel=0.1)
    assert found.peak_bytes == found.argument_bytes + found.output_bytes + found.temp_bytes


def test_temporaries_count_even_if_a_loops_buffers_lie_between_them():
    parts = [types.SimpleNamespace(logical_buffer_id=i, offset=64 * i, size=size) for i, size in enumerate((64, 400))]
    block = types.SimpleNamespace(
        size=464, assigned=parts, is_tuple=1, is_thread_local=0, is_entry_computation_parameter=0, is_constant=0
    )
    schedule = Schedule([None], {0: LiveRange(None, 0, 0), 1: LiveRange(None, 0, 0)})
    totals = _live_bytes(
        types.SimpleNamespace(buffer_allocations=[block]), schedule, {0: "temporaries", 1: "temporaries"}
    )
    assert totals["temporaries"][0] == 464


@pytest.mark.parametrize("kind", ["scanned", "unrolled"])
@pytest.mark.parametrize("wrap", [None, jax.checkpoint], ids=["plain", "checkpoint"])
def test_the_allocation_record_adds_up(kind, wrap):
    """Live bytes never exceed XLA's allocations, and come close to them at their peak."""
    found = measured(kind, wrap)
    assert 0.9 * found.peak_bytes <= found.compiled.peak_bytes <= found.peak_bytes
    start, *_, end = found.compiled.samples
    assert start.nbytes == pytest.approx(found.argument_bytes, abs=100), "and a few scalar constants"
    assert end.nbytes == pytest.approx(found.argument_bytes + found.output_bytes, abs=100)


@since("0.11", "XLA on a CPU sets no more memory aside than this")
@pytest.mark.parametrize("kind", ["scanned", "unrolled"])
@pytest.mark.parametrize("wrap", [None, jax.checkpoint], ids=["plain", "checkpoint"])
def test_the_prediction_is_close_to_the_compiled_peak_on_a_cpu(kind, wrap):
    found = measured(kind, wrap)
    rows = {row.metric: row for row in found.rows}
    assert rows["arguments"].error == 0
    assert abs(rows["peak"].error) < 0.1
    assert abs(rows["saved"].error) < 0.1
    assert abs(rows["FLOPs"].error) < 0.001


def test_checkpoint_shows_in_every_figure():
    plain, checkpointed = measured("scanned", None), measured("scanned", jax.checkpoint)
    assert checkpointed.temp_bytes < plain.temp_bytes / 2
    assert checkpointed.cost.flops > 1.3 * plain.cost.flops
    assert not any(moment.recomputed for moment in plain.compiled.samples)
    assert any(moment.recomputed for moment in checkpointed.compiled.samples)


def test_cse_that_undoes_a_checkpoint_shows_as_the_prediction_s_error():
    kept, undone = measured("unrolled", jax.checkpoint), measured("unrolled", allowed)
    assert undone.predicted.peak_bytes == kept.predicted.peak_bytes
    rows = {row.metric: row for row in undone.rows}
    assert rows["peak"].error < -0.3 and rows["FLOPs"].error > 0.2


@since("0.11", "XLA on a CPU sets no more memory aside than this")
def test_the_wrong_half_checkpointed_shows_in_temporary_memory():
    """The seed's recursive checkpoint, and the same with the other half wrapped: 2 vectors against 5 for 16 sines."""

    def wrong(funs):
        if len(funs) <= 2:
            return zoo.recursive_checkpoint(funs)
        f1, f2 = wrong(funs[: len(funs) // 2]), wrong(funs[len(funs) // 2 :])
        return lambda x: jax.checkpoint(f1)(f2(x))

    vector = array(1024)
    right, other = (measure(make([jnp.sin] * 16), vector) for make in (zoo.recursive_checkpoint, wrong))
    assert (right.temp_bytes // 4096, other.temp_bytes // 4096) == (2, 5)
    assert right.predicted.peak_bytes == right.compiled.peak_bytes == 6 * 4096


@since("0.11", "XLA on a CPU sets no more memory aside than this")
def test_at_the_boundary_of_the_compiled_program_the_residuals_are_live():
    found = measured("unrolled", jax.checkpoint).compiled
    forward, backward = found.samples[1 : found.boundary], found.samples[found.boundary + 1 : -1]
    assert found.samples[found.boundary].operation == "boundary"
    assert not any(moment.recomputed for moment in forward)
    # Three values between four layers cross; the first layer's input is an argument.
    assert found.samples[found.boundary].residuals == 3 * 4 * 256 * 64
    assert backward[-1].residuals == 0
    assert {m.source.function.rpartition(".")[2] for m in forward if "sin" in m.operation} == {"layer"}


@since("0.11", "XLA on a CPU sets no more memory aside than this")
def test_backward_operations_scheduled_before_the_forward_pass_do_not_move_the_boundary():
    """XLA computes the cotangent of the masked mean, which needs the mask only, before the forward pass."""
    layer = jax.checkpoint(lambda x, w: x + jnp.tanh(x @ w) @ w.T)

    def loss(parameters, tokens, labels, mask):
        x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), parameters["embedding"][tokens], parameters["layers"])
        logits = x @ parameters["head"]
        own = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
        return ((jax.nn.logsumexp(logits, -1) - own) * mask).sum() / mask.sum()

    def step(parameters, *batch):
        value, gradient = jax.value_and_grad(loss)(parameters, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradient), value

    parameters = {"embedding": array(512, 64), "layers": array(6, 64, 128), "head": array(64, 512)}
    tokens = jax.ShapeDtypeStruct((4, 64), "int32")
    for f in (loss, jax.jit(step, donate_argnums=0)):
        found = measure(f, parameters, tokens, tokens, array(4, 64))
        (saved,) = (row for row in found.rows if row.metric == "saved")
        assert abs(saved.error) < 0.02
        assert saved.compiled == max(sample.residuals for sample in found.compiled.samples)


def test_closed_over_arrays_count_on_both_sides():
    table = jnp.ones((64, 64))
    found = measure(lambda x: jnp.sum(jnp.sin(x @ table) @ table), array(4, 64))
    assert found.predicted.samples[0].arguments == 4 * 64 * 64 + 4 * 4 * 64
    assert found.peak_bytes > 4 * 64 * 64


# Arguments and outputs of every kind.

KINDS = [
    "pytrees", "keywords", "python_scalars", "integers_beside", "integer_output", "output_is_constant", "dropout",
    "unused_argument", "complex_scalar", "mixed_precision", "empty_array", "branches", "while_loop_beside", "top_k",
]  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_arguments_and_outputs_of_every_kind(name):
    case = zoo.CASES[name]
    found = measure(case.function, *case.args, **case.kwargs)
    assert found.compiled.peak_bytes <= found.peak_bytes
    assert len(found.time(runs=2).runs) == 2


def test_shapes_are_enough_and_nothing_is_allocated():
    before = len(jax.live_arrays())
    found = measure(scanned(jax.checkpoint), array(80, 8192, 8192), array(4096, 8192))
    assert found.argument_bytes > 20e9 and len(jax.live_arrays()) == before


# Time.


def test_time_is_measured_on_request():
    found = measured("scanned", None).time(runs=3)
    assert len(found.runs) == 3 and min(found.runs) <= found.median <= max(found.runs)
    assert re.fullmatch(r"[\d.e+]+ ms, the median of 3 runs of [\d.e+]+ to [\d.e+]+ ms", str(found))


def test_the_given_arrays_are_run():
    seen = []

    def f(x):
        jax.debug.callback(lambda x: seen.append(float(x)), x)
        return jnp.sin(x)

    measure(f, jnp.float32(0.25)).time(runs=1)
    assert set(seen) == {0.25}


# Targets.


def test_a_target_that_is_not_available_is_refused_with_advice(monkeypatch):
    f, x = jnp.sin, 1.0
    with pytest.raises(TargetError, match=r"target='abacus' is not known. Choose one of cpu, gpu, tpu, tpu v4,"):
        measure(f, x, target="abacus")
    monkeypatch.setattr(jax, "devices", lambda target: (_ for _ in ()).throw(RuntimeError("Unknown backend")))
    with pytest.raises(TargetError, match=r"JAX finds no GPU. Choose target='cpu', .* pip install 'jax\[cuda13\]'"):
        measure(f, x, target="gpu")
    for missing in ("libtpu", "flatbuffers"):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, missing=missing: None if name == missing else name
        )
        sentence = rf"needs {missing}, which is not installed: pip install 'jax\[tpu\]' flatbuffers"
        with pytest.raises(TargetError, match=sentence):
            measure(f, x, target="tpu v5e")


def test_compiling_for_an_absent_tpu_runs_in_a_separate_process(monkeypatch):
    """The parent's part: what it hands over, what it reads, and that its own environment stays as it is."""
    f, x = scanned(jax.checkpoint), SCANNED
    (hlo,) = compiled(f, *x).runtime_executable().hlo_modules()
    sizes = {
        "argument_size": 10,
        "output_size": 20,
        "alias_size": 4,
        "temp_size": 5,
        "host_temp_size": 6,
        "peak_memory": 70,
    }

    def child(command, env, **how):
        *_, target, folder = command
        assert target == "tpu v5e" and env["TPU_ACCELERATOR_TYPE"] == "v5litepod-4" and env["JAX_PLATFORMS"] == "cpu"
        folder = pathlib.Path(folder)
        exported = jax.export.deserialize((folder / "exported").read_bytes())
        assert exported.platforms == ("tpu",) and len(exported.in_avals) == 3
        assert json.loads((folder / "axes").read_text()) == []
        (folder / "module").write_bytes(hlo.as_serialized_hlo_module_proto())
        (folder / "record").write_bytes(b"")
        (folder / "memory").write_text(json.dumps({f"{name}_in_bytes": size for name, size in sizes.items()}))
        return types.SimpleNamespace(returncode=0, stderr="")

    before = dict(os.environ)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr("subprocess.run", child)
    found = measure(f, *x, target="tpu v5e")
    assert (found.peak_bytes, found.temp_bytes, found.compiled, found.argument_bytes) == (10 + 20 - 4 + 5, 5, None, 10)
    assert (found.host_bytes, found.xla_peak_bytes) == (6, 70)
    memory = ["arguments", "outputs", "temporaries", "host memory", "peak", "XLA's own peak"]
    assert [row.metric for row in found.rows] == [*memory, "FLOPs", "transcendentals"]
    assert os.environ == before
    with pytest.raises(TargetError, match="no TPU v5e on this machine"):
        found.time()

    monkeypatch.setattr("subprocess.run", lambda *_, **__: types.SimpleNamespace(returncode=1, stderr="a\nmismatch.\n"))
    with pytest.raises(TargetError, match=r"libtpu did not compile <lambda> for TPU v5e: mismatch\. "):
        measure(f, *x, target="tpu v5e")

    failed = (
        "Traceback\njax.errors.JaxRuntimeError: INTERNAL: call-start.2 expects another shape.\n\t\n\n"
        "Suspected Python Code Location:\n  <string>:18:19 [nested]\n"
    )
    monkeypatch.setattr("subprocess.run", lambda *_, **__: types.SimpleNamespace(returncode=1, stderr=failed))
    with pytest.raises(
        TargetError, match=r"INTERNAL: call-start\.2 expects another shape\. Remove the operation that it names"
    ):
        measure(f, *x, target="tpu v5e")

    for stated, step in (
        ("ERROR: Unknown command line flag 'xla_tpu_nothing'", "Correct or remove the flag in LIBTPU_INIT_ARGS"),
        ("ERROR: Illegal value 'x' specified for flag 'y'", "Correct or remove the flag in LIBTPU_INIT_ARGS"),
        ("UNIMPLEMENTED: BRKGA", "Remove the operation, or the flag in LIBTPU_INIT_ARGS, that it names"),
    ):
        monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_nothing=1")
        result = types.SimpleNamespace(returncode=1, stderr=f"jax.errors.JaxRuntimeError: {stated}")
        monkeypatch.setattr("subprocess.run", lambda *_, result=result, **__: result)
        with pytest.raises(TargetError, match=rf"{step}\."):
            measure(f, *x, target="tpu v5e")

    full = (
        "Traceback\njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on "
        "HBM, the total memory required for HLO temporaries (93.15G) exceeds available HBM (15.75G). HLO module: f.\n"
    )
    monkeypatch.setattr("subprocess.run", lambda *_, **__: types.SimpleNamespace(returncode=1, stderr=full))
    found = measure(f, *x, target="tpu v5e")
    said = found.out_of_memory
    assert (said.needed_bytes, said.available_bytes) == (int(93.15 * 2**30), int(15.75 * 2**30))
    assert said.text.startswith("Ran out of memory on HBM") and said.text.endswith("exceeds available HBM (15.75G)")
    assert found.peak_bytes == said.needed_bytes and found.temp_bytes is found.compiled is None
    assert [row.metric for row in found.rows] == ["available", "peak"]
    assert "does not fit into the memory of a TPU v5e: Ran out of memory on HBM" in " ".join(str(found).split())
    with pytest.raises(TargetError, match=r"does not fit into the memory of a TPU v5e: .* \(15\.75G\)\. Save"):
        found.time()


HBM = "Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. Exceeded hbm capacity by 4.75G."


@pytest.mark.parametrize(
    ("message", "needed", "available", "end"),
    [
        (f"XlaRuntimeError: RESOURCE_EXHAUSTED: {HBM}\n\nTotal hbm usage >= 21.02G", 20.5, 15.75, "of 15.75G hbm"),
        (f"RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: XLA:TPU compile permanent error. {HBM}", 20.5, 15.75, "hbm"),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9.3 GiB.", 9.3, None, "allocate 9.3 GiB"),
        ("RESOURCE_EXHAUSTED:", None, None, ""),
    ],
    ids=["used", "coded", "no_figures", "nothing"],
)
def test_xlas_messages_about_memory_are_parsed(message, needed, available, end):
    found = out_of_memory(message)
    assert found.needed_bytes == (needed and int(needed * 2**30))
    assert found.available_bytes == (available and int(available * 2**30))
    assert found.text.endswith(end)


def test_other_messages_of_xla_are_not_about_memory():
    assert out_of_memory("INVALID_ARGUMENT: Used 20.50G of 15.75G hbm.") is None


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu")
def test_libtpus_message_gives_the_needed_and_available_bytes():
    def deep(w, x):
        return lax.scan(lambda x, _: (jnp.sin(x @ w), None), x, None, length=64)[0].sum()

    # Each array fits. For one that does not, the message of JAX 0.7.2's libtpu gives the size of this array only.
    found = measure(deep, array(1024, 1024), array(7 * 2**13, 1024), target="tpu v5e")
    assert 2**34 < found.out_of_memory.available_bytes * 1.1 < found.out_of_memory.needed_bytes
    assert "does not fit into the memory of a TPU v5e" in " ".join(str(found).split())


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu")
@pytest.mark.parametrize("name", ABSENT)
def test_the_memory_of_a_tpu_in_the_table_is_what_libtpu_gives_a_program(name):
    found = measure(lambda x: jnp.sum(jnp.sin(x) * x), array(100 * 2**30), target=name)
    assert found.out_of_memory.available_bytes == pytest.approx(DEVICES[name].memory, abs=2**23)


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu")
def test_libtpu_compiles_for_a_tpu_that_is_not_here():
    plain, checkpointed = (measure(scanned(wrap), *SCANNED, target="tpu v5e") for wrap in (lambda f: f, jax.checkpoint))
    assert checkpointed.xla_peak_bytes < plain.xla_peak_bytes
    assert plain.peak_bytes <= plain.xla_peak_bytes
    assert checkpointed.cost.flops == pytest.approx(trace(scanned(jax.checkpoint), *SCANNED).cost.flops, rel=0.02)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu")
@pytest.mark.parametrize("rows", [510_000, 520_000])
def test_xlas_own_peak_decides_whether_a_program_fits_on_a_tpu(rows):
    """The gradient of x overwrites temporaries, so the sum of all buffers is more than the memory of the device."""

    def deep(weights, x):
        return lax.scan(jax.checkpoint(lambda x, w: (jnp.tanh(x @ w), None)), x, weights)[0].sum()

    memory = DEVICES["tpu v5e"].memory
    found = measure(deep, array(8, 1024, 1024), array(rows, 1024), target="tpu v5e")
    if rows == 510_000:
        assert 0.98 * memory < found.xla_peak_bytes < memory < found.peak_bytes
    else:
        assert memory < found.out_of_memory.needed_bytes < 1.02 * memory


# Views.


def test_the_table_shows_predicted_next_to_compiled_figures():
    text = str(measured("scanned", jax.checkpoint))
    assert text.startswith("<lambda>: both passes, traced and compiled for cpu\n")
    lines = {line.split("  ")[0]: re.split(r" {2,}", line) for line in text.splitlines()[3:]}
    # 8 layers' inputs of 256 × 64 floats.
    assert lines["saved"][1:4] == ["512 KiB", "512 KiB", "0.0 %"]
    assert lines["temporaries"][1] == "–"
    assert list(lines) == ["arguments", "outputs", "saved", "temporaries", "peak", "FLOPs", "transcendentals"]


def test_both_timelines_are_of_one_kind():
    found = measured("scanned", None)
    assert type(found.compiled) is type(found.predicted)
    assert found.predicted.samples == liveness(scanned(), *SCANNED).samples
    assert "compiled for cpu" in str(found.compiled)


def test_times_are_shown_if_a_device_is_given():
    f = jax.checkpoint(lambda w, x: jnp.sin(w @ x).sum())
    found = measure(f, jnp.ones((64, 64)), jnp.ones((64, 64)), device="tpu v5e")
    assert found.roofline == estimate_time(found.trace, "tpu v5e")
    assert "Estimated by a roofline of tpu v5e: both passes take" in " ".join(str(found).split())
    assert measure(f, jnp.ones((64, 64)), jnp.ones((64, 64))).roofline is None
    with pytest.raises(TargetError, match="device='tpu v99' is not known"):
        measure(f, jnp.ones((64, 64)), jnp.ones((64, 64)), device="tpu v99")
