"""Where in the user's code an operation comes from."""

import dataclasses
import os
import re
import sys
from typing import Any

from jax.extend import source_info_util

_SUMMARY = re.compile(r"^(?P<file>.*?):(?P<line>\d+)(?::\d+)? \((?P<function>.*)\)$", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Source:
    """A line of the user's code.

    Attributes:
      place: `In [3]` for a notebook cell, the file's name elsewhere.
      line: the line in it, from 1.
      function: the function that the line stands in.
    """

    place: str
    line: int
    function: str

    @classmethod
    def of(cls, source_info: Any) -> "Source | None":  # of a private class of JAX's
        """Reads JAX's record of an equation's origin; None if there is no line of the user's in it."""
        found = _SUMMARY.match(source_info_util.summarize(source_info))
        if not found:
            return None
        return cls(place_of(found["file"]), int(found["line"]), found["function"])

    @property
    def where(self) -> str:
        """`In [3], line 7`, or `file.py:7`."""
        return f"{self.place}, line {self.line}" if self.place.startswith("In [") else f"{self.place}:{self.line}"

    def __str__(self) -> str:
        return f"{self.where} ({self.function.rpartition('.')[2]})"


def place_of(file: str) -> str:
    """What a person calls a file: `In [3]` for a cell that IPython compiled under this name, else its last part."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and (label := shell.compile.format_code_name(file)) is not None:
        # IPython answers ("Cell", "In[3]"); people know its prompt, "In [3]".
        return str(label[1]).replace("In[", "In [")
    return os.path.basename(file)
