"""Errors that name the cause and the next step."""


class _Sentence(ValueError):
    def _render_traceback_(self) -> list[str]:
        # IPython asks an exception for its own rendering: the sentence is all a reader needs.
        return [f"{type(self).__name__}: {self}"]


class TraceError(_Sentence):
    """A function that cannot be traced or differentiated. The message names the cause and the next step."""


class TargetError(_Sentence):
    """A device that is unknown or absent. The message names the cause and the next step."""


class PlanError(_Sentence):
    """A limit that cannot be met or a function that cannot be planned. The message names cause and next step."""
