"""The cost of recomputing operations: FLOPs, seconds on a device, or the user's cost function.

An operation is assumed to take as long in the backward pass as the roofline says for the forward pass.
"""

import functools
from collections.abc import Callable

from rematscope.choices.build import CostFunction, checked_cost, work
from rematscope.ir.cost import operations, program_cost
from rematscope.ir.program import Equation, Program
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.schedule import Schedule
from rematscope.seconds.devices import Device
from rematscope.seconds.roofline import seconds_alone


def cost_in(linearized: Linearized, cost: CostFunction) -> Callable[[Equation], float]:
    """Return a function that gives the cost of recomputing an operation, with all iterations of the loops in it."""
    each = seconds_alone(linearized.primal, cost) if isinstance(cost, Device) else functools.partial(checked_cost, cost)

    def whole(equation: Equation) -> float:
        return sum(times * each(e) for e, times in equation.walk())

    return work_in if cost == work else whole


def recompute_cost_of(linearized: Linearized, made: Schedule, cost: CostFunction) -> float:
    """Return the cost of what the backward program of a schedule recomputes of its forward program."""
    each = cost_in(linearized, cost)
    of = {e.outputs[0]: each(e) for e, _ in linearized.primal.walk() if e.outputs}
    before = {v for e, _ in made.forward.walk() for v in e.outputs}
    again = ((e, times) for e, times in made.backward.walk() if e.outputs and e.primitive != "device_put")
    firsts = ((made.copies.get(e.outputs[0], e.outputs[0]), times) for e, times in again)
    return sum(times * of[value] for value, times in firsts if value in before and value in of)


def work_in(equation: Equation) -> float:
    """Return the FLOPs and transcendentals of an operation, with all iterations of the loops in it."""
    if not equation.bodies:
        return work(equation)
    return operations(program_cost(Program((), [equation], ())))
