"""What an answer compares with what while it runs.

An answer that does something else where two numbers are the same compares them. Whoever knows how far apart they were
knows which structure to look at next. (So fuzzers come through conditions that chance does not meet: Aschermann et al.,
"REDQUEEN: Fuzzing with Input-to-State Correspondence", 2019.)
"""

import ast
import dis
import functools
import linecache
import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from grader.answers.watching import Watch

_TOOL = 3  # of the six numbers that there are (PEP 669) another one that nothing known uses
_MOST = 16  # a loop may come to a comparison some thousand times
_INSTRUCTION = sys.monitoring.events.INSTRUCTION
_SAYS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge},
}
_BY_NAME = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_OPERATIONS = {"COMPARE_OP", "CONTAINS_OP", "TO_BOOL", "BINARY_SUBSCR", "CALL"}
# What is found again on both sides of a comparison without doing anything.
_READS = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.Tuple, ast.List, ast.Set, ast.BinOp),
    *(ast.UnaryOp, ast.Compare, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.comprehension, ast.IfExp, ast.BoolOp),
    *(ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop),
)
_CALLS = {
    *(
        "abs",
        "all",
        "any",
        "bool",
        "divmod",
        "float",
        "hash",
        "int",
        "len",
        "list",
        "max",
        "min",
        "ord",
        "pow",
        "range",
    ),
    *("repr", "round", "set", "sorted", "str", "sum", "tuple"),
}
_METHODS = {"bit_count", "bit_length", "count", "find", "index", "lower", "split", "strip", "upper"}
_PURE = {"math", "operator"}  # modules of functions of numbers


class Compared(NamedTuple):
    """Two numbers that were compared.

    Attributes:
      place: which comparison in which code, and with which number of several.
      left: the one.
      right: the other.
      says: what came of it.
    """

    place: tuple[CodeType, int, int, Any]
    left: float
    right: float
    says: bool


class Comparisons(Watch):
    """While it is a context, it sees which numbers are compared in some code, wherever the code's source is known: by
    an operator, by `in`, by a `case`, by what a table is looked up for, or with 0 where one stands for a condition.

    Args:
      codes: the code to watch. Whatever else runs is no slower for it.
    """

    def __init__(self, codes: Sequence[CodeType]):
        self._pairs = {(code, place): pairs for code in codes for place, pairs in _pairs_in(code)}
        super().__init__(_TOOL, {code for code, _ in self._pairs}, {_INSTRUCTION: self._instruction})
        self._seen: list[Compared] = []
        self._often: Counter[tuple[CodeType, int]] = Counter()

    def _instruction(self, code: CodeType, place: int) -> object:
        if (code, place) not in self._pairs:
            return sys.monitoring.DISABLE
        self._often[code, place] += 1
        if self._often[code, place] > _MOST:
            return None
        frame = sys._getframe(1)
        for number, (left, says, right) in enumerate(self._pairs[code, place]):
            try:
                one, other = (eval(side, frame.f_globals, frame.f_locals) for side in (left, right))
            except Exception:  # a name that is gone, or a file that has changed since it was run
                continue
            for a, compare, b in says(one, other):
                if _is_number(a) and _is_number(b):
                    which = (code, place, number, b if compare is _IS_KEY else None)
                    self._seen.append(Compared(which, float(a), float(b), bool(compare(a, b))))
        return None

    def since(self) -> list[Compared]:
        """What has been compared since this was asked last, of each comparison what came first."""
        self._often.clear()
        seen, self._seen = self._seen, []
        return seen


def _is_number(value: Any) -> bool:
    """Whether it is a number that a size may be near to."""
    return (type(value) in (int, float) or isinstance(value, np.integer | np.floating)) and abs(value) < 1e9


# Of what stands on both sides, the numbers that are compared with each other, and how.
type _Says = Callable[[Any, Any], Iterable[tuple[Any, Callable[[Any, Any], bool], Any]]]
type _Pair = tuple[CodeType, _Says, CodeType]


def _IS_KEY(one: Any, other: Any) -> bool:
    return bool(one == other)


def _operator(compare: Callable[[Any, Any], bool]) -> _Says:
    return lambda one, other: [(one, compare, other)]


_SAME = _operator(operator.eq)


def _one_of(one: Any, others: Any) -> Iterator[tuple[Any, Callable[[Any, Any], bool], Any]]:
    """A number compared with those among others that are nearest."""
    if not _is_number(one):
        return
    if isinstance(others, range):  # and on which side of both its ends
        yield from ((one, operator.ge, others.start), (one, operator.lt, others.stop))
    elif isinstance(others, list | tuple | set | frozenset | dict):
        numbers = sorted(filter(_is_number, others), key=lambda other: abs(one - other))
        yield from ((one, _IS_KEY, other) for other in numbers[:_MOST])


def _key_of(one: Any, table: Any) -> Iterator[tuple[Any, Callable[[Any, Any], bool], Any]]:
    return _one_of(one, table if isinstance(table, dict | set) else ())


def _is_something(one: Any, zero: Any) -> Iterator[tuple[Any, Callable[[Any, Any], bool], Any]]:
    yield (len(one) if isinstance(one, str | list | tuple | dict | set) else one), operator.ne, zero


def _pairs_in(code: CodeType) -> Iterator[tuple[int, list[_Pair]]]:
    """The places of what chooses, and for each the code of what is compared."""
    nodes: dict[Any, ast.AST] | None = None
    steps = list(dis.get_instructions(code))
    # Whoever looks up a name that is a comprehension's own, and a cell around it, ends Python 3.13.
    unsafe = {step.argval for step in steps if step.opname == "LOAD_FAST_AND_CLEAR"} & {*code.co_cellvars}
    for step in steps:
        if step.opname not in _OPERATIONS or (where := step.positions) is None:
            continue
        if nodes is None:
            nodes = _nodes("".join(linecache.getlines(code.co_filename)))
        if node := nodes.get((where.lineno, where.end_lineno, where.col_offset, where.end_col_offset)):
            pairs = [
                (_compiled(left), says, _compiled(right))
                for left, says, right in _sides(node, step.opname)
                if _only_reads(left) and _only_reads(right) and unsafe.isdisjoint(_names_in(left, right))
            ]
            if pairs:
                yield step.offset, pairs


@functools.lru_cache(maxsize=64)
def _nodes(text: str) -> dict[Any, ast.AST]:
    """A file's expressions, by where they stand; for a pattern of a `case`, the comparison that it is."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    nodes: dict[Any, ast.AST] = {}
    patterns: list[tuple[Any, ast.AST]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            nodes.setdefault(_place(node), node)
        elif isinstance(node, ast.Match):
            patterns += [pair for case in node.cases for pair in _matched(node.subject, case.pattern)]
    return nodes | dict(patterns)


def _place(node: Any) -> tuple[Any, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _matched(subject: ast.expr, pattern: ast.pattern | None) -> Iterator[tuple[Any, ast.AST]]:
    match pattern:
        case ast.MatchValue():
            yield _place(pattern), ast.Compare(subject, [ast.Eq()], [pattern.value])
        case ast.MatchAs():
            yield from _matched(subject, pattern.pattern)
        case ast.MatchOr():
            yield from (pair for each in pattern.patterns for pair in _matched(subject, each))
        case ast.MatchSequence() if isinstance(subject, ast.Tuple | ast.List):
            if len(subject.elts) == len(pattern.patterns):
                for one, each in zip(subject.elts, pattern.patterns, strict=True):
                    yield from _matched(one, each)


_ZERO = ast.Constant(0)


def _keys(table: ast.expr) -> ast.expr:
    """What a table has something for. Any number looks up what a list holds, but one that is written out where it is
    looked up is there to be chosen from."""
    match table:
        case ast.Dict(keys=keys) if keys:
            return ast.Set([key for key in keys if key])
        case ast.List(elts=elements) | ast.Tuple(elts=elements) if elements:
            return ast.Set([ast.Constant(place) for place in range(len(elements))])
    return table


def _sides(node: ast.AST, opname: str) -> Iterator[tuple[ast.expr, _Says, ast.expr]]:
    """What an operation compares with what."""
    match node:
        case ast.Compare():
            sides = [node.left, *node.comparators]
            for left, how, right in zip(sides, node.ops, sides[1:], strict=False):
                if compare := _SAYS.get(type(how)):
                    yield left, _operator(compare), right
                elif isinstance(how, ast.In | ast.NotIn):
                    yield left, _one_of, right
        case ast.Subscript(value=table, slice=key) if opname == "BINARY_SUBSCR":
            yield key, _key_of, _keys(table)
        case ast.Call(func=ast.Attribute(value=table, attr="get" | "pop"), args=[key, *_]) if opname == "CALL":
            yield key, _key_of, _keys(table)
        case ast.Call(func=ast.Attribute(attr=name), args=[left, right]) if opname == "CALL" and name in _BY_NAME:
            yield left, _operator(_BY_NAME[name]), right
        case ast.Call(ast.Attribute(ast.Call(ast.Name("str"), [number]), "endswith"), [ast.Constant(str(end))]) if (
            opname == "CALL" and end.isdecimal()
        ):
            yield ast.BinOp(number, ast.Mod(), ast.Constant(10 ** len(end))), _SAME, ast.Constant(int(end))
        case ast.Call(func=ast.Attribute(value=left, attr=name), args=[right]) if opname == "CALL":
            if name.strip("_") in _BY_NAME:
                yield left, _operator(_BY_NAME[name.strip("_")]), right
        case ast.Call(func=ast.Name("bool"), args=[value]) if opname == "CALL":
            yield value, _is_something, _ZERO
        # Is anything behind that place? How far the end is from it says more than that nothing is.
        case ast.Subscript(value=several, slice=ast.Slice(lower=ast.expr() as place, upper=None, step=None)) if (
            opname == "TO_BOOL"
        ):
            yield ast.Call(ast.Name("len", ast.Load()), [several], []), _operator(operator.gt), place
        case ast.BinOp() | ast.Subscript() | ast.Name() | ast.Call() if opname == "TO_BOOL":
            yield node, _is_something, _ZERO


def _compiled(node: ast.expr) -> CodeType:
    return compile(ast.fix_missing_locations(ast.Expression(node)), "", "eval")


def _names_in(*nodes: ast.AST) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}


def _only_reads(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        match node.func:
            case ast.Name(id=name):
                known = name in _CALLS
            case ast.Attribute(value=ast.Name(id=module)) if module in _PURE:
                known = True
            case ast.Attribute(value=value, attr=name):
                known = name in _METHODS and _only_reads(value)
            case _:
                known = False
        return known and not node.keywords and all(map(_only_reads, node.args))
    return isinstance(node, _READS) and all(map(_only_reads, ast.iter_child_nodes(node)))
