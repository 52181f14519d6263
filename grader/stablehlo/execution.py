"""Run an answer's two programs, which is all that judging runs of an answer.

Programs of an untrusted answer run in a separate process (`grader.isolation.remote_execution`), which gets the programs
and the inputs, but not the expected results.
"""

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir, serialize_portable_artifact
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from grader.stablehlo import interpreter, reader
from grader.stablehlo.float64 import promote_to_float64
from grader.stablehlo.liveness import Recorded
from grader.stablehlo.numpy_operations import Uninterpreted
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.types import ProgramError, TensorType
from grader.stablehlo.value_fingerprints import value_fingerprints

COMPILE_FAST = {"xla_backend_optimization_level": 0}
MAX_BYTES = 2**28  # of results and intermediate values; the programs of the largest exercise need about 5 MiB

type Arrays = Sequence[Sequence[np.ndarray]]  # case by case
# Outputs, outputs of the undifferentiated answer, residuals, gradients, and the trip counts of both programs.
type Results = tuple[Arrays, Arrays, Arrays, Arrays, Arrays]
type ResultsAndReference = tuple[Arrays, Arrays, Arrays, Arrays, Arrays, Any]  # followed by the reference's results
type Runner = Callable[..., Sequence[Any]]  # takes and returns NumPy arrays or JAX tracers


class Execution:
    """An answer's two programs, ready to run.

    Attributes:
      forward: the forward program.
      backward: the backward program.
    """

    def __init__(self, forward: str, backward: str, sizes: Sequence[int], max_trip_count: int | None = None):
        """Read both programs.

        Args:
          forward: StableHLO text.
          backward: StableHLO text.
          sizes: three numbers of arrays per case that the forward program returns: outputs, residuals, and outputs of
            the undifferentiated answer.
          max_trip_count: the trip count after which a dynamic loop is stopped; None forbids dynamic loops.

        Raises:
          ProgramError: if a program cannot be judged.
        """
        self.forward, self.backward = (reader.read(text, max_trip_count) for text in (forward, backward))
        self._sizes = sizes

    @functools.cached_property
    def shadow(self) -> "Execution":
        """The same programs with all floats as float64 (`grader.stablehlo.float64`); they take float64 arrays."""
        own = copy.copy(self)
        own.forward, own.backward = promote_to_float64(self.forward), promote_to_float64(self.backward)
        return own

    def run(self, inputs: Arrays, cotangents: Arrays, reference: "Function") -> ResultsAndReference:
        """Run the forward program, the backward program on its residuals and the cotangents, and the reference.

        Either all are interpreted or all are compiled, because XLA rounds small floats less often.

        Args:
          inputs: the inputs of the forward program.
          cotangents: the inputs of the backward program that follow the residuals.
          reference: a function of the same inputs and cotangents.

        Returns:
          The outputs, the outputs of the undifferentiated answer, the residuals and the gradients, by case; the trip
          counts of the dynamic loops of both programs; and the results of the reference. All are NumPy arrays.

        Raises:
          ProgramError: if the programs do not compile, do not run, or need too much memory.
        """
        try:
            return *self.interpreted(inputs, cotangents), reference.interpreted(inputs, cotangents)
        except Uninterpreted as error:
            _refuse_devices(error, self.forward, self.backward)
            return self._run_compiled(inputs, cotangents, reference.traced)

    def interpreted(self, inputs: Arrays, cotangents: Arrays) -> Results:
        """Interpret both programs like `run`, without the reference. Raise Uninterpreted if they must be compiled."""
        return self._run_passes(_interpreted_runner, inputs, cotangents)

    def compiled(self, inputs: Arrays, cotangents: Arrays) -> Results:
        """Compile and run both programs like `run`, without the reference."""
        return self._run_compiled(inputs, cotangents, lambda *_: None)[:5]

    def _run_compiled(self, inputs: Arrays, cotangents: Arrays, reference: Callable[..., Any]) -> ResultsAndReference:
        # Compiled as one module, because compiling costs more per module than per operation.
        def run(inputs: Arrays, cotangents: Arrays) -> Any:
            return *self._run_passes(traceable, inputs, cotangents), reference(inputs, cotangents)

        results: ResultsAndReference = _run_compiled(run, inputs, cotangents)
        return results

    def gradients(self, residuals: Arrays, cotangents: Arrays) -> Sequence[np.ndarray]:
        """Run the backward program on given residuals, and return the gradients of all cases.

        Args:
          residuals: arrays with the shapes and dtypes of the residuals that the forward program returns.
          cotangents: arrays with the shapes and dtypes of the outputs.

        Returns:
          One array for each output of the backward program.

        Raises:
          ProgramError: if the program does not compile, does not run, or needs too much memory.
        """
        arguments = *jax.tree.leaves(residuals), *jax.tree.leaves(cotangents)
        try:
            returned = _interpreted_runner(self.backward)(*arguments)
        except Uninterpreted as error:
            _refuse_devices(error, self.backward)
            returned = _run_compiled(traceable(self.backward), *arguments)
        return returned[: len(self.backward.outputs)]

    def value_fingerprints(self, residuals: Arrays, cotangents: Arrays, sizes: Sequence[int]) -> np.ndarray:
        """Return fingerprints of the backward program's intermediate arrays of these sizes, as rows."""
        return value_fingerprints(
            self.backward.text, [*jax.tree.leaves(residuals), *jax.tree.leaves(cotangents)], sizes
        )

    def peak(self, inputs: Arrays, cotangents: Arrays, index: int, compiled: bool) -> int:
        """Return the peak memory of both passes of one case in bytes, without arguments and results.

        Args:
          inputs: the inputs of the forward program.
          cotangents: the inputs of the backward program that follow the residuals.
          index: the index of the case.
          compiled: True for the memory that XLA allocates, False for the live bytes in the order of the programs' text.
        """
        if not compiled:
            return self._peak_of_text(index, list(map(len, inputs)))

        def run(own_inputs: Sequence[np.ndarray], own_cotangents: Sequence[np.ndarray]) -> Any:
            # Only the results of this case are returned, so XLA removes the other cases.
            outputs, _, _, gradients, _ = self._run_passes(
                traceable,
                [*inputs[:index], own_inputs, *inputs[index + 1 :]],
                [*cotangents[:index], own_cotangents, *cotangents[index + 1 :]],
            )
            return outputs[index], gradients[index]

        # The optimization level of the machine code does not change the buffers.
        run = jax.jit(run, compiler_options=COMPILE_FAST)
        return int(_memory_stats(run.lower(inputs[index], cotangents[index]).compile()).temp_size_in_bytes)

    def _peak_of_text(self, index: int, arities: Sequence[int]) -> int:
        forward, backward = self._recorded_programs
        outputs, kept = split(forward.outputs, self._sizes)[3 * index : 3 * index + 2]
        taken = split(backward.inputs, [*self._sizes[1::3], *self._sizes[::3]])[index]
        gradients = split(backward.outputs, arities)[index]
        free = {*forward.inputs, *outputs}
        given = [own for own, value in zip(taken, kept, strict=True) if value in free or not forward.nbytes(value)]
        return max(forward.peak([*outputs, *kept], free), backward.peak(gradients, {*gradients, *given}))

    @functools.cached_property
    def _recorded_programs(self) -> tuple[Recorded, Recorded]:
        return Recorded(self.forward.text), Recorded(self.backward.text)

    def _run_passes(
        self, runner_of: Callable[[StableHloProgram], Runner], inputs: Arrays, cotangents: Arrays
    ) -> Results:
        returned = runner_of(self.forward)(*jax.tree.leaves(inputs))
        parts = split(returned, self._sizes)
        outputs, residuals, undifferentiated = parts[::3], parts[1::3], parts[2::3]
        gradients = runner_of(self.backward)(*jax.tree.leaves(residuals), *jax.tree.leaves(cotangents))
        trip_counts = returned[len(self.forward.outputs) :], gradients[len(self.backward.outputs) :]
        by_case = split(gradients, [len(arguments) for arguments in inputs])
        return outputs, undifferentiated, residuals, by_case, trip_counts


class Function:
    """A trusted function, such as the reference of an exercise, which is traced once and runs with any inputs.

    Attributes:
      text: the StableHLO of the function.
      traced: the function, for JAX to trace.
      tree: the pytree structure of the result.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        """Trace a function for arguments (pytrees of arrays or `ShapeDtypeStruct`s) with these shapes and dtypes."""
        exported = jax.export.export(jax.jit(function, keep_unused=True), platforms=["cpu"])(*arguments)
        self.text, self.traced, self.tree = exported.mlir_module(), exported.call, exported.out_tree
        self._run_compiled = jax.jit(self.traced, compiler_options=COMPILE_FAST)

    @functools.cached_property
    def shadow(self) -> "Function":
        """The same function with all floats as float64 (`grader.stablehlo.float64`)."""
        own = copy.copy(self)
        program = promote_to_float64(reader.read(self.text))
        own.text = program.text
        own.traced = lambda *arguments: jax.tree.unflatten(self.tree, traceable(program)(*jax.tree.leaves(arguments)))
        own._run_compiled = jax.jit(own.traced, compiler_options=COMPILE_FAST)
        return own

    def __call__(self, *arguments: Any) -> Any:
        """Run the function, and return NumPy arrays."""
        try:
            return self.interpreted(*arguments)
        except Uninterpreted:
            return self.compiled(*arguments)

    def interpreted(self, *arguments: Any) -> Any:
        """Interpret the function with NumPy. Raise Uninterpreted if it must be compiled."""
        return jax.tree.unflatten(self.tree, interpreter.run(self.text, jax.tree.leaves(arguments)))

    def value_fingerprints(self, places: Collection[int], *arguments: Any) -> np.ndarray:
        """Return the fingerprints of intermediate values by their indices (`grader.stablehlo.value_fingerprints`)."""
        return value_fingerprints(self.text, jax.tree.leaves(arguments), places=places)

    def compiled(self, *arguments: Any) -> Any:
        """Compile the function with XLA, run it, and return NumPy arrays."""
        with jax.enable_x64(True):  # for shadows
            return jax.tree.map(np.asarray, self._run_compiled(*arguments))


def _run_compiled(run: Callable[..., Any], *arguments: Any) -> Any:
    """Compile and run a function of the two programs, and return NumPy arrays. Raise ProgramError if that fails."""
    try:
        with jax.enable_x64(True):  # for the float64 programs; in all others, each array has an explicit dtype
            compiled = jax.jit(run, compiler_options=COMPILE_FAST).lower(*arguments).compile()
            memory = _memory_stats(compiled)
            nbytes = memory.temp_size_in_bytes + memory.output_size_in_bytes
            if nbytes <= MAX_BYTES:
                return jax.tree.map(np.asarray, compiled(*arguments))
    except (jax.errors.JaxRuntimeError, ValueError, ir.MLIRError) as error:
        raise ProgramError("its two programs do not compile and run.") from error
    raise ProgramError(f"its two programs need {nbytes // 2**20:,} MiB, but the limit is {MAX_BYTES // 2**20:,} MiB.")


def _refuse_devices(error: Uninterpreted, *programs: StableHloProgram) -> None:
    """Raise ProgramError if a program that was not interpreted runs on several devices, where XLA cannot run it."""
    if any(interpreter.is_on_devices(program.text) for program in programs):
        raise ProgramError(
            "its two programs run on several devices, which the grader simulates. The simulation stopped with this "
            f"reason: {error}. Run the microbatches in a loop (jax.lax.map or jax.lax.scan), compute on each device "
            "only that device's rows, and use matmuls, elementwise operations and the collectives of the exercise."
        ) from error


def _interpreted_runner(program: StableHloProgram) -> Runner:
    return lambda *arrays: interpreter.run(program.text, arrays)


@functools.lru_cache(maxsize=4)  # both programs and their float64 versions, which may be compiled for several cases
def traceable(program: StableHloProgram) -> Runner:
    """Return a program as a function that JAX can trace, so that it can be compiled as part of another one.

    The program replaces the module in the export of a function with the same input and output types.

    Returns:
      A function of arrays with the program's input types. It returns a list of arrays: the program's outputs, followed
      by the trip counts of its dynamic loops.
    """
    returned = [*program.output_types, *[TensorType((), "int32")] * program.dynamic_loops]

    def same_types(*_: jax.Array) -> list[jax.Array]:
        return [jnp.zeros(kind.shape, kind.dtype) for kind in returned]

    with jax.enable_x64(True):  # for the float64 programs, whatever the setting at the first call
        own = jax.export.export(jax.jit(same_types, keep_unused=True), platforms=["cpu"])(
            *[jax.ShapeDtypeStruct(kind.shape, kind.dtype) for kind in program.input_types]  # type: ignore[no-untyped-call]
        )
    with mlir.make_ir_context():
        artifact = serialize_portable_artifact(program.text, stablehlo.get_current_version())
    call: Runner = dataclasses.replace(own, mlir_module_serialized=artifact).call
    return call


def _memory_stats(compiled: jax.stages.Compiled) -> Any:
    """Return XLA's figures of the memory of a compiled program, in bytes."""
    if (memory := compiled.memory_analysis()) is None:
        raise ProgramError("XLA does not report how much memory its two programs need.")
    return memory


def split[T](values: Sequence[T], sizes: Sequence[int]) -> list[list[T]]:
    """Split a sequence into consecutive lists of these sizes."""
    ends = list(itertools.accumulate(sizes))
    return [list(values[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
