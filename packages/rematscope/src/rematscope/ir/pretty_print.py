"""Programs as text that reads like Python: `a = W1 @ x`, `for i in range(4):`."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rematscope.ir import collectives
from rematscope.ir.placement import index_text
from rematscope.ir.program import CASTS, Equation, Program, Value, type_text
from rematscope.ir.source import Source

# Text in pieces: where it names a value, the piece is that value.
Pieces = tuple[str | Value, ...]

_INFIX = {
    "add": "+", "add_any": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "pow": "**", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|", "xor": "^",
    "shift_left": "<<", "shift_right_logical": ">>", "shift_right_arithmetic": ">>",
}  # fmt: skip
_PARAMETERS = {
    "broadcast_in_dim": "shape", "reshape": "new_sizes", "reduce_sum": "axes", "reduce_max": "axes",
    "reduce_min": "axes", "reduce_prod": "axes", "reduce_and": "axes", "reduce_or": "axes", "argmax": "axes",
    "argmin": "axes", "cumsum": "axis", "cumprod": "axis", "cummax": "axis", "concatenate": "dimension",
    "squeeze": "dimensions", "rev": "dimensions", "expand_dims": "dimensions", "sort": "dimension",
    "dynamic_slice": "slice_sizes",
}  # fmt: skip
_SHORT = {
    "broadcast_in_dim": "broadcast", "reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min",
    "reduce_prod": "prod", "reduce_and": "all", "reduce_or": "any", "cond": "switch", "psum_invariant": "psum",
    "psum2": "psum", "reduce_scatter": "psum_scatter", "all_gather_invariant": "all_gather",
}  # fmt: skip


# More values of one type that one line makes are counted.
_FEW = 4


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a program as text.

    Attributes:
      pieces: the text, indented.
      defines: the values that it defines.
      role: the equation's role, empty for lines that compute nothing.
      source: the user's line that it comes from.
      module: the module that this belongs to; None for lines that compute nothing.
    """

    pieces: Pieces
    defines: tuple[Value, ...] = ()
    role: str = ""
    source: Source | None = None
    module: str | None = None

    @property
    def code(self) -> str:
        """The pieces as text."""
        return text(self.pieces)

    @property
    def type(self) -> str:
        """Dtypes and shapes of what the line defines; of many alike how many they are, and one."""
        types = [type_text(value) for value in self.defines]
        return f"{len(types)} × {types[0]}" if len(types) > _FEW and len(set(types)) == 1 else ", ".join(types)


def lines(program: Program, indent: str = "") -> Iterator[Line]:
    """Writes a program, one `Line` at a time; bodies are indented under what runs them."""
    for equation in program.equations:
        match equation.primitive:
            case "optimization_barrier":
                count = len(equation.inputs)
                yield Line((f"{indent}── barrier: {count} value{'s' * (count > 1)} ──",))
            case "scan":
                yield from _scan(equation, indent)
            case "while":
                yield from _while(equation, indent)
            case "cond":
                yield from _cond(equation, indent)
            case "shard_map":
                yield from _shard_map(equation, indent)
            case primitive if primitive in CASTS:
                pass  # what it returns has its operand's name
            case _:
                code = (indent, *_assignment(equation))
                yield Line(code, equation.outputs, equation.role, equation.source, equation.module)


def code(equation: Equation) -> str:
    """One equation as an assignment."""
    return text(_assignment(equation))


def text(pieces: Pieces) -> str:
    """The pieces, values by their names."""
    return "".join(piece.name if isinstance(piece, Value) else piece for piece in pieces)


def _assignment(equation: Equation) -> Pieces:
    targets = listed(equation.outputs)
    return (*targets, " = ", *_expression(equation)) if targets else _expression(equation)


def _expression(equation: Equation) -> Pieces:
    primitive, params, operands = equation.primitive, equation.params, equation.inputs
    if primitive in _INFIX and len(operands) == 2:
        left, right = ("({})" if v.name.startswith("-") else "{}" for v in operands)
        return _filled(f"{left} {_INFIX[primitive]} {right}", *operands)
    match primitive:
        case "neg":
            return _filled("-{}", *operands)
        case "integer_pow":
            return _filled(f"{{}} ** {params['y']}", *operands)
        case "dot_general":
            return _filled(_dot(equation), *operands)
        case "name":
            return _filled("checkpoint_name({}, {})", *operands, repr(params["name"]))
        case "convert_element_type":
            return _filled(f"{type_text(equation.outputs[0]).partition('[')[0]}({{}})", *operands)
        case "transpose":
            if params["permutation"] == (1, 0):
                return _filled("{}.T", *operands)
            return _filled(f"transpose({{}}, {_tuple(params['permutation'])})", *operands)
        case "select_n" if len(operands) == 3 and operands[0].dtype == bool:
            return _filled("where({}, {}, {})", operands[0], operands[2], operands[1])
        case "slice":
            steps = params["strides"] or (1,) * len(params["start_indices"])
            bounds = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
            parts = (f"{start}:{stop}" if step == 1 else f"{start}:{stop}:{step}" for start, stop, step in bounds)
            return _filled(f"{{}}[{', '.join(parts)}]", *operands)
        case "iota":
            return (f"iota({_tuple(params['shape'])}, {params['dimension']})",)
    if collectives.kind(primitive) is not None:
        axes = params.get("axes", params.get("axis_name"))
        over = map(repr, axes if isinstance(axes, (tuple, list)) else (axes,))
        return (f"{_SHORT.get(primitive, primitive)}(", *listed([*operands, *over]), ")")
    shown = [_tuple(params[parameter])] if (parameter := _PARAMETERS.get(primitive)) in params else []
    return (f"{_SHORT.get(primitive, primitive)}(", *listed([*operands, *shown]), ")")


def _filled(template: str, *parts: str | Value) -> Pieces:
    """The template with a part for each `{}`."""
    first, *others = template.split("{}")
    return (first, *(piece for pair in zip(parts, others, strict=True) for piece in pair))


def listed(parts: Sequence[str | Value]) -> Pieces:
    """`a, b, c`."""
    return tuple(piece for part in parts for piece in (", ", part))[1:]


def _tuple(value: Any) -> str:  # a parameter of a primitive
    if not isinstance(value, (tuple, list)):
        return str(value)
    return f"({', '.join(map(str, value))}{',' * (len(value) == 1)})"


def _dot(equation: Equation) -> str:
    """`{} @ {}`, with `.T` where a matrix is contracted over the other dimension; einsum where batches are involved."""
    (left_dims, right_dims), (left_batch, _) = equation.params["dimension_numbers"]
    left, right = equation.inputs
    left_ndim, right_ndim = len(left.shape), len(right.shape)
    if not left_dims and not left_batch and left_ndim == right_ndim == 1:
        return "outer({}, {})"
    if not left_batch and len(left_dims) == 1 and left_ndim >= 1 and 1 <= right_ndim <= 2:
        # a @ b contracts a's last dimension with b's first.
        transposed = left_ndim == 2 and left_dims[0] == 0
        if not transposed and left_dims[0] != left_ndim - 1:
            return _einsum(equation)
        first = "{}.T" if transposed else "{}"
        second = "{}.T" if right_ndim == 2 and right_dims[0] == 1 else "{}"
        return f"{first} @ {second}"
    return _einsum(equation)


def _einsum(equation: Equation) -> str:
    (left_dims, right_dims), (left_batch, right_batch) = equation.params["dimension_numbers"]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left = [next(letters) for _ in equation.inputs[0].shape]
    right = [""] * len(equation.inputs[1].shape)
    for i, j in [*zip(left_dims, right_dims, strict=True), *zip(left_batch, right_batch, strict=True)]:
        right[j] = left[i]
    right = [letter or next(letters) for letter in right]
    out = [left[i] for i in left_batch]
    out += [letter for i, letter in enumerate(left) if i not in (*left_dims, *left_batch)]
    out += [letter for i, letter in enumerate(right) if i not in (*right_dims, *right_batch)]
    return f'einsum("{"".join(left)},{"".join(right)}->{"".join(out)}", {{}}, {{}})'


def _start(equation: Equation, indent: str) -> Iterator[Line]:
    """Gives a loop's carries their first values, where those do not bear the carry's name already."""
    pairs = zip(equation.outputs, equation.initial, strict=False)
    if renamed := [(carry, first) for carry, first in pairs if carry.name != first.name]:
        carries, firsts = zip(*renamed, strict=True)
        yield Line((indent, *listed(carries), " = ", *listed(firsts)))


def _scan(equation: Equation, indent: str) -> Iterator[Line]:
    (body,) = equation.bodies
    carries = equation.carries
    index = equation.index
    steps = f"range({equation.length})"
    if equation.reverse:
        steps = f"reversed({steps})"
    yield from _start(equation, indent)
    yield Line((f"{indent}for {index} in {steps}:",), source=equation.source, module=equation.module)
    inner = indent + "  "
    yield from lines(body, inner)
    for whole, part in zip(equation.outputs[carries:], body.outputs[carries:], strict=True):
        yield Line((inner, whole, f"[{index}] = ", part), (whole,))
    yield from _carry_over(equation, body, inner)


def _carry_over(equation: Equation, body: Program, indent: str) -> Iterator[Line]:
    """The end of an iteration: all carries at once, so that two may trade places."""
    if carries := equation.outputs[: equation.carries]:
        yield Line((indent, *listed(carries), " = ", *listed(body.outputs[: len(carries)])), carries)


def _shard_map(equation: Equation, indent: str) -> Iterator[Line]:
    (body,) = equation.bodies
    axes = ", ".join(f"{name}={size}" for name, size in equation.params["axes"].items())
    yield Line((f"{indent}on each device of {axes}:",), source=equation.source, module=equation.module)
    inner = indent + "  "
    yield from lines(body, inner)
    for whole, part, spec in zip(equation.outputs, body.outputs, equation.params["out_specs"], strict=True):
        yield Line((inner, whole, f"{index_text(spec)} = ", part), (whole,))


def _while(equation: Equation, indent: str) -> Iterator[Line]:
    condition, body = equation.bodies
    yield from _start(equation, indent)
    yield Line((f"{indent}while True:",), source=equation.source, module=equation.module)
    inner = indent + "  "
    yield from lines(condition, inner)
    yield Line((f"{inner}if not ", condition.outputs[0], ": break"))
    yield from lines(body, inner)
    yield from _carry_over(equation, body, inner)


def _cond(equation: Equation, indent: str) -> Iterator[Line]:
    targets = listed(equation.outputs)
    switch = ("switch(", equation.inputs[0], "):")
    yield Line(
        (indent, *targets, *[" = "] * bool(targets), *switch),
        equation.outputs,
        source=equation.source,
        module=equation.module,
    )
    for i, body in enumerate(equation.bodies):
        yield Line((f"{indent}  case {i}:",))
        yield from lines(body, indent + "    ")
        if body.outputs:
            yield Line((f"{indent}    return ", *listed(body.outputs)))
