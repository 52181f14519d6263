"""Programs as text that reads like Python: `a = W1 @ x`, `for i in range(4):`."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rematscope.ir import collectives
from rematscope.ir.placement import index_text
from rematscope.ir.program import CASTS, Equation, Literal, Program, Value, type_text
from rematscope.ir.source import Source
from rematscope.render.units import counted

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
    "reduce_scatter": "psum_scatter", "all_gather_invariant": "all_gather",
}  # fmt: skip


# More values of one type that one line makes are counted.
_FEW = 4


@dataclasses.dataclass(eq=False, slots=True)
class Line:
    """One line of a program. Its text is formatted only when it is shown, because most lines of large models are not.

    Attributes:
      template: the text, indented, with `{}` for each of `parts`.
      parts: the values in the text, and strings from the user's code.
      defines: the values that the line defines.
      equation: the equation that gives the source line and the module; None for lines that compute nothing.
      role: the role of the equation; "" if it has bodies.
    """

    template: str
    parts: tuple[str | Value, ...] = ()
    defines: tuple[Value, ...] = ()
    equation: Equation | None = None
    role: str = ""

    @property
    def pieces(self) -> Pieces:
        """The text in pieces: strings, and the values between them."""
        return _fill_template(self.template, *self.parts)

    @property
    def code(self) -> str:
        """The pieces as text."""
        return text(self.pieces)

    @property
    def indent(self) -> str:
        """The whitespace at the start of the line."""
        return self.template[: len(self.template) - len(self.template.lstrip(" "))]

    @property
    def source(self) -> Source | None:
        """The user's source line."""
        return self.equation.source if self.equation else None


def types_text(values: Sequence[Value]) -> str:
    """Return the dtypes and shapes of values as text; many equal types are shown once, with their number."""
    types = [type_text(value) for value in values]
    return f"{len(types)} × {types[0]}" if len(types) > _FEW and len(set(types)) == 1 else ", ".join(types)


def lines(program: Program, indent: str = "") -> Iterator[Line]:
    """Yield the lines of a program; bodies are indented below the equation that runs them."""
    for equation in program.equations:
        match equation.primitive:
            case "optimization_barrier":
                yield Line(f"{indent}── barrier: {counted(len(equation.inputs), 'value')} ──")
            case "scan":
                yield from _scan_lines(equation, indent)
            case "while":
                yield from _while_lines(equation, indent)
            case "cond":
                yield from _cond_lines(equation, indent)
            case "shard_map":
                yield from _shard_map(equation, indent)
            case primitive if primitive in CASTS:
                pass  # what it returns has its operand's name
            case _:
                template, parts = _assignment_words(equation)
                yield Line(indent + template, parts, equation.outputs, equation, equation.role)


def code(equation: Equation) -> str:
    """Return an equation as an assignment."""
    template, parts = _assignment_words(equation)
    return text(_fill_template(template, *parts))


def text(pieces: Pieces) -> str:
    """Return the pieces as text, with the names of the values."""
    return "".join([piece.name if isinstance(piece, Value) else piece for piece in pieces])


# A text with `{}` for each of the parts, and the parts.
_Words = tuple[str, tuple[str | Value, ...]]


def _assignment_words(equation: Equation) -> _Words:
    template, parts = _expression_words(equation)
    targets = equation.outputs
    return (f"{listed(len(targets))} = {template}", (*targets, *parts)) if targets else (template, parts)


def _expression_words(equation: Equation) -> _Words:
    primitive, params, operands = equation.primitive, equation.params, equation.inputs
    if primitive in _INFIX and len(operands) == 2:
        left, right = ("({})" if isinstance(v, Literal) and v.name.startswith("-") else "{}" for v in operands)
        return f"{left} {_INFIX[primitive]} {right}", operands
    match primitive:
        case "neg":
            return "-{}", operands
        case "integer_pow":
            return f"{{}} ** {params['y']}", operands
        case "dot_general":
            return _dot_text(equation), operands
        case "name":
            return "checkpoint_name({}, {})", (*operands, repr(params["name"]))
        case "convert_element_type":
            return f"{type_text(equation.outputs[0]).partition('[')[0]}({{}})", operands
        case "transpose":
            if params["permutation"] == (1, 0):
                return "{}.T", operands
            return f"transpose({{}}, {_tuple_text(params['permutation'])})", operands
        case "select_n" if len(operands) == 3 and operands[0].dtype == bool:
            return "where({}, {}, {})", (operands[0], operands[2], operands[1])
        case "slice":
            steps = params["strides"] or (1,) * len(params["start_indices"])
            bounds = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
            slices = (f"{start}:{stop}" if step == 1 else f"{start}:{stop}:{step}" for start, stop, step in bounds)
            return f"{{}}[{', '.join(slices)}]", operands
        case "iota":
            return f"iota({_tuple_text(params['shape'])}, {params['dimension']})", ()
    shown: tuple[str, ...] = ()
    if collectives.collective_kind(primitive) is not None:
        axes = params.get("axes", params.get("axis_name"))
        shown = tuple(map(repr, axes if isinstance(axes, (tuple, list)) else (axes,)))
    elif (parameter := _PARAMETERS.get(primitive)) in params:
        shown = (_tuple_text(params[parameter]),)
    return f"{_SHORT.get(primitive, primitive)}({listed(len(operands) + len(shown))})", (*operands, *shown)


def _fill_template(template: str, *parts: str | Value) -> Pieces:
    """Return the template with each `{}` replaced by a part."""
    first, *others = template.split("{}")
    return (first, *(piece for pair in zip(parts, others, strict=True) for piece in pair))


def listed(count: int) -> str:
    """Return `{}, {}, {}` for a number of parts."""
    return ", ".join(["{}"] * count)


def _tuple_text(value: Any) -> str:  # a parameter of a primitive
    if not isinstance(value, (tuple, list)):
        return str(value)
    return f"({', '.join(map(str, value))}{',' * (len(value) == 1)})"


def _dot_text(equation: Equation) -> str:
    """Return a matmul as `{} @ {}`, with `.T` for transposed operands, or as an einsum if it has batch dimensions."""
    (left_dims, right_dims), (left_batch, _) = equation.params["dimension_numbers"]
    left, right = equation.inputs
    left_ndim, right_ndim = len(left.shape), len(right.shape)
    if not left_dims and not left_batch and left_ndim == right_ndim == 1:
        return "outer({}, {})"
    if not left_batch and len(left_dims) == 1 and left_ndim >= 1 and 1 <= right_ndim <= 2:
        # a @ b contracts a's last dimension with b's first.
        transposed = left_ndim == 2 and left_dims[0] == 0
        if not transposed and left_dims[0] != left_ndim - 1:
            return _einsum_text(equation)
        first = "{}.T" if transposed else "{}"
        second = "{}.T" if right_ndim == 2 and right_dims[0] == 1 else "{}"
        return f"{first} @ {second}"
    return _einsum_text(equation)


def _einsum_text(equation: Equation) -> str:
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


def _initial_lines(equation: Equation, indent: str) -> Iterator[Line]:
    """Yield the assignments of initial values to a loop's carries, except for values that have the carry's name."""
    pairs = zip(equation.outputs, equation.initial, strict=False)
    if renamed := [(carry, first) for carry, first in pairs if carry.name != first.name]:
        carries, firsts = zip(*renamed, strict=True)
        yield Line(f"{indent}{listed(len(carries))} = {listed(len(firsts))}", (*carries, *firsts))


def _scan_lines(equation: Equation, indent: str) -> Iterator[Line]:
    (body,) = equation.bodies
    carries = equation.carries
    index = equation.index
    steps = f"range({equation.length})"
    if equation.reverse:
        steps = f"reversed({steps})"
    yield from _initial_lines(equation, indent)
    yield Line(f"{indent}for {index} in {steps}:", equation=equation)
    inner = indent + "  "
    yield from lines(body, inner)
    for whole, part in zip(equation.outputs[carries:], body.outputs[carries:], strict=True):
        yield Line(f"{inner}{{}}[{index}] = {{}}", (whole, part), (whole,))
    yield from _carry_over(equation, body, inner)


def _carry_over(equation: Equation, body: Program, indent: str) -> Iterator[Line]:
    """Yield the end of an iteration: one assignment of all carries, so that carries can be swapped."""
    if carries := equation.outputs[: equation.carries]:
        names = listed(len(carries))
        yield Line(f"{indent}{names} = {names}", (*carries, *body.outputs[: len(carries)]), carries)


def _shard_map(equation: Equation, indent: str) -> Iterator[Line]:
    (body,) = equation.bodies
    axes = ", ".join(f"{name}={size}" for name, size in equation.params["axes"].items())
    yield Line(f"{indent}on each device of {{}}:", (axes,), equation=equation)
    inner = indent + "  "
    yield from lines(body, inner)
    for whole, part, spec in zip(equation.outputs, body.outputs, equation.params["out_specs"], strict=True):
        yield Line(f"{inner}{{}}{{}} = {{}}", (whole, index_text(spec), part), (whole,))


def _while_lines(equation: Equation, indent: str) -> Iterator[Line]:
    condition, body = equation.bodies
    yield from _initial_lines(equation, indent)
    yield Line(f"{indent}while True:", equation=equation)
    inner = indent + "  "
    yield from lines(condition, inner)
    yield Line(f"{inner}if not {{}}: break", condition.outputs[:1])
    yield from lines(body, inner)
    yield from _carry_over(equation, body, inner)


def _cond_lines(equation: Equation, indent: str) -> Iterator[Line]:
    targets = f"{listed(len(equation.outputs))} = " if equation.outputs else ""
    parts = (*equation.outputs, equation.inputs[0])
    yield Line(f"{indent}{targets}switch({{}}):", parts, equation.outputs, equation)
    for i, body in enumerate(equation.bodies):
        yield Line(f"{indent}  case {i}:")
        yield from lines(body, indent + "    ")
        if body.outputs:
            yield Line(f"{indent}    return {listed(len(body.outputs))}", body.outputs)
