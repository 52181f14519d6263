"""Python's collection of garbage, put off while something large is made."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Puts off the collection of garbage until what is in this block, or the function that it decorates, is done.

    A program of many thousand equations is all alive, and whatever makes so many objects more has Python look through
    it again and again: a third of the time that a page of 256 layers takes, a tenth of that of a plan of 64, though
    most of this is JAX's own. Where collection is off, it stays so.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
