"""Run an answer's two programs in a process that knows no expected values."""

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

_REQUESTS: Sequence[type[protocol.ExecuteRequest]] = (
    protocol.Run,
    protocol.Backward,
    protocol.Fingerprint,
    protocol.Peak,
)


def serve(line: socket.socket) -> None:
    """Read two programs, then runs them as often as it is asked to, until the other side hangs up."""
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
            request, arrays = messages.receive(line, MAX_MESSAGE, _REQUESTS)
            try:
                reply, results = _answer_request(execution, request, arrays)
            except Uninterpreted:
                reply, results = protocol.NotInterpreted(), ()
            except Exception as error:
                reply, results = _refusal_of(error), ()
            messages.send(line, reply, results)
    except messages.HungUp:
        return


def _answer_request(
    execution: Execution, request: protocol.ExecuteRequest, arrays: Sequence[np.ndarray]
) -> tuple[object, Sequence[np.ndarray]]:
    inputs, cotangents = nested(request.counts, arrays)
    execution = execution.shadow if request.shadow else execution
    if isinstance(request, protocol.Backward):
        gradients = execution.gradients(inputs, cotangents)  # the first group are residuals
        return protocol.Results([[len(gradients)]]), gradients
    if isinstance(request, protocol.Fingerprint):
        return protocol.Results([[1]]), [execution.value_fingerprints(inputs, cotangents, request.sizes)]
    if isinstance(request, protocol.Peak):
        return protocol.PeakBytes(execution.peak(request.index, inputs, cotangents, request.compiled)), ()
    run = execution.compiled if isinstance(request, protocol.Run) and request.compiled else execution.interpreted
    results = run(inputs, cotangents)
    return protocol.Results(counts(results)), jax.tree.leaves(results)


def _refusal_of(error: Exception) -> protocol.Refused:
    if isinstance(error, ProgramError):
        return protocol.Refused(str(error))
    return protocol.Refused(f"its two programs lead to {message_of(error)}")
