"""Collect garbage less often while JAX traces.

Tracing makes objects by the hundred thousand, hardly any of them in cycles. To look through them as often as Python
does by itself takes up to an eighth of a check's time.
"""

import contextlib
import gc
from collections.abc import Iterator

SELDOM = 100_000  # objects more than were let go of, until cycles are looked for: an answer is traced in one or two


@contextlib.contextmanager
def looked_for_seldom() -> Iterator[None]:
    """Within this, cycles are looked for as seldom as `SELDOM` says; behind it, as often as before."""
    before = gc.get_threshold()
    gc.set_threshold(SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
