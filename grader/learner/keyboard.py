"""Read single keys in a terminal, and always restore the terminal's settings."""

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator

if sys.platform == "win32":
    import msvcrt
else:
    import select
    import termios
    import tty

Wait = Callable[[float], str]

# Arrow keys and similar keys send several characters, the first of which is Escape.
_MORE_THAN_A_KEY = re.compile(r"\x1b(\[[\d;?]*.|O.|.)?")


@contextlib.contextmanager
def keys() -> Iterator[Wait | None]:
    """Read keys as they are pressed, without Enter and without echo.

    Ctrl-C still interrupts. SIGTERM and SIGHUP raise an exception, so that the terminal's settings are restored.

    Yields:
      A function that waits for some seconds and returns what was pressed meanwhile: "" for nothing, a character for
      Ctrl-D too (`"\\x04"`, also when the terminal is gone). None if no keys can be read, as from a pipe.
    """
    if not sys.stdin.isatty():
        yield None
    else:
        with _each_key() as wait:
            yield wait


if sys.platform == "win32":

    @contextlib.contextmanager
    def _each_key() -> Iterator[Wait]:
        def pressed(seconds: float) -> str:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if msvcrt.kbhit():
                    return msvcrt.getwch()
                time.sleep(0.05)
            return ""

        yield pressed

else:

    @contextlib.contextmanager
    def _each_key() -> Iterator[Wait]:
        terminal = sys.stdin.fileno()
        found = termios.tcgetattr(terminal)

        def by_key(*_: object) -> None:
            tty.setcbreak(terminal, termios.TCSADRAIN)

        def end(number: int, _: object) -> None:
            sys.exit(128 + number)

        def pressed(seconds: float) -> str:
            if not select.select([terminal], [], [], seconds)[0]:
                return ""
            try:
                read = os.read(terminal, 1024)
            except OSError:  # the terminal was closed
                read = b""
            return _MORE_THAN_A_KEY.sub("", read.decode(errors="ignore")) if read else "\x04"

        # After Ctrl-Z, the shell has set its own settings.
        handlers: dict[signal.Signals, Callable] = {signal.SIGCONT: by_key, signal.SIGTERM: end, signal.SIGHUP: end}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            by_key()
            yield pressed
        finally:
            with contextlib.suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(terminal, termios.TCSADRAIN, found)
            for number, handler in before.items():
                signal.signal(number, handler)
