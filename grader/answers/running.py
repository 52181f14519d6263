"""Run statements of a page as a notebook would, in a module of their own."""

import __future__

import ast
import asyncio
import functools
import inspect
import linecache
import operator
import sys
import time
import types
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any, Self

from grader.answers import notebook
from grader.answers.cells import PlacedStatement
from grader.answers.effects import bound_names
from grader.answers.slicing import is_future


class Page:
    """A module in which a page's statements run; while it is a context, `sys.modules` has it.

    Attributes:
      names: what the page's names are bound to.

    Args:
      name: what `__name__` is there.
    """

    def __init__(self, name: str):
        self._module = types.ModuleType(name)
        self.names: dict[str, Any] = vars(self._module)
        self._notebook = notebook.names(self.names)
        self.names.update(self._notebook)
        self._until = ExitStack()

    def __enter__(self) -> Self:
        name = self._module.__name__
        if before := sys.modules.get(name):
            self._until.callback(sys.modules.__setitem__, name, before)
        else:
            self._until.callback(sys.modules.pop, name, None)
        sys.modules[name] = self._module
        return self

    def __exit__(self, *_: object) -> None:
        self._until.close()

    def run(self, statements: Iterable[PlacedStatement], keep_on: bool = False) -> None:
        """Runs the statements, and raises whatever they raise; those that raise are left out with `keep_on`."""
        statements = list(statements)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | _future(statements)
        for source, statement in statements:
            # So that tracebacks can quote the line.
            linecache.cache[source.place] = (len(source.text), None, source.text.splitlines(True), source.place)
            with suppress(*(Exception, SystemExit) if keep_on else ()):
                code = compile(ast.Module([statement], []), source.place, "exec", flags)
                if code.co_flags & inspect.CO_COROUTINE:
                    self._loop.run(_awaited(eval(code, self.names)))
                else:
                    exec(code, self.names)
            if "get_ipython" in bound_names(statement):  # IPython has none to give
                self.names.update(self._notebook)

    @functools.cached_property
    def _loop(self) -> asyncio.Runner:
        return self._until.enter_context(asyncio.Runner(loop_factory=_Loop))


class _Loop(asyncio.BaseEventLoop):
    """An event loop without sockets and epoll, which the sandbox does not have."""

    def __init__(self):
        super().__init__()
        self._selector = self

    def select(self, timeout: float | None) -> list:
        time.sleep(0.01 if timeout is None else min(timeout, 0.01))  # a thread may have something to say meanwhile
        return []

    def _process_events(self, events: list) -> None: ...

    def _write_to_self(self) -> None: ...


async def _awaited(cell: Any) -> None:
    await cell


def _future(statements: Iterable[PlacedStatement]) -> int:
    """`from __future__ import …` holds for all of a file, and here each statement is compiled by itself."""
    imports = [statement for _, statement in statements if is_future(statement)]
    features = [getattr(__future__, alias.name).compiler_flag for s in imports for alias in s.names]
    return functools.reduce(operator.or_, features, 0)
