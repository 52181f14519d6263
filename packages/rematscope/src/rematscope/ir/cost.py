"""The cost of an operation: floating-point operations, transcendentals, and bytes read and written.

The counts are those of the program as written, before XLA fuses or rewrites operations. They follow XLA's conventions.
A multiply-add is 2 FLOPs. An elementwise operation is 1 FLOP per element of its result, and a reduction is 1 FLOP per
element that it reads. Transcendental functions are counted separately. Moving or reshaping data takes no FLOPs; its
cost is the bytes that are read and written. `rematscope.ir.cost_rules` has a rule for each operation; operations
without a rule are reported as not counted. On several devices, all figures are those of one device.
"""

import dataclasses
import math
import numbers
import weakref
from collections.abc import Collection
from typing import Any

from rematscope import jax_compat
from rematscope.errors import TraceError
from rematscope.ir import collectives
from rematscope.ir.inline import Inliner
from rematscope.ir.primitives import MATMULS, work_of
from rematscope.ir.program import BOOKKEEPING, Equation, Part, Program, nbytes
from rematscope.ir.sharding_propagation import read_as
from rematscope.jax_compat import AnyJaxpr


@dataclasses.dataclass(frozen=True, repr=False)
class Cost:
    """The cost of a set of operations.

    Attributes:
      flops: the number of floating-point operations, without transcendental functions.
      transcendentals: the number of elements that transcendental functions (`sin`, `exp`, `tanh`, `sqrt`, …) are
        applied to.
      bytes: the bytes that would be read and written if each operation read its operands from memory and wrote its
        results to memory.
      link_bytes: the bytes that each device sends over its links; see `rematscope.ir.collectives`.
      uncounted: the primitives whose FLOPs are not included because they are unknown: custom calls, callbacks, and
        operations without a cost rule. A `while` loop of unknown length counts as one iteration, and `"while"` is
        listed here.
    """

    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0
    link_bytes: int = 0
    uncounted: frozenset[str] = frozenset()

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes + other.bytes,
            self.link_bytes + other.link_bytes,
            self.uncounted | other.uncounted,
        )

    def __mul__(self, trip_count: int) -> "Cost":
        return Cost(
            self.flops * trip_count,
            self.transcendentals * trip_count,
            self.bytes * trip_count,
            self.link_bytes * trip_count,
            self.uncounted,
        )

    @property
    def uncounted_text(self) -> str:
        """The uncounted primitives as text, such as `not counted: ffi_call, while`; empty if there are none."""
        return f"not counted: {', '.join(sorted(self.uncounted))}" if self.uncounted else ""

    def __repr__(self) -> str:
        figures = f"flops={self.flops}, transcendentals={self.transcendentals}, bytes={self.bytes}"
        figures += f", link_bytes={self.link_bytes}" if self.link_bytes else ""
        return f"Cost({figures}{f', uncounted={sorted(self.uncounted)}' if self.uncounted else ''})"


def operations(cost: Cost) -> int:
    """Return the number of operations: FLOPs and transcendentals."""
    return cost.flops + cost.transcendentals


def cost_of(equation: Equation) -> Cost:
    """Return the cost of one run of `equation`.

    On a mesh, this is the cost on one device. A loop costs as much as all its iterations together; a `cond` costs as
    much as its most expensive branch.

    Raises:
      TraceError: if `equation` is not an `Equation`.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import cost_of, trace
      >>> matmul, sine, cosine = trace(lambda w, x: jnp.sin(w @ x), jnp.ones((5, 4)), jnp.ones(4)).forward.equations
      >>> cost_of(matmul).flops, cost_of(sine).transcendentals
      (40, 5)
    """
    if not isinstance(equation, Equation):
        raise TraceError(
            f"cost_of needs an Equation, not a value of type {type(equation).__name__}. Use one of trace(f, "
            "…).forward.equations or .backward.equations. The cost of both passes is trace(f, …).cost."
        )
    cost = _known.get(equation)
    if cost is None:
        cost = program_cost(Program((), [equation], ())) if equation.bodies else _count_on_device(equation)
        _known[equation] = cost
    return cost


_known: weakref.WeakKeyDictionary[Equation, Cost] = weakref.WeakKeyDictionary()  # each is asked about many times


def _count_on_device(equation: Equation) -> Cost:
    inputs: list[Any] = [v.on_device for v in equation.inputs]
    outputs = [v.on_device for v in equation.outputs]
    if equation.primitive in MATMULS:
        inputs = [Part(place.shape, v.dtype) for v, place in zip(equation.inputs, read_as(equation), strict=True)]
    cost = _cost_of_primitive(equation.primitive, inputs, outputs, equation.params)
    sent = collectives.sent_bytes(equation)
    return cost if sent == cost.link_bytes else dataclasses.replace(cost, link_bytes=sent)


def program_cost(program: Program, role: str | None = None) -> Cost:
    """Sum the costs of all operations, or of those with the given role, over all iterations of loops.

    A loop of unknown length counts as one iteration, and is listed in `uncounted`. Of the branches of a `cond`, the one
    with the most FLOPs counts; `link_bytes` is the maximum over all branches.
    """
    found = list[Cost]()
    for equation in program.equations:
        if equation.bodies:
            bodies = [program_cost(body, role) for body in equation.bodies]
            if equation.primitive == "cond":
                found.append(_costliest_branch(bodies))
            else:
                found.append(_sum_costs(bodies) * equation.length if equation.counted else _count_one_iteration(bodies))
        elif role in (None, equation.role):
            found.append(cost_of(equation))
    return _sum_costs(found)


def _sum_costs(costs: Collection[Cost]) -> Cost:
    """Return the sum of costs; adding them one by one creates an object per operation."""
    return Cost(
        sum(cost.flops for cost in costs),
        sum(cost.transcendentals for cost in costs),
        sum(cost.bytes for cost in costs),
        sum(cost.link_bytes for cost in costs),
        frozenset().union(*(cost.uncounted for cost in costs)),
    )


def _costliest_branch(branches: list[Cost]) -> Cost:
    """Return the cost of the branch with the most FLOPs, with the uncounted primitives of all branches."""
    most = max(branches, key=lambda cost: (cost.flops, cost.bytes))
    return dataclasses.replace(
        most,
        link_bytes=max(cost.link_bytes for cost in branches),
        uncounted=frozenset().union(*(cost.uncounted for cost in branches)),
    )


def _count_one_iteration(parts: Collection[Cost]) -> Cost:
    """Return the cost of one iteration of a loop of unknown length, marked as uncounted unless the loop is empty."""
    total = _sum_costs(parts)
    return total + Cost(uncounted=frozenset({"while"})) if total != Cost() else total


def _cost_of_primitive(primitive: str, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> Cost:
    if primitive in BOOKKEEPING:
        return Cost()
    moved = sum(nbytes(v) for v in (*inputs, *outputs) if hasattr(v, "dtype"))  # a token has none
    if primitive == "pallas_call":
        return _kernel_cost(params, moved)
    if primitive == "custom_linear_solve":
        # One of its four functions runs; the other three are for its derivative.
        return _jaxpr_cost(params["jaxprs"].solve)
    if (work := work_of(primitive, inputs, outputs, params)) is None:
        return Cost(bytes=moved, uncounted=frozenset({primitive}))
    return Cost(*work, bytes=moved)


def _kernel_cost(params: dict[str, Any], moved: int) -> Cost:
    """Return the author's `cost_estimate` of a Pallas kernel; without one, the cost of its body times the grid size."""
    if (estimate := params.get("cost_estimate")) is not None:
        return Cost(estimate.flops, estimate.transcendentals, estimate.bytes_accessed)
    grid = params["grid_mapping"].grid
    known = all(isinstance(size, numbers.Integral) for size in grid)
    total = _jaxpr_cost(params["jaxpr"]) * (math.prod(grid) if known else 1)
    uncounted = total.uncounted if known else total.uncounted | {"pallas_call"}
    return dataclasses.replace(total, bytes=moved, uncounted=uncounted)  # blocks stay near the processor


def _jaxpr_cost(jaxpr: AnyJaxpr) -> Cost:
    with jax_compat.default_remat():  # under jax_remat3, the forward rules of derivatives would be traced, too
        return program_cost(Inliner().whole(jaxpr))
