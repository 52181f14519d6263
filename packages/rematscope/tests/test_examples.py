"""The examples in the docstrings of the public names: each function has one, which runs as written."""

import doctest
import inspect

import pytest
from releases import since

import rematscope

PUBLIC = {name: getattr(rematscope, name) for name in rematscope.__all__}
EXAMPLES = {
    test.name: test
    for name, public in PUBLIC.items()
    for test in doctest.DocTestFinder(recurse=False, exclude_empty=True).find(public, name, globs={})
    if test.examples
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE  # lines of source are named after the test, and columns move


def test_every_public_function_has_an_example():
    assert {name for name, public in PUBLIC.items() if inspect.isfunction(public)} <= set(EXAMPLES)


# Results of compiling for a CPU.
NEW = {"auto": since("0.11", "XLA on a CPU recomputes what a checkpoint says")}


@pytest.mark.parametrize("name", [pytest.param(name, marks=NEW.get(name, ())) for name in EXAMPLES])
def test_the_output_of_an_example_is_as_documented(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    assert runner.run(EXAMPLES[name], out=said.append).failed == 0, "".join(said)
