"""Create files under names that do not exist yet."""

import contextlib
import itertools
from pathlib import Path


def create_fresh_file(path: Path) -> Path:
    """Create an empty file with an unused name: `path` itself, or `path` with `_2`, `_3`, … before its suffix.

    No two processes get the same name, so writing to the file, or moving another file over it, overwrites no other
    work.

    Args:
      path: the preferred name.

    Raises:
      OSError: if the file cannot be created.
    """
    numbered = (path.with_stem(f"{path.stem}_{number}") for number in itertools.count(2))
    for name in itertools.chain([path], numbered):
        with contextlib.suppress(FileExistsError):
            name.open("xb").close()
            return name
    raise AssertionError("there is always another number")
