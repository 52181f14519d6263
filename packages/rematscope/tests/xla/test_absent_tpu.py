"""libtpu on a machine without a TPU: compiling ahead of time starts the CPU's backend alone."""

import os
import pathlib
import subprocess
import sys

import pytest
from jax._src import hardware_utils

CODE = """
import jax, jax.numpy as jnp
from jax._src import xla_bridge
from rematscope import measure
started = []
xla_bridge.register_backend_factory("tpu", lambda: started.append(1), priority=300, fail_quietly=True)
shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
{first}
assert measure(lambda x: jnp.sin(x @ x).sum(), shape).peak_bytes
print(len(started), jax.config.jax_platforms)
"""


@pytest.mark.slow
@pytest.mark.skipif(hardware_utils.num_available_tpu_chips_and_device_id()[0] > 0, reason="there is a TPU")
@pytest.mark.parametrize(
    ("first", "environment", "said"),
    [
        ("", {}, "0 cpu"),
        ("", {"JAX_PLATFORMS": "cpu"}, "0 cpu"),
        ("jnp.ones(3)", {}, "1 None"),  # JAX has started it already
    ],
)
def test_jax_does_not_wait_for_an_absent_tpu(first, environment, said, tmp_path):
    (tmp_path / "libtpu.py").write_text("def get_library_path(): return 'none'")
    path = os.pathsep.join([str(tmp_path), str(pathlib.Path(__file__).parents[2] / "src")])
    others = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    env = others | {"PYTHONPATH": path} | environment
    run = subprocess.run([sys.executable, "-c", CODE.format(first=first)], env=env, capture_output=True, text=True)
    assert run.stdout.split("\n")[-2:-1] == [said], run.stderr[-2000:]
