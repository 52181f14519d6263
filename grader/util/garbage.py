"""Collect garbage less often while JAX traces.

Tracing creates hundreds of thousands of objects, hardly any of them in cycles. Python's default frequency of
collections takes up to an eighth of a check's time.
"""

import contextlib
import gc
from collections.abc import Iterator

SELDOM = 100_000  # the number of new objects between two collections; tracing an answer causes one or two


@contextlib.contextmanager
def infrequent_collections() -> Iterator[None]:
    """Collect garbage only every `SELDOM` objects within the context, and restore the frequency afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
