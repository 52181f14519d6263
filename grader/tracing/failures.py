"""Turn exceptions of the learner's code into a `Failure`, and recognize stubs."""

import dis
import inspect
import os
import re
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

import jax

import rematscope
from grader.tracing.evidence import RAISES_STUB, RETURNS_NONE, Failure, FailureKind
from grader.verdicts.verdict import Verdict, not_judged
from rematscope.extend import place_of


class Unusable(Exception):
    """Raised if an answer gives no evidence, usually because it returns a value of the wrong kind.

    Attributes:
      failure: the failure to report.
    """

    def __init__(self, text: str, kind: FailureKind = FailureKind.RETURNED, source: str | None = None):
        super().__init__(text)
        self.failure = Failure(kind, text, source)


def refuse_none(function: Callable, output: object) -> None:
    """Raise Unusable if a learner's function returned None: it is a stub, or a return is missing."""
    if output is None:
        if _does_nothing(function):
            raise Unusable("its body is empty", FailureKind.NOT_ATTEMPTED)
        raise Unusable(RETURNS_NONE)


def _does_nothing(function: Callable) -> bool:
    """Return whether a function's body is only `pass`, `...` or a docstring, so that it computes nothing."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    working = ("BINARY", "UNARY", "COMPARE", "CALL", "LOAD_GLOBAL", "LOAD_ATTR", "STORE")
    return code is not None and not any(step.opname.startswith(working) for step in dis.get_instructions(code))


def failure_of(error: BaseException) -> Failure:
    """Return an exception of the learner's code as a failure: its type, its message and its line."""
    if isinstance(error, Unusable):
        return error.failure
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    # JAX raises NotImplementedError too. In a stub, a line of the learner raises it.
    if isinstance(error, NotImplementedError) and own and frames[-1] is own[-1]:
        return Failure(FailureKind.NOT_ATTEMPTED, RAISES_STUB, _source_line(own[-1]))
    return Failure(FailureKind.RAISED, message_of(error), _source_line(own[-1]) if own else None)


def message_of(error: BaseException) -> str:
    """Return an exception's type and message in one line."""
    # The message as Python prints it, including "Did you mean …?": the first paragraph, and the second one if the first
    # ends with a colon, without JAX's remarks about tracebacks and documentation.
    printed = "".join(traceback.TracebackException.from_exception(error).format_exception_only())[:_READ]
    first, *others = printed.split("\n\n")
    paragraphs = [first, *others[:1]] if first.endswith(":") else [first]
    message = " ".join(_OF_JAX_ITSELF.split("\n".join(paragraphs))[0].split())
    # Memory addresses and positions in files are removed, so that the same mistake gives the same message.
    message = re.sub(r":? ?https?://\S+| at (0x[0-9a-f]+|\S+\.py:\d+)|\bid=\d+", "", message)
    message = re.sub(r"(?:[A-Za-z]:)?[\\/](?:[^\s\\/:]+[\\/])+([^\s\\/:]+\.py)", r"\1", message)
    message = message.removeprefix(f"{type(error).__module__}.").encode(errors="backslashreplace").decode()
    return message if len(message) <= 300 else message[:300].rstrip() + " …"


def grader_failed(exercise: str | None, error: BaseException) -> Verdict:
    """Return the verdict for an exception in the grader itself."""
    advice = "This is a bug in the grader. Please report it, together with your answer."
    return not_judged(exercise, f"the grader itself failed with {message_of(error)}.", advice)


_READ = 4_000  # characters of an exception's message; searching a message of millions of characters would take minutes

# JAX's remarks: a line of dashes and a note on shortened tracebacks, the name of the traced function, a link.
_OF_JAX_ITSELF = re.compile(
    r"^-{10,}$|For simplicity, JAX has removed|The error occurred while tracing the function|See https?://",
    re.MULTILINE,
)


_LIBRARIES = tuple(
    {os.path.join(Path(__file__).resolve().parents[1], "")}  # the grader
    | {os.path.join(os.path.dirname(str(package.__file__)), "") for package in (jax, rematscope)}
    | {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {"<frozen"}
)


def _source_line(frame: traceback.FrameSummary) -> str:
    line = rematscope.Source(place_of(frame.filename), frame.lineno or 0, frame.name)
    return f"{line}: {frame.line}" if frame.line else str(line)
