"""Errors that name the cause and the next step."""


class _Sentence(ValueError):
    def _render_traceback_(self) -> list[str]:
        # IPython asks an exception for its own rendering: the sentence is all a reader needs.
        return [f"{type(self).__name__}: {self}"]


class TraceError(_Sentence):
    """A function that cannot be split into a forward and a backward program, and what to do about it."""


class TargetError(_Sentence):
    """A device that cannot be compiled for, or run on, and what to do about it."""


class PlanError(_Sentence):
    """A choice of names that cannot be made, and what to do about it."""
