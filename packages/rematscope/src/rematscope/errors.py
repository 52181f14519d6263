"""Errors that name the cause and the next step."""


class _Sentence(ValueError):
    def _render_traceback_(self) -> list[str]:
        # IPython asks an exception for its own rendering: the sentence is all a reader needs.
        return [f"{type(self).__name__}: {self}"]


class TraceError(_Sentence):
    """Raised for a function that cannot be traced or differentiated. The message names the cause and the next step."""


class TargetError(_Sentence):
    """Raised for a device that is unknown, absent or not valid. The message names the cause and the next step."""


class PlanError(_Sentence):
    """Raised if a limit cannot be met, a function cannot be planned, or an option is not valid.

    The message names the cause and the next step.
    """
