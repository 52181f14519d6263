"""The command line: show or report what a function saves and recomputes, without a notebook.

python -m rematscope model:loss --args "{'w': f32[64,8]}" "bf16[16,64]"
python -m rematscope train.py:loss --args train.py:example_arguments --json
python -m rematscope train.py:step --args train.py:example_arguments --device h100
python -m rematscope report train.py:step --args train.py:example_arguments --memory "16 GiB" --save report.html
"""

import argparse
import ast
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

import rematscope
from rematscope.errors import PlanError, TargetError, TraceError, describe_error
from rematscope.ir.cost import Cost
from rematscope.ir.program import DTYPE_LETTERS
from rematscope.memory.liveness import live_bytes
from rematscope.render.parts import Stack
from rematscope.render.view import View, show
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import estimate_time
from rematscope.tracing.trace import Trace, trace
from rematscope.views.residual_table import ResidualTable
from rematscope.views.side_by_side import SideBySide

_KINDS = {letters: kind for kind, letters in DTYPE_LETTERS.items()}

_EPILOG = """\
An ARGUMENT is an array type as JAX prints it, such as f32[8,64], bf16[4] or
i32[] (key is a PRNG key); a number; a list, tuple or dict of these; or
MODULE:NAME, the name of a value in a module. If the value is a function, it is
called without arguments and its result is used. Each element of a tuple is one
argument if a function returned the tuple, or if no other ARGUMENT is given.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
      The exit status: 0; 1 if the function cannot be traced; 2 if an argument of the command is not valid. If it is not
      0, a message on stderr gives the reason.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    return _run_report(given[1:]) if given[:1] == ["report"] else _run_show(given)


def _run_report(arguments: Sequence[str]) -> int:
    """Print the report on a training step."""
    description = "Report whether a training step fits in memory, what fills it, and what to change."
    parser = _make_parser("python -m rematscope report", description, "train:step or train.py:step")
    parser.add_argument("--memory", metavar="SIZE", help='the memory capacity, such as "16 GiB"')
    parser.add_argument(
        "--device", metavar="NAME", help='use the memory capacity of this device, such as "tpu v5e" or "h100"'
    )
    asked = _parse_command(parser, arguments)
    return _run_command(
        asked, lambda f, args: (rematscope.report(f, *args, device=asked.device, memory=asked.memory), None)
    )


def _make_parser(prog: str, description: str, example: str) -> argparse.ArgumentParser:
    """Return a parser for the arguments that all commands share."""
    parser = argparse.ArgumentParser(
        prog=prog, description=description, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("function", metavar="MODULE:FUNCTION", help=f"the function, such as {example}")
    parser.add_argument(
        "--args", nargs="*", default=[], metavar="ARGUMENT", help="the arguments of the function; see below"
    )
    parser.add_argument("--save", metavar="FILE", type=Path, help="also save an HTML page that opens in any browser")
    return parser


def _parse_command(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    asked, others = parser.parse_known_args(arguments)
    if others and not any(each.startswith("-") for each in others):
        parser.error(f"write the arguments of the function after --args: --args {shlex.join(others)}")
    return asked if not others else parser.parse_args(arguments)


def _run_show(arguments: Sequence[str]) -> int:
    """Print both programs and the residuals of a function."""
    description = (
        "Show what a JAX function saves for its backward pass, and what the backward pass\n"
        "recomputes. The function is traced, not run. For a report on the memory of a\n"
        "training step, see python -m rematscope report --help."
    )
    parser = _make_parser("python -m rematscope", description, "model:loss, package.model:loss or model.py:loss")
    parser.add_argument(
        "--version", action="version", version=f"rematscope {rematscope.__version__}, JAX {jax.__version__}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables, with sizes in bytes")
    parser.add_argument(
        "--device", metavar="NAME", help='also show the estimated time of each line on this device, such as "tpu v5e"'
    )
    if len(arguments) > 1 and ":" not in arguments[0] and ":" in arguments[1] and not arguments[0].startswith("-"):
        parser.error(
            f"there is no command {arguments[0]!r}. The only command is report: python -m rematscope report "
            f"{arguments[1]}. Without a command, python -m rematscope {arguments[1]} shows both programs. Call other "
            "functions, such as rematscope.lint, in Python."
        )
    asked = _parse_command(parser, arguments)

    def view_of(function: Callable[..., Any], given: Sequence[Any]) -> tuple[View, dict[str, Any] | None]:
        device = None if asked.device is None else device_called(asked.device)
        passes = trace(function, *given)
        view = Stack(SideBySide(passes, device=device), ResidualTable(passes, device))
        return view, as_data(passes, device) if asked.json else None

    return _run_command(asked, view_of)


def _run_command(
    asked: argparse.Namespace,
    view_of: Callable[[Callable[..., Any], Sequence[Any]], tuple[View, dict[str, Any] | None]],
) -> int:
    """Print what a command shows of a function, and return the exit status."""
    try:
        function = _load_object(asked.function)
        if not callable(function):
            raise _Unknown(f"{asked.function} is not a function, but of type {type(function).__name__}.")
        is_only = len(asked.args) == 1
        view, data = view_of(function, [each for text in asked.args for each in _parse_arguments(text, is_only)])
    except (_Unknown, TargetError, PlanError) as error:
        print(error, file=sys.stderr)
        return 2
    except TraceError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # any error of the user's function
        print(f"{asked.function} cannot be traced with these arguments: {describe_error(error)}", file=sys.stderr)
        return 1
    if asked.save:
        try:
            view.save(asked.save)
        except OSError as error:
            print(f"{asked.save} cannot be written: {error.strerror}.", file=sys.stderr)
            return 2
    if data is None:
        show(view)
    else:
        print(json.dumps(data, indent=1))
    return 0


def as_data(passes: Trace, device: Device | None = None) -> dict[str, Any]:
    """Return the contents of the views as JSON data: sizes in bytes, costs as numbers, and times in seconds."""
    found = {
        "function": passes.function,
        "mesh": dict(passes.axes),
        "saved_bytes": passes.saved_device_bytes(),
        "bytes_by_kind": passes.device_bytes_by_kind(),
        "host_bytes": passes.host_bytes(),
        "residuals": [dataclasses.asdict(row) for row in ResidualTable(passes, device).rows],
        "recomputed": _cost_fields(passes.recompute_cost),
        "deferred": _cost_fields(passes.deferred_cost),
        "peak_bytes": live_bytes(passes).peak_bytes,
        "not_looked_into": list(passes.opaque_primitives),
    }
    if device is not None:
        seconds = estimate_time(passes, device)
        shares = {"step": seconds.step, "share": seconds.recompute_fraction, "uncounted": sorted(seconds.uncounted)}
        found["seconds"] = dataclasses.asdict(seconds) | shares
    return found


def _cost_fields(cost: Cost) -> dict[str, Any]:
    return dataclasses.asdict(cost) | {"uncounted": sorted(cost.uncounted)}


class _Unknown(Exception):
    """An argument of the command is not valid. The message says which one, and what to write instead."""


def _load_object(text: str) -> Any:
    """Return the value of a MODULE:NAME."""
    where, colon, name = text.rpartition(":")
    if not (where and colon and name):
        raise _Unknown(f"{text!r} is not MODULE:NAME. Write it like model:loss or model.py:loss.")
    try:
        found = _import_module(where)
    except (ImportError, FileNotFoundError) as error:
        raise _Unknown(
            f"{where} cannot be imported: {error}. Run the command in the folder that contains it."
        ) from error
    except Exception as error:
        raise _Unknown(f"{where} cannot be imported: {describe_error(error)}") from error
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        near = difflib.get_close_matches(part, [each for each in dir(found) if not each.startswith("_")], 1)
        meant = f" Did you mean {near[0]}?" if near else ""
        cause = f": {error}" if "." in name else ""
        raise _Unknown(f"there is no {name} in {where}{cause}.{meant}") from error
    return found


def _import_module(where: str) -> Any:
    if not where.endswith(".py"):
        return importlib.import_module(where)
    path = Path(where)
    if str(path.parent.resolve()) not in sys.path:  # a file may import other files in its folder
        sys.path.insert(0, str(path.parent.resolve()))
    if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) == str(path.resolve()):
        return sys.modules[path.stem]
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError("there is no such file")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parse_arguments(text: str, is_only: bool) -> Sequence[Any]:
    """Return the arguments that an ARGUMENT of the command stands for: one, or the elements of a tuple.

    A tuple that has a name, such as the state of an optimizer, is one argument if there are others.
    """
    if re.fullmatch(r"[\w./\\-]+:[\w.]+", text):
        found = _load_object(text)
        if _is_function(found):
            is_only = True
            try:
                found = found()
            except Exception as error:
                raise _Unknown(f"{text} cannot be called without arguments: {describe_error(error)}") from error
        return found if is_only and type(found) is tuple else [found]
    try:
        return [_parse_value(ast.parse(re.sub(r"(\w)\[\]", r"\1[()]", text), mode="eval").body)]  # the type of a scalar
    except (SyntaxError, ValueError, TypeError) as error:
        why = error.msg if isinstance(error, SyntaxError) else error
        raise _Unknown(
            f"{text!r} is not an argument: {why}. Write a type such as f32[8,64], or MODULE:NAME."
        ) from error


def _is_function(value: Any) -> bool:
    """Return whether a value is a function or a class, and not a model, which libraries make callable too."""
    return (
        inspect.isroutine(value)
        or inspect.isclass(value)
        or isinstance(value, functools.partial)
        or hasattr(value, "__wrapped__")  # what `jax.jit` and other decorators return
    )


def _parse_value(node: ast.expr) -> Any:
    match node:
        case ast.Name("key"):
            return jax.eval_shape(jax.random.key, 0)
        case ast.Name(dtype):
            return jax.ShapeDtypeStruct((), _parse_dtype(dtype))
        case ast.Subscript(ast.Name(dtype), ast.Tuple(dims)):
            return jax.ShapeDtypeStruct(tuple(map(_parse_size, dims)), _parse_dtype(dtype))
        case ast.Subscript(ast.Name(dtype), dim):
            return jax.ShapeDtypeStruct((_parse_size(dim),), _parse_dtype(dtype))
        case ast.Dict(keys, values):
            return {
                _parse_literal(key or ast.Constant(None)): _parse_value(v) for key, v in zip(keys, values, strict=True)
            }
        case ast.List(values):
            return list(map(_parse_value, values))
        case ast.Tuple(values):
            return tuple(map(_parse_value, values))
    return _parse_literal(node)


def _parse_size(node: ast.expr) -> int:
    match node:
        case ast.Constant(int(size)) if not isinstance(size, bool):
            return size
    raise ValueError(f"{ast.unparse(node)} is not a size. A size is an integer, 0 or more")


def _parse_literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):  # their messages contain memory addresses
        raise ValueError(f"{ast.unparse(node)} is not a number, a string or an array type") from None


def _parse_dtype(short: str) -> Any:
    found = re.fullmatch(r"(bf|[fiuc])(\d+)", short)
    try:
        return jax.numpy.dtype(_KINDS[found[1]] + found[2] if found else short)
    except TypeError as error:
        raise ValueError(f"there is no dtype {short}") from error


if __name__ == "__main__":
    sys.exit(main())
