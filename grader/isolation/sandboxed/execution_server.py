"""Run an answer's two programs, in a process that does not know the expected values."""

import dataclasses
import socket
from collections.abc import Sequence

import jax
import numpy as np

from grader.isolation.sandboxed import messages, protocol
from grader.isolation.sandboxed.messages import MAX_MESSAGE, counts, nested
from grader.stablehlo.execution import Execution
from grader.stablehlo.numpy_operations import Uninterpreted
from grader.stablehlo.types import ProgramError
from grader.tracing.failures import message_of


def serve(line: socket.socket) -> None:
    """Read two programs and run them on request, until the other side closes the connection."""
    try:
        asked, _ = messages.receive(line, MAX_MESSAGE, [protocol.Read])
        try:
            execution = Execution(asked.forward, asked.backward, asked.sizes, asked.max_trip_count)
        except Exception as error:
            messages.send(line, _refusal_of(error))
            return
        passes = execution.forward, execution.backward
        messages.send(line, protocol.Programs([dataclasses.asdict(dataclasses.replace(p, text="")) for p in passes]))
        while True:
            request, arrays = messages.receive(line, MAX_MESSAGE, [protocol.Run])
            try:
                reply, results = _run_method(execution, request, arrays)
            except Uninterpreted:
                reply, results = protocol.NotInterpreted(), ()
            except Exception as error:
                reply, results = _refusal_of(error), ()
            messages.send(line, reply, results)
    except messages.HungUp:
        return


def _run_method(
    execution: Execution, request: protocol.Run, arrays: Sequence[np.ndarray]
) -> tuple[object, Sequence[np.ndarray]]:
    method = getattr(execution.shadow if request.shadow else execution, request.method)
    returned = method(*nested(request.counts, arrays), **request.options)
    match request.method:
        case "peak":
            return protocol.PeakBytes(returned), ()
        case "gradients":
            returned = [[returned]]
        case "value_fingerprints":
            returned = [[[returned]]]
    return protocol.Results(counts(returned)), jax.tree.leaves(returned)


def _refusal_of(error: Exception) -> protocol.Refused:
    if isinstance(error, ProgramError):
        return protocol.Refused(str(error))
    return protocol.Refused(f"its two programs lead to {message_of(error)}")
