"""Compiles for a TPU that is not here, in a process of its own.

libtpu reads environment variables and takes the process that loads it for a TPU's; neither must touch the reader's.
"""

import json
import pathlib
from typing import Any

# Target → the smallest topology of that generation, and what its machines call themselves.
ABSENT = {
    "tpu v4": ("v4:2x2x1", "v4-8"),
    "tpu v5e": ("v5e:2x2", "v5litepod-4"),
    "tpu v5p": ("v5p:2x2x1", "v5p-8"),
    "tpu v6e": ("v6e:2x2", "v6e-4"),
}


def environment(target: str) -> dict[str, str]:
    """What libtpu needs to hear where there is no TPU to ask."""
    return {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": ABSENT[target][1],
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_LOG_DIR": "disabled",
    }


def main(target: str, folder: str) -> None:
    """Reads `exported` in the folder, compiles it for one chip, writes `module` (HLO) and `memory` (JSON) there."""
    import jax
    import jax.export
    import numpy as np
    from jax.experimental import topologies

    here = pathlib.Path(folder)
    topology = topologies.get_topology_desc(platform="tpu", topology_name=ABSENT[target][0])
    mesh = jax.sharding.Mesh(np.array(topology.devices[:1]), ("chip",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    exported = jax.export.deserialize(bytearray((here / "exported").read_bytes()))
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in exported.in_avals]
    args, kwargs = jax.tree.unflatten(exported.in_tree, shapes)
    program = jax.jit(exported.call).lower(*args, **kwargs).compile()
    analysis = program.memory_analysis()
    sizes = [name for name in dir(analysis) if name.endswith("_in_bytes")]
    (here / "memory").write_text(json.dumps({name: getattr(analysis, name) for name in sizes}))
    executable: Any = program.runtime_executable()  # libtpu has one, though JAX does not promise it of every back end
    (module,) = executable.hlo_modules()
    (here / "module").write_bytes(module.as_serialized_hlo_module_proto())
