"""Compile both passes of a function for a target, as one program, and read what memory XLA allocates for it."""

import dataclasses
import functools
import importlib.util
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from rematscope.errors import TargetError
from rematscope.ir.specs import across_devices
from rematscope.jax_compat import assuming_gpu, is_in_host_memory, start_no_absent_tpu, type_in_host_memory
from rematscope.tracing.arguments import FlatFunction, shape_struct, vjp_for
from rematscope.tracing.step import Step
from rematscope.tracing.trace import Trace
from rematscope.xla.aot_topology import ABSENT, environment, generation, topology
from rematscope.xla.hlo import Module, read
from rematscope.xla.out_of_memory import OutOfMemory, out_of_memory

PRESENT = ("cpu", "gpu", "tpu")


_last_read = functools.lru_cache(maxsize=1)(read)  # a parsed program needs much more memory than its bytes


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The compiled program of both passes, for each device of a mesh.

    Attributes:
      memory: XLA's sizes in bytes, by their names; empty if the program does not fit.
      serialized: the optimized program, an `HloModuleProto`; empty if there is none.
      lowered: the program before optimization; None on one device.
      record: XLA's buffer assignment; empty if it returns none.
      run: runs the program once, and returns the seconds that it took.
      full: XLA's message if the program does not fit into the target's memory.
    """

    memory: dict[str, int]
    serialized: bytes
    lowered: Module | None
    record: bytes
    run: Callable[[], float]
    full: OutOfMemory | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self.memory, self.serialized, self.lowered, self.record, _not_here, self.full)

    @property
    def module(self) -> Module:
        """The optimized program."""
        return _last_read(self.serialized)


def _not_here() -> float:
    raise TargetError(
        "This program was compiled in another process, so it cannot run here. Call measure(…).time() on its function."
    )


@dataclasses.dataclass(frozen=True)
class _Call:
    """The function to compile, and its arguments.

    Attributes:
      run: a function of two lists of arrays.
      given, rest: the two lists, of arrays or shapes.
      overwritten: whether the second list is donated.
    """

    run: Callable[..., Any]
    given: list[Any]
    rest: list[Any]
    overwritten: bool = False

    def jitted(self, shardings: Any = None) -> Any:
        """Return the jitted function; `shardings` are those of both lists if the arguments do not show them."""
        return jax.jit(self.run, donate_argnums=(1,) if self.overwritten else (), in_shardings=shardings)


def compile_both(passes: Trace, flat: FlatFunction, leaves: list[Any], target: str) -> Compiled:
    """Compile the forward and the backward pass as one program that returns outputs and all gradients.

    A training step is compiled as it was traced, with its donated arguments.

    Args:
      flat, leaves: the function on flat arguments, and these arguments; see `tracing.arguments.flattened`.

    Raises:
      TargetError: if the target is unknown, has too few devices or is not on this machine, or if libtpu is missing.
    """
    check_target(target)
    call = _call_of_passes(passes, flat, leaves) if passes.step is None else _call_of_step(passes.step, leaves)
    if target not in PRESENT:
        return _on_absent_tpu(passes, target, call)
    try:
        with assuming_gpu():  # for tracing only: an operation that cannot be lowered for the target is refused below
            return _on_mesh(passes, target, call) if passes.axes else _on_one_device(passes, target, call)
    except (NotImplementedError, ValueError) as error:
        if (kernel := _kernel_of_another_device(str(error))) is None:
            raise
        raise TargetError(
            f"{passes.function} cannot be compiled for {usual_spelling(target)}: JAX cannot lower {kernel} for it. "
            "trace, compare and plan do not compile, so they work on this machine. To measure, use a machine with the "
            "device that the kernel is for, or an implementation of the same operation without a kernel."
        ) from None


def _kernel_of_another_device(message: str) -> str | None:
    """Return the kernel that JAX cannot lower for a target, according to an error message; else None."""
    if found := re.search(r"MLIR translation rule for primitive '(\w+)' not found", message):
        return found[1]
    return "pallas_call" if "Only interpret mode is supported on CPU" in message else None


def check_target(target: str) -> None:
    """Raise TargetError for an unknown or absent target, before JAX initializes it."""
    start_no_absent_tpu()
    if not isinstance(target, str) or (target not in PRESENT and generation(target) is None):
        raise TargetError(
            f"target={target!r} is not known. Choose one of {', '.join([*PRESENT, *ABSENT])}; a TPU may have a "
            "topology: 'tpu v5e:2x4'."
        )


def _call_of_passes(passes: Trace, flat: Callable[..., Any], leaves: list[Any]) -> _Call:
    inexact = [c.dtype != jax.dtypes.float0 for c in passes.cotangents]
    gradients_of = zip(passes.backward.outputs, passes.forward.inputs, strict=True)
    grad_mask = [g.dtype != jax.dtypes.float0 or not jnp.issubdtype(v.dtype, np.inexact) for g, v in gradients_of]

    def both(leaves: list[Any], cotangents: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs, pullback = vjp_for(lambda *leaves: jax.tree.leaves(flat(*leaves)), leaves, grad_mask)
        given = iter(cotangents)
        nothing = (np.zeros(jnp.shape(out), jax.dtypes.float0) for out in outputs)
        gradients = pullback([next(given) if ok else zero for ok, zero in zip(inexact, nothing, strict=True)])
        return outputs, [g for g in gradients if g.dtype != jax.dtypes.float0]

    return _Call(both, leaves, [shape_struct(c.aval) for c, ok in zip(passes.cotangents, inexact, strict=True) if ok])


def _call_of_step(step: Step, leaves: list[Any]) -> _Call:
    donated = [v in step.donated for v in step.program.inputs]

    def run(kept: list[Any], overwritten: list[Any]) -> list[Any]:
        parts = iter(kept), iter(overwritten)
        return jaxpr_as_fun(step.jaxpr)(*(next(parts[which]) for which in donated))

    kept, overwritten = ([v for v, one in zip(leaves, donated, strict=True) if one == which] for which in (False, True))
    return _Call(run, kept, overwritten, any(donated))


def _on_one_device(passes: Trace, target: str, call: _Call) -> Compiled:
    device = _present_devices(target)[0]

    def home(leaf: Any) -> Any:
        return jax.sharding.SingleDeviceSharding(device, memory_kind=_memory_kind(leaf))

    types, homes = (jax.tree.map(each, (call.given, call.rest)) for each in (_without_device, home))
    return _compile_call(passes, target, call.jitted(homes).lower(*types).compile, call, None)


def _on_mesh(passes: Trace, target: str, call: _Call) -> Compiled:
    """Compile for the devices of the mesh, or for as many devices of this machine; of CPUs, there are always enough."""
    devices, mesh = _present_devices(target), passes.mesh
    own = list(mesh.devices.flat) if isinstance(mesh, jax.sharding.Mesh) else []
    shapes = _on_their_mesh(passes, call)
    enough = passes.devices <= len(devices) and (not own or own[0].platform == devices[0].platform)
    if not enough and target != "cpu":
        raise TargetError(
            f"{passes.function} is for {passes.devices} devices, but JAX has {len(devices)} of {target.upper()} "
            "here. Choose target='cpu', or a TPU to compile for ahead of time: 'tpu v5e'."
        )
    if not enough:
        return _compile_in_subprocess(passes, target, shapes)
    lowered = _lower_call(shapes, target)
    on = {} if own else {"device_assignment": tuple(devices[: passes.devices])}
    return _compile_call(passes, target, functools.partial(lowered.compile, **on), call, _unoptimized_module(lowered))


def _compile_call(
    passes: Trace, target: str, compiling: Callable[[], Any], call: _Call, lowered: Module | None
) -> Compiled:
    """Compile a program in this process, for devices of this machine."""
    try:
        program = compiling()
    except jax.errors.JaxRuntimeError as error:
        if (full := out_of_memory(str(error))) is None:
            raise
        return _not_fitting(passes, target, lowered, full)
    arrays = functools.cache(lambda: jax.tree.map(_as_array, (call.given, call.rest)))

    @functools.cache
    def drawn() -> Any:
        return jax.device_put(arrays(), program.input_shardings[0])

    def run() -> float:
        given = drawn()
        if call.overwritten:  # donated arrays are deleted, so they must not be the caller's
            given = given[0], jax.device_put(arrays()[1], program.input_shardings[0][1], may_alias=False)
            jax.block_until_ready(given)
        start = time.perf_counter()
        try:
            jax.block_until_ready(program(*given))
        except jax.errors.JaxRuntimeError as error:
            if (full := out_of_memory(str(error))) is None:
                raise
            # a GPU fails when it runs, not when it compiles
            raise TargetError(out_of_memory_text(passes.function, target, full)) from None
        return time.perf_counter() - start

    # JAX may return None for both on backends that are not a valid target.
    analysis: Any = program.memory_analysis()
    executable: Any = program.runtime_executable()
    (module,) = executable.hlo_modules()
    memory = {name: getattr(analysis, name, 0) for name in _SIZES}
    record = analysis.serialized_buffer_assignment_proto
    return Compiled(memory, module.as_serialized_hlo_module_proto(), lowered, record, run)


def _not_fitting(passes: Trace, target: str, lowered: Module | None, full: OutOfMemory) -> Compiled:
    def run() -> float:
        raise TargetError(out_of_memory_text(passes.function, target, full))

    return Compiled({}, b"", lowered, b"", run, full)


def out_of_memory_text(function: str, target: str, full: OutOfMemory) -> str:
    """Return a message that a function does not fit in the memory of a target, with advice."""
    return (
        f"{function} does not fit into the memory of a {usual_spelling(target)}: {full.text}. Save less, reduce the "
        "batch size, or shard it across several chips."
    )


_SIZES = [
    f"{what}_in_bytes"
    for what in (
        *("argument_size", "output_size", "alias_size", "temp_size"),
        *("host_argument_size", "host_output_size", "host_temp_size", "peak_memory"),
    )
]


def _on_absent_tpu(passes: Trace, target: str, call: _Call) -> Compiled:
    # JAX serializes a program with flatbuffers, which it does not install itself.
    missing = [name for name in ("libtpu", "flatbuffers") if importlib.util.find_spec(name) is None]
    if missing:
        raise TargetError(
            f"Compiling ahead of time for a {usual_spelling(target)} needs {missing[0]}, which is not installed: pip "
            "install 'jax[tpu]' flatbuffers (about 500 MB, for Linux on x86-64 only)."
        )
    name, devices = topology(target, passes.devices)
    if devices < passes.devices:
        raise TargetError(
            f"{name} has {devices} devices, but {passes.function} is for {passes.devices} devices. Name a larger "
            f"topology, or none: {generation(target)!r}."
        )
    if passes.axes:
        return _compile_in_subprocess(passes, target, _on_their_mesh(passes, call))
    return _compile_in_subprocess(passes, target, call)


def _memory_kind(leaf: Any) -> str | None:
    """Return the kind of memory that an argument is in; None for that of a device."""
    return "pinned_host" if is_in_host_memory(leaf) else None


def _without_device(leaf: Any) -> Any:
    """Return the shape of an argument, or its type in host memory."""
    return type_in_host_memory(leaf) if is_in_host_memory(leaf) else shape_struct(jax.typeof(leaf))


def _compile_in_subprocess(passes: Trace, target: str, call: _Call) -> Compiled:
    """Compile in a separate process that has enough CPU devices, or that loads libtpu."""
    memories = [_memory_kind(leaf) for leaf in (*call.given, *call.rest)]
    if not passes.axes:
        given, rest = ([_without_device(leaf) for leaf in leaves] for leaves in (call.given, call.rest))
        call = dataclasses.replace(call, given=given, rest=rest)
    platform, compiler = ("cpu", "XLA") if target == "cpu" else ("tpu", "libtpu")
    if importlib.util.find_spec("flatbuffers") is None:
        raise TargetError(
            f"{passes.function} is for {passes.devices} devices, but this process has fewer. Compiling it in "
            "another process needs flatbuffers: pip install flatbuffers. Or start Python with "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={passes.devices}."
        )
    try:
        exported = jax.export.export(call.jitted(), platforms=[platform])(call.given, call.rest).serialize()
    except (NotImplementedError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise TargetError(
            f"{passes.function} cannot be exported for {compiler}: {reason}. Remove this operation, or choose "
            "target='cpu'."
        ) from None
    lowered = _unoptimized_module(_lower_call(call, platform)) if passes.axes else None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "exported").write_bytes(exported)
        axes = [(*axis, kind.name) for axis, kind in zip(passes.axes.items(), _axis_types(passes), strict=True)]
        (folder / "axes").write_text(json.dumps(axes))
        (folder / "memories").write_text(json.dumps(memories))
        (folder / "donated").write_text(json.dumps([1] * call.overwritten))
        command = [
            sys.executable,
            "-c",
            "import sys; from rematscope.xla.aot_topology import main; main(*sys.argv[1:])",
            target,
            name,
        ]
        env = os.environ | environment(target, passes.devices)
        child = subprocess.run(command, env=env, capture_output=True, text=True)
        if child.returncode:
            if (full := out_of_memory(child.stderr)) is not None:
                return _not_fitting(passes, target, lowered, full)
            reason = _stated_reason(child.stderr)
            raise TargetError(
                f"{compiler} did not compile {passes.function} for {usual_spelling(target)}: {reason.rstrip('.')}. "
                f"{_next_step(platform, reason)}"
            )
        memory = json.loads((folder / "memory").read_text())
        module, record = ((folder / name).read_bytes() for name in ("module", "record"))

    def run() -> float:
        if target == "cpu":
            raise TargetError(
                f"{passes.function} is for {passes.devices} devices, but this process has fewer. Start Python with "
                f"XLA_FLAGS=--xla_force_host_platform_device_count={passes.devices} to run it."
            )
        raise TargetError(
            f"There is no {usual_spelling(target)} on this machine. Measure the time with target='cpu' or 'gpu'."
        )

    return Compiled(memory, module, lowered, record, run)


# What XLA's own errors start with.
_COMPILER_STATUS = ("INTERNAL: ", "UNIMPLEMENTED: ", "INVALID_ARGUMENT: ")


def _next_step(platform: str, reason: str) -> str:
    """Return a sentence that says what a user can change about a failed compilation."""
    flags = {"cpu": "XLA_FLAGS", "tpu": "LIBTPU_INIT_ARGS"}[platform]
    if "command line flag" in reason or "for flag" in reason:
        return f"Correct or remove the flag in {flags}."
    if platform == "tpu" and not reason.startswith(_COMPILER_STATUS):
        return "Install the version that this JAX needs: pip install 'jax[tpu]' flatbuffers."
    if os.environ.get(flags):
        return f"Remove the operation, or the flag in {flags}, that it names."
    return "Remove the operation that it names."


def _stated_reason(stderr: str) -> str:
    """Return the message of the last exception in a process's output; else its last line.

    JAX adds lines about "Suspected Python Code Location" after the message of a compiler's error.
    """
    lines = stderr.strip().splitlines() or ["it said nothing"]
    stated = [found[1] for line in lines if (found := re.match(r"[\w.]+(?:Error|Exception): (.+)", line))]
    return (stated or lines)[-1]


def _lower_call(call: _Call, platform: str) -> Any:
    traced = call.jitted().trace(call.given, call.rest)
    return traced.lower(lowering_platforms=({"gpu": "cuda"}.get(platform, platform),))


def _unoptimized_module(lowered: Any) -> Module:
    return read(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def _axis_types(passes: Trace) -> tuple[jax.sharding.AxisType, ...]:
    """Return the types of the axes of the mesh that a function is sharded over."""
    return () if passes.mesh is None else passes.mesh.axis_types


def _on_their_mesh(passes: Trace, call: _Call) -> _Call:
    """Return the arguments as shapes with their shardings; the compiler places an argument without a sharding."""
    given, rest = (
        [shape_struct(jax.typeof(leaf), sharding=across_devices(getattr(leaf, "sharding", None))) for leaf in leaves]
        for leaves in (call.given, call.rest)
    )
    if passes.mesh is not None and not any(shape.sharding for shape in (*given, *rest)):
        # Some argument has to name the devices: scalars and replicated arrays are on all of them anyway.
        everywhere = jax.sharding.NamedSharding(passes.mesh, jax.sharding.PartitionSpec())
        if passes.step is None:
            rest = [shape_struct(c, sharding=everywhere) for c in rest]
        else:
            inputs = passes.step.program.inputs
            whole = [everywhere if v.placement.shape == v.shape else None for v in inputs]
            donated = [v in passes.step.donated for v in inputs]
            given, rest = (
                [shape_struct(c, sharding=w) for c, w in zip(leaves, itertools.compress(whole, chosen), strict=True)]
                for leaves, chosen in ((given, [not one for one in donated]), (rest, donated))
            )
    return dataclasses.replace(call, given=given, rest=rest)


def _present_devices(target: str) -> list[Any]:
    try:
        return jax.devices(target)
    except RuntimeError:
        extra = {"gpu": "cuda13"}.get(target, target)
        raise TargetError(
            f"JAX finds no {target.upper()}. Choose target='cpu', or install JAX for it on a machine that has "
            f"one: pip install 'jax[{extra}]'."
        ) from None


def _as_array(given: Any) -> Any:
    """Return the argument, or for a shape an array to run with."""
    if not isinstance(given, jax.ShapeDtypeStruct):
        return jnp.asarray(given)
    if jnp.issubdtype(given.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), given.shape)
    if jnp.issubdtype(given.dtype, np.inexact):
        return jnp.asarray(np.random.default_rng(0).standard_normal(given.shape), given.dtype)
    return jnp.zeros(given.shape, given.dtype)


def usual_spelling(target: str) -> str:
    """Return the usual spelling of a target, such as `TPU v5e`."""
    return target.replace("tpu", "TPU")
