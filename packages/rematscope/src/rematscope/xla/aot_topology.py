"""Compile in a separate process: for a TPU without one, or for more CPU devices than this process has.

libtpu reads environment variables and changes the process that loads it. The number of CPU devices is fixed when JAX
starts. Neither may affect the user's process.
"""

import json
import math
import os
import pathlib
import re
from typing import Any

from rematscope.seconds.devices import DEVICES

# For each TPU that libtpu compiles for without one: the smallest topology of several chips.
ABSENT = {device.name: device.topology for device in DEVICES.values() if device.topology is not None}


def generation(target: str) -> str | None:
    """Return `tpu v5e` for `tpu v5e:2x4`; None if the target cannot be compiled for without a TPU."""
    name, colon, shape = target.partition(":")
    is_shape = re.fullmatch(r"\d+(x\d+)+", shape) is not None
    return name if name in ABSENT and is_shape == bool(colon) else None


def topology(target: str, devices: int) -> tuple[str, int]:
    """Return libtpu's name of a target's topology, and the number of its devices.

    Args:
      target: `tpu v5e:2x4`, which names the topology, or `tpu v5e` for the smallest one with enough devices.
      devices: the number of devices that a program needs.
    """
    name, _, shape = target.removeprefix("tpu ").partition(":")
    smallest = ABSENT[str(generation(target))]
    sides = [int(side) for side in shape.split("x")] if shape else list(smallest.sides)
    while not shape and math.prod(sides) * smallest.devices_per_chip < devices:
        sides[sides.index(min(sides))] *= 2
    shape = shape or "x".join(map(str, sorted(sides, key=lambda side: (side == 1, side))))
    return f"{name}:{shape}", math.prod(sides) * smallest.devices_per_chip


def environment(target: str, devices: int) -> dict[str, str]:
    """Return the environment variables of the process: the number of CPU devices, or the TPU's type."""
    if target == "cpu":
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags.strip()}
    return {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": ABSENT[str(generation(target))].accelerator_type,
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_LOG_DIR": "disabled",
    }


def main(target: str, folder: str) -> None:
    """Compile an exported program, and write the result to the same folder.

    Args:
      target: as for `measure`.
      folder: holds `exported`, `axes` (JSON: the names, lengths and types of the axes of the mesh, none for one
        device), `donated` (JSON: the donated arguments) and `memories` (JSON: for each array, the kind of its memory,
        null for that of the device). `module` (HLO), `memory` (JSON) and `record` (XLA's buffer assignment, may be
        empty) are written to it.
    """
    import jax
    import jax.export
    import numpy as np

    here = pathlib.Path(folder)
    names, lengths, kinds = zip(*(json.loads((here / "axes").read_text()) or [("chip", 1, "Auto")]), strict=True)
    devices = _topology_devices(target, math.prod(lengths))
    types = tuple(jax.sharding.AxisType[kind] for kind in kinds)
    mesh = jax.sharding.Mesh(np.array(devices).reshape(lengths), names, axis_types=types)
    exported = jax.export.deserialize(bytearray((here / "exported").read_bytes()))
    one = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    memories = json.loads((here / "memories").read_text())
    # The compiler places arguments without a sharding; on one device there is only one placement.
    shardings = exported.in_shardings_jax(mesh) if len(devices) > 1 else [one] * len(exported.in_avals)
    shapes = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s.with_memory_kind(kind) if s and kind else s)
        for a, s, kind in zip(exported.in_avals, shardings, memories, strict=True)
    ]
    args, kwargs = jax.tree.unflatten(exported.in_tree, shapes)
    donated = json.loads((here / "donated").read_text())
    program = jax.jit(exported.call, donate_argnums=donated).lower(*args, **kwargs).compile()
    analysis: Any = program.memory_analysis()
    sizes = [name for name in dir(analysis) if name.endswith("_in_bytes")]
    (here / "memory").write_text(json.dumps({name: getattr(analysis, name) for name in sizes}))
    (here / "record").write_bytes(analysis.serialized_buffer_assignment_proto)
    executable: Any = program.runtime_executable()  # libtpu has one; JAX does not promise it for every backend
    (module,) = executable.hlo_modules()
    (here / "module").write_bytes(module.as_serialized_hlo_module_proto())


def _topology_devices(target: str, count: int) -> list[Any]:
    import jax
    from jax.experimental import topologies

    if target == "cpu":
        return jax.devices()[:count]
    name, _ = topology(target, count)
    # On a TPU v4, JAX uses a chip as one device. libtpu's default is two devices, with half of the memory each.
    config = {"chip_config_name": "megacore"} if generation(target) == "tpu v4" else {}
    found: list[Any] = topologies.get_topology_desc(platform="tpu", topology_name=name, **config).devices
    return found[:count]
