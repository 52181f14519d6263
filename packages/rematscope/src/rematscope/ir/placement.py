"""What each device has of the values of a program, as far as the program says so.

The type of a value says it on a mesh with explicit axes, and inside a shard_map. Where axes are automatic, arguments
may carry a sharding, a shard_map says how it wants its operands and how it leaves its results, and a sharding
constraint says how what it is put on is divided; a loop hands all this on. The rest only the compiler decides.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from rematscope.ir.program import CASTS, Equation, Literal, Program, Value

Axes = dict[str, int]


def divided(spec: Any) -> tuple[tuple[str, ...], ...]:
    """The mesh axes over which a partition spec divides each dimension; `P("d")` and `P(("d",), None)` say the same."""
    axes = [() if entry is None else entry if isinstance(entry, tuple) else (entry,) for entry in spec]
    while axes and not axes[-1]:
        axes.pop()
    return tuple(axes)


def index_text(spec: Any) -> str:
    """`[d]`, `[:, model]`, `[data+model]`; nothing for what is not divided."""
    axes = ", ".join("+".join(map(str, names)) or ":" for names in divided(spec))
    return f"[{axes}]" if axes else ""


def axes_of(sharding: Any) -> Axes:
    """The axes of the mesh that a sharding is about, and how long each is; none for what lies on one device."""
    mesh = getattr(sharding, "mesh", None)
    return {} if mesh is None or mesh.size <= 1 else dict(mesh.shape)


def give_shardings(values: Iterable[Value], shardings: Sequence[Any]) -> None:
    """Notes what each device has of values whose arrays carry a sharding, or None."""
    for value, sharding in zip(values, shardings, strict=True):
        if getattr(sharding, "num_devices", 1) > 1:
            same(value, tuple(sharding.shard_shape(value.shape)))


def place(program: Program) -> None:
    """Notes of every value what each device has of it, where an equation of the program says so."""
    for equation in program.equations:
        match equation.primitive:
            case "name":
                same(equation.outputs[0], equation.inputs[0].device_shape)
            case primitive if primitive in CASTS:
                same(equation.outputs[0], equation.inputs[0].device_shape)
            case "sharding_constraint":
                sharding = equation.params["sharding"]
                if axes_of(sharding):
                    same(equation.outputs[0], sharding.shard_shape(equation.outputs[0].shape))
            case "shard_map":
                (body,) = equation.bodies
                place(body)
                for array, part in zip(equation.inputs, body.inputs, strict=True):
                    same(array, part.device_shape)
                for array, part in zip(equation.outputs, body.outputs, strict=True):
                    same(array, part.device_shape)
            case "scan" | "while":
                _place_loop(equation)
            case "cond":
                for body in equation.bodies:
                    place(body)
                for value, *results in zip(equation.outputs, *(b.outputs for b in equation.bodies), strict=True):
                    same(value, *(result.device_shape for result in results))


def same(value: Value, *shapes: tuple[int, ...] | None) -> None:
    """Says what each device has of a value, where it is not known and all shapes agree on it."""
    known = set(shapes)
    if value.device_shape is None and not isinstance(value, Literal) and len(known) == 1:
        value.part = known.pop()


def axes_in(program: Program) -> Axes:
    """The axes of all meshes that a program speaks of, and how long each is."""
    found: Axes = {}
    for equation in program.equations:
        found |= equation.params["axes"] if equation.primitive == "shard_map" else {}
        found |= axes_of(equation.params.get("sharding"))
        for value in equation.outputs:
            found |= axes_of(getattr(value.aval, "sharding", None))
        for body in equation.bodies:
            found |= axes_in(body)
    return found


def _place_loop(loop: Equation) -> None:
    """Slices are placed as their stacks, carries as their starts, and both ways."""
    body, carries = loop.bodies[-1], loop.carries
    for array, part in zip(loop.stacked_inputs, body.inputs[carries:], strict=True):
        if (shape := array.device_shape) is not None:
            same(part, shape[1:])
    for first, *own in zip(loop.initial, *(program.inputs[:carries] for program in loop.bodies), strict=True):
        for value in own:
            same(value, first.device_shape)
    for program in loop.bodies:
        place(program)
    for array, part in zip(loop.stacked_inputs, body.inputs[carries:], strict=True):
        if (shape := part.device_shape) is not None:
            same(array, (array.shape[0], *shape))
    for first, last, out in zip(loop.initial, loop.outputs, body.outputs[:carries], strict=False):
        same(last, out.device_shape)
        same(first, out.device_shape)
    for stack, part in zip(loop.outputs[carries:], body.outputs[carries:], strict=True):
        if (shape := part.device_shape) is not None:
            same(stack, (stack.shape[0], *shape))
