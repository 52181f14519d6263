"""Explain a `NameError` of a check that runs before the cell that defines its answer."""

from typing import Any

from grader.exercises import registry
from grader.verdicts.views import Note


def explain_in(shell: Any) -> None:
    """Make IPython's shell show which cell to run if an exercise's answer is not defined.

    Other exception handlers of the shell keep working.
    """
    if not shell.custom_exceptions:
        shell.set_custom_exc((NameError,), _explain_name_error)


def _explain_name_error(
    shell: Any, kind: type[NameError], error: NameError, trace: Any, tb_offset: int | None = None
) -> None:
    name = error.name
    if name not in registry.names():
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        return
    from IPython.display import display

    sentence = f"Run the cell above that begins with `def {name}`, then this one again."
    display(Note(f"`{name}` is not defined yet", sentence))
