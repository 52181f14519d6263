"""Find the expression of the source line that an operation comes from.

Python records the start and end of each instruction's source text, and JAX records the instructions that led to each
operation.
"""

import ast
import itertools
import linecache
from typing import Any, NamedTuple

from jax.extend.core import JaxprEqn

from rematscope.ir.source import Source, place_of


class Expression(NamedTuple):
    """An expression on a line of the user's code; for an operation in a library, the call of the library.

    Attributes:
      columns: the start and the end of the expression, in bytes. If it ends on a later line, the number of that line
        comes first. () if unknown.
      text: the source text; "" if it spans several lines or cannot be read.
    """

    source: Source
    columns: tuple[int, ...]
    text: str


def expression_of(eqn: JaxprEqn, source: Source) -> Expression:
    """Return the expression of an operation, given its source line."""
    users = source.users
    traceback: Any = eqn.source_info.traceback
    codes, instructions = traceback.raw_frames() if hasattr(traceback, "raw_frames") else ((), ())
    for code, instruction in zip(codes, instructions, strict=True):
        at = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)
        line, end_line, start, end = at
        if line is None or end_line is None or start is None or end is None or line != users.line:
            continue
        if place_of(code.co_filename) == users.place:
            if end_line != line:
                return Expression(users, (end_line, start, end), "")
            text = linecache.getline(code.co_filename, line).encode()[start:end].decode(errors="replace")
            return Expression(users, (start, end), text if _is_whole(text) else "")
    return Expression(users, (), "")


def _is_whole(text: str) -> bool:
    """Return whether a text is a complete expression; it may not be if the file has changed since it was imported."""
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True
