"""The rule about checkpoints around several layers, which recompute all layers at once and do not lower the peak."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

from jax.extend import source_info_util
from jax.extend.core import JaxprEqn

from rematscope import jax_compat
from rematscope.ir import roles
from rematscope.ir.cost import operations
from rematscope.ir.primitives import MATMULS
from rematscope.ir.program import Equation, Program, Value, type_text
from rematscope.ir.source import Source
from rematscope.linting.finding import LintFinding, LintKind
from rematscope.linting.linted_function import line_text, on_line
from rematscope.memory.liveness import live_bytes
from rematscope.render.units import bytes_text
from rematscope.tracing.trace import Trace

_SEVERAL = 3  # repeated layers, at least, for a finding
_ALL = 0.5  # of the recompute with nothing saved: below this share, saved activations make up the peak


def whole_nets(passes: Trace, nothing_saved: Trace, plain: Callable[[], Trace]) -> Iterator[LintFinding]:
    """Yield a finding for each checkpoint around several repeated layers that does not lower the peak.

    Args:
      nothing_saved: the same with checkpoints that save nothing.
      plain: returns the trace without any checkpoint; called only if there are repeated layers.
    """
    found = {Source.of(layers.checkpoint.source_info): layers for layers in _layers_at_once(nothing_saved)}
    if not found:
        return
    if operations(passes.recompute_cost) < _ALL * operations(nothing_saved.recompute_cost):
        return  # the policy saves much of what they compute: they are not recomputed at once
    peak, without = live_bytes(passes).peak_bytes, live_bytes(plain()).peak_bytes
    if peak < 0.9 * without:
        return
    for source, layers in found.items():
        text = (
            f"The checkpoint {on_line(source)} has {layers.count} identical layers in it, those of "
            f"{line_text(layers.equations[0].source)}. The backward pass recomputes all of them at once, so the peak "
            f"is {bytes_text(peak)}, and {bytes_text(without)} without a checkpoint. Put one around "
            f"{'the body of the scan' if layers.times > 1 else 'each layer'} instead."
        )
        yield LintFinding(LintKind.WHOLE_MODEL, text, source or layers.equations[0].source)


@dataclasses.dataclass
class _Layers:
    """The operations of one source line on arrays of the same types, which a checkpoint recomputes at once.

    Attributes:
      program: the program, or the body of a loop, that contains them.
      times: the number of iterations of the scans inside the checkpoint that run it.
      equations: the operations, in program order.
    """

    checkpoint: JaxprEqn
    program: Program
    times: int
    equations: list[Equation] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def count(self) -> int:
        """The number of layers: as many as operations depend on one another, in all iterations."""
        return self.times * (_chain_length(self.program, self.equations) if len(self.equations) >= _SEVERAL else 1)


def _layers_at_once(passes: Trace) -> Iterator[_Layers]:
    """Yield the checkpoints that recompute several repeated layers at once.

    Layers are repeated if the same source line multiplies arrays of the same types, one result depending on the other
    or in the iterations of a scan. The number of layers is the median over these lines.
    """
    groups: dict[int, dict[tuple[object, ...], _Layers]] = {}
    nested: set[int] = set()

    def visit(program: Program, loops: tuple[Equation, ...]) -> None:
        for equation in program.equations:
            for body in equation.bodies:
                visit(body, (*loops, equation))
            around = [eqn for eqn in equation.calls if jax_compat.is_checkpoint(eqn)]  # innermost first
            if equation.role != roles.RECOMPUTED or not around or equation.bodies:
                continue
            checkpoint = around[-1]
            if len(around) > 1:
                nested.add(id(checkpoint))
            times = math.prod(loop.length for loop in loops if any(eqn is checkpoint for eqn in loop.calls))
            types = tuple(map(type_text, (*equation.inputs, *equation.outputs)))
            line = source_info_util.summarize(equation.eqn.source_info)
            alike = groups.setdefault(id(checkpoint), {})
            key = id(program), line, equation.primitive, types
            alike.setdefault(key, _Layers(checkpoint, program, times)).equations.append(equation)

    visit(passes.backward, ())
    for which, alike in groups.items():
        if which in nested:
            continue
        products = [group for group in alike.values() if group.equations[0].primitive in MATMULS]
        found = products or [*alike.values()]
        median = sorted(found, key=lambda layers: layers.count)[(len(found) - 1) // 2]
        if median.count >= _SEVERAL:
            yield median


def _chain_length(program: Program, equations: list[Equation]) -> int:
    """Return the largest number of the equations that depend on one another."""
    counted = set(equations)
    depth: dict[Value, int] = {}
    for equation in program.equations:
        here = max((depth.get(v, 0) for v in equation.inputs), default=0) + (equation in counted)
        depth.update(dict.fromkeys(equation.outputs, here))
    return max(depth[v] for equation in equations for v in equation.outputs)
