"""`python -m grader`."""

import sys

from grader.util import environment

if sys.argv[1:2] in (["batch"], ["doctor"]):
    environment.restart()  # before other imports, which are slow, and which the caller's PYTHONPATH may shadow

from grader.isolation import check_child

if sys.argv[1:2] == ["check"] and len(sys.argv) > 2:
    check_child.begin()  # while this process still imports what reads the command line

from grader.cli import main

main()
