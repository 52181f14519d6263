"""Run an answer's programs in a process that knows nothing worth stealing and may be lost.

On one side `serve`, in the sandbox: it reads, compiles and runs programs, and is told neither what is expected nor
whose programs they are. On the other `Judge` and `RemoteExecution`, with the interface of `grader.execution.Execution`.
"""

import dataclasses
import functools
import socket
from collections.abc import Callable, Sequence

import jax
import numpy as np

from grader import sandbox, wire
from grader.execution import COMPILE_FAST, MAX_BYTES, Arrays, Execution
from grader.jail import Limits
from grader.programs import Barrier, Matmul, Program, ProgramError, TensorType

SECONDS = 60  # for one answer's programs
LIMITS = Limits(processor_seconds=3600, memory=6 * 2**30)
_MESSAGE = 64 * 2**20 + MAX_BYTES
_ANSWERS = 100  # that one process judges: whatever compiling leaves behind does not add up


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
                case "run":
                    *results, _ = execution.run(*_nested(asked["counts"], arrays), reference=lambda *_: None)
                    wire.send(line, {"counts": _counts(results)}, jax.tree.leaves(results))
                case "peak":
                    wire.send(line, {"nbytes": execution.peak(asked["index"], *_nested(asked["counts"], arrays))})
        except ProgramError as error:
            wire.send(line, {"refused": str(error)})


def _counts(groups: Sequence[Arrays]) -> list[list[int]]:
    return [[len(case) for case in group] for group in groups]


def _nested(counts: list[list[int]], arrays: Sequence[np.ndarray]) -> list[list[list[np.ndarray]]]:
    """Arrays in groups (inputs, cotangents, …) of cases, as they were before they were sent one after the other."""
    rest = iter(arrays)
    return [[[next(rest) for _ in range(count)] for count in group] for group in counts]


class Judge:
    """A sandboxed process that runs programs. `close` it, or use it as a context.

    Attributes:
      used: the number of answers that it has run.
    """

    def __init__(self, zygote: "sandbox.Zygote"):
        self._inmate = zygote.start("judge", LIMITS)
        self.used = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._inmate.end()

    @property
    def worn(self) -> bool:
        return self.used >= _ANSWERS or self._inmate.ended

    def execute(
        self, forward: str, backward: str, sizes: Sequence[int], max_turns: int | None = None
    ) -> "RemoteExecution":
        """Has the judge read an answer's programs; what `Execution` takes, and what it raises."""
        self.used += 1
        return RemoteExecution(self, forward, backward, sizes, max_turns)

    def tell(self, fields: dict, arrays: Sequence[np.ndarray] = ()):
        try:
            wire.send(self._inmate.line, fields, arrays)
        except OSError as error:
            raise self._lost(error) from None

    def reply(self) -> tuple[dict, list[np.ndarray]]:
        try:
            fields, arrays = wire.receive(self._inmate.line, _MESSAGE, SECONDS)
        except (OSError, wire.WireError) as error:
            raise self._lost(error) from None
        if "refused" in fields:
            raise ProgramError(str(fields["refused"]))
        return fields, arrays

    def _lost(self, error: Exception) -> ProgramError:
        ended = self._inmate.end()
        if isinstance(error, TimeoutError):
            return ProgramError(f"its two programs were not done after {SECONDS} s.")
        return ProgramError(f"its two programs took the process along that ran them ({ended.how()}).")


class RemoteExecution:
    """An `Execution` in a judge's process."""

    def __init__(self, judge: Judge, forward: str, backward: str, sizes: Sequence[int], max_turns: int | None):
        self._judge = judge
        asked = {"forward": forward, "backward": backward, "sizes": list(sizes), "max_turns": max_turns}
        judge.tell({"do": "read", **asked})
        fields, _ = judge.reply()
        self.forward, self.backward = map(_program, fields["programs"])

    def run(self, inputs: Arrays, cotangents: Arrays, reference: Callable):
        self._ask("run", inputs, cotangents)
        wanted = _compiled(reference)(inputs, cotangents)  # meanwhile, and not where the programs run
        fields, arrays = self._judge.reply()
        return *_nested(fields["counts"], arrays), jax.tree.map(np.asarray, wanted)

    def peak(self, index: int, inputs: Arrays, cotangents: Arrays) -> int:
        self._ask("peak", inputs, cotangents, index=index)
        return self._judge.reply()[0]["nbytes"]

    def _ask(self, do: str, inputs: Arrays, cotangents: Arrays, **more):
        groups = inputs, cotangents
        self._judge.tell({"do": do, "counts": _counts(groups), **more}, jax.tree.leaves(groups))


@functools.lru_cache(maxsize=32)
def _compiled(reference: Callable) -> Callable:
    return jax.jit(reference, compiler_options=COMPILE_FAST)


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
