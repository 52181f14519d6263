"""Protocol buffers, as far as XLA's records need them."""

from collections import defaultdict

Message = dict[int, list]


def parse(message: bytes) -> Message:
    """Field number → its values, in order: integers, or bytes for whatever has a length."""
    found: Message = defaultdict(list)
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
            case 2:
                size, at = _varint(message, at)
                value, at = message[at : at + size], at + size
            case kind:  # fixed 64 or 32 bits: a float, and none is needed
                value, at = None, at + {1: 8, 5: 4}[kind]
        found[tag >> 3].append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value - (value >> 63 << 64), at  # negative numbers are the two's complement in 64 bits


def integers(values: list) -> list[int]:
    """Repeated integers, packed or not."""
    found = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(number)
    return found


def integer_field(message: Message, field: int, default: int = 0) -> int:
    return message[field][0] if message[field] else default


def text_field(message: Message, field: int) -> str:
    return message[field][0].decode() if message[field] else ""


def message_fields(message: Message, field: int) -> list[Message]:
    return list(map(parse, message[field]))


def message_field(message: Message, field: int) -> Message:
    return parse(message[field][0]) if message[field] else defaultdict(list)
