"""The numbers and words that an answer is written with.

Whoever writes a special case into an answer writes down what it is for: that number is the question to ask. (As fuzzers
take the constants of a program for their dictionary.) They are read from the functions themselves, so that a notebook,
a terminal and a class find the same.
"""

import collections
import dis
import functools
import math
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

_MOST = 1_000  # values that are looked at
_LIBRARIES = tuple({*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[1])})


def written_in(answer: Any) -> frozenset[int | str]:
    """The whole numbers and words in an answer's functions, and in what these name. Of a fraction both neighbours, if
    the answer compares anything: otherwise it is a factor, of which no size is. No exponents, which are no sizes."""
    parts, found = list(_parts(answer)), set[int | str]()
    compares = any(isinstance(part, types.CodeType) and _compares(part) for part in parts)
    for value in parts:
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9:
            found |= {math.floor(value), math.ceil(value)} if compares or value == int(value) else set()
    return frozenset(found)


def _compares(code: types.CodeType) -> bool:
    return any(step.opname == "COMPARE_OP" for step in dis.get_instructions(code))


def codes_of(answer: Any) -> list[types.CodeType]:
    """The code of an answer's functions, and of those that these name."""
    return [value for value in _parts(answer) if isinstance(value, types.CodeType)]


def may_have_rules(answer: Any) -> bool:
    """Whether a rule of an answer's own may say what its derivatives are: then its value may be another thing where
    nobody differentiates it."""
    return any(
        "custom_" in part if isinstance(part, str) else isinstance(part, jax.custom_jvp | jax.custom_vjp)
        for part in _parts(answer)
    )


def chooses(codes: Iterable[types.CodeType], by_branches: bool = False) -> bool:
    """Whether code has something to choose by where it has no branch: an element that is looked up, a remainder,
    arithmetic with what a comparison says; or, if that is asked for too, a branch."""
    return any(_chooses(code, by_branches) for code in codes)


def _chooses(code: types.CodeType, by_branches: bool) -> bool:
    says = computes = False
    before, steps = "", [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for step, following in zip(steps, [*steps[1:], steps[-1]], strict=True):
        match step.opname:
            # Where several ways meet, what came before in the text is one of several keys.
            case "BINARY_SUBSCR" if before not in _OF_AN_ARRAY or step.is_jump_target:
                return True
            case "BINARY_OP" if step.argrepr.rstrip("=") in ("%", "^", ">>", "<<"):
                return True
            case "LOAD_ATTR" | "LOAD_GLOBAL" if step.argval in _LOOK_UP:
                return True
            case opname if by_branches and opname.startswith("POP_JUMP"):
                return True
        computes |= step.opname == "BINARY_OP" and step.argrepr.rstrip("=") in ("*", "+", "-")
        compares = step.opname in ("COMPARE_OP", "CONTAINS_OP", "IS_OP")
        says |= compares and not following.opname.startswith(("POP_JUMP", "TO_BOOL"))  # else it is a branch
        before = step.opname
    return says and computes


_OF_AN_ARRAY = "LOAD_CONST", "LOAD_SMALL_INT", "BUILD_TUPLE", "BUILD_SLICE"  # or a shape's entry
_LOOK_UP = {"get", "pop", "getattr", "next", "divmod", "mod", "remainder", "islice"}


def _parts(answer: Any) -> Iterator[Any]:
    """Whatever an answer is made of: constants, names, code; libraries' own left out."""
    todo, seen = [answer], dict[int, Any]()
    while todo and len(seen) < _MOST:
        value = todo.pop()
        if isinstance(value, bool | int | float | str):
            yield value
        elif id(value) not in seen:
            seen[id(value)] = value
            yield value
            todo += _inside(value)


def _inside(value: Any) -> Iterable[Any]:
    match value:
        case list() | tuple() | set() | frozenset() | collections.deque():
            return value
        case Mapping():
            return [*value, *value.values()]
        case range():
            return value.start, value.stop
        case types.FunctionType():
            return _of_function(value)
        case types.CodeType():
            return _constants(value)
        case types.MethodType():
            return value.__func__, value.__self__
        case functools.partial():
            return value.func, value.args, value.keywords
        case types.ModuleType():
            return ()
        case type():
            return () if _is_of_library(value) else (*vars(value).values(), *value.__bases__)
    if _is_of_library(type(value)):  # jax.jit, jax.custom_vjp, property, staticmethod and such have functions
        held = (getattr(value, name, None) for name in _FUNCTIONS)
        return [each for each in held if callable(each)]
    return type(value), getattr(value, "__dict__", None)


_FUNCTIONS = "__wrapped__", "fun", "fwd", "bwd", "jvp", "fget", "__func__", "func", "method", "pyfunc"


def _is_of_library(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ in sys.builtin_module_names or (file or "").startswith(_LIBRARIES)


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty as yet
            continue
    yield getattr(function, "__wrapped__", None)
    if function.__code__.co_filename.startswith(_LIBRARIES):
        return
    yield function.__code__
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    todo = [function.__code__]
    while todo:
        code = todo.pop()
        todo += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for name in code.co_names:
            yield name
            yield function.__globals__.get(name)


def _constants(code: types.CodeType) -> Iterator[Any]:
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if step.opname not in ("LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST"):
            continue
        power = following and following.opname == "BINARY_OP" and following.argrepr.startswith("**")
        if not power and not (following and following.argval == "__firstlineno__"):
            yield step.argval
