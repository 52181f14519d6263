"""Messages between the processes that grade a class: a dataclass as JSON, and the bytes of arrays.

The framing is ours, since what comes out of the sandbox is hostile: nothing that is read may ever run, as pickles do
(`multiprocessing.Connection`, Dask's own protocol), and nothing may take memory or time without a bound that is known
before it is read. Every length stands in front, arrays are bytes of a dtype on a list, a message has a limit and a
deadline as a whole. Libraries that would carry it (gRPC, msgpack, Arrow) leave those three to their caller.
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
    """Return how many arrays each case of each group has."""
    return [[len(case) for case in group] for group in groups]


def nested(counts: list[list[int]], arrays: Sequence[np.ndarray]) -> list[list[list[np.ndarray]]]:
    """Arrays in groups (inputs, cotangents, …) of cases, as they were before they were sent one after the other."""
    rest = iter(arrays)
    return [[[next(rest) for _ in range(count)] for count in group] for group in counts]


LENGTHS = struct.Struct("<QQ")  # bytes of JSON, and of all arrays together: what a message begins with
_MAX_DIMENSIONS = 32


class WireError(Exception):
    """What came is no message: it is too long, or not what `send` writes."""


class HungUp(WireError):
    """The other side ended, or closed the connection, before there was a message."""


def encode(message: Any) -> bytes:
    """Return a dataclass as JSON: its class's name and its fields."""
    return json.dumps([type(message).__name__, vars(message)]).encode()


def decode[Message](text: bytes, expected: Sequence[type[Message]]) -> Message:
    """Return the message that `encode` wrote. Raises WireError if it is none of those that are expected."""
    try:
        name, fields = bounded_json.loads(text)
        return _build_message(name, fields, expected)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise WireError("no message") from error


def _build_message[Message](name: str, fields: dict, expected: Sequence[type[Message]]) -> Message:
    message = {kind.__name__: kind for kind in expected}[name](**fields)
    for field in dataclasses.fields(message):  # type: ignore[arg-type]  # a dataclass: all messages are
        if not isinstance(vars(message)[field.name], field.type):  # type: ignore[arg-type]  # classes and unions of them
            raise TypeError(field.name)
    return message


def send(line: socket.socket, message: Any, arrays: Sequence[np.ndarray] = ()) -> None:
    """Send a dataclass, and arrays. Raises OSError, TimeoutError among them, if the other side does not take it."""
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
      line: where it comes from.
      limit: the most bytes that it may have.
      expected: the dataclasses that it may be of.
      seconds: how long to wait for all of it; None for as long as it takes.

    Returns:
      The message, whose fields have the types that its class says, and its arrays.

    Raises:
      WireError: what comes is no such message, or nothing comes since the other side has hung up (`HungUp`).
      TimeoutError: it was not there in time.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    header, body = LENGTHS.unpack(_receive_exactly(line, LENGTHS.size, deadline))
    if header + body > limit:
        raise WireError(f"a message of {header + body:,} bytes")
    try:
        name, fields, kinds = bounded_json.loads(bytes(_receive_exactly(line, header, deadline)))
        rest, arrays = memoryview(_receive_exactly(line, body, deadline)), []
        for dtype_name, shape in kinds:
            # The product of many long numbers would take hours.
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
    return received  # a copy would take as much memory again
