"""Errors that name the cause and the next step."""

import re
import traceback
from pathlib import Path

_NOT_THE_USERS = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]src[/\\]rematscope[/\\]|^<|[/\\]lib[/\\]python3")


class _Sentence(ValueError):
    def _render_traceback_(self) -> list[str]:
        # IPython asks an exception for its own rendering: the sentence is all a reader needs.
        return [f"{type(self).__name__}: {self}"]


class TraceError(_Sentence):
    """Raised for a function that cannot be traced or differentiated. The message names the cause and the next step."""


class TargetError(_Sentence):
    """Raised for a device that is unknown, absent or not valid. The message names the cause and the next step."""


class PlanError(_Sentence):
    """Raised if a limit cannot be met, a function cannot be planned, or an option is not valid.

    The message names the cause and the next step.
    """


def describe_error(error: Exception) -> str:
    """Return a one-line description of an error of a user's code, with the line where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not _NOT_THE_USERS.search(frame.filename)]
    place = f" ({Path(users[-1].filename).name}:{users[-1].lineno})" if users else ""
    if isinstance(error, SyntaxError):
        place = f" ({Path(error.filename or '').name}:{error.lineno})"
        return f"{type(error).__name__}, {error.msg}{place}."
    first_line = next(iter(str(error).splitlines()), "").rstrip(".")
    return f"{type(error).__name__}{', ' * bool(first_line)}{first_line}{place}."
