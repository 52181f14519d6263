"""Fuzz the readers of text from an answer's process: they accept or refuse each example quickly and without a crash.

Each example is a changed file of `corpus/`. Hypothesis saves failing examples in `found/`, which is checked in, and
tries those first. The test suite runs about a hundred examples per test. To try new random examples for minutes:

    FUZZ_SECONDS=300 pytest -n 0 tests/grader/fuzzing
"""

import contextlib
import json
import os
import re
import secrets
import socket
import threading
import time
from pathlib import Path

import fuzz
import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase

from grader.isolation.sandboxed import messages, protocol
from grader.stablehlo import interpreter, reader
from grader.stablehlo.numpy_operations import Uninterpreted
from grader.stablehlo.types import ProgramError
from grader.tracing.evidence import Evidence, EvidenceError

HERE = Path(__file__).parent
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
SLOW = 20  # seconds of processor time for one example
SETTINGS = settings(
    max_examples=1000 if SECONDS else 40,
    database=DirectoryBasedExampleDatabase(HERE / "found"),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def corpus(kind):
    return [path.read_bytes() for path in sorted((HERE / "corpus" / kind).iterdir())]


# Numbers, names, brackets and so on: the units that a change removes, inserts or moves.
TOKEN = re.compile(rb"[%@#]?\w+(?:\.\w+)*|\s+|.", re.DOTALL)
STRANGE = [b"0", b"-1", b"18446744073709551616", b"1e999", b"nan", b"?", b"null", b"{}", b"[]", b"\x00", b"\xff", b'"']
STRANGE += [
    b"[" * 2000,
    b"tensor<?xf32>",
    b"tensor<99999999x99999999xf32>",
    b"tensor<0xf32>",
    b"complex<f32>",
    b"token",
]


@st.composite
def changed(draw, kind):
    """Draw a file of the corpus with some changes, which may insert tokens of other files."""
    files = [TOKEN.findall(file) for file in corpus(kind)]
    tokens, other = list(draw(st.sampled_from(files))), draw(st.sampled_from(files))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, max(len(tokens) - 1, 0)))
        length = draw(st.sampled_from([1, 1, 1, 2, 5, 30, 300]))
        source = draw(st.integers(0, max(len(other) - 1, 0)))
        what = draw(st.sampled_from(["drop", "repeat", "copy", "own", "strange", "byte"]))
        piece = tokens[place : place + length]
        if what == "drop":
            tokens[place : place + length] = []
        elif what == "repeat":
            tokens[place:place] = piece * draw(st.sampled_from([1, 2, 50]))
        elif what == "copy":
            tokens[place : place + length] = other[source : source + length]
        elif what == "own":
            tokens[place : place + 1] = tokens[source : source + 1]
        elif what == "strange":
            tokens[place : place + 1] = [draw(st.sampled_from(STRANGE))]
        elif piece and piece[0]:
            at = draw(st.integers(0, len(piece[0]) - 1))
            tokens[place] = piece[0][:at] + bytes([draw(st.integers(0, 255))]) + piece[0][at + 1 :]
    return b"".join(tokens)[: 2**20]


PARTS = [None, True, -1, 2**64, 0.5, "", "?", "\ud800", [], {}, [[]], {"?": 1}, "x" * 2000]


def part_changed(draw, value):
    """Return JSON's types with one part removed or replaced."""
    keys = list(value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0))
    if not keys or not draw(st.integers(0, 5)):
        return draw(st.sampled_from(PARTS))
    key = draw(st.sampled_from(keys))
    if draw(st.integers(0, 3)):
        value[key] = part_changed(draw, value[key])
    else:
        del value[key]
    return value


@st.composite
def restructured(draw, kind):
    """Draw a file of the corpus with changed JSON but right lengths. Most of a file is program text, so `changed`
    rarely changes the rest."""
    file = draw(st.sampled_from(corpus(kind)))
    start = messages.LENGTHS.size if kind == "messages" else 0
    header, body = messages.LENGTHS.unpack(file[:start]) if start else (len(file), 0)
    text = json.dumps(part_changed(draw, json.loads(file[start : start + header]))).encode()
    return (messages.LENGTHS.pack(len(text), body) if start else b"") + text + file[start + header :]


KINDS = [kind for kind in vars(protocol).values() if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__")]


def read_messages(content):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=_send, args=(ours, content))
        thread.start()
        try:
            message, arrays = messages.receive(theirs, 10**6, KINDS, 30)
        except messages.WireError:
            return
        finally:
            theirs.close()
            thread.join()
    assert type(message) in KINDS and all(array.nbytes <= 10**6 for array in arrays)


def _send(line, content):
    with contextlib.suppress(OSError):
        line.sendall(content)
    line.close()


def read_evidence(content):
    try:
        evidence = Evidence.from_json(content.decode(errors="surrogateescape"))
    except EvidenceError:
        return
    assert Evidence.from_json(evidence.to_json()) == evidence


def read_stablehlo(content):
    text = content.decode(errors="replace")
    try:
        program = reader.read(text, max_trip_count=100)
        inputs = [np.ones(of.shape, of.dtype) for of in program.input_types]
        interpreter.run(program.text or text, inputs)
    except (ProgramError, Uninterpreted):
        return


READERS = {"messages": read_messages, "evidence": read_evidence, "stablehlo": read_stablehlo}


def try_examples(strategy, attempt):
    """Try drawn examples: a fixed number, or as many as FUZZ_SECONDS allows."""

    @SETTINGS
    @seed(int(os.environ.get("REMAT_SEED", "0")) if not SECONDS else secrets.randbits(64))
    @given(strategy)
    def tried(example):
        start = time.process_time()
        attempt(example)
        assert time.process_time() - start < SLOW

    end = time.monotonic() + SECONDS / (len(READERS) + 3)
    tried()
    while time.monotonic() < end:
        tried()


@pytest.mark.parametrize("kind", READERS)
def test_random_messages_are_accepted_or_refused(kind):
    try_examples(changed(kind), READERS[kind])


@pytest.mark.parametrize("kind", ["messages", "evidence"])
def test_restructured_messages_are_accepted_or_refused(kind):
    try_examples(restructured(kind), READERS[kind])


@pytest.mark.slow
def test_mutated_evidence_crashes_nothing_and_passes_only_if_it_is_right():
    def attempt(number):
        assert fuzz.attempt(number) in fuzz.OUTCOMES

    try_examples(st.integers(0, 2**32), attempt)


@pytest.mark.parametrize("kind", READERS)
def test_the_corpus_itself_is_taken(kind):
    """If the readers refused the corpus, changed files would only test refusals."""
    for content in corpus(kind):
        if kind == "messages":
            ours, theirs = socket.socketpair()
            with ours, theirs:
                ours.sendall(content)
                assert type(messages.receive(theirs, 10**6, KINDS, 30)[0]) in KINDS
        elif kind == "evidence":
            assert Evidence.from_json(content.decode()).exercise
        else:
            assert reader.read(content.decode(), 100).outputs
