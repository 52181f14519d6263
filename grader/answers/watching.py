"""Looking on while some code runs."""

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any, Self


class Watch(AbstractContextManager):
    """While it is a context, functions are called whenever something happens in some code (PEP 669).

    Args:
      tool: one of the six numbers of those who watch; who finds another one there sees nothing.
      codes: the code to watch. Whatever else runs is no slower for it.
      calls: what is called, by the event of `sys.monitoring.events`.
    """

    def __init__(self, tool: int, codes: Collection[CodeType], calls: Mapping[int, Callable[..., Any]]):
        self._tool, self._codes, self._calls = tool, codes, calls
        self._watches = False

    def __enter__(self) -> Self:
        self._watches = bool(self._codes) and not sys.monitoring.get_tool(self._tool)
        if self._watches:
            sys.monitoring.use_tool_id(self._tool, __name__)
            for event, call in self._calls.items():
                sys.monitoring.register_callback(self._tool, event, call)
            self._set(sum(self._calls))
        return self

    def __exit__(self, *_: object) -> None:
        if self._watches:
            self._set(0)
            for event in self._calls:
                sys.monitoring.register_callback(self._tool, event, None)
            sys.monitoring.free_tool_id(self._tool)

    def _set(self, events: int) -> None:
        for code in self._codes:
            sys.monitoring.set_local_events(self._tool, code, events)
