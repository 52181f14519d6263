"""Decide conservatively whether an answer may be stateful, so that a call depends on earlier ones.

An answer is stateless if it reads no value that can change, and changes no value that outlives the call. This module
inspects the answer's bytecode and the values that the bytecode names, not the source text. Anything that is not known
to be harmless counts as state.
"""

import builtins
import dis
import functools
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

# `operator` is missing, because its functions change their arguments or look up attributes by name. `re` caches
# patterns, but the cache does not affect results.
_LIBRARIES = {"jax", "jaxlib", "numpy", "math", "functools", "itertools", "re"}
_WITH_STATE = ("numpy.ctypeslib", "numpy.f2py", "numpy.lib", "numpy.random", "numpy.testing")
# Prefixes of library functions that change state, such as settings or a function's name; and the library functions that
# read state: files, uninitialized memory, settings, the time.
_KEEPS = ("clear", "register", "set", "update", "wraps")
_FINDS = {
    *("DataSource", "fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap", "empty", "empty_like"),
    *("ndarray", "datetime64", "device_memory_profile", "live_arrays", "geterr", "getbufsize", "get_printoptions"),
}
_PLAIN = (
    *(bool, int, float, complex, str, bytes, range, np.generic, np.dtype, type(None), type(Ellipsis)),
    *(re.Pattern, re.Match),
)
_CONTAINERS = list | dict | set
# All built-in functions, except those that change their arguments or access values other than their arguments.
_BUILTINS = set(dir(builtins)) - {
    *("__build_class__", "__import__", "breakpoint", "compile", "delattr", "dir", "eval", "exec", "exit", "getattr"),
    *("globals", "help", "id", "input", "locals", "object", "open", "quit", "setattr", "super", "type", "vars"),
}
_STORES = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_", "LOAD_BUILD_CLASS", "LOAD_NAME")
_OF_CONTAINERS = {
    *("append", "appendleft", "extend", "insert", "remove", "sort", "reverse", "add", "discard", "clear", "pop"),
    *("popitem", "popleft", "setdefault", "update", "difference_update", "intersection_update"),
}
_JITTED = type(jax.jit(lambda: None))


def may_be_stateful(answer: Any) -> bool:
    """Return whether two calls of an answer with the same arguments may behave differently; False only if they
    cannot."""
    found = _Found()
    return not found.add(answer) or (found.containers and found.changes)


def may_have_rules(answer: Any) -> bool:
    """Return whether an answer may define its own derivative rules, for example with `jax.custom_vjp`. Its result could
    then depend on whether it is differentiated. Returns False only if the answer defines no rules."""
    found = _Found()
    return not found.add(answer) or found.rules


class _Found:
    """The values that a function consists of or refers to.

    Attributes:
      containers: whether any of these values is a mutable container.
      changes: whether any code in them changes containers in place, which may be the code's own containers.
      rules: whether any of them is, or may create, a function with derivative rules that no library defines.
    """

    def __init__(self) -> None:
        self.containers = self.changes = self.rules = False
        self._seen: dict[int, Any] = {}

    def add(self, value: Any) -> bool:
        """Inspect a value and its parts. Returns False if a part may change or is of an unknown kind."""
        todo = [value]
        while todo:
            value = todo.pop()
            if id(value) in self._seen or isinstance(value, _PLAIN):
                continue
            self._seen[id(value)] = value
            if (parts := self._object_parts(value)) is None:
                return False
            todo += parts
        return True

    def _object_parts(self, value: Any) -> Iterable[Any] | None:
        match value:
            case tuple() | frozenset():
                return value
            case list() | set():
                self.containers = True
                return value
            case dict():
                self.containers = True
                return [*value, *value.values()]
            case jax.core.Tracer():
                return None
            case jax.Array() | np.ufunc():
                return ()
            case functools.partial():
                return value.func, *value.args, *value.keywords.values()
            case _ if _is_of_library(value):
                self.rules |= _makes_rules(value)
                return None if _keeps_state(value) else ()
            case jax.custom_jvp() | jax.custom_vjp() | _JITTED():
                self.rules |= not isinstance(value, _JITTED)
                return _wrapped_functions(value)
            case types.FunctionType():
                return self._parts_of_function(value)
            case type():
                return _parts_of_class(value)
            case _ if (bound := _bound_functions(value)) is not None:
                return bound
            case _ if _is_plain_class(type(value)):
                self.rules |= _is_stateless(type(value).__module__)  # for example a primitive
                return type(value), *getattr(value, "__dict__", {}).values()
        # A sentinel object of a library.
        return () if _is_stateless(type(value).__module__) and not getattr(value, "__dict__", True) else None

    def _parts_of_function(self, function: types.FunctionType) -> list[Any] | None:
        kept = [cell.cell_contents for cell in function.__closure__ or ()]
        if _is_stateless(str(function.__globals__.get("__name__"))):  # for example the result of jax.checkpoint
            return [part for each in kept for part in (each if isinstance(each, _CONTAINERS) else [each])]
        if vars(function).keys() - {"__wrapped__"}:
            return None
        kept += [*vars(function).values(), *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for code in _nested_codes(function.__code__):
            looked_up = self._looked_up(code, function.__globals__)
            if looked_up is None:
                return None
            kept += looked_up
        return kept

    def _looked_up(self, code: types.CodeType, names: dict[str, Any]) -> list[Any] | None:
        """Return the values that code looks up by name, without library functions; None if the code may change anything
        other than a container."""
        found, steps = [], list(dis.get_instructions(code))
        for place, step in enumerate(steps):
            name = step.argval
            stores = step.opname.startswith(_STORES) or (step.opname == "STORE_DEREF" and name in code.co_freevars)
            if stores and not _is_of_a_new_object(code, steps[place - 1 : place + 1]):
                return None
            if step.opname == "LOAD_ATTR" and name.startswith(("_", "cache_")):
                return None
            self.changes |= step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE", "BINARY_OP_INPLACE")
            self.changes |= step.opname == "LOAD_ATTR" and name in _OF_CONTAINERS
            self.changes |= step.opname == "BINARY_OP" and step.argrepr.endswith("=")
            if step.opname != "LOAD_GLOBAL":
                continue
            if name in names:
                value, is_of_library = _at_end_of(names[name], steps[place + 1 :])
                if isinstance(value, types.ModuleType):
                    return None
                self.rules |= is_of_library and _makes_rules(value)
                found += [] if is_of_library else [value]
            elif name not in _BUILTINS:
                return None
        return found


def _is_plain_class(kind: type) -> bool:
    """Return whether a class and all its bases were created by plain class statements, without metaclasses or slots."""
    if type(kind) is not type or "__slots__" in vars(kind):
        return False
    # A plain class without bases defines both of these attributes; a class written in C does not.
    made = vars(kind).keys() >= {"__dict__", "__weakref__"} if kind.__bases__ == (object,) else True
    return made and all(base is object or _is_plain_class(base) for base in kind.__bases__)


_OF_EVERY_CLASS = {"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__"}


def _parts_of_class(kind: type) -> Iterable[Any] | None:
    if not _is_plain_class(kind):
        return None
    parts = {name: value for name, value in vars(kind).items() if name not in _OF_EVERY_CLASS}
    if "__dataclass_params__" in parts:  # the methods that `dataclass` generates
        parts = {name: value for name, value in parts.items() if name == "__call__" or not name.endswith("__")}
    return [*parts.values(), *(base for base in kind.__bases__ if base is not object)]


def _is_of_a_new_object(code: types.CodeType, steps: list[dis.Instruction]) -> bool:
    """Return whether the second of two instructions sets an attribute of a new object: `self.x = …` in `__init__`."""
    if code.co_name != "__init__" or [step.opname for step in steps[1:]] != ["STORE_ATTR"]:
        return False
    loaded = steps[0].argval if isinstance(steps[0].argval, tuple) else (steps[0].argval,)
    return steps[0].opname.startswith("LOAD_FAST") and loaded[-1] == code.co_varnames[0]


def _wrapped_functions(value: Any) -> tuple[Any, ...]:
    """Return the functions that the result of a JAX transformation contains."""
    match value:
        case jax.custom_jvp():
            return value.fun, value.jvp
        case jax.custom_vjp():
            return value.fun, value.fwd, value.bwd
    return (vars(value)["__wrapped__"],)


def _bound_functions(value: Any) -> Iterable[Any] | None:
    """Return the functions, and the object, of a method, a descriptor or a property; None for anything else."""
    match value:
        case types.MethodType():
            return value.__func__, value.__self__
        case staticmethod() | classmethod():
            return (value.__func__,)
        case property():
            return [each for each in (value.fget, value.fset, value.fdel) if each]
    return None


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code object, and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested_codes(constant)


def _at_end_of(value: Any, steps: Iterable[dis.Instruction]) -> tuple[Any, bool]:
    """Follow attribute lookups, such as from `jax` to `jax.numpy.sum`. Return the final value, and whether it is a
    stateless library function."""
    of_library = False
    for step in steps:
        is_library = isinstance(value, types.ModuleType) and _is_stateless(value.__name__)
        if step.opname != "LOAD_ATTR" or not (is_library or isinstance(value, types.SimpleNamespace)):
            break
        value = getattr(value, step.argval, None)
        of_library = callable(value) and not _keeps_state(value)
    return value, of_library


def _is_of_library(value: Any) -> bool:
    """Return whether a function or class is the object that a library exports under its name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not (isinstance(module, str) and isinstance(name, str) and _is_stateless(module.removeprefix("_"))):
        return False
    return getattr(sys.modules.get(module), name, None) is value


def _keeps_state(function: Any) -> bool:
    """Return whether a library function changes or reads state."""
    name = str(getattr(function, "__name__", ""))
    return name.startswith(_KEEPS) or name in _FINDS


def _makes_rules(function: Any) -> bool:
    """Return whether a library function takes derivative rules, such as `jax.custom_vjp` and `jax.custom_gradient`."""
    return str(getattr(function, "__name__", "")).startswith("custom_")


def _is_stateless(module: str) -> bool:
    return module.split(".")[0] in _LIBRARIES and not module.startswith(_WITH_STATE)
