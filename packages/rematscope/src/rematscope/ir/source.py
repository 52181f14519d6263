"""Where in the user's code an operation comes from: the line, and the module that it belongs to."""

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
    """A line of code.

    Attributes:
      place: `In [3]` for a notebook cell, the file's name elsewhere.
      line: the line in it, from 1.
      function: the function that the line stands in.
      caller: of a line in a library, the user's line from which that was called; None if it is the user's itself.
    """

    place: str
    line: int
    function: str
    caller: "Source | None" = None

    @classmethod
    def of(cls, *records: Any) -> "Source | None":  # of a private class of JAX's
        """Reads JAX's records of an operation's origin; None if there is no line but JAX's own in them.

        A library is what was installed: files in `site-packages`. Code of the user's may be installed too. Where all
        lines are, those are the user's that lie in the same package as the outermost one.

        Args:
          *records: of an equation, then of those that it stands in, innermost first.
        """
        return cls._from_stacks(tuple(_Stack(record.traceback) for record in records))

    @classmethod
    @functools.lru_cache(maxsize=1 << 14)  # like layers have equal call stacks
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
        """The user's own line: this line, or the line that calls the library."""
        return self.caller or self

    @property
    def where(self) -> str:
        """`In [3], line 7`, or `file.py:7`; `file.py:7 → linear.py:287` where line 7 calls a library."""
        here = f"{self.place}, line {self.line}" if self.place.startswith("In [") else f"{self.place}:{self.line}"
        return f"{self.caller.where} → {here}" if self.caller else here

    def __str__(self) -> str:
        return self._caller_text

    @functools.cached_property
    def _caller_text(self) -> str:
        return self.where if self.caller else f"{self.where} ({self.function.rpartition('.')[2]})"


class _Stack(NamedTuple):
    """What JAX records of an operation's origin, without the names that differ from layer to layer."""

    traceback: Any  # of a private class of JAX's; equal where the same calls were at the same places


class _Frame(NamedTuple):
    """A line of a call stack; `package` is the folder of the installed package that it is in, if it is in one."""

    file: str
    line: int
    function: str
    package: str | None


def _user_frames(stacks: Iterable[Any]) -> Iterator[_Frame]:
    """The lines of call stacks that are not JAX's own, innermost first."""
    for record in stacks:
        # Few operations are a library's: mostly the first line is enough.
        for count in (1, _FRAMES):
            lines = source_info_util.summarize(record, count).splitlines()[::-1][count > 1 :]
            yield from filter(None, map(_parse_frame, lines))


@functools.lru_cache(maxsize=4096)  # like layers come from the same lines
def _parse_frame(summary: str) -> _Frame | None:
    if (found := _SUMMARY.match(summary)) is None:
        return None
    package = _INSTALLED.match(found["file"])
    return _Frame(found["file"], int(found["line"]), found["function"], package[0] if package else None)


def calls_to(record: Any) -> tuple[tuple[str, str], ...]:
    """The functions that led to an operation, outermost first: of each its name, and the place in it.

    Args:
      record: JAX's record of the operation's origin.
    """
    return tuple(map(_parse_call, source_info_util.summarize(record, _FRAMES).splitlines()))


@functools.lru_cache(maxsize=4096)
def _parse_call(summary: str) -> tuple[str, str]:
    place, _, function = summary.rpartition(" (")
    return f"{place.partition(':')[0]} {function}", place


def lines_of(records: Iterable[Any]) -> str:
    """`net.py:7-12 (layer)`: the lines of some operations in the innermost function that all of them are in.

    Args:
      records: JAX's records of where each comes from.
    """
    stacks = (source_info_util.summarize(record, _FRAMES).splitlines() for record in records)
    calls = [list(itertools.takewhile(bool, map(_SUMMARY.match, stack))) for stack in stacks]
    here: list[re.Match[str]] = []
    for level in zip(*calls, strict=False):
        if len({(call["file"], call["function"]) for call in level if call}) > 1:
            break
        here = [call for call in level if call]
    if not here:
        return "unknown lines"
    first, last = (end(int(call["line"]) for call in here) for end in (min, max))
    source = Source(place_of(here[0]["file"]), first, here[0]["function"])
    return str(source) if first == last else str(source).replace(source.where, f"{source.where}-{last}")


_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]+")


def place_of(file: str) -> str:
    """What a person calls a file: `In [3]` for a cell that IPython compiled under this name, else its last part."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and (label := shell.compile.format_code_name(file)) is not None:
        # IPython answers ("Cell", "In[3]"); people know its prompt, "In [3]".
        return str(label[1]).replace("In[", "In [")
    return os.path.basename(file)


def common_path(paths: Iterable[str]) -> str:
    """`layers_0…63/attention`, of paths that differ in numbers only; of others the first, and how many there are."""
    return _in_common(paths, _span_text)


def each_of_common_path(paths: Iterable[str]) -> str:
    """The same where it matters which there are: `layers_0,2…5/attention`."""
    return _in_common(paths, _runs_text)


def _in_common(paths: Iterable[str], told: Callable[[list[str]], str]) -> str:
    distinct = list(dict.fromkeys(paths))
    if len({numberless(path) for path in distinct}) != 1:
        return f"{distinct[0]} and {len(distinct) - 1} more" if distinct else ""
    columns = zip(*(_NUMBERED.split(path) for path in distinct), strict=True)
    return "".join(told(list(dict.fromkeys(column))) for column in columns)


def numberless(path: str) -> str:
    """`layers_#/attention`: the same for the modules of like layers."""
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
