"""Say how reliable an estimated peak is, from the kinds of operations in a program."""

from rematscope.ir.primitives import LINEAR_ALGEBRA
from rematscope.memory.xla_estimate.estimate import distinct_constants
from rematscope.render.units import joined
from rematscope.tracing.trace import Trace, programs_of

# Operations whose memory does not follow from the trace, and their primitives.
_KINDS = {
    "loops of unknown length": frozenset({"while"}),
    "custom calls": frozenset("ffi_call io_callback pallas_call pure_callback tpu_custom_call".split()),
    "linear algebra": LINEAR_ALGEBRA,
    "sorts": frozenset("approx_top_k sort top_k".split()),
    "FFTs": frozenset({"fft"}),
    "mutable arrays": frozenset("addupdate get swap".split()),  # XLA may write to them in place
}
_MANY = 0.1  # share of the predicted peak above which constants make it unreliable, since XLA folds and copies them


def estimate_warning(passes: Trace, predicted: int) -> str:
    """Return a sentence on why a predicted peak may be far off; "" without a known reason."""
    programs = programs_of(passes)
    met = {equation.primitive for program in programs for equation in program.all_equations()}
    found = [kind for kind, primitives in _KINDS.items() if not met.isdisjoint(primitives)]
    constants = {v: array for program in programs for v, array in program.constants.items()}
    if sum(v.device_bytes for v in distinct_constants(constants)) > _MANY * predicted:
        found.append("large closed-over constants")
    why = f"The predicted peak is an estimate and may be far off, because the program has {joined(found)}."
    return why if found else ""
