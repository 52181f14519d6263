"""A function as a jaxpr, which can be traced with other checkpoints and names."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import JaxprEqn, jaxpr_as_fun

from rematscope import jax_compat
from rematscope.ir.source import Source
from rematscope.memory.xla_estimate.unrolled import stays_a_loop
from rematscope.tracing.arguments import callable_name, flattened
from rematscope.tracing.checkpoints import jaxpr_of, loss_inside
from rematscope.tracing.trace import Trace, trace


class LintedFunction:
    """A function that can be traced as written or with changes; for a training step, the loss in it.

    Attributes:
      function: its name.
      jaxpr: the function on flat arguments.
      checkpoints: all its checkpoints, nested ones included.
      remat3: whether `jax_remat3` is set for the user, although the traces here use JAX's default rematerialization.
    """

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], remat3: bool = False):
        self.remat3 = remat3
        self.function = callable_name(f)
        self._f, self._args, self._kwargs = f, args, kwargs = loss_inside(f, args, kwargs)
        # Copies, so that each call of a body that is called twice has equations of its own.
        self.jaxpr = jax_compat.map_equations(jaxpr_of(f, *args, **kwargs), lambda eqn, _: [eqn.replace()])
        self.checkpoints = [
            Checkpoint(eqn, around)
            for eqn, around in jax_compat.walk_equations(self.jaxpr)
            if jax_compat.is_checkpoint(eqn)
        ]
        _, self._leaves = flattened(f, args, kwargs)

    @functools.cached_property
    def trace(self) -> Trace:
        """The trace of the function as written."""
        return trace(self._f, *self._args, **self._kwargs)

    def changed(self, change: Callable[[JaxprEqn, JaxprEqn], Sequence[JaxprEqn]]) -> Callable[..., Any]:
        """Return the function with equations replaced, as `jax_compat.map_equations` does."""
        run = jaxpr_as_fun(jax_compat.map_equations(self.jaxpr, change))

        def function(*leaves: Any) -> Any:
            return run(*leaves)

        function.__name__ = self.function
        return function

    def trace_of(self, function: Callable[..., Any]) -> Trace:
        """Return the trace of a function that `changed` returned."""
        return trace(function, *self._leaves)

    def with_checkpoints_changed(
        self, checkpoints: Collection["Checkpoint"], change: Callable[[JaxprEqn], JaxprEqn]
    ) -> Trace:
        """Return the trace in which `change` has replaced the equations of these checkpoints."""
        here = {id(checkpoint.eqn) for checkpoint in checkpoints}
        return self.trace_of(self.changed(lambda eqn, old: [change(eqn) if id(old) in here else eqn]))

    def without(self, checkpoints: Collection["Checkpoint"]) -> Trace:
        """Return the trace without these checkpoints, but with the operations in them."""
        return self.with_checkpoints_changed(checkpoints, jax_compat.eqn_without_checkpoint)


def saved_bytes(passes: Trace) -> int:
    """Return the bytes of computed residuals, on the device and on the host."""
    return passes.device_bytes_by_kind().get("computed", 0) + passes.host_bytes()


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, and the equations around it, outermost first."""

    eqn: JaxprEqn
    around: tuple[JaxprEqn, ...]

    @property
    def source(self) -> Source | None:
        """The line that calls `jax.checkpoint`, or the checkpointed function."""
        return source_of(self.eqn, self.around)

    @property
    def policy(self) -> Callable[..., Any] | None:
        return jax_compat.policy_of(self.eqn)

    @property
    def outer(self) -> "Checkpoint | None":
        """The innermost checkpoint around it."""
        places = [i for i, eqn in enumerate(self.around) if jax_compat.is_checkpoint(eqn)]
        return Checkpoint(self.around[places[-1]], self.around[: places[-1]]) if places else None

    @property
    def body(self) -> JaxprEqn | None:
        """The innermost loop or `cond` around it whose bodies are separate computations in the compiled program."""
        return next((eqn for eqn in reversed(self.around) if has_own_computations(eqn)), None)

    @property
    def runs_with_forward_pass(self) -> bool:
        """Whether the recompute is in the same computation of the compiled program as the first run.

        A loop or a `cond` becomes two in the compiled program: one for the forward and one for the backward pass.
        The recompute of an outer checkpoint is the first run of the checkpoints inside it, and is in the backward pass.
        """
        return not any(map(has_own_computations, self._around_up_to_outer))

    @property
    def unrolled_scan(self) -> JaxprEqn | None:
        """The innermost `scan` inside the outer checkpoint and around it."""
        scans = [eqn for eqn in self._around_up_to_outer if eqn.primitive.name == "scan"]
        return scans[-1] if scans else None

    @property
    def _around_up_to_outer(self) -> tuple[JaxprEqn, ...]:
        return self.around[len(self.outer.around) + 1 :] if self.outer else self.around

    @property
    def lines(self) -> tuple[Source | None, ...]:
        """Its own line, then the lines of the checkpoints around it: the same for repeated layers."""
        return (self.source, *(self.outer.lines if self.outer else ()))

    def equations(self) -> Iterator[JaxprEqn]:
        """Yield the equations inside it."""
        return jax_compat.equations_in(self.eqn)


def has_own_computations(eqn: JaxprEqn) -> bool:
    """Return whether the bodies of an equation are separate computations in the compiled program.

    JAX unrolls a `scan` whose `unroll` is at least its length. XLA unrolls a loop of one iteration, and inlines the
    chosen branch of a `cond` with a constant predicate.
    """
    match eqn.primitive.name:
        case "scan":
            return stays_a_loop(eqn.params["length"], eqn.params["unroll"])
        case "cond":
            return not jax_compat.is_literal(eqn.invars[0])
        case name:
            return name == "while"


def source_of(eqn: JaxprEqn, around: tuple[JaxprEqn, ...]) -> Source | None:
    """Return the user's line of an equation, or of the innermost equation around it that has one."""
    return Source.of(*(each.source_info for each in (eqn, *reversed(around))))


def on_line(source: Source | None) -> str:
    """Return `on model.py:7`. A checkpoint that the caller put around the whole function has no line."""
    return f"on {source.where}" if source else "around the whole function"


# With this switch, names in the forward rule of a custom_vjp have an effect with `jax_remat3` too.
RULE_SWITCH = "set jax.config.update('jax_custom_vjp3', True), an experimental switch of JAX 0.12.0.1"


def switch_text() -> str:
    """Return the end of advice to name values in a forward rule, for `jax_remat3`; empty if the switch is set."""
    return "" if getattr(jax.config, "jax_custom_vjp3", False) else f" and {RULE_SWITCH}"


def line_text(source: Source | None) -> str:
    """Return `model.py:7`."""
    return source.where if source else "an unknown line"
