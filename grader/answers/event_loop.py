"""An event loop for `await` in a cell."""

import asyncio
import time


class Loop(asyncio.BaseEventLoop):
    """An event loop without sockets and epoll, which the sandbox does not provide."""

    def __init__(self):
        super().__init__()
        self._selector = self

    def select(self, timeout: float | None) -> list:
        """Wait, and report that no file is ready."""
        # Short, because a thread may schedule a callback meanwhile.
        time.sleep(0.01 if timeout is None else min(timeout, 0.01))
        return []

    def _process_events(self, events: list) -> None: ...

    def _write_to_self(self) -> None: ...
