"""Stand-ins for IPython's functions in cells, for use without a notebook. Nearly all of them do nothing.

A magic in an assignment has a plausible value: the output of a command is the line `1`, and a measured time is one
second. Three magics work as in a notebook, because an answer may depend on them: `%run FILE`, `%env NAME=VALUE` and
`%pwd`.
"""

import os
import runpy
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def names(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the names that cells can use without binding them. `namespace` contains the cells' own names."""
    shell = _Shell(namespace)
    return {"get_ipython": lambda: shell, "display": lambda *_, **__: None, "In": [""], "Out": {}}


class _Shell:
    """A stand-in for IPython's `InteractiveShell`."""

    def __init__(self, namespace: dict[str, Any]):
        self.user_ns = namespace

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def run_line_magic(self, name: str, line: str = "", *_: object) -> Any:
        match name:
            case "run":
                return self._run_file(line)
            case "env" | "set_env":
                return self._environment_variable(line)
            case "pwd":
                return os.getcwd()
            case "sx" | "system":
                return self.getoutput(line)
            case "timeit" | "memit":
                times = {"best": 1.0, "worst": 1.0, "average": 1.0, "stdev": 0.0, "compile_time": 0.0}
                return SimpleNamespace(**times, loops=1, repeat=1, all_runs=[1.0], timings=[1.0])
        return None

    def getoutput(self, *_: object, **__: object) -> list[str]:
        from IPython.utils.text import SList  # imported here, because the import takes 0.05 s

        return SList(["1"])

    def _run_file(self, line: str) -> None:
        file = next(word for word in shlex.split(line) if not word.startswith("-"))
        self.user_ns.update(runpy.run_path(str(Path(file).with_suffix(".py")), run_name="__main__"))

    def _environment_variable(self, line: str) -> str:
        name, assigned, value = line.partition("=") if "=" in line else line.partition(" ")
        if assigned:
            os.environ[name.strip()] = value.strip()
        return os.environ.get(name.strip(), "")
