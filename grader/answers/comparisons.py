"""What an answer compares with what while it runs.

An answer that does something else where two numbers are the same compares them. Whoever knows how far apart they were
knows which structure to look at next. (So fuzzers come through conditions that chance does not meet: Aschermann et al.,
"REDQUEEN: Fuzzing with Input-to-State Correspondence", 2019.)
"""

import ast
import dis
import linecache
import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

_TOOL = 3  # of the six numbers that there are (PEP 669) another one that nothing known uses
_MOST = 16  # a loop may come to a comparison some thousand times
_INSTRUCTION = sys.monitoring.events.INSTRUCTION
_SAYS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge},
}
# What is found again on both sides of a comparison without doing anything.
_READS = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.Tuple, ast.List, ast.Set, ast.BinOp),
    *(ast.UnaryOp, ast.Compare, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.comprehension),
    *(ast.expr_context, ast.operator, ast.unaryop, ast.cmpop),
)
_CALLS = {"abs", "float", "int", "len", "max", "min", "sum"}


class Compared(NamedTuple):
    """Two numbers that were compared.

    Attributes:
      place: which comparison in which code.
      left: the one.
      right: the other.
      says: what came of it.
    """

    place: tuple[CodeType, int, int]
    left: float
    right: float
    says: bool


class Comparisons(AbstractContextManager):
    """While it is a context, it sees which numbers are compared in some code, wherever the code's source is known.

    Args:
      codes: the code to watch. Whatever else runs is no slower for it.
    """

    def __init__(self, codes: Sequence[CodeType]):
        self._sides = {(code, place): sides for code in codes for place, sides in _sides_in(code)}
        self._codes = {code for code, _ in self._sides}
        self._seen: list[Compared] = []
        self._often: Counter[tuple[CodeType, int]] = Counter()

    def __enter__(self) -> "Comparisons":
        if sys.monitoring.get_tool(_TOOL):  # somebody else watches
            self._sides = {}
        if self._sides:
            sys.monitoring.use_tool_id(_TOOL, __name__)
            sys.monitoring.register_callback(_TOOL, _INSTRUCTION, self._instruction)
            for code in self._codes:
                sys.monitoring.set_local_events(_TOOL, code, _INSTRUCTION)
        return self

    def __exit__(self, *_: object) -> None:
        if self._sides:
            for code in self._codes:
                sys.monitoring.set_local_events(_TOOL, code, 0)
            sys.monitoring.register_callback(_TOOL, _INSTRUCTION, None)
            sys.monitoring.free_tool_id(_TOOL)

    def _instruction(self, code: CodeType, place: int) -> object:
        if (code, place) not in self._sides:
            return sys.monitoring.DISABLE
        self._often[code, place] += 1
        if self._often[code, place] > _MOST:
            return None
        frame = sys._getframe(1)
        for number, (left, says, right) in enumerate(self._sides[code, place]):
            try:
                one, other = (eval(side, frame.f_globals, frame.f_locals) for side in (left, right))
            except Exception:  # a name that is gone, or a file that has changed since it was run
                continue
            if _is_number(one) and _is_number(other):
                self._seen.append(Compared((code, place, number), float(one), float(other), bool(says(one, other))))
        return None

    def since(self) -> list[Compared]:
        """What has been compared since this was asked last, of each comparison what came first."""
        self._often.clear()
        seen, self._seen = self._seen, []
        return seen


def _is_number(value: Any) -> bool:
    """Whether it is a number that a size may be near to."""
    return (type(value) in (int, float) or isinstance(value, np.integer | np.floating)) and abs(value) < 1e9


type _Sides = tuple[CodeType, Callable[[float, float], bool], CodeType]


def _sides_in(code: CodeType) -> Iterator[tuple[int, list[_Sides]]]:
    """The places of comparisons, and for each its operators between the code of what stands on both sides."""
    for step in dis.get_instructions(code):
        if step.opname != "COMPARE_OP":
            continue
        try:
            node = ast.parse(f"({_source(code, step)})", mode="eval").body
        except (SyntaxError, ValueError):
            continue
        if isinstance(node, ast.Compare) and _only_reads(node):
            sides = [compile(ast.Expression(side), "", "eval") for side in (node.left, *node.comparators)]
            found = zip(sides, [_SAYS.get(type(each)) for each in node.ops], sides[1:], strict=False)
            yield step.offset, [(left, says, right) for left, says, right in found if says]


def _only_reads(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        known = isinstance(node.func, ast.Name) and node.func.id in _CALLS and not node.keywords
        return known and all(map(_only_reads, node.args))
    return isinstance(node, _READS) and all(map(_only_reads, ast.iter_child_nodes(node)))


def _source(code: CodeType, step: dis.Instruction) -> str:
    """The text that an instruction was made of; nothing where it is not known."""
    where = step.positions
    if where is None or where.lineno is None or where.end_lineno is None:
        return ""
    lines = [line.encode() for line in linecache.getlines(code.co_filename)[where.lineno - 1 : where.end_lineno]]
    if lines:
        lines[-1] = lines[-1][: where.end_col_offset]
        lines[0] = lines[0][where.col_offset :]
    return b"".join(lines).decode()
