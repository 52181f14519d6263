"""Compiles in a process of its own: for a TPU that is not here, or for more devices of the CPU than this process has.

libtpu reads environment variables and takes the process that loads it for a TPU's, and how many devices the CPU has is
decided when JAX starts; neither must touch the reader's process.
"""

import json
import math
import os
import pathlib
import re
from typing import Any

from rematscope.seconds.devices import DEVICES

# TPUs that libtpu compiles for without one → the smallest topology of several chips, and the accelerator type.
ABSENT = {device.name: device.topology for device in DEVICES.values() if device.topology is not None}


def generation(target: str) -> str | None:
    """`tpu v5e` of `tpu v5e:2x4`; None for what is no TPU that can be compiled for without one."""
    found = re.fullmatch(r"(tpu \w+)(:\d+(x\d+)+)?", target)
    return found[1] if found and found[1] in ABSENT else None


def topology(target: str, chips: int) -> str:
    """What libtpu calls the topology of a target: the one that it names, or the smallest with so many chips."""
    name, _, shape = target.removeprefix("tpu ").partition(":")
    if not shape:
        sides = list(ABSENT[target][0])
        while math.prod(sides) < chips:
            sides[sides.index(min(sides))] *= 2
        shape = "x".join(map(str, sorted(sides, key=lambda side: (side == 1, side))))
    return f"{name}:{shape}"


def environment(target: str, devices: int) -> dict[str, str]:
    """What the process must hear before it starts: how many devices the CPU has, or what there is no TPU to ask."""
    if target == "cpu":
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags.strip()}
    return {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": ABSENT[str(generation(target))][1],
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_LOG_DIR": "disabled",
    }


def main(target: str, folder: str) -> None:
    """Compiles what stands in a folder, and leaves there what became of it.

    Args:
      target: as of `measure`.
      folder: where to read `exported`, `axes` (JSON: the axes of the mesh, none for one device) and `donated` (JSON:
        which arguments may be overwritten), and to write
        `module` (HLO), `memory` (JSON) and `record` (XLA's of its buffers, empty where it gives none).
    """
    import jax
    import jax.export
    import numpy as np

    here = pathlib.Path(folder)
    axes = json.loads((here / "axes").read_text()) or {"chip": 1}
    devices = _topology_devices(target, math.prod(axes.values()))
    mesh = jax.sharding.Mesh(np.array(devices).reshape(tuple(axes.values())), tuple(axes))
    exported = jax.export.deserialize(bytearray((here / "exported").read_bytes()))
    one = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    # What says nothing of how it lies is the compiler's to place, but there is only one way on one device.
    shardings = exported.in_shardings_jax(mesh) if len(devices) > 1 else [one] * len(exported.in_avals)
    shapes = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in zip(exported.in_avals, shardings, strict=True)
    ]
    args, kwargs = jax.tree.unflatten(exported.in_tree, shapes)
    donated = json.loads((here / "donated").read_text())
    program = jax.jit(exported.call, donate_argnums=donated).lower(*args, **kwargs).compile()
    analysis: Any = program.memory_analysis()
    sizes = [name for name in dir(analysis) if name.endswith("_in_bytes")]
    (here / "memory").write_text(json.dumps({name: getattr(analysis, name) for name in sizes}))
    (here / "record").write_bytes(analysis.serialized_buffer_assignment_proto)
    executable: Any = program.runtime_executable()  # libtpu has one, though JAX does not promise it of every back end
    (module,) = executable.hlo_modules()
    (here / "module").write_bytes(module.as_serialized_hlo_module_proto())


def _topology_devices(target: str, count: int) -> list[Any]:
    import jax
    from jax.experimental import topologies

    if target == "cpu":
        return jax.devices()[:count]
    name = topology(target, count)
    found: list[Any] = topologies.get_topology_desc(platform="tpu", topology_name=name).devices
    return found[:count]
