"""A notebook's cells as Python: IPython's own lines become calls, and all others keep their numbers.

`n = !nproc` becomes `n = get_ipython().getoutput('nproc')`, `%timeit f()` a call of `run_line_magic`; what such calls
do where there is no notebook is said in `grader.answers.notebook`. A cell below `%%time` is a cell of Python.
"""

import ast
import functools
import symtable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class AnswerSource:
    """A piece of Python: a notebook's cell or a whole file. `place` is what a learner calls it."""

    place: str
    text: str


class PlacedStatement(NamedTuple):
    """A statement, and the piece of Python that it stands in."""

    source: AnswerSource
    node: ast.stmt


def statements_of(source: AnswerSource) -> list[PlacedStatement]:
    """Return a cell's statements, or a file's.

    Raises:
      SyntaxError, ValueError, RecursionError, MemoryError: it is no Python, and would not be in a notebook.
    """
    text = source.text.replace("\r\n", "\n").replace("\r", "\n")  # as Python counts lines
    if "\0" in text:  # at which Python's tokenizer has an error of its own
        raise ValueError("the file contains a null character; retype the line that contains it")
    try:
        tree = ast.parse(text)
    except SyntaxError:
        # Only now: a line of plain Python may begin with % too, inside a string or an expression.
        text = _without_magics(text)
        tree = ast.parse(text)
    symtable.symtable(text, source.place, "exec")  # refuses more: a return outside of a function, say
    source, statements = AnswerSource(source.place, text), []
    for node in tree.body:
        inner = _inner_text(node)
        if inner is None:
            statements.append(PlacedStatement(source, node))
        else:
            statements += statements_of(AnswerSource(source.place, "\n" * (node.lineno - 1) + inner))
    return statements


def magic_of(node: ast.AST) -> tuple[str, list[str]] | None:
    """Return the method of IPython that a call uses, such as `run_line_magic`, and its texts; None for other calls."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr=method), args=arguments):
            return method, [a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return None


def segment(source: AnswerSource, statements: Sequence[ast.stmt]) -> str:
    """Return the text of statements that follow each other, with the comments above them and behind them."""
    lines = _lines_of_bytes(source.text)
    first, last = statements[0], statements[-1]
    start = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", ()))]) - 1
    assert last.end_lineno is not None and last.end_col_offset is not None  # it has been parsed
    end, column = last.end_lineno - 1, last.end_col_offset
    rest = lines[end][column:].strip()
    if not rest or rest.startswith(b"#"):
        column = len(lines[end].rstrip())
    if end > start:
        piece = [lines[start][first.col_offset :], *lines[start + 1 : end], lines[end][:column]]
    else:
        piece = [lines[start][first.col_offset : column]]
    above = start
    while first.col_offset == 0 and above and lines[above - 1].startswith(b"#"):
        above -= 1
    return b"\n".join([*lines[above:start], *piece]).decode()


@functools.lru_cache(maxsize=1)  # one statement of a text is asked for after the other
def _lines_of_bytes(text: str) -> list[bytes]:
    """Return a text's lines as bytes: columns count bytes."""
    return [line.encode() for line in text.split("\n")]


# Cell magics whose cells are something else, or are for another process. Those of any other are run, and measured.
_NOT_RUN_HERE = {
    *("!", "sx", "system", "cmd", "bash", "sh", "script", "perl", "ruby", "python", "python2", "python3", "pypy"),
    *("html", "HTML", "svg", "SVG", "javascript", "js", "latex", "markdown", "writefile", "file", "sql", "R"),
}


def _inner_text(node: ast.stmt) -> str | None:
    """Return the Python that a magic is to run, if a statement is one that runs some; None for others."""
    match magic_of(node.value) if isinstance(node, ast.Expr) else None:
        case "run_cell_magic", [name, _, body]:
            return "" if name in _NOT_RUN_HERE else "\n" + body
        case "run_line_magic", ["time", statement]:
            return statement
    return None


def _without_magics(text: str) -> str:
    # Not above: it takes a twentieth of a second, and few answers need it.
    from IPython.core.inputtransformer2 import TransformerManager, cell_magic

    manager = TransformerManager()
    lines = (text + "\n").splitlines(keepends=True)
    above = next((number for number, line in enumerate(lines) if line.strip()), 0)
    transforms: list[Any] = [*manager.cleanup_transforms, cell_magic]
    for transform in transforms:  # of prompts that were pasted, of an indentation, of %%
        lines[above:] = transform(lines[above:])
    changed, rest = manager.do_one_token_transform(lines)
    while changed:
        # A magic that goes on behind a backslash becomes one line.
        place = next((i for i, (old, new) in enumerate(zip(lines, rest, strict=False)) if old != new), len(rest) - 1)
        rest[place + 1 : place + 1] = ["\n"] * (len(lines) - len(rest))
        lines = rest
        changed, rest = manager.do_one_token_transform(lines)
    return "".join(lines)
