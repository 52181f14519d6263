"""What an exception of the learner's code says, and answers that are none."""

import dis
import inspect
import os
import re
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.export

import rematscope
from rematscope.ir.source import place_of


@dataclass(frozen=True)
class Failure:
    """Why a case left no programs.

    Attributes:
      kind: `"not attempted"`, `"raised"` or `"returned"` (something that has no gradient).
      text: what happened: the exception's type and message, or what was returned.
      source: the learner's line, or None.
    """

    kind: str
    text: str
    source: str | None = None


class Unusable(Exception):
    """The answer returns something that is no evidence of anything; holds the `Failure` that says what."""


def refuse_none(function: Callable, output: object):
    """Raises Unusable if a learner's function returned None: it is a stub, or a return is missing."""
    if output is None:
        stub = Failure("not attempted", "its body is empty")
        forgotten = Failure("returned", "Your answer returns None: there is no return, or nothing behind it.")
        raise Unusable(stub if _does_nothing(function) else forgotten)


def _does_nothing(function: Callable) -> bool:
    """True for a body of `pass`, `...` or a docstring: nothing is named, computed or called in it."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    working = ("BINARY", "UNARY", "COMPARE", "CALL", "LOAD_GLOBAL", "LOAD_ATTR", "STORE")
    return code is not None and not any(step.opname.startswith(working) for step in dis.get_instructions(code))


def failure_of(error: BaseException) -> Failure:
    """What an exception of the learner's code says: its type and message, and the line it came from."""
    if isinstance(error, Unusable):
        return error.args[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    # JAX raises NotImplementedError too; a stub is one that the learner's own line raises.
    if isinstance(error, NotImplementedError) and own and frames[-1] is own[-1]:
        return Failure("not attempted", "it raises NotImplementedError", _source(own[-1]))
    return Failure("raised", message_of(error), _source(own[-1]) if own else None)


def message_of(error: BaseException) -> str:
    """An exception's type and what it says, in one line."""
    # As Python prints it, "Did you mean …?" included: the first paragraph, without memory addresses and files, so that
    # the same mistake is the same message.
    printed = "".join(traceback.TracebackException.from_exception(error).format_exception_only())
    message = re.sub(r" at (0x[0-9a-f]+|\S+\.py:\d+)", "", " ".join(printed.split("\n\n")[0].split()))
    message = message.removeprefix(f"{type(error).__module__}.").encode(errors="backslashreplace").decode()
    return message if len(message) <= 300 else message[:300].rstrip() + " …"


_PACKAGE = str(Path(__file__).resolve().parents[1])  # the grader
_LIBRARIES = tuple(
    {os.path.join(path, "") for path in (_PACKAGE, os.path.dirname(jax.__file__))}
    | {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {"<frozen"}
)


def _source(frame: traceback.FrameSummary) -> str:
    line = rematscope.Source(place_of(frame.filename), frame.lineno, frame.name)
    return f"{line}: {frame.line}" if frame.line else str(line)
