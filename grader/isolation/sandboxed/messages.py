"""Messages between the processes that grade a class: a dataclass as JSON, and the bytes of arrays.

This module defines its own framing, because messages from the sandbox are hostile. Reading a message must never run
code, as unpickling does (`multiprocessing.Connection`, Dask's protocol), and it must never take more memory or time
than a bound that is known in advance. So every message starts with its lengths, the dtypes of arrays are on an
allowlist, and every message has a size limit and a deadline. Libraries such as gRPC, msgpack or Arrow leave these three
things to their callers.
"""

import dataclasses
import json
import math
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from grader.stablehlo.execution import MAX_BYTES, Arrays
from grader.stablehlo.types import DTYPES
from grader.util import bounded_json

MAX_MESSAGE = 64 * 2**20 + MAX_BYTES


def counts(groups: Sequence[Arrays]) -> list[list[int]]:
    """Return the number of arrays of each case, for each group."""
    return [[len(case) for case in group] for group in groups]


def nested(counts: list[list[int]], arrays: Sequence[np.ndarray]) -> list[list[list[np.ndarray]]]:
    """Return a flat sequence of arrays as groups (inputs, cotangents, …) of cases, given the numbers from `counts`."""
    rest = iter(arrays)
    return [[[next(rest) for _ in range(count)] for count in group] for group in counts]


LENGTHS = struct.Struct("<QQ")  # a message starts with the number of bytes of its JSON and of all its arrays
_MAX_DIMENSIONS = 32


class WireError(Exception):
    """Raised if received data is not a valid message: it is too long, or it does not have the format of `send`."""


class HungUp(WireError):
    """Raised if the other side ended or closed the connection before it sent a message."""


def encode(message: Any) -> bytes:
    """Return a dataclass as JSON: the name of its class, and its fields."""
    return json.dumps([type(message).__name__, vars(message)]).encode()


def decode[Message](text: bytes, expected: Sequence[type[Message]]) -> Message:
    """Return the message that `encode` wrote. Raises WireError if it is not an instance of an expected class."""
    try:
        name, fields = bounded_json.loads(text)
        return _build_message(name, fields, expected)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise WireError("no message") from error


def _build_message[Message](name: str, fields: dict, expected: Sequence[type[Message]]) -> Message:
    message = {kind.__name__: kind for kind in expected}[name](**fields)
    for field in dataclasses.fields(message):  # type: ignore[arg-type]  # all messages are dataclasses
        # Classes and unions of them.
        if not isinstance(vars(message)[field.name], field.type):  # type: ignore[arg-type]
            raise TypeError(field.name)
    return message


def send(line: socket.socket, message: Any, arrays: Sequence[np.ndarray] = ()) -> None:
    """Send a dataclass and arrays. Raises OSError, for example TimeoutError, if the other side does not receive
    them."""
    kinds = [[str(array.dtype), list(array.shape)] for array in arrays]
    header = json.dumps([type(message).__name__, vars(message), kinds]).encode()
    line.sendall(LENGTHS.pack(len(header), sum(array.nbytes for array in arrays)) + header)
    for array in arrays:
        line.sendall(array.tobytes())


def receive[Message](
    line: socket.socket, limit: int, expected: Sequence[type[Message]], seconds: float | None = None
) -> tuple[Message, list[np.ndarray]]:
    """Receive a message.

    Args:
      line: the connection.
      limit: the maximum number of bytes of the message.
      expected: the allowed classes of the message.
      seconds: the time limit for receiving the whole message; None for no limit.

    Returns:
      The message, whose fields have the types that its class declares, and its arrays.

    Raises:
      WireError: if the received data is not such a message, or if the other side closed the connection (`HungUp`).
      TimeoutError: if the message was not complete in time.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    header, body = LENGTHS.unpack(_receive_exactly(line, LENGTHS.size, deadline))
    if header + body > limit:
        raise WireError(f"a message of {header + body:,} bytes")
    try:
        name, fields, kinds = bounded_json.loads(bytes(_receive_exactly(line, header, deadline)))
        rest, arrays = memoryview(_receive_exactly(line, body, deadline)), []
        for dtype_name, shape in kinds:
            # Multiplying many huge integers would take hours.
            known = dtype_name in DTYPES.values() and len(shape) <= _MAX_DIMENSIONS
            if not known or not all(type(size) is int and 0 <= size <= limit for size in shape):
                raise WireError("an array of no known kind")
            dtype = np.dtype(dtype_name)
            nbytes = math.prod(shape) * dtype.itemsize
            arrays.append(np.frombuffer(rest[:nbytes], dtype).reshape(shape))
            rest = rest[nbytes:]
        message = _build_message(name, fields, expected)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise WireError("no message") from error
    if rest:
        raise WireError("no message")
    return message, arrays


def _receive_exactly(line: socket.socket, count: int, deadline: float | None) -> bytearray:
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
    return received  # without a copy, which would double the memory
