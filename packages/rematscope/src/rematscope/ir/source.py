"""The origin of an operation in the user's code: its source line and its module."""

import dataclasses
import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from jax.extend import source_info_util

_SUMMARY = re.compile(r"^(?P<file>.*?):(?P<line>\d+)(?::\d+)? \((?P<function>.*)\)$", re.DOTALL)
_FRAMES = 200  # of a call stack, from the operation outwards


@dataclasses.dataclass(frozen=True)
class Source:
    """A source line.

    Attributes:
      place: `In [3]` for a notebook cell, else the name of the file.
      line: the line number in the cell or file, from 1.
      function: the function that contains the line.
      caller: for a line in a library, the user's line that called the library; None for a line of the user's own code.
    """

    place: str
    line: int
    function: str
    caller: "Source | None" = None

    @classmethod
    def of(cls, *records: Any) -> "Source | None":  # of a private class of JAX's
        """Return the source line of an operation from JAX's records, or None if they name only JAX's own files.

        Files in `site-packages` are library code; all other files are the user's code. If all files in the
        records are in `site-packages`, the package that contains the outermost line counts as the user's code.

        Args:
          *records: JAX's record for the equation, then those for the equations that contain it, innermost first.
        """
        return cls._from_stacks(tuple(_Stack(record.traceback) for record in records))

    @classmethod
    @functools.lru_cache(maxsize=1 << 14)  # repeated layers have equal call stacks
    def _from_stacks(cls, stacks: "tuple[_Stack, ...]") -> "Source | None":
        installed: list[_Frame] = []
        for frame in _user_frames(stacks):
            if frame.package is None:
                return cls._from_frames(installed[0] if installed else frame, frame)
            installed.append(frame)
        if not installed:
            return None
        own = installed[-1].package
        return cls._from_frames(installed[0], next(frame for frame in installed if frame.package == own))

    @classmethod
    def _from_frames(cls, made: "_Frame", caller: "_Frame") -> "Source":
        users = None if made is caller else cls(place_of(caller.file), caller.line, caller.function)
        return cls(place_of(made.file), made.line, made.function, users)

    @property
    def users(self) -> "Source":
        """The line of the user's own code: this line, or `caller` if this line is in a library."""
        return self.caller or self

    @property
    def where(self) -> str:
        """The line as text: `In [3], line 7` or `file.py:7`; `file.py:7 → linear.py:287` if line 7 calls a library."""
        here = line_text(self.place, self.line)
        return f"{self.caller.where} → {here}" if self.caller else here

    def __str__(self) -> str:
        return self._caller_text

    @functools.cached_property
    def _caller_text(self) -> str:
        return self.where if self.caller else f"{self.where} ({self.function.rpartition('.')[2]})"


class _Stack(NamedTuple):
    """JAX's record of an operation's origin, without the names that differ between repeated layers."""

    traceback: Any  # of a private JAX class; equal for the same calls from the same lines


class _Frame(NamedTuple):
    """A line of a call stack; `package` is the folder of the installed package that contains the line, or None."""

    file: str
    line: int
    function: str
    package: str | None


def _user_frames(stacks: Iterable[Any]) -> Iterator[_Frame]:
    """Yield the lines of call stacks that are not in JAX's own files, innermost first."""
    for record in stacks:
        # Most operations come from the user's own code, for which the first line is enough.
        for count in (1, _FRAMES):
            lines = source_info_util.summarize(record, count).splitlines()[::-1][count > 1 :]
            yield from filter(None, map(_parse_frame, lines))


@functools.lru_cache(maxsize=4096)  # repeated layers come from the same lines
def _parse_frame(summary: str) -> _Frame | None:
    if (found := _SUMMARY.match(summary)) is None:
        return None
    package = _INSTALLED.match(found["file"])
    return _Frame(found["file"], int(found["line"]), found["function"], package[0] if package else None)


def package_of(record: Any, skipped: str) -> str | None:
    """Return the name of the installed package whose line made an operation; None for a line of the user's own code.

    Args:
      record: JAX's record for the operation.
      skipped: the name of a file whose lines do not count.
    """
    packages = (frame.package for frame in _user_frames([record]) if not frame.file.endswith(skipped))
    return os.path.basename(next(packages, None) or "") or None


def calls_to(record: Any) -> tuple[tuple[str, str], ...]:
    """Return the functions on an operation's call stack, outermost first, each with its name and the place in it."""
    return tuple(map(_parse_call, source_info_util.summarize(record, _FRAMES).splitlines()))


@functools.lru_cache(maxsize=4096)
def _parse_call(summary: str) -> tuple[str, str]:
    place, _, function = summary.rpartition(" (")
    return f"{place.partition(':')[0]} {function}", place


UNKNOWN_LINES = "unknown lines"


def lines_of(records: Iterable[Any]) -> str:
    """Return the lines of operations in the innermost function that they share, such as `net.py:7-12 (layer)`."""
    stacks = (source_info_util.summarize(record, _FRAMES).splitlines() for record in records)
    calls = [list(itertools.takewhile(bool, map(_SUMMARY.match, stack))) for stack in stacks]
    here: list[re.Match[str]] = []
    for level in zip(*calls, strict=False):
        if len({(call["file"], call["function"]) for call in level if call}) > 1:
            break
        here = [call for call in level if call]
    if not here:
        return UNKNOWN_LINES
    first, last = (end(int(call["line"]) for call in here) for end in (min, max))
    source = Source(place_of(here[0]["file"]), first, here[0]["function"])
    return str(source) if first == last else str(source).replace(source.where, f"{source.where}-{last}")


_CELL = re.compile(r"^In \[|, code cell \d+$")
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]+")


def place_of(file: str) -> str:
    """Return the displayed name of a file: `In [3]` for a cell that IPython compiled, else the file's base name."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and (label := shell.compile.format_code_name(file)) is not None:
        # IPython returns ("Cell", "In[3]"); its prompt reads "In [3]".
        return str(label[1]).replace("In[", "In [")
    return os.path.basename(file)


def line_text(place: str, line: int) -> str:
    """Return a line as text: `In [3], line 7` or `page.ipynb, code cell 5, line 7` for a cell, else `file.py:7`."""
    return f"{place}, line {line}" if _CELL.search(place) else f"{place}:{line}"


def common_path(paths: Iterable[str]) -> str:
    """Return `layers_0…63/attention` for paths that differ only in numbers; else the first path and how many follow."""
    return _in_common(paths, _span_text)


def each_of_common_path(paths: Iterable[str]) -> str:
    """Return the same as `common_path`, but with every number: `layers_0,2…5/attention`."""
    return _in_common(paths, _runs_text)


def _in_common(paths: Iterable[str], told: Callable[[list[str]], str]) -> str:
    distinct = list(dict.fromkeys(paths))
    if len({numberless(path) for path in distinct}) != 1:
        return f"{distinct[0]} and {len(distinct) - 1} more" if distinct else ""
    columns = zip(*(_NUMBERED.split(path) for path in distinct), strict=True)
    return "".join(told(list(dict.fromkeys(column))) for column in columns)


def numberless(path: str) -> str:
    """Return a path with `#` for each number: `layers_#/attention`, which is equal for repeated layers."""
    return re.sub(r"\d+", "#", path)


_NUMBERED = re.compile(r"(\d+)")


def _span_text(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{min(texts, key=int)}…{max(texts, key=int)}"


def _runs_text(texts: list[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    runs: list[list[str]] = []
    for text in sorted(texts, key=int):
        if runs and int(text) <= int(runs[-1][-1]) + 1:
            runs[-1].append(text)
        else:
            runs.append([text])
    return ",".join(_span_text(run) for run in runs)
