"""Messages arrive completely or not at all, and a sender cannot cost the receiver much time or memory."""

import dataclasses
import socket
import threading
import time

import numpy as np
import pytest

from grader.isolation.sandboxed import messages, protocol


@dataclasses.dataclass(frozen=True)
class Note:
    """A message similar to those of `protocol`."""

    words: list
    number: int | None = None


def framed(header, nbytes=0):
    """Return a message's length fields and this header, valid or not."""
    return messages.LENGTHS.pack(len(header), nbytes) + header.encode()


def test_a_message_arrives_unchanged_with_its_arrays_or_not_at_all():
    arrays = [np.float32(2), np.ones((2, 0, 3), bool), np.arange(6).reshape(2, 3).T, np.ones(3, "bfloat16")]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send(ours, Note([1]), arrays)
        message, received = messages.receive(theirs, 10_000, [protocol.Ready, Note], 300)
        assert message == Note([1])
        for array, other in zip(arrays, received, strict=True):
            assert array.dtype == other.dtype and array.shape == other.shape and (array == other).all()
        with pytest.raises(TimeoutError):
            messages.receive(theirs, 10_000, [Note], 0.1)
        messages.send(ours, Note(["x" * 1000]))
        with pytest.raises(messages.WireError):
            messages.receive(theirs, 100, [Note], 1)


@pytest.mark.parametrize(
    "header",
    [
        "[]",
        "[1, []]",
        '["Ready", {}]',
        '["Ready", [], []]',
        '[["Ready"], {}, []]',
        '["Ready", {"more": 1}, []]',
        '["Note", {}, []]',
        '["Note", {"words": {}}, []]',
        '["Note", {"words": [], "number": "1"}, []]',
        '["Refused", {"why": "it was not expected"}, []]',
        '["Ready", {}, [["float32", [2]]]]',
        '["Ready", {}, [["object", [0]]]]',
        '["Ready", {}, [["int8", [-1]]]]',
        "[" * 10**5,
        f'["Ready", {{}}, [["float32", [0{", 0" * 32}]]]]',
    ],
    ids=lambda header: f"{header[:40]} {len(header)}",
)
def test_invalid_messages_are_refused(header):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(framed(header))
        with pytest.raises(messages.WireError):
            messages.receive(theirs, 10**6, [protocol.Ready, Note], 300)


def test_of_these_headers_one_that_is_right_is_taken():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(framed('["Note", {"words": [], "number": 1}, [["int8", [1]]]]', nbytes=1) + b"7")
        message, (array,) = messages.receive(theirs, 10**6, [protocol.Ready, Note], 300)
    assert message == Note([], 1) and array == [55]
    assert messages.decode(messages.encode(message), [Note]) == message
    for text in (b"", b"[]", b'["Note", {}]', messages.encode(protocol.Ready())):
        with pytest.raises(messages.WireError):
            messages.decode(text, [Note])


def test_the_size_of_an_array_is_no_sum_without_an_end():
    header = f'["Ready", {{}}, [["float32", [{", ".join(["9" * 4300] * 800)}]]]]'
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=ours.sendall, args=[framed(header)])
    with ours, theirs:
        thread.start()
        start = time.thread_time()
        with pytest.raises(messages.WireError):
            messages.receive(theirs, 10**7, [protocol.Ready], 300)
        assert time.thread_time() - start < 10, "their product alone takes longer"
        thread.join()


def test_a_message_that_arrives_too_slowly_times_out():
    class Dripping:
        start, left = time.monotonic(), messages.LENGTHS.pack(10**9, 0)

        def settimeout(self, seconds):
            assert seconds > 0

        def recv(self, count):
            assert time.monotonic() - self.start < 300, "its time was up after 0.2 s"
            drop, self.left = self.left[:1] or b"\0", self.left[1:]
            return drop

    with pytest.raises(TimeoutError):
        messages.receive(Dripping(), 10**10, [protocol.Ready], 0.2)
