"""Create files under names that do not exist yet."""

import contextlib
import itertools
from pathlib import Path


def fresh(path: Path) -> Path:
    """Make an empty file under a name that no file has: `path` itself, else with `_2`, `_3`, … before its suffix.

    Whoever writes to it, or moves another file over it, overwrites nobody's work: no two processes get the same name.

    Args:
      path: the name to begin with.

    Raises:
      OSError: no file can be made there.
    """
    numbered = (path.with_stem(f"{path.stem}_{number}") for number in itertools.count(2))
    for name in itertools.chain([path], numbered):
        with contextlib.suppress(FileExistsError):
            name.open("xb").close()
            return name
    raise AssertionError("there is always another number")
