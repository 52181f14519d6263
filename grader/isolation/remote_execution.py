"""Run an answer's programs in a sandboxed process that knows no secrets.

`execution_server` runs in the sandbox. It reads, compiles and runs programs, and knows neither the expected values nor
the learner. `RemoteExecution` runs outside and has the interface of `grader.stablehlo.execution.Execution`.
"""

import contextlib
import copy
import functools
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from grader.isolation.limits import Killed, TimedOut
from grader.isolation.sandbox import SandboxedProcess, Zygote
from grader.isolation.sandboxed import messages, protocol
from grader.isolation.sandboxed.lockdown import ProcessLimits
from grader.isolation.sandboxed.messages import MAX_MESSAGE, counts, nested
from grader.stablehlo.execution import Arrays, Function, ResultsAndReference
from grader.stablehlo.numpy_operations import Uninterpreted
from grader.stablehlo.program import Collective, Gather, Matmul, StableHloProgram
from grader.stablehlo.types import ProgramError, TensorType
from grader.stablehlo.value_fingerprints import COLUMNS

SECONDS = 60  # for one answer's programs
# XLA compiles the programs of Equinox' while loop with checkpoints within 320 MiB, the most of all shipped answers.
LIMITS = ProcessLimits(processor_seconds=SECONDS, address_space=4 * 2**30, memory=384 * 2**20)


class RemoteExecution:
    """An `Execution` in a separate process, which runs one answer's programs and then ends. Use it as a context.

    Reusing the process for the next answer would save a seventh of the time. But a program could change the process
    that runs it: for example, a sort with an inconsistent comparison reads and writes out of bounds.

    Args:
      zygote: the zygote that forks the process, at the first request.
      deadline: the time of `time.monotonic` by which all replies must have arrived.

    Attributes:
      forward, backward: the two programs; set when `execute` has read them.
      seconds: the time limit for each reply.
    """

    forward: StableHloProgram
    backward: StableHloProgram

    def __init__(self, zygote: Zygote, deadline: float = math.inf):
        self._zygote, self._deadline, self.seconds = zygote, deadline, float(SECONDS)
        self._is_shadow = False

    @property
    def _seconds_left(self) -> float:
        return max(min(self.seconds, self._deadline - time.monotonic()), 1e-3)

    @functools.cached_property
    def _started_process(self) -> SandboxedProcess:
        return self._zygote.start("execute", LIMITS)

    def __enter__(self) -> "RemoteExecution":
        return self

    def __exit__(self, *_: object) -> None:
        if "_started_process" in vars(self):
            self._started_process.end()

    def execute(
        self, forward: str, backward: str, sizes: Sequence[int], max_trip_count: int | None = None
    ) -> "RemoteExecution":
        """Read an answer's programs and return `self`. The arguments and errors are those of `Execution`."""
        self._send_request(protocol.Read(forward, backward, list(sizes), max_trip_count))
        read, _ = self._receive_reply(protocol.Programs)
        self.forward, self.backward = map(_read_program, read.programs)
        return self

    @property
    def shadow(self) -> "RemoteExecution":
        """The counterpart of `Execution.shadow`, in the same process."""
        own = copy.copy(self)
        own._is_shadow = True
        return own

    def run(self, inputs: Arrays, cotangents: Arrays, reference: Function) -> ResultsAndReference:
        """Do the same as `Execution.run`, but run the reference in the caller's process."""
        with contextlib.suppress(Uninterpreted):
            wanted = reference.interpreted(inputs, cotangents)
            self._send_run("interpreted", inputs, cotangents)
            reply, results = self._receive_reply(protocol.Results, protocol.NotInterpreted)
            if isinstance(reply, protocol.Results):
                return *nested(reply.counts, results), wanted
        self._send_run("compiled", inputs, cotangents)
        wanted = reference.compiled(inputs, cotangents)  # while the sandboxed process runs
        compiled, results = self._receive_reply(protocol.Results)
        return *nested(compiled.counts, results), wanted

    def gradients(self, residuals: Arrays, cotangents: Arrays) -> Sequence[np.ndarray]:
        """Do the same as `Execution.gradients`.

        Raises:
          ProgramError: as for `Execution.gradients`, or if the process returns something else.
        """
        self._send_run("gradients", residuals, cotangents)
        _, gradients = self._receive_reply(protocol.Results)
        if len(gradients) != len(self.backward.outputs):
            raise ProgramError("its backward program no longer returns the same arrays.")
        return gradients

    def value_fingerprints(self, residuals: Arrays, cotangents: Arrays, sizes: Sequence[int]) -> np.ndarray:
        """Do the same as `Execution.value_fingerprints`.

        Raises:
          ProgramError: if the process returns something else.
        """
        self._send_run("value_fingerprints", residuals, cotangents, sizes=list(sizes))
        _, arrays = self._receive_reply(protocol.Results)
        if [(array.ndim, array.shape[-1], array.dtype) for array in arrays] != [(2, COLUMNS, np.float64)]:
            raise ProgramError("its backward program cannot be inspected.")
        return arrays[0]

    def peak(self, inputs: Arrays, cotangents: Arrays, index: int, compiled: bool) -> int:
        """Do the same as `Execution.peak`."""
        self._send_run("peak", inputs, cotangents, index=index, compiled=compiled)
        return self._receive_reply(protocol.PeakBytes)[0].nbytes

    def _send_run(self, method: str, *groups: Arrays, **options: Any) -> None:
        self._send_request(protocol.Run(method, counts(groups), self._is_shadow, options), jax.tree.leaves(groups))

    def _send_request(self, request: protocol.Read | protocol.Run, arrays: Sequence[np.ndarray] = ()) -> None:
        self._started_process.line.settimeout(self._seconds_left)
        try:
            messages.send(self._started_process.line, request, arrays)
        except OSError as error:
            raise self._process_lost(error) from None

    def _receive_reply[Reply](self, *kinds: type[Reply]) -> tuple[Reply, list[np.ndarray]]:
        expected: list[type[Reply | protocol.Refused]] = [*kinds, protocol.Refused]
        try:
            reply, arrays = messages.receive(self._started_process.line, MAX_MESSAGE, expected, self._seconds_left)
        except (OSError, messages.WireError) as error:
            raise self._process_lost(error) from None
        if isinstance(reply, protocol.Refused):
            raise ProgramError(reply.why)
        return reply, arrays

    def _process_lost(self, error: Exception) -> Exception:
        if isinstance(error, messages.HungUp):
            self._started_process.wait(self._seconds_left)
        ended = self._started_process.end()
        if isinstance(error, TimeoutError) or ended.how() == "SIGXCPU":
            return TimedOut(f"its two programs took longer than {self.seconds:g} s")
        if self._started_process.ran_out_of_memory:
            return ProgramError(f"its two programs used more than the allowed memory ({LIMITS.memory >> 20} MiB).")
        if ended.how() == "SIGKILL":
            return Killed("the process that ran its two programs was killed (SIGKILL)")
        return ProgramError(f"its two programs crashed the process that ran them ({ended.how()}).")


_PARTS = {
    "input_types": TensorType,
    "output_types": TensorType,
    "matmuls": Matmul,
    "collectives": Collective,
    "gathers": Gather,
}


def _read_program(fields: dict) -> StableHloProgram:
    """Return a program from the JSON fields that `execution_server` sends."""
    parts = {
        name: [kind(**{key: _as_tuples(value) for key, value in part.items()}) for part in fields[name]]
        for name, kind in _PARTS.items()
    }
    return StableHloProgram(**{name: _as_tuples(parts.get(name, value)) for name, value in fields.items()})


def _as_tuples(value):
    if not isinstance(value, list):
        return value
    return tuple([_as_tuples(item) if isinstance(item, list) else item for item in value])
