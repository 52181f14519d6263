"""Programs as text that reads like Python: `a = W1 @ x`, `for i in range(4):`."""

import dataclasses
from collections.abc import Iterator

from rematscope.program import Equation, Program, Value, type_text
from rematscope.source import Source

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
    "dynamic_slice": "slice_sizes", "psum": "axes",
}  # fmt: skip
_SHORT = {
    "broadcast_in_dim": "broadcast", "reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min",
    "reduce_prod": "prod", "reduce_and": "all", "reduce_or": "any", "cond": "switch",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a program as text.

    Attributes:
      code: the text, indented.
      defines: the values that it defines.
      role: the equation's role, empty for lines that compute nothing.
      source: the user's line that it comes from.
    """

    code: str
    defines: tuple[Value, ...] = ()
    role: str = ""
    source: Source | None = None

    @property
    def type(self) -> str:
        """Dtype and shape of what the line defines."""
        return ", ".join(map(type_text, self.defines))


def lines(program: Program, indent: str = "") -> Iterator[Line]:
    """Writes a program, one `Line` at a time; bodies are indented under what runs them."""
    for equation in program.equations:
        match equation.primitive:
            case "optimization_barrier":
                count = len(equation.inputs)
                yield Line(f"{indent}── barrier: {count} value{'s' * (count > 1)} ──")
            case "scan":
                yield from _scan(equation, indent)
            case "while":
                yield from _while(equation, indent)
            case "cond":
                yield from _cond(equation, indent)
            case _:
                yield Line(indent + code(equation), equation.outputs, equation.role, equation.source)


def code(equation: Equation) -> str:
    """One equation as an assignment."""
    targets = ", ".join(v.name for v in equation.outputs)
    return f"{targets} = {_expression(equation)}" if targets else _expression(equation)


def _expression(equation: Equation) -> str:
    primitive, params = equation.primitive, equation.params
    operands = [v.name for v in equation.inputs]
    if primitive in _INFIX and len(operands) == 2:
        left, right = (f"({name})" if name.startswith("-") else name for name in operands)
        return f"{left} {_INFIX[primitive]} {right}"
    match primitive:
        case "neg":
            return f"-{operands[0]}"
        case "integer_pow":
            return f"{operands[0]} ** {params['y']}"
        case "dot_general":
            return _dot(equation, operands)
        case "name":
            return f"checkpoint_name({operands[0]}, {params['name']!r})"
        case "convert_element_type":
            return f"{type_text(equation.outputs[0]).partition('[')[0]}({operands[0]})"
        case "transpose":
            if params["permutation"] == (1, 0):
                return f"{operands[0]}.T"
            return f"transpose({operands[0]}, {_tuple(params['permutation'])})"
        case "select_n" if len(operands) == 3 and equation.inputs[0].dtype == bool:
            return f"where({operands[0]}, {operands[2]}, {operands[1]})"
        case "slice":
            steps = params["strides"] or (1,) * len(params["start_indices"])
            bounds = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
            parts = (f"{start}:{stop}" if step == 1 else f"{start}:{stop}:{step}" for start, stop, step in bounds)
            return f"{operands[0]}[{', '.join(parts)}]"
        case "iota":
            return f"iota({_tuple(params['shape'])}, {params['dimension']})"
    if (parameter := _PARAMETERS.get(primitive)) in params:
        operands.append(_tuple(params[parameter]))
    return f"{_SHORT.get(primitive, primitive)}({', '.join(operands)})"


def _tuple(value) -> str:
    if not isinstance(value, (tuple, list)):
        return str(value)
    return f"({', '.join(map(str, value))}{',' * (len(value) == 1)})"


def _dot(equation: Equation, operands: list[str]) -> str:
    """`a @ b`, with `.T` where a matrix is contracted over the other dimension; einsum where batches are involved."""
    (left_dims, right_dims), (left_batch, _) = equation.params["dimension_numbers"]
    left, right = equation.inputs
    left_ndim, right_ndim = len(left.shape), len(right.shape)
    if not left_dims and not left_batch and left_ndim == right_ndim == 1:
        return f"outer({operands[0]}, {operands[1]})"
    if not left_batch and len(left_dims) == 1 and left_ndim >= 1 and 1 <= right_ndim <= 2:
        # a @ b contracts a's last dimension with b's first.
        first = operands[0]
        if left_ndim == 2 and left_dims[0] == 0:
            first += ".T"
        elif left_dims[0] != left_ndim - 1:
            return _einsum(equation, operands)
        second = operands[1] + (".T" if right_ndim == 2 and right_dims[0] == 1 else "")
        return f"{first} @ {second}"
    return _einsum(equation, operands)


def _einsum(equation: Equation, operands: list[str]) -> str:
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
    return f'einsum("{"".join(left)},{"".join(right)}->{"".join(out)}", {", ".join(operands)})'


def _names(values) -> str:
    return ", ".join(v.name for v in values)


def _start(equation: Equation, indent: str) -> Iterator[Line]:
    """Gives a loop's carries their first values, where those do not bear the carry's name already."""
    pairs = zip(equation.outputs, equation.initial, strict=False)
    if pairs := [(carry, first) for carry, first in pairs if carry.name != first.name]:
        carries, firsts = zip(*pairs, strict=True)
        yield Line(f"{indent}{_names(carries)} = {_names(firsts)}")


def _scan(equation: Equation, indent: str) -> Iterator[Line]:
    (body,) = equation.bodies
    carries = equation.carries
    index = equation.index
    steps = f"range({equation.length})"
    if equation.params["reverse"]:
        steps = f"reversed({steps})"
    yield from _start(equation, indent)
    yield Line(f"{indent}for {index} in {steps}:", source=equation.source)
    inner = indent + "  "
    yield from lines(body, inner)
    for whole, part in zip(equation.outputs[carries:], body.outputs[carries:], strict=True):
        yield Line(f"{inner}{whole.name}[{index}] = {part.name}", (whole,))
    yield from _carry_over(equation, body, inner)


def _carry_over(equation: Equation, body: Program, indent: str) -> Iterator[Line]:
    """The end of an iteration: all carries at once, so that two may trade places."""
    if carries := equation.outputs[: equation.carries]:
        yield Line(f"{indent}{_names(carries)} = {_names(body.outputs[: len(carries)])}", carries)


def _while(equation: Equation, indent: str) -> Iterator[Line]:
    condition, body = equation.bodies
    yield from _start(equation, indent)
    yield Line(f"{indent}while True:", source=equation.source)
    inner = indent + "  "
    yield from lines(condition, inner)
    yield Line(f"{inner}if not {condition.outputs[0].name}: break")
    yield from lines(body, inner)
    yield from _carry_over(equation, body, inner)


def _cond(equation: Equation, indent: str) -> Iterator[Line]:
    which = equation.inputs[0].name
    targets = _names(equation.outputs)
    switch = f"{targets} = switch({which}):" if targets else f"switch({which}):"
    yield Line(indent + switch, equation.outputs, source=equation.source)
    for i, body in enumerate(equation.bodies):
        yield Line(f"{indent}  case {i}:")
        yield from lines(body, indent + "    ")
        if body.outputs:
            yield Line(f"{indent}    return {_names(body.outputs)}")
