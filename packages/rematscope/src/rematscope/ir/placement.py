"""Record the shardings of the values of a program, as far as the program determines them.

On a mesh with explicit axes, and inside a `shard_map`, the type of a value contains its sharding. Under automatic axes,
the sharding is known for arguments that carry one, for the operands and results of a `shard_map`, and for the results
of sharding constraints. Loops and branches pass known shardings on to their carries, slices and results. The compiler
decides all other shardings; `rematscope.ir.sharding_propagation` predicts them.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rematscope.ir.program import BOOKKEEPING, RENAMES, Equation, Literal, Placement, Program, Value
from rematscope.ir.specs import across_devices, axes_by_dimension, spec_in


def index_text(spec: Any) -> str:
    """Return a partition spec as text, such as `[d]`, `[:, model]` or `[data+model]`; "" if nothing is sharded."""
    axes = ", ".join("+".join(map(str, names)) or ":" for names in axes_by_dimension(spec))
    return f"[{axes}]" if axes else ""


def mesh_of(sharding: Any) -> Any:
    """Return the mesh of a sharding, which may be abstract; None if the sharding is for a single device."""
    mesh = getattr(sharding, "mesh", None)
    return mesh if mesh is not None and mesh.size > 1 else None


def meshes_in(program: Program) -> Iterator[Any]:
    """Yield the meshes in the parameters and types of a program."""
    for equation in program.all_equations():
        if equation.primitive == "shard_map":
            yield equation.params["mesh"]
        given = [getattr(value.aval, "sharding", None) for value in equation.outputs]
        for sharding in (equation.params.get("sharding"), *given):
            if (mesh := mesh_of(sharding)) is not None:
                yield mesh


def give_shardings(values: Iterable[Value], shardings: Sequence[Any]) -> list[Any]:
    """Record the given shardings of values, and return the meshes of these shardings."""
    for value, sharding in zip(values, shardings, strict=False):
        if across_devices(sharding) is not None:
            record_placement(value, _placement_of(value, sharding))
    return [mesh for mesh in map(mesh_of, shardings) if mesh is not None]


def _placement_of(value: Value, sharding: Any) -> Placement:
    if getattr(sharding, "spec", None) is None:
        return Placement(tuple(sharding.shard_shape(value.shape)), True, None)
    spec = spec_in(sharding, len(value.shape))
    return Placement(spec.shard_shape(value.shape), True, spec.axes)


def place(program: Program) -> None:
    """Record the shardings of all values for which an equation of the program determines the sharding."""
    for equation in program.equations:
        match equation.primitive:
            case primitive if primitive in RENAMES:
                record_placement(equation.outputs[0], equation.inputs[0].placement)
            case "sharding_constraint":
                sharding = equation.params["sharding"]
                if mesh_of(sharding) is not None:
                    record_placement(equation.outputs[0], _placement_of(equation.outputs[0], sharding))
            case "shard_map":
                (body,) = equation.bodies
                place(body)
                pairs = (
                    *zip(equation.inputs, body.inputs, strict=True),
                    *zip(equation.outputs, body.outputs, strict=True),
                )
                for array, part in pairs:
                    record_placement(array, part.placement)
            case "scan" | "while":
                _place_loop(equation)
            case "cond":
                for body in equation.bodies:
                    place(body)
                for value, *results in zip(equation.outputs, *(b.outputs for b in equation.bodies), strict=True):
                    record_placement(value, *(result.placement for result in results))


def has_auto_sharded_work(program: Program) -> bool:
    """Return whether a program operates on arrays whose sharding the compiler decides."""
    made = (v for e in program.all_equations() if e.primitive not in BOOKKEEPING for v in e.outputs)
    return any(v.shape and not v.placement.is_explicit for v in made)


def _place_loop(loop: Equation) -> None:
    """Record that a loop's slices are sharded like their stacks, and its carries like the results of its body.

    The same holds in the other direction. If the body does not determine the sharding of a carry, the compiler decides
    it, even if the sharding of the initial value is known. A carry that no iteration changes keeps this sharding.
    """
    body, carries = loop.bodies[-1], loop.carries
    slices = list(zip(loop.stacked_inputs, body.inputs[carries:], strict=True))
    for array, part in slices:
        shape, decided, axes = array.placement
        record_placement(part, Placement(shape[1:], decided, axes and axes[1:]))
    carried = list(zip(loop.initial, body.outputs, *(each.inputs[:carries] for each in loop.bodies), strict=False))
    for first, out, *own in carried:
        if out is own[-1]:
            for value in own:
                record_placement(value, first.placement)
    for program in loop.bodies:
        place(program)
    if any(out.placement.is_explicit and not value.placement.is_explicit for _, out, *own in carried for value in own):
        for _, out, *own in carried:
            for value in own:
                record_placement(value, out.placement)
        for program in loop.bodies:
            place(program)
    for array, part in (*slices, *zip(loop.outputs[carries:], body.outputs[carries:], strict=True)):
        shape, decided, axes = part.placement
        record_placement(array, Placement((array.shape[0], *shape), decided, axes and ((), *axes)))
    for first, last, out in zip(loop.initial, loop.outputs, body.outputs[:carries], strict=False):
        record_placement(last, out.placement)
        record_placement(first, out.placement)


def record_placement(value: Value, *placements: Placement) -> None:
    """Record the placement of a value, if it is not known yet and all given placements agree on more than is known."""
    if isinstance(value, Literal) or value.placement.is_explicit or len({place[:2] for place in placements}) != 1:
        return
    new = placements[0]
    if new.is_explicit or math.prod(new.shape) < math.prod(value.placement.shape):
        value.sharding = new
