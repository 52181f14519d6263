"""What views say in the same words."""

from rematscope.render.units import bytes_text
from rematscope.tracing.trace import Passes


def saved_text(passes: Passes) -> str:
    """`456 B: computed 72 B + arguments 384 B`."""
    kinds = {"computed": "computed", "constant": "constants", "argument": "arguments"}
    parts = [f"{kinds[kind]} {bytes_text(size)}" for kind, size in passes.bytes_by_kind().items()]
    return f"{bytes_text(passes.saved_bytes())}: {' + '.join(parts)}"
