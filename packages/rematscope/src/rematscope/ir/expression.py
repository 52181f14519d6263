"""Find the expression of the source line that an operation comes from.

Python records the start and end of each instruction's source text, and JAX records the instructions that led to each
operation.
"""

import ast
import functools
import itertools
import linecache
import types
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
    for code, instruction in frames_to_line(source, eqn)[-1:]:
        _, end_line, start, end = _position_of(code, instruction)
        if end_line is None or start is None or end is None:
            break
        if end_line != users.line:
            return Expression(users, (end_line, start, end), "")
        text = linecache.getline(code.co_filename, users.line).encode()[start:end].decode(errors="replace")
        return Expression(users, (start, end), text if _is_whole(text) else "")
    return Expression(users, (), "")


def frames_to_line(source: Source, *eqns: JaxprEqn) -> tuple[tuple[types.CodeType, int], ...]:
    """Return the calls that lead from the user's source line to an operation, innermost first.

    The same operation of repeated layers has equal calls. () if the line is not on the call stacks.

    Args:
      source: the source line.
      *eqns: the operation, then the calls that contain it, innermost first.
    """
    frames: list[tuple[types.CodeType, int]] = []
    for eqn in eqns:
        traceback: Any = eqn.source_info.traceback
        codes, instructions = traceback.raw_frames() if hasattr(traceback, "raw_frames") else ((), ())
        for code, instruction in zip(codes, instructions, strict=True):
            frames.append((code, instruction))
            line = _position_of(code, instruction)[0]
            if line == source.users.line and place_of(code.co_filename) == source.users.place:
                return tuple(frames)
    return ()


@functools.lru_cache(maxsize=4096)  # repeated layers come from the same instructions
def _position_of(code: types.CodeType, instruction: int) -> tuple[int | None, int | None, int | None, int | None]:
    """Return the first and last line of an instruction, and the columns of its start and end."""
    return next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)


def _is_whole(text: str) -> bool:
    """Return whether a text is a complete expression; it may not be if the file has changed since it was imported."""
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True
