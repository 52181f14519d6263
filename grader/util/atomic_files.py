"""Files that appear whole, under names that no file has yet.

Two small functions of ours: the library for the second, atomicwrites, is no longer kept by its author, who says that
`os.replace` does it.
"""

import contextlib
import itertools
import os
from pathlib import Path


def fresh(path: Path) -> Path:
    """Makes an empty file under a name that no file has: `path` itself, else with `_2`, `_3`, … before its suffix.

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


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file so that it has all of the content or what it had before, whenever the process is ended.

    Args:
      path: the file, whose folder is there.
      content: bytes, or text for UTF-8, in which line ends stay what they are.

    Raises:
      OSError: it cannot be written; what it had is there, and nothing else.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
