"""Run an answer's programs in a process that knows nothing worth stealing and may be lost.

On one side `serve`, in the sandbox: it reads, compiles and runs programs, and is told neither what is expected nor
whose programs they are. On the other `Judge`, with the interface of `grader.stablehlo.execution.Execution`.
"""

import contextlib
from collections.abc import Sequence

import jax
import numpy as np

from grader.isolation import sandbox
from grader.isolation.inside import messages
from grader.isolation.inside.lockdown import ProcessLimits
from grader.isolation.inside.messages import MAX_MESSAGE, counts, nested
from grader.stablehlo.execution import Arrays, Function
from grader.stablehlo.operations import Uninterpreted
from grader.stablehlo.program import Barrier, Matmul, StableHloProgram
from grader.stablehlo.types import ProgramError, TensorType

SECONDS = 60  # for one answer's programs


LIMITS = ProcessLimits(processor_seconds=SECONDS, memory=4 * 2**30)


class RemoteExecution:
    """An `Execution` in a process of its own, which runs one answer's programs and then ends. Use it as a context.

    A process that ran the next answer's too would save a seventh of the time. But programs are not known to leave the
    process that runs them as it was: a sort whose comparison contradicts itself reads and writes where it should not.
    """

    def __init__(self, zygote: "sandbox.Zygote"):
        self._zygote = zygote
        self._inmate: sandbox.Inmate | None = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._inmate:
            self._inmate.end()

    def execute(
        self, forward: str, backward: str, sizes: Sequence[int], max_trip_count: int | None = None
    ) -> "RemoteExecution":
        """Reads an answer's programs; takes and raises what `Execution` does, and returns this judge."""
        self._inmate = self._zygote.start("judge", LIMITS)
        self._tell(
            {"do": "read", "forward": forward, "backward": backward, "sizes": sizes, "max_trip_count": max_trip_count}
        )
        fields, _ = self._reply()
        self.forward, self.backward = map(_program, fields["programs"])
        return self

    def run(self, inputs: Arrays, cotangents: Arrays, reference: Function):
        """As `Execution.run`; the reference runs in the caller's process."""
        with contextlib.suppress(Uninterpreted):
            wanted = reference.interpreted(inputs, cotangents)
            self._ask("interpret", inputs, cotangents)
            fields, arrays = self._reply()
            if "uninterpreted" not in fields:
                return *nested(fields["counts"], arrays), wanted
        self._ask("compile", inputs, cotangents)
        wanted = reference.compiled(inputs, cotangents)  # meanwhile
        fields, arrays = self._reply()
        return *nested(fields["counts"], arrays), wanted

    def peak(self, index: int, inputs: Arrays, cotangents: Arrays) -> int:
        """As `Execution.peak`."""
        self._ask("peak", inputs, cotangents, index=index)
        return int(self._reply()[0]["nbytes"])

    def _ask(self, do: str, inputs: Arrays, cotangents: Arrays, **more):
        groups = inputs, cotangents
        self._tell({"do": do, "counts": counts(groups), **more}, jax.tree.leaves(groups))

    def _tell(self, fields: dict, arrays: Sequence[np.ndarray] = ()):
        self._inmate.line.settimeout(SECONDS)
        try:
            messages.send(self._inmate.line, fields, arrays)
        except OSError as error:
            raise self._lost(error) from None

    def _reply(self) -> tuple[dict, list[np.ndarray]]:
        try:
            fields, arrays = messages.receive(self._inmate.line, MAX_MESSAGE, SECONDS)
        except (OSError, messages.WireError) as error:
            raise self._lost(error) from None
        if "refused" in fields:
            raise ProgramError(str(fields["refused"]))
        return fields, arrays

    def _lost(self, error: Exception) -> ProgramError:
        if isinstance(error, messages.HungUp):
            self._inmate.wait(SECONDS)
        ended = self._inmate.end()
        if isinstance(error, TimeoutError) or ended.how() == "SIGXCPU":
            return ProgramError(f"its two programs were not done after {SECONDS} s.")
        return ProgramError(f"its two programs took the process along that ran them ({ended.how()}).")


_PARTS = {"input_types": TensorType, "output_types": TensorType, "matmuls": Matmul, "barriers": Barrier}


def _program(fields: dict) -> StableHloProgram:
    """A program as a judge describes it."""
    parts = {
        name: [kind(**{key: _tuples(value) for key, value in part.items()}) for part in fields[name]]
        for name, kind in _PARTS.items()
    }
    return StableHloProgram(**{name: _tuples(parts.get(name, value)) for name, value in fields.items()})


def _tuples(value):
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
