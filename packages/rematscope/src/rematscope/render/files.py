"""Write files atomically: saved pages, saved schedules, and the grader's files.

The library for this, atomicwrites, is no longer maintained. Its author recommends `os.replace`.
"""

import contextlib
import os
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file atomically: whenever the process ends, the file has either its new or its previous content.

    Args:
      path: the path of the file, in a folder that exists.
      content: bytes, or text, which is encoded as UTF-8 with its line ends unchanged.

    Raises:
      OSError: if the file cannot be written. It then has its previous content.
    """
    part = Path(f"{os.fspath(path)}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
