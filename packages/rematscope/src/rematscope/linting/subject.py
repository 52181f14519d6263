"""A function as a jaxpr, to be traced with other checkpoints and names in it."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from jax.extend.core import JaxprEqn, jaxpr_as_fun

from rematscope import jax_compat
from rematscope.ir.source import Source
from rematscope.tracing.arguments import callable_name, flattened
from rematscope.tracing.checkpoints import jaxpr_of, loss_inside
from rematscope.tracing.trace import Trace, trace


class Subject:
    """A function that can be traced as it is, and otherwise; of a training step, the loss in it.

    Attributes:
      function: its name.
      jaxpr: the function on flat arguments.
      checkpoints: all that it has, those in other ones included.
    """

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]):
        self.function = callable_name(f)
        self._f, self._args, self._kwargs = f, args, kwargs = loss_inside(f, args, kwargs)
        # A body that is called twice has each equation twice, to be told apart.
        self.jaxpr = jax_compat.map_equations(jaxpr_of(f, *args, **kwargs), lambda eqn, _: [eqn.replace()])
        self.checkpoints = [
            Checkpoint(eqn, around) for eqn, around in walk_equations(self.jaxpr) if jax_compat.is_checkpoint(eqn)
        ]
        _, self._leaves = flattened(f, args, kwargs)

    @functools.cached_property
    def trace(self) -> Trace:
        """Its trace as it is."""
        return trace(self._f, *self._args, **self._kwargs)

    def changed(self, change: Callable[[JaxprEqn, JaxprEqn], Sequence[JaxprEqn]]) -> Callable[..., Any]:
        """The function with other equations, as `jax_compat.rewritten` makes them."""
        run = jaxpr_as_fun(jax_compat.map_equations(self.jaxpr, change))

        def function(*leaves: Any) -> Any:
            return run(*leaves)

        function.__name__ = self.function
        return function

    def trace_of(self, function: Callable[..., Any]) -> Trace:
        """The trace of what `changed` returned."""
        return trace(function, *self._leaves)

    def without(self, checkpoints: Collection["Checkpoint"]) -> Trace:
        """The trace without these checkpoints, but with what is in them."""
        gone = {id(checkpoint.eqn) for checkpoint in checkpoints}

        def change(eqn: JaxprEqn, old: JaxprEqn) -> list[JaxprEqn]:
            return [jax_compat.eqn_without_checkpoint(eqn) if id(old) in gone else eqn]

        return self.trace_of(self.changed(change))


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, and the equations that it stands in, outermost first."""

    eqn: JaxprEqn
    around: tuple[JaxprEqn, ...]

    @property
    def source(self) -> Source | None:
        """The line that calls `jax.checkpoint`, or what it made."""
        return source_of(self.eqn, self.around)

    @property
    def policy(self) -> Callable[..., Any] | None:
        """Its policy, or None."""
        return jax_compat.policy_of(self.eqn)

    @property
    def outer(self) -> "Checkpoint | None":
        """The nearest checkpoint that it stands in."""
        places = [i for i, eqn in enumerate(self.around) if jax_compat.is_checkpoint(eqn)]
        return Checkpoint(self.around[places[-1]], self.around[: places[-1]]) if places else None

    @property
    def in_a_loop(self) -> bool:
        """Whether it runs again and again, in a `scan` or a `while`."""
        return any(eqn.primitive.name in ("scan", "while") for eqn in self.around)

    @property
    def lines(self) -> tuple[Source | None, ...]:
        """Its own line, then those of the checkpoints that it stands in: alike for like layers."""
        return (self.source, *(self.outer.lines if self.outer else ()))

    def equations(self) -> Iterator[JaxprEqn]:
        """What is in it."""
        return (eqn for body in jax_compat.bodies(self.eqn) for eqn, _ in walk_equations(body))


def walk_equations(jaxpr: Any, around: tuple[JaxprEqn, ...] = ()) -> Iterator[tuple[JaxprEqn, tuple[JaxprEqn, ...]]]:
    """Every equation, bodies included, with the equations that it stands in."""
    for eqn in jax_compat.body_of(jaxpr)[0].eqns:
        yield eqn, around
        for body in jax_compat.bodies(eqn):
            yield from walk_equations(body, (*around, eqn))


def source_of(eqn: JaxprEqn, around: tuple[JaxprEqn, ...]) -> Source | None:
    """The user's line of an equation, or of the nearest around it that has one."""
    return Source.of(*(each.source_info for each in (eqn, *reversed(around))))


def on(source: Source | None) -> str:
    """`on model.py:7`. A checkpoint that the caller put around all has no line of its own."""
    return f"on {source.where}" if source else "around the whole function"


def where(source: Source | None) -> str:
    """`model.py:7`."""
    return source.where if source else "an unknown line"
