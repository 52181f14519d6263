"""Names for new files that no file has yet."""

import itertools
from pathlib import Path


def fresh(path: Path) -> Path:
    """Makes an empty file under a name that no file has: `path` itself, else with `_2`, `_3`, … before its suffix.

    Whoever writes to it, or moves another file over it, overwrites nobody's work: no two processes get the same name.

    Args:
      path: the name to begin with.

    Raises:
      OSError: no file can be made there.
    """
    for number in itertools.count(1):
        name = path if number == 1 else path.with_stem(f"{path.stem}_{number}")
        try:
            name.open("xb").close()
        except FileExistsError:
            continue
        return name
