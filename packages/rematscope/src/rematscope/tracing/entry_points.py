"""A decorator for rematscope's functions that analyze a call of the user's function."""

import contextvars
import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from rematscope.errors import TraceError
from rematscope.tracing.arguments import callable_name
from rematscope.tracing.static_values import (
    FunctionOfStatic,
    StaticRule,
    call_with_static,
    has_static,
    widest_rule,
    with_static,
)

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("_inside", default=False)


def with_own_options(entry: Callable[_Given, _Found], *, divides: bool = False) -> Callable[_Given, _Found]:
    """Decorate a function of rematscope that takes the user's function and its arguments.

    `entry` gets the arguments with a `Static` in place of each static value, and a function of these.

    If both functions have a parameter with the name of a keyword argument, the call raises an error, because it is
    ambiguous.

    Args:
      entry: a function that takes the user's function, or several in a mapping, and then its arguments. The parameters
        of `entry` are its options.
      divides: whether `entry` itself finds the static values among the arguments, and gets these as given.
    """
    own = inspect.signature(entry).parameters.keys() - {"args", "kwargs"} | {"differentiate"}  # an option of `trace`

    @functools.wraps(entry)
    def function(*given: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        __tracebackhide__ = True
        if _inside.get():  # called by another decorated function, which has already checked the names
            return entry(*given, **kwargs)
        functions = given[0].values() if given and isinstance(given[0], Mapping) else given[:1]
        for f in functions:
            _refuse_shared(f, given[1:], sorted(own & kwargs.keys()), entry.__name__)
        passed, named = (given, kwargs) if divides else _given_with_static(given, kwargs, own)
        token = _inside.set(True)
        try:
            return entry(*passed, **named)
        finally:
            _inside.reset(token)

    return function


def _given_with_static(given: Any, kwargs: Any, options: Collection[str]) -> tuple[Any, Any]:
    """Return the arguments of a decorated function with each static value of the user's arguments in a `Static`."""
    if not given:
        return given, kwargs
    f, *args = given
    theirs = {name: value for name, value in kwargs.items() if name not in options}
    if isinstance(f, Mapping):
        marked, named = with_static(args, theirs, widest_rule(StaticRule(each)(args, theirs) for each in f.values()))
        if has_static((marked, named)):
            f = {label: FunctionOfStatic(each) if callable(each) else each for label, each in f.items()}
    else:
        f, marked, named = call_with_static(f, args, theirs)
    return (f, *marked), {**kwargs, **named}


def _refuse_shared(f: Any, args: Sequence[Any], options: Sequence[str], entry: str) -> None:
    """Raise TraceError if a function has an unbound parameter with the name of an option."""
    bound = set[str]()
    inner = f
    while isinstance(inner, functools.partial):
        bound |= inner.keywords.keys()
        inner = inner.func
    try:
        parameters = inspect.signature(f).parameters
        bound |= inspect.signature(f).bind_partial(*args).arguments.keys()
    except (TypeError, ValueError):
        return
    for name in options:
        if name in parameters and name not in bound:
            raise TraceError(
                f"{name}= is an option of {entry}, and also a parameter of {callable_name(f)}. Bind the parameter "
                f"first: {entry}(functools.partial({callable_name(f)}, {name}=…), …). Then {name}= sets the option."
            )
