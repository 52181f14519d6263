"""Which expression of its line an operation comes from.

Python notes for each instruction where its text begins and ends, and JAX for each operation by which instructions it
was reached.
"""

import ast
import itertools
import linecache
from typing import Any, NamedTuple

from jax.extend.core import JaxprEqn

from rematscope.ir.source import Source, place_of


class Expression(NamedTuple):
    """A piece of a line of the user's: of an operation in a library, the call that leads there.

    Attributes:
      source: the line.
      columns: where it begins and ends, in bytes; where it ends in a later line, that comes first. () if not known.
      text: as it is written; "" where it has several lines, or cannot be read.
    """

    source: Source
    columns: tuple[int, ...]
    text: str


def expression_of(eqn: JaxprEqn, source: Source) -> Expression:
    """The expression of an operation whose line is known."""
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
    """Whether a text is an expression: a file may have changed since it was read."""
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True
