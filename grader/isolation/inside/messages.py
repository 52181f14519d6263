"""Messages between the processes that grade a class: JSON and the bytes of arrays. Nothing that is read is ever run."""

import json
import math
import socket
import struct
import time
from collections.abc import Sequence

import numpy as np

from grader.stablehlo.execution import MAX_BYTES, Arrays
from grader.stablehlo.types import DTYPES
from grader.util import bounded_json

MAX_MESSAGE = 64 * 2**20 + MAX_BYTES


def counts(groups: Sequence[Arrays]) -> list[list[int]]:
    return [[len(case) for case in group] for group in groups]


def nested(counts: list[list[int]], arrays: Sequence[np.ndarray]) -> list[list[list[np.ndarray]]]:
    """Arrays in groups (inputs, cotangents, …) of cases, as they were before they were sent one after the other."""
    rest = iter(arrays)
    return [[[next(rest) for _ in range(count)] for count in group] for group in counts]


_LENGTHS = struct.Struct("<QQ")


_MAX_DIMENSIONS = 32


class WireError(Exception):
    """What came is no message: it is too long, or not what `send` writes."""


class HungUp(WireError):
    """The other side ended, or closed the connection, before there was a message."""


def send(line: socket.socket, fields: dict, arrays: Sequence[np.ndarray] = ()):
    """Sends a message. Raises OSError, TimeoutError among them, if the other side does not take it."""
    kinds = [[str(array.dtype), list(array.shape)] for array in arrays]
    header = json.dumps([fields, kinds]).encode()
    line.sendall(_LENGTHS.pack(len(header), sum(array.nbytes for array in arrays)) + header)
    for array in arrays:
        line.sendall(array.tobytes())


def receive(line: socket.socket, limit: int, seconds: float | None = None) -> tuple[dict, list[np.ndarray]]:
    """Receives a message.

    Args:
      line: where it comes from.
      limit: the most bytes that it may have.
      seconds: how long to wait for all of it.

    Raises:
      WireError: what comes is no message, or nothing comes since the other side has hung up (`HungUp`).
      TimeoutError: it was not there in time.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    header, body = _LENGTHS.unpack(_exactly(line, _LENGTHS.size, deadline))
    if header + body > limit:
        raise WireError(f"a message of {header + body:,} bytes")
    try:
        fields, kinds = bounded_json.loads(_exactly(line, header, deadline))
        rest, arrays = memoryview(_exactly(line, body, deadline)), []
        for name, shape in kinds:
            # The product of many long numbers would take hours.
            known = name in DTYPES.values() and len(shape) <= _MAX_DIMENSIONS
            if not known or not all(type(size) is int and 0 <= size <= limit for size in shape):
                raise WireError("an array of no known kind")
            dtype = np.dtype(name)
            nbytes = math.prod(shape) * dtype.itemsize
            arrays.append(np.frombuffer(rest[:nbytes], dtype).reshape(shape))
            rest = rest[nbytes:]
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError("no message") from error
    if not isinstance(fields, dict) or rest:
        raise WireError("no message")
    return fields, arrays


def _exactly(line: socket.socket, count: int, deadline: float | None) -> bytes:
    received = bytearray()
    while len(received) < count:
        if deadline is not None:
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            line.settimeout(left)
        try:
            piece = line.recv(min(count - len(received), 1 << 20))
        except ConnectionError:
            piece = b""
        if not piece:
            raise HungUp("the other side has hung up")
        received += piece
    return bytes(received)
