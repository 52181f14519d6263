"""A learner's settings change no verdict: settings of JAX and NumPy in a notebook, and a terminal's environment."""

import contextlib
import importlib
import inspect
import json
import os
import subprocess
import sys
import threading
import warnings

import jax
import numpy as np
import pytest
from sample_answers import slow_unless_sampled

from grader.exercises import registry
from grader.isolation.check_file import check_file
from grader.isolation.in_process import grade
from grader.util.jax_settings import OF_A_THREAD, OF_THE_PROCESS, default_settings

# Settings that learners may change, most of them useful ones; no value is JAX's default.
SETTINGS = {
    "eager_constant_folding": True,
    "jax_captured_constants_warn_bytes": 0,
    "jax_check_tracer_leaks": True,
    "jax_compiler_enable_remat_pass": False,
    "jax_debug_infs": True,
    "jax_debug_key_reuse": True,
    "jax_debug_nans": True,
    "jax_default_device": jax.devices("cpu")[0],
    "jax_default_matmul_precision": "bfloat16",
    "jax_default_prng_impl": "rbg",
    "jax_disable_bwd_checks": True,
    "jax_disable_jit": True,
    "jax_disable_most_optimizations": True,
    "jax_enable_checks": True,
    "jax_enable_custom_prng": True,
    "jax_enable_x64": True,
    "jax_error_checking_behavior_nan": "raise",
    "jax_explain_cache_misses": True,
    "jax_legacy_prng_key": "error",
    "jax_log_checkpoint_residuals": True,
    "jax_log_compiles": True,
    "jax_no_execution": True,
    "jax_no_tracing": True,
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_optimization_level": "O0",
    "jax_random_seed_offset": 3,
    "jax_remat_barrier_no_cotangents": True,
    "jax_softmax_custom_jvp": True,
    "jax_threefry_partitionable": False,
    "jax_traceback_filtering": "off",
    "jax_transfer_guard": "disallow",
    "jax_use_direct_linearize": False,
    "jax_use_rgv3": False,
    "jax_use_shardy_partitioner": False,
    "jax_use_simplified_jaxpr_constants": True,
}


@contextlib.contextmanager
def configured(settings):
    before = {name: jax.config.values[name] for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


@contextlib.contextmanager
def all_of_them():
    """Apply every setting of `jax.config` at once, as well as settings of NumPy, Python and a mesh: among them warnings
    as errors, another working directory and no standard output."""
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,))
    limit = sys.getrecursionlimit()
    with (
        configured(SETTINGS),
        jax.set_mesh(mesh),
        np.errstate(all="raise"),
        np.printoptions(legacy="1.13"),
        warnings.catch_warnings(action="error"),
        contextlib.chdir("/"),
        contextlib.redirect_stdout(None),
    ):
        sys.setrecursionlimit(400)
        yield
        sys.setrecursionlimit(limit)


WITHIN = {
    "disable_jit": jax.disable_jit,
    "checking_leaks": jax.checking_leaks,
    "enable_x64": lambda: jax.enable_x64(True),
    "debug_nans": lambda: jax.debug_nans(True),
    "numpy_rank_promotion": lambda: jax.numpy_rank_promotion("raise"),
    "numpy_dtype_promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "default_matmul_precision": lambda: jax.default_matmul_precision("bfloat16"),
    "transfer_guard": lambda: jax.transfer_guard("disallow"),
}


def solution(slug):
    return getattr(importlib.import_module(f"solutions.{slug}"), slug)


@pytest.mark.parametrize("slug", slow_unless_sampled(list(registry.names()), 14))
def test_a_worked_answer_passes_under_thirty_six_settings_at_once(slug, seed):
    with all_of_them():
        verdict = grade(solution(slug), slug, seed)
    assert verdict.passed, verdict


def draw_names(names, count, seed):
    """Return a few of the names. After a dozen or so runs, each has been tried by itself."""
    return [str(name) for name in np.random.default_rng(seed).choice(sorted(names), count, replace=False)]


@pytest.mark.slow
def test_a_worked_answer_passes_under_each_setting_alone(seed):
    for name in draw_names(SETTINGS, 3, seed):
        with configured({name: SETTINGS[name]}):
            assert grade(solution("scan_layers"), "scan_layers", seed).passed, name
    for name in draw_names(WITHIN, 1, seed):
        with WITHIN[name]():
            assert grade(solution("scan_layers"), "scan_layers", seed).passed, name


def test_settings_are_restored():
    def now():
        return jax.config.values, np.geterr(), sys.getrecursionlimit(), jax.sharding.get_abstract_mesh()

    with all_of_them():
        before = now()
        with pytest.raises(KeyError), default_settings():
            assert now()[0] == before[0] | OF_A_THREAD | OF_THE_PROCESS | {
                name: now()[0][name] for name in now()[0] if name.startswith("jax_transfer_guard")
            }
            raise KeyError
        assert now() == before
    with jax.disable_jit(), default_settings():
        assert not jax.config.jax_disable_jit


def test_process_wide_settings_stay_at_their_defaults_until_the_last_thread_leaves():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with default_settings():
            inside.set()
            leave.wait()

    with configured({"jax_random_seed_offset": 3}):
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
        with default_settings():
            assert jax.config.values["jax_random_seed_offset"] == 0
        assert jax.config.values["jax_random_seed_offset"] == 0
        leave.set()
        thread.join()
        assert jax.config.values["jax_random_seed_offset"] == 3


HOSTILE = {
    "JAX_ENABLE_X64": "1",
    "JAX_DISABLE_JIT": "1",
    "JAX_CHECK_TRACER_LEAKS": "1",
    "JAX_DEBUG_NANS": "1",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "JAX_USE_DIRECT_LINEARIZE": "0",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
}


@pytest.mark.slow
def test_a_notebook_s_environment_changes_no_verdict():
    script = """
import jax
from grader.isolation.in_process import grade
from solutions.checkpointed_while import checkpointed_while
assert len(jax.devices()) == 4 and jax.config.jax_disable_jit
print(grade(checkpointed_while, "checkpointed_while", 0).outcome)
"""
    environment = os.environ | HOSTILE | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout == "passed\n", done.stderr


@pytest.mark.slow
def test_neither_a_terminal_s_environment_nor_an_answer_s_own_cell_changes_a_verdict(monkeypatch, tmp_path):
    for name, value in (HOSTILE | {"PYTHONWARNINGS": "error"}).items():
        monkeypatch.setenv(name, value)
    cell = """
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_jit", True)

solved = scan_layers

def scan_layers(ws, x):
    jax.config.update("jax_debug_nans", True)
    return solved(ws, x)
"""
    file = tmp_path / "scan_layers.py"
    file.write_text(inspect.getsource(sys.modules[solution("scan_layers").__module__]) + cell)
    verdict = check_file(file)
    assert verdict.passed, verdict


@pytest.mark.slow
def test_the_settings_are_jaxs_defaults():
    script = "import json, jax; print(json.dumps(jax.config.values, default=lambda value: value.value))"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=plain, check=True)
    comes_with = json.loads(done.stdout)
    pinned = OF_A_THREAD | OF_THE_PROCESS
    assert {name: comes_with[name] for name in pinned} == pinned
    unlike = {name for name, value in SETTINGS.items() if comes_with[name] != value}
    assert unlike == set(SETTINGS) and unlike - set(pinned) == {"jax_traceback_filtering", "jax_transfer_guard"}
