"""Write protocol buffers by hand, as described in https://protobuf.dev/programming-guides/encoding."""


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number as its two's complement in 64 bits."""
    number %= 2**64
    more = number >> 7
    return bytes([number & 127 | 128]) + varint(more) if more else bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    """A field that is an integer, or whatever has a length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value
