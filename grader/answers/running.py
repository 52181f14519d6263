"""Run the statements of a page in a separate module, as a notebook would."""

import __future__

import ast
import functools
import inspect
import linecache
import operator
import sys
import types
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, Self

from grader.answers import notebook
from grader.answers.cells import PlacedStatement
from grader.answers.effects import bound_names
from grader.answers.slicing import is_future

if TYPE_CHECKING:
    from grader.answers.event_loop import Loop


class Page:
    """A module in which the statements of a page run. Within the context, `sys.modules` contains it.

    Attributes:
      names: maps the page's names to their values.

    Args:
      name: the value of `__name__` in the module.
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
        """Run the statements, and pass on their exceptions. With `keep_on`, skip statements that raise."""
        statements = list(statements)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | _future_flags(statements)
        for source, statement in statements:
            # Lets tracebacks show the line.
            linecache.cache[source.place] = (len(source.text), None, source.text.splitlines(True), source.place)
            with suppress(*(Exception, SystemExit) if keep_on else ()):
                code = compile(ast.Module([statement], []), source.place, "exec", flags)
                if code.co_flags & inspect.CO_COROUTINE:
                    self._event_loop.run_until_complete(eval(code, self.names))
                else:
                    exec(code, self.names)
            if "get_ipython" in bound_names(statement):  # replaces the stand-in, outside of IPython
                self.names.update(self._notebook)

    @functools.cached_property
    def _event_loop(self) -> "Loop":
        from grader.answers.event_loop import Loop  # imported here, because few answers use await

        return self._until.enter_context(closing(Loop()))


def _future_flags(statements: Iterable[PlacedStatement]) -> int:
    """Return the compiler flags of a page's `from __future__ import …`, because each statement is compiled
    separately."""
    imports = [statement for _, statement in statements if is_future(statement)]
    features = [getattr(__future__, alias.name).compiler_flag for s in imports for alias in s.names]
    return functools.reduce(operator.or_, features, 0)
