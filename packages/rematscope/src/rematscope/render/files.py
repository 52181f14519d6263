"""Files that appear whole: a page or a choice that is saved, and what the grader keeps.

A few lines of ours: the library for it, atomicwrites, is no longer kept by its author, who says that `os.replace` does
it.
"""

import contextlib
import os
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes a file so that it has all of the content or what it had before, whenever the process is ended.

    Args:
      path: the file, whose folder is there.
      content: bytes, or text for UTF-8, in which line ends stay what they are.

    Raises:
      OSError: it cannot be written; what it had is there, and nothing else.
    """
    part = Path(f"{os.fspath(path)}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
