"""A reader of protocol buffers, with the field types that XLA's messages need.

A message is a class with a descriptor for each field; `hlo_proto` declares XLA's. A library would be one more
dependency for the small part of the wire format that is needed: https://protobuf.dev/programming-guides/encoding.
Fields that are not declared, such as floats, are skipped.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Generic, Self, TypeVar, overload

from rematscope.errors import TargetError

T = TypeVar("T")
K = TypeVar("K", int, bytes)
M = TypeVar("M", bound="Message")


class Message:
    """A message, parsed from its bytes. A field is decoded when it is first read.

    Raises:
      TargetError: if the bytes are no such message; a field raises it too.
    """

    def __init__(self, data: bytes = b""):
        # For each field number its values in order: integers, and bytes for the types with a length.
        self._values: dict[int, list[int | bytes]] = defaultdict(list)
        at = 0
        while at < len(data):
            tag, at = _read_varint(data, at)
            values = self._values[tag >> 3]
            match tag & 7:
                case 0:
                    number, at = _read_varint(data, at)
                    values.append(number)
                    continue
                case 1:  # 64 bits: a float, as are 32
                    size = 8
                case 5:
                    size = 4
                case 2:
                    size, at = _read_varint(data, at)
                    values.append(data[at : at + size])
                case kind:
                    raise damaged_record(f"it has a field of the unknown kind {kind}")
            if not 0 <= size <= len(data) - at:
                raise damaged_record("it ends inside a field")
            at += size


class Field(Generic[T]):
    """A field of a message: its number, and a function that decodes its values."""

    def __init__(self, number: int, read: Callable[[Sequence[int | bytes]], T]):
        self.number = number
        self.read = read

    def __set_name__(self, owner: type[Message], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, message: None, owner: type[Message]) -> Self: ...

    @overload
    def __get__(self, message: Message, owner: type[Message]) -> T: ...

    def __get__(self, message: Message | None, owner: type[Message]) -> Self | T:
        if message is None:
            return self
        value = self.read(message._values[self.number])
        message.__dict__[self.name] = value  # later reads find this value before the descriptor
        return value


# If a field that may occur once occurs more often, the last value counts, as the encoding demands.


def integer(number: int, default: int = 0) -> Field[int]:
    """Declare an integer or a boolean; `default` if it is missing."""
    return Field(number, lambda values: _expect_type(int, values[-1]) if values else default)


def integers(number: int) -> Field[list[int]]:
    """Declare repeated integers, packed or not."""
    return Field(number, lambda values: [n for value in values for n in _unpack_integers(value)])


def blob(number: int) -> Field[bytes]:
    """Declare bytes; empty if they are missing."""
    return Field(number, lambda values: _expect_type(bytes, values[-1]) if values else b"")


def text(number: int) -> Field[str]:
    """Declare a string; empty if it is missing."""
    return Field(number, lambda values: _decode_text(values[-1]) if values else "")


def texts(number: int) -> Field[list[str]]:
    """Declare repeated strings."""
    return Field(number, lambda values: list(map(_decode_text, values)))


def message(number: int, kind: Callable[[], type[M]]) -> Field[M]:
    """Declare a message; without fields if it is missing. `kind` returns its class, which may be defined later."""
    # Several parts of one message are merged by joining them.
    return Field(number, lambda values: kind()(b"".join(_expect_type(bytes, part) for part in values)))


def messages(number: int, kind: Callable[[], type[M]]) -> Field[list[M]]:
    """Declare repeated messages."""
    return Field(number, lambda values: [kind()(_expect_type(bytes, value)) for value in values])


def damaged_record(how: str) -> TargetError:
    """Return the error that a record cannot be read; `how` is a clause, "it ends inside a field"."""
    return TargetError(
        f"XLA's record of the compiled program cannot be read: {how}. Compile again. If the error persists, this "
        "version of XLA writes a format that rematscope does not know."
    )


def _expect_type(kind: type[K], value: int | bytes) -> K:
    if not isinstance(value, kind):
        raise damaged_record("a field has another type than its name says")
    return value


def _decode_text(value: int | bytes) -> str:
    try:
        return _expect_type(bytes, value).decode()
    except UnicodeDecodeError:
        raise damaged_record("it has invalid characters") from None


def _unpack_integers(value: int | bytes) -> list[int]:
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = _read_varint(value, at)
        found.append(number)
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of seven bits per byte, lowest first, and the position after it."""
    number = 0
    for shift in range(0, 70, 7):
        if at == len(data):
            raise damaged_record("it ends inside a number")
        byte = data[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number - (number >> 63 << 64), at  # negative numbers are the two's complement in 64 bits
    raise damaged_record("it has a number of more than 64 bits")
