"""Print the out-of-memory message and the memory report on the page of exercise 31: `python benchmarks/oom_dump.py`.

It reads the model from the page, compiles a training step of it for one chip of a TPU v5e ahead of time, and so needs
the extra `tpu`. No TPU is used. The page quotes the output with libtpu 0.0.50, in 11 s on two cores.
"""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import nbformat

PAGE = Path(__file__).parents[1] / "exercises" / "31_read_oom.ipynb"
SIZES = {"layers": 6, "batch": 4, "tokens": 1024, "heads": 16, "head_width": 32, "channels": 64, "hidden": 2048}
STEP = """
from jax.experimental import topologies

def step(params, momentum, x, pairs, targets):
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, jax.grad(loss)(params, x, pairs, targets))
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum

chip = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
place = jax.sharding.SingleDeviceSharding(chip)
arguments = jax.tree.map(
    lambda shape: jax.ShapeDtypeStruct(shape, "float32", sharding=place), shapes_of(**SIZES),
    is_leaf=lambda leaf: isinstance(leaf, tuple) and isinstance(leaf[0], int),
)
params, x, pairs = arguments
jax.jit(step, donate_argnums=(0, 1)).lower(params, params, x, pairs, x).compile()
"""
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "1",
    "TPU_STDERR_LOG_LEVEL": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def shapes_of(layers, batch, tokens, heads, head_width, channels, hidden):
    """Return the shapes of the model's parameters, of its input and of its pairs."""
    width = heads * head_width
    projection = (layers, width, heads, head_width)
    params = {
        "query": projection,
        "key": projection,
        "value": projection,
        "out": (layers, heads, head_width, width),
        "scale": (layers, channels),
        "shift": (layers, channels),
        "bias": (layers, channels, heads),
        "up": (layers, width, hidden),
        "down": (layers, hidden, width),
    }
    return params, (batch, tokens, width), (batch, tokens, tokens, channels)


def model_source():
    """Return the page's cell that defines the model."""
    cells = nbformat.read(PAGE, as_version=4).cells
    (source,) = (cell.source for cell in cells if "def edge_bias(" in cell.source and cell.cell_type == "code")
    return source


def main():
    import inspect

    imports = "import jax\nimport jax.numpy as jnp\n"
    program = f"{imports}{model_source()}\nSIZES = {SIZES}\n{inspect.getsource(shapes_of)}\n{STEP}"
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | ENVIRONMENT | {"XLA_FLAGS": f"--xla_dump_to={folder}"}
        child = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        reports = [path.read_text() for path in Path(folder).glob("*jit_step*memory-usage-report.txt")]
    for line in child.stderr.splitlines():
        if "RESOURCE_EXHAUSTED" in line:
            print(textwrap.fill(line[line.index("RESOURCE_EXHAUSTED") :], 100), end="\n\n")
    for line in "".join(reports).splitlines()[:14]:
        print(line[:130])
    if not reports:
        print(child.stderr[-2000:])


if __name__ == "__main__":
    main()
