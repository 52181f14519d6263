"""Run an answer's programs in a process that knows nothing worth stealing and may be lost.

On one side `serve`, in the sandbox: it reads, compiles and runs programs, and is told neither what is expected nor
whose programs they are. On the other `Judge`, with the interface of `grader.execution.Execution`.
"""

import contextlib
import dataclasses
import socket
from collections.abc import Sequence

import jax
import numpy as np

from grader import sandbox, wire
from grader.capture import message_of
from grader.execution import MAX_BYTES, Arrays, Execution, Function
from grader.interpreter import Uninterpreted
from grader.jail import Limits
from grader.programs import Barrier, Matmul, Program, ProgramError, TensorType

SECONDS = 60  # for one answer's programs
LIMITS = Limits(processor_seconds=SECONDS, memory=4 * 2**30)
_MESSAGE = 64 * 2**20 + MAX_BYTES


def serve(line: socket.socket):
    """Answers requests until the other side hangs up."""
    execution = None
    while True:
        try:
            asked, arrays = wire.receive(line, _MESSAGE)
        except wire.WireError:
            return
        try:
            match asked.pop("do"):
                case "read":
                    execution = Execution(**asked)
                    passes = execution.forward, execution.backward
                    wire.send(line, {"programs": [dataclasses.asdict(dataclasses.replace(p, text="")) for p in passes]})
                case "interpret" | "compile" as do:
                    run = execution.interpreted if do == "interpret" else execution.compiled
                    results = run(*_nested(asked["counts"], arrays))
                    wire.send(line, {"counts": _counts(results)}, jax.tree.leaves(results))
                case "peak":
                    wire.send(line, {"nbytes": execution.peak(asked["index"], *_nested(asked["counts"], arrays))})
        except Uninterpreted:
            wire.send(line, {"uninterpreted": True})
        except ProgramError as error:
            wire.send(line, {"refused": str(error)})
        except Exception as error:
            wire.send(line, {"refused": f"its two programs lead to {message_of(error)}"})


def _counts(groups: Sequence[Arrays]) -> list[list[int]]:
    return [[len(case) for case in group] for group in groups]


def _nested(counts: list[list[int]], arrays: Sequence[np.ndarray]) -> list[list[list[np.ndarray]]]:
    """Arrays in groups (inputs, cotangents, …) of cases, as they were before they were sent one after the other."""
    rest = iter(arrays)
    return [[[next(rest) for _ in range(count)] for count in group] for group in counts]


class Judge:
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

    def execute(self, forward: str, backward: str, sizes: Sequence[int], max_turns: int | None = None) -> "Judge":
        """Reads an answer's programs; takes and raises what `Execution` does, and returns this judge."""
        self._inmate = self._zygote.start("judge", LIMITS)
        self._tell({"do": "read", "forward": forward, "backward": backward, "sizes": sizes, "max_turns": max_turns})
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
                return *_nested(fields["counts"], arrays), wanted
        self._ask("compile", inputs, cotangents)
        wanted = reference.compiled(inputs, cotangents)  # meanwhile
        fields, arrays = self._reply()
        return *_nested(fields["counts"], arrays), wanted

    def peak(self, index: int, inputs: Arrays, cotangents: Arrays) -> int:
        """As `Execution.peak`."""
        self._ask("peak", inputs, cotangents, index=index)
        return int(self._reply()[0]["nbytes"])

    def _ask(self, do: str, inputs: Arrays, cotangents: Arrays, **more):
        groups = inputs, cotangents
        self._tell({"do": do, "counts": _counts(groups), **more}, jax.tree.leaves(groups))

    def _tell(self, fields: dict, arrays: Sequence[np.ndarray] = ()):
        self._inmate.line.settimeout(SECONDS)
        try:
            wire.send(self._inmate.line, fields, arrays)
        except OSError as error:
            raise self._lost(error) from None

    def _reply(self) -> tuple[dict, list[np.ndarray]]:
        try:
            fields, arrays = wire.receive(self._inmate.line, _MESSAGE, SECONDS)
        except (OSError, wire.WireError) as error:
            raise self._lost(error) from None
        if "refused" in fields:
            raise ProgramError(str(fields["refused"]))
        return fields, arrays

    def _lost(self, error: Exception) -> ProgramError:
        if isinstance(error, wire.HungUp):
            self._inmate.wait(SECONDS)
        ended = self._inmate.end()
        if isinstance(error, TimeoutError) or ended.how() == "SIGXCPU":
            return ProgramError(f"its two programs were not done after {SECONDS} s.")
        return ProgramError(f"its two programs took the process along that ran them ({ended.how()}).")


_PARTS = {"input_types": TensorType, "output_types": TensorType, "matmuls": Matmul, "barriers": Barrier}


def _program(fields: dict) -> Program:
    """A program as a judge describes it."""
    parts = {
        name: [kind(**{key: _tuples(value) for key, value in part.items()}) for part in fields[name]]
        for name, kind in _PARTS.items()
    }
    return Program(**{name: _tuples(parts.get(name, value)) for name, value in fields.items()})


def _tuples(value):
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
