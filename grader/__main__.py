"""`python -m grader`."""

import contextlib
import os
import sys

if sys.argv[1:2] in (["batch"], ["doctor"]) and not sys.flags.safe_path:
    # Python put the current folder first. A submission there, such as `random.py`, would run in place of a module.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from grader.util import environment

if sys.argv[1:2] in (["batch"], ["doctor"]):
    environment.restart()  # before other imports, which are slow, and which the caller's PYTHONPATH may shadow

from grader.isolation.check_child import CheckChild

checks = sys.argv[1:2] == ["check"] and len(sys.argv) > 2
# The process starts while this one still imports what reads the command line.
with CheckChild() if checks else contextlib.nullcontext() as child:
    from grader.cli import main

    main(child)
