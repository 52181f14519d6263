"""Parse a notebook's cells as Python. IPython's special lines become calls, and all lines keep their numbers.

`n = !nproc` becomes `n = get_ipython().getoutput('nproc')`, and `%timeit f()` becomes a call of `run_line_magic`.
`grader.answers.notebook` defines what such calls do outside of a notebook. The lines after `%%time` are treated as
Python.
"""

import ast
import functools
import symtable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class AnswerSource:
    """A piece of Python: a cell of a notebook, or a whole file. `place` is its name for the learner."""

    place: str
    text: str

    def line_text(self, line: int) -> str:
        """Return a line's place as `rematscope.Source.where` does: cells have lines in words, files `file.py:7`."""
        is_cell = self.place.startswith("In [") or ", code cell " in self.place
        return f"{self.place}, line {line}" if is_cell else f"{self.place}:{line}"


class PlacedStatement(NamedTuple):
    """A statement, and the piece of Python that contains it."""

    source: AnswerSource
    node: ast.stmt


def statements_of(source: AnswerSource) -> list[PlacedStatement]:
    """Return the statements of a cell or a file.

    Raises:
      SyntaxError, ValueError, RecursionError, MemoryError: if it is not valid Python, even in a notebook.
    """
    text = source.text.replace("\r\n", "\n").replace("\r", "\n")  # the line ends that Python counts
    if "\0" in text:  # for which Python's tokenizer would raise a different error
        raise ValueError("the file contains a null character; retype the line that contains it")
    try:
        tree = ast.parse(text)
    except SyntaxError:
        # Tried only now, because a line inside a string or an expression of plain Python may also start with %.
        text = _remove_magics(text)
        tree = ast.parse(text)
    symtable.symtable(text, source.place, "exec")  # detects further errors, such as a return outside of a function
    source, statements = AnswerSource(source.place, text), []
    for node in tree.body:
        inner = _inner_text(node)
        if inner is None:
            statements.append(PlacedStatement(source, node))
        else:
            statements += statements_of(AnswerSource(source.place, "\n" * (node.lineno - 1) + inner))
    return statements


def magic_of(node: ast.AST) -> tuple[str, list[str]] | None:
    """Return the IPython method that a call uses, such as `run_line_magic`, and its strings; None for other calls."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr=method), args=arguments):
            return method, [a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return None


def segment(source: AnswerSource, statements: Sequence[ast.stmt]) -> str:
    """Return the text of consecutive statements, with the comments before and after them."""
    lines = _lines_of_bytes(source.text)
    first, last = statements[0], statements[-1]
    start = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", ()))]) - 1
    assert last.end_lineno is not None and last.end_col_offset is not None  # set by the parser
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


@functools.lru_cache(maxsize=1)  # called for one statement of the same text after another
def _lines_of_bytes(text: str) -> list[bytes]:
    """Return the lines of a text as bytes, because column offsets count bytes."""
    return [line.encode() for line in text.split("\n")]


# Cell magics whose cells are not Python, or are for another process. The cells of all other magics run.
_NOT_RUN_HERE = {
    *("!", "sx", "system", "cmd", "bash", "sh", "script", "perl", "ruby", "python", "python2", "python3", "pypy"),
    *("html", "HTML", "svg", "SVG", "javascript", "js", "latex", "markdown", "writefile", "file", "sql", "R"),
}


def _inner_text(node: ast.stmt) -> str | None:
    """Return the Python code that a statement's magic runs; None for other statements."""
    match magic_of(node.value) if isinstance(node, ast.Expr) else None:
        case "run_cell_magic", [name, _, body]:
            return "" if name in _NOT_RUN_HERE else "\n" + body
        case "run_line_magic", ["time", statement]:
            return statement
    return None


def _remove_magics(text: str) -> str:
    # Imported here, because the import takes 0.05 s and few answers need it.
    from IPython.core.inputtransformer2 import TransformerManager, cell_magic

    manager = TransformerManager()
    lines = (text + "\n").splitlines(keepends=True)
    above = next((number for number, line in enumerate(lines) if line.strip()), 0)
    transforms: list[Any] = [*manager.cleanup_transforms, cell_magic]
    for transform in transforms:  # pasted prompts, an indentation, or %%
        lines[above:] = transform(lines[above:])
    changed, rest = manager.do_one_token_transform(lines)
    while changed:
        # A magic that a backslash continues becomes one line.
        place = next((i for i, (old, new) in enumerate(zip(lines, rest, strict=False)) if old != new), len(rest) - 1)
        rest[place + 1 : place + 1] = ["\n"] * (len(lines) - len(rest))
        lines = rest
        changed, rest = manager.do_one_token_transform(lines)
    return "".join(lines)
