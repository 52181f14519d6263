"""Detect repeated blocks of equations, such as identical layers, so that views can fold them.

Two lines are equal if they apply the same operation to values of the same types, from the same source line, in the same
role, and if their operands are defined at the same distance before them or outside of the repeated block. An operand
may also advance by a constant step per repetition: through an earlier block, a sliced stack, or the values of one line.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from rematscope.ir.pretty_print import Line
from rematscope.ir.program import Literal, Value
from rematscope.ir.source import common_path, numberless
from rematscope.tracing.residuals import Residual
from rematscope.views.program_rows import LEGEND, ProgramRow

# A block is folded if it repeats at least this often, hides at least this many lines and is at most this long. At most
# this many later positions are tried for it.
_TIMES, _HIDDEN, _LONGEST, _TRIES = 3, 6, 2_000, 4

# This many lines of one place are merged into one summary line.
_RUN = 3

# The length up to which the path of a value is shown whole where it is read.
_PATH = 16

# Each layer derives its key from a different number: its position, or a hash of its name.
_NEW_KEY = "random_fold_in("
_SLICE = re.compile(r"(?<=\})\[\d+:.*")  # each layer's parameters have their own position in a stack


class Repeat(NamedTuple):
    """A block of lines that repeats.

    Attributes:
      start: the index of its first line.
      period: the number of lines in the block.
      times: the number of repetitions, including the first.
      rest: the number of lines of a partial repetition at the end.
      step: how far each repetition advances in a sliced stack, or among the values of one line; 0 if it does not.
      exact: whether repetitions differ only in their values; otherwise numbers or array lengths differ too.
    """

    start: int
    period: int
    times: int
    rest: int = 0
    step: int = 0
    exact: bool = True

    @property
    def shown(self) -> int:
        """The index after the block that is shown."""
        return self.start + self.period

    @property
    def end(self) -> int:
        """The index after the last repetition."""
        return self.start + self.period * self.times + self.rest


def summary(rows: Sequence[ProgramRow], repeat: Repeat) -> ProgramRow:
    """Return the line that summarizes all repetitions but the first: their number, and the bytes that they save."""
    lines = "the line" if repeat.period == 1 else f"the {repeat.period} lines"
    again = f", then the first {repeat.rest} of them" if repeat.rest else ""
    where = f", [i {'+' if repeat.step > 0 else '−'} {abs(repeat.step)}]" * bool(repeat.step)
    but = "" if repeat.exact else " with other constants or shapes"
    text = f"⋮ {repeat.times - 1:,} × {lines} above{again}{but}{where}{_module_range(rows, repeat)}"
    return _describe_block(rows[repeat.start].line.indent + text, rows[repeat.shown : repeat.end])


def _describe_block(text: str, rows: Sequence[ProgramRow], origin: str = "", gutter: str = "") -> ProgramRow:
    """Return a summary line for several rows, with the residuals that they save."""
    crossing, known = _residuals_in(rows), [row.seconds for row in rows if row.seconds is not None]
    seconds = sum(known) if known else None
    return ProgramRow("S" if crossing else gutter, Line("{}", (text,)), crossing, origin, seconds=seconds)


def _residuals_in(rows: Sequence[ProgramRow]) -> tuple[Residual, ...]:
    return tuple(residual for row in rows for residual in row.crossing)


def without_runs(rows: Sequence[ProgramRow], saved: bool = False, roughly: bool = False) -> list[ProgramRow]:
    """Return the rows with consecutive rows of one source line or module merged into a summary row.

    Rows that save a residual are merged only with `saved`, rows of different roles only with `roughly`.
    """
    module: list[str] = []  # the latest heading; rows below it belong to its module

    def run(row: ProgramRow) -> tuple[bool, object]:
        if row.heading:
            module[:] = [row.code]
        plain = bool(row.defines) and (saved or not row.crossing) and not row.origin
        return plain, ("" if roughly else row.gutter.strip("S"), module or row.source) if plain else row.code

    shown: list[ProgramRow] = []
    for (plain, _), group in itertools.groupby(rows, run):
        alike = list(group)
        if plain and len(alike) >= _RUN:
            text = f"{alike[0].line.indent}⋮ {len(alike)} lines"
            text += f", {kept} saved" if (kept := len(_residuals_in(alike))) else ""
            source = alike[0].source if len({row.source for row in alike}) == 1 else ""
            letters = collections.Counter(row.gutter.strip("S") for row in alike)
            if len(letters) > 1:
                text += "".join(f", {count} {word}" for letter, word in LEGEND.items() if (count := letters[letter]))
            alike = [_describe_block(text, alike, source, alike[0].gutter if len(letters) == 1 else "")]
        shown += alike
    return shown


def tree_of(row: ProgramRow) -> str:
    """Return the name of the argument of which a row is an array, or a gradient; "" for other rows."""
    if row.returns is None and row.origin != "argument":
        return ""
    return re.split(r"[.\[]", row.code.removeprefix("return d"), maxsplit=1)[0]


def without_trees(rows: Sequence[ProgramRow]) -> list[ProgramRow]:
    """Return the rows with the arrays of one argument, or their gradients, merged into a summary row."""
    shown: list[ProgramRow] = []
    for name, group in itertools.groupby(rows, tree_of):
        alike = list(group)
        if name and len(alike) >= _RUN:
            saved = f", {count:,} saved" if (count := len(_residuals_in(alike))) else ""
            given_back = "return d" * (alike[0].returns is not None)
            alike = [_describe_block(f"⋮ {given_back}{name}: {len(alike):,} arrays{saved}", alike, alike[0].origin)]
        shown += alike
    return shown


def with_short_paths(rows: Sequence[ProgramRow]) -> list[ProgramRow]:
    """Return the rows with long paths of values shortened where they are read, `….query.kernel`."""

    def short(piece: str | Value, row: ProgramRow) -> str | Value:
        if isinstance(piece, str) or piece in row.defines or len(piece.name) <= _PATH:
            return piece
        return re.sub(r".*(?=(\.\w+){2}$)", "…", piece.name, count=1)

    def shortened(row: ProgramRow) -> ProgramRow:
        line = dataclasses.replace(row.line, parts=tuple(short(part, row) for part in row.line.parts))
        return dataclasses.replace(row, line=line)

    return list(map(shortened, rows))


def _module_range(rows: Sequence[ProgramRow], repeat: Repeat) -> str:
    """Return `, layers_1…63`: the first module in the block whose number changes, up to that number."""
    for place in range(repeat.start, repeat.shown):
        if not rows[place].heading:
            continue
        headings = [rows[at].code.strip("# ") for at in range(place + repeat.period, repeat.end, repeat.period)]
        if len(set(headings)) > 1:
            parts = common_path(headings).split("/")
            return ", " + "/".join(parts[: next(i for i, part in enumerate(parts) if "…" in part) + 1])
    return ""


class Forms:
    """A hash-consing table of lines: equal lines have the same number, regardless of their values' names.

    Each line is processed once, even if a view searches for repetitions several times.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple, int] = {}
        self._types: dict[Value, object] = {}
        self._exact: dict[ProgramRow, tuple[int, tuple[int, ...]]] = {}
        self._rough: dict[ProgramRow, int] = {}

    def exact(self, row: ProgramRow) -> tuple[int, tuple[int, ...]]:
        """Return a line's number, and the positions that it slices, which the number ignores."""
        if (known := self._exact.get(row)) is None:
            form, slices = _form_of(row, self._types)
            known = self._exact[row] = self._numbers.setdefault(form, len(self._numbers)), slices
        return known

    def rough(self, row: ProgramRow) -> int:
        """Return a number that lines share even if numbers or array lengths in them differ."""
        if (known := self._rough.get(row)) is None:
            known = self._rough[row] = self._numbers.setdefault(_rough_form(row), len(self._numbers))
        return known


def repeats(rows: Sequence[ProgramRow], roughly: bool = False, forms: Forms | None = None) -> list[Repeat]:
    """Find the blocks of lines that repeat at least three times in a row, without overlap.

    Among the blocks that start at a line, it takes the one that hides most lines. The time is linear in the number of
    lines.

    Args:
      roughly: also accept repetitions that differ in numbers or array lengths.
      forms: the table of lines from earlier searches.
    """
    return _Search(rows, roughly, forms or Forms()).found()


class _Search:
    """A search for repeated blocks in the lines of a listing.

    Attributes:
      reads: for each line, where the values that it mentions are defined: the index of the defining line, plus `size`
        times the value's position among that line's values; −1 for values from outside.
      slices: for each line, the positions that it slices.
      back: for each line, the distances back to these definitions (None for values from outside), followed by its
        slices.
      block: for each repeated line, the length of its block; 0 for other lines.
      exact: the exact forms of the lines.
    """

    def __init__(self, rows: Sequence[ProgramRow], roughly: bool, forms: Forms):
        known = list(map(forms.exact, rows))
        self.exact, self.slices = [form for form, _ in known], [slices for _, slices in known]
        self.forms = list(map(forms.rough, rows)) if roughly else self.exact
        self.size = len(rows)
        made = {
            value: place + which * self.size
            for place, row in enumerate(rows)
            if not row.origin
            for which, value in enumerate(row.defines)
        }
        self.reads, self.back = [], []
        for place, (row, slices) in enumerate(zip(rows, self.slices, strict=True)):
            # A returned gradient is compared by name.
            values = row.line.parts if row.returns is None else ()
            reads = [made.get(value, -1) for value in values if isinstance(value, Value)]
            self.reads.append(reads)
            self.back.append([None if read < 0 else place - read for read in reads])
            self.back[-1] += slices
        self.block = [0] * len(rows)

    def found(self) -> list[Repeat]:
        later, size = _next_of_same_form(self.forms), self.size
        found, start = [], 0
        stops: dict[int, int] = {}  # maps a period to the index at which its repetition stopped
        while start < size:
            best, stopped = Repeat(start, 1, 1), start
            place = start
            for _ in range(_TRIES):
                place = later[place]
                period = place - start
                if place == size or period > _LONGEST:
                    break
                if self.forms[place : place + (_TIMES - 1) * period] != self.forms[start:place] * (_TIMES - 1):
                    continue
                # An upper bound on the end: an index at which the repetition is known to stop. A longer block repeats
                # no further than a part of it.
                known = [at for at in (stops.get(period, size), stopped) if place <= at < size]
                far = min([at for at in known if not self.repeats_at(start, at, period)], default=size)
                if far - start < period * _TIMES or far - place <= best.period * (best.times - 1):
                    continue
                end = place
                while end < size and self.repeats_at(start, end, period):
                    end += 1
                stops[period] = end
                times = (end - start) // period
                hidden = period * (times - 1)
                if times >= _TIMES and hidden >= max(_HIDDEN, best.period * (best.times - 1) + 1):
                    rest = (end - start) % period
                    best, stopped = Repeat(start, period, times, rest if rest >= _HIDDEN else 0), end
            if best.times > 1:
                again = zip(self.exact[best.start : best.end], self.exact[best.shown : best.end], strict=False)
                exact = self.exact is self.forms or all(first == second for first, second in again)
                found.append(best._replace(step=self.step(best), exact=exact))
                self.block[start : best.end] = [best.period] * (best.end - start)
            start = best.end
        return found

    def repeats_at(self, start: int, place: int, period: int) -> bool:
        """Return whether a line repeats the line one period before, in a block that begins at `start`."""
        if self.forms[place] != self.forms[place - period]:
            return False
        earlier = place - 2 * period
        if self.back[place] == self.back[place - period] and (
            earlier < start or self.back[earlier] == self.back[place]
        ):
            return True  # true for nearly all lines
        before, now = self.reads[place - period], self.reads[place]
        for first, second in zip(before, now, strict=True):
            if (
                first != second
                and second - first != period
                and not self.correspond(first, second, place, start, period)
            ):
                return False
        if earlier < start:
            return True
        # An operand must advance by the same step as in the repetition before. An operand that the previous repetition
        # computes may instead start from a value defined before the block.
        for first, second, third in zip(self.reads[earlier], before, now, strict=True):
            step = third - second
            if step != second - first and not (step == period and first < start <= second):
                return False
        slices = self.slices[earlier], self.slices[place - period], self.slices[place]
        return all(third - second == second - first for first, second, third in zip(*slices, strict=True))

    def step(self, repeat: Repeat) -> int:
        """Return the first nonzero step; see `Repeat.step`."""
        for place in range(repeat.start, repeat.shown):
            later = place + repeat.period
            for first, second in zip(self.slices[place], self.slices[later], strict=True):
                if first != second:
                    return second - first
            for first, second in zip(self.reads[place], self.reads[later], strict=True):
                if first >= 0 and first % self.size == second % self.size and first != second:
                    return (second - first) // self.size
        return 0

    def correspond(self, first: int, second: int, place: int, start: int, period: int) -> bool:
        """Return whether the value `second` corresponds, for the line at `place`, to `first` one period before."""
        if first % self.size == second % self.size < start and first >= 0:
            return True  # two of the many values that one line before the block defines, such as keys
        if second < 0 or (first >= 0 and first // self.size != second // self.size):
            return False
        first, second = min(first, first % self.size), second % self.size
        if start <= second < start + period <= place < start + 2 * period and first < start:
            return True  # the second repetition reads a result of the first, which reads a value from before the block
        if first < 0:
            return False
        # Both values are in an earlier repeated block, at the same position of different repetitions. In a backward
        # pass, `second` may be in an earlier repetition than `first`.
        block = self.block[first]
        return bool(block) and block == self.block[second] and (second - first) % block == 0


def _next_of_same_form(forms: Sequence[int]) -> list[int]:
    """Return for each line the index of the next line with the same form, or the number of lines if there is none."""
    places = [len(forms)] * len(forms)
    latest: dict[int, int] = {}
    for place in reversed(range(len(forms))):
        places[place] = latest.get(forms[place], len(forms))
        latest[forms[place]] = place
    return places


def _rough_form(row: ProgramRow) -> tuple:
    kinds = [
        numberless(part) if isinstance(part, str) else "" if isinstance(part, Literal) else (part.dtype, part.aval.ndim)
        for part in row.line.parts
    ]
    inputs = [numberless(value.name) for value in row.defines] if row.origin else []
    return (row.gutter, numberless(row.line.template), row.source, *kinds, *inputs)


def _form_of(row: ProgramRow, types: dict[Value, object]) -> tuple[tuple, tuple[int, ...]]:
    template = row.line.template
    sliced: tuple[int, ...] = ()
    if found := _SLICE.search(template):
        template = numberless(template)
        sliced = tuple(map(int, re.findall(r"\d+", found[0])))
    # Numbers in their paths distinguish inputs, gradients and modules.
    numbered = row.origin or row.heading or row.returns is not None
    is_key = _NEW_KEY in template
    form: list[object] = [row.gutter, template, row.source, row.saved if row.crossing else ""]
    for part in row.line.parts:
        if isinstance(part, str):
            form.append(numberless(part) if numbered else part)
        elif isinstance(part, Literal):
            form.append("" if is_key else part.name)
        else:
            if (kind := types.get(part)) is None:
                kind = types[part] = part.shape, part.dtype
            form.append(kind)
            if row.origin:
                form.append(numberless(part.name))
    return tuple(form), sliced
