"""`auto(f, *args, peak=…)`: a function that computes and differentiates as `f` does, within a limit of memory.

What to keep is chosen among all values by a 0/1 program whose rows are what is there at each step; then it is compiled,
for a compiler fuses and orders as it likes. Where the compiled peak is not what was predicted, the limit in the rows is
set anew by the line through what was compiled; what took hardly too much keeps a little less. Where nothing in them
fits, or others compute less again, others are compiled too: JAX's policies, the author's checkpoints, what crosses the
narrow places of a net, and last of all plain checkpoints between these. The best of all that was compiled is returned.
"""

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax

from rematscope.errors import PlanError
from rematscope.ir.cost import program_cost
from rematscope.ir.program import Value, nbytes
from rematscope.memory.set_aside import temporary_bytes
from rematscope.planning.budget import budget_bytes
from rematscope.render.progress import progress
from rematscope.render.units import bytes_text
from rematscope.scheduling.cuts import in_stretches, kept_at_cuts, stretches
from rematscope.scheduling.linearize import Linearized, linearize
from rematscope.scheduling.result import Auto, Proposal
from rematscope.scheduling.rows import Rows
from rematscope.scheduling.schedule import Schedule, schedule
from rematscope.scheduling.scheduled import keeping
from rematscope.scheduling.structure import digest, places, values_at
from rematscope.tracing.checkpoints import checkpoints, jaxpr_of, without_checkpoints
from rematscope.tracing.trace import trace
from rematscope.xla.measure import Measurement, measure

COMPILES = 4
_ENOUGH = 0.97  # of the room used: what lies nearer is not looked for
_FIRST_RATIO = 1.1  # of compiled to predicted temporaries, as long as nothing is compiled
_NEARER = 3  # times that the rows are solved for one aim, since they foretell a little less than is written
_REMEMBERED = 31  # results of each function
_TRIMMED = 0.01  # of the room: what takes no more than that too much is trimmed
_CUTS = 3  # ways to divide a net that are looked at
_SOLVED = 2  # of them, with a 0/1 program of what is kept besides
_POLICIES = (jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.dots_with_no_batch_dims_saveable)


def auto(
    f: Callable[..., Any],
    *args: Any,
    peak: int | str | None = None,
    budget: int | str | None = None,
    target: str = "cpu",
    compiles: int = COMPILES,
    **kwargs: Any,
) -> Auto:
    """Chooses what `f`'s backward pass keeps, among all values, and when it computes the rest again.

    Nothing has to be named. Checkpoints that `f` has are proposals: `f` as it is, and what they keep with another
    schedule, are among the choices, beside what JAX's policies for products keep and a checkpoint around each layer.

    Args:
      f: a function that is differentiable in reverse mode. It is compiled, and not run.
      *args, **kwargs: its arguments, as for `trace`.
      peak: bytes that both passes may take once they are compiled: arguments, outputs, gradients and temporaries, as
        `measure(f, …).peak_bytes` counts them. A whole number, or a text like `"8 GiB"`.
      budget: in its place, bytes that may be kept from the forward for the backward pass, as for `plan`.
      target: what to compile for, as for `measure`.
      compiles: how often to compile, at most.

    Returns:
      The best of what was compiled. Its `.function` takes arguments of the same shapes, and is differentiated in
      reverse mode as was chosen; in other ways it is `f`.

    Raises:
      PlanError: if the limit cannot be read or kept, with the smallest peak that was reached; or if nothing may be
        compiled.
      TraceError, TargetError: as `measure` does.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import auto
      >>> def net(ws, x):
      ...     for w in ws:
      ...         x = jnp.sin(x @ w)
      ...     return x.sum()
      >>> args = [jnp.ones((8, 8))] * 8, jnp.ones((256, 8))
      >>> found = auto(net, *args, peak="90 KiB")
      >>> found.measurement.peak_bytes <= found.limit
      True
      >>> gradients = jax.grad(found.function)(*args)
    """
    __tracebackhide__ = True
    if (peak is None) == (budget is None):
        raise PlanError("give auto either peak=, what both passes may take, or budget=, what may be kept between them.")
    if compiles < 1:
        raise PlanError(f"compiles={compiles} is too few: auto compiles what it returns. Give 1 or more.")
    limit = budget_bytes(peak if peak is not None else budget or 0)
    search = _Search(f, args, kwargs, target, compiles)
    with progress() as tell:
        search.tell = tell
        trial, bound = search.within_peak(limit) if peak is not None else search.within_budget(limit)
    return Auto(search.linearized, trial, search.trials, limit, peak is not None, target, bound)


@dataclasses.dataclass(frozen=True)
class _Known:
    """What was found for a limit: the places of what is kept, and what was compiled; see `Proposal` for the rest."""

    limit: int
    of_own: bool
    stretches: tuple[int, ...] | None
    places: tuple[int, ...]
    measurement: Measurement
    bound: float


_KNOWN: dict[tuple[str, ...], tuple[_Known, ...]] = {}


class _Search:
    """What was compiled of a function, and what is to be tried next."""

    def __init__(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], target: str, compiles: int
    ):
        self.f, self.args, self.kwargs = f, args, kwargs
        self.target = target
        self.compiles = compiles
        self.trials: list[Proposal] = []
        self.tell: Callable[[str, float], None] = lambda text, done: None
        self.linearized = linearize(trace(without_checkpoints(f), *args, **kwargs))
        has_own = any(checkpoints(jaxpr_of(f, *args, **kwargs)))
        self.own = linearize(trace(f, *args, **kwargs)) if has_own else None
        self.key = digest(self.linearized), digest(self.own) if self.own else "", target
        self.cuts = [*itertools.islice(kept_at_cuts(self.linearized), _CUTS)]
        # What crosses narrow places is kept in any case: each stretch between is a small problem then, solved well.
        self.rows = [Rows(self.linearized, kept) for kept in self.cuts[:_SOLVED]] or [Rows(self.linearized)]
        plain = self.linearized.passes.cost
        self._least = plain.flops + plain.transcendentals  # what runs at all events
        self.fixed = _fixed(self.linearized)

    def within_peak(self, limit: int) -> tuple[Proposal, float]:
        """The best trial whose compiled peak is within a limit; and what every choice costs at least in the rows."""
        room = limit - self.fixed
        if room < 0:
            raise PlanError(
                f"{self.name} takes {bytes_text(self.fixed)} for its arguments, outputs and gradients alone, "
                f"{bytes_text(-room)} more than {bytes_text(limit)}. {self._smallest_sentence(None)}"
            )
        # What an earlier call with a higher limit found is the best here too if it fits: so peaks never rise.
        for known in _KNOWN.get(self.key, ()):
            if known.limit >= limit >= known.measurement.peak_bytes:
                return self._known(known), known.bound
        bound = self._look(limit)
        within = [t for t in self.trials if t.peak_bytes <= limit]
        if not within:
            raise PlanError(
                f"no choice for {self.name} that was compiled for {self.target} takes {bytes_text(limit)} or less. "
                f"{self._smallest_sentence(min(t.peak_bytes for t in self.trials))}"
            )
        best = min(within, key=lambda t: (t.recomputed, t.peak_bytes))
        if best.measurement is not None:
            chosen = tuple(places(best.linearized, best.kept))
            found = _Known(limit, best.linearized is self.own, best.stretches, chosen, best.measurement, bound)
            _KNOWN[self.key] = (*_KNOWN.get(self.key, ())[-_REMEMBERED:], found)
        return best, bound

    def _look(self, limit: int) -> float:
        """Compiles choices until one fits and uses most of the limit; returns the bound of the rows for the last."""
        everything, *proposals = self._proposals()
        if everything.predicted <= limit - self.fixed and self._compile(everything).peak_bytes <= limit:
            return 0.0
        bound = 0.0
        while len(self.trials) < self.compiles:
            found = self._next(limit, proposals)
            if found is None or any(t.is_like(found[0]) for t in self.trials):
                break
            taken = self._compile(found[0]).peak_bytes
            if taken <= limit:
                bound = found[1]
            if _ENOUGH * (limit - self.fixed) <= taken - self.fixed <= limit - self.fixed:
                break
        self._compile_better(proposals, limit)
        return bound

    def _next(self, limit: int, proposals: list[Proposal]) -> tuple[Proposal, float] | None:
        """What to compile next, with the bound of the rows; None if there is nothing better in them."""
        room = limit - self.fixed
        left = self.compiles - len(self.trials)
        within = [t for t in self.trials if t.peak_bytes <= limit]
        above = [t for t in self.trials if t.peak_bytes > limit]
        least = min((t.recomputed for t in within), default=math.inf)
        closest = min(above, key=lambda trial: trial.peak_bytes, default=None)
        if closest is not None and closest.stretches is None and (within or left > 1):
            over = closest.peak_bytes - limit
            for more in (2, 16) if over < _TRIMMED * room else ():
                trimmed = self._trimmed(closest, more * over)
                if trimmed.recomputed < least and not any(t.is_like(trimmed) for t in self.trials):
                    return trimmed, 0.0
        if above and not within and left <= 2:
            return self._smallest(proposals) if left > 1 else self._plain, 0.0
        ratio = _FIRST_RATIO
        for trial in self.trials:
            taken = trial.peak_bytes - self.fixed
            ratio = 1.5 * ratio if math.isinf(taken) else max(taken, 1) / max(trial.predicted, 1)
        aim = room / ratio
        if above:
            under, over = max((t.predicted for t in within), default=0), min(t.predicted for t in above)
            if under >= over:
                return None
            aim = (under + over) / 2 if within else min(aim, 0.98 * over)
        found = self._chosen(aim)
        if within:
            return found if found is not None and found[0].recomputed < least else None
        return found or (self._smallest(proposals), 0.0)

    def _compile_better(self, proposals: list[Proposal], limit: int) -> None:
        """Compiles what others would keep, with what is left to compile, where it may be better than all so far."""
        sizes = [(t.peak_bytes - self.fixed) / max(t.predicted, 1) for t in self.trials]
        for trial in (*proposals, self._plain) if len(self.trials) < self.compiles else ():
            least = min((t.recomputed for t in self.trials if t.peak_bytes <= limit), default=math.inf)
            new = not any(t.is_like(trial) for t in self.trials)
            may_fit = trial.predicted * min(sizes, default=1) <= limit - self.fixed
            if len(self.trials) < self.compiles and new and may_fit and trial.recomputed < least:
                self._compile(trial)

    def _chosen(self, aim: float) -> tuple[Proposal, float] | None:
        """What is best in the rows and is predicted to take no more than so much."""
        self.tell("choosing", 0)
        found = []
        for rows in self.rows:
            limit = aim
            for _ in range(_NEARER):
                if (solved := rows.cheapest(peak=limit)) is None:
                    break
                found.append((self._trial(self.linearized, solved[0]), solved[1]))
                if found[-1][0].predicted <= aim:
                    break
                limit *= min(0.98, aim / found[-1][0].predicted)
        return min(found, key=lambda one: (max(one[0].predicted - aim, 0), one[0].recomputed), default=None)

    def within_budget(self, limit: int) -> tuple[Proposal, float]:
        """The best trial that keeps no more than so many bytes."""
        found = Rows(self.linearized).cheapest(kept=limit)
        if found is None:
            raise PlanError(
                f"a budget of {bytes_text(limit)} is too small: what each iteration of a loop of {self.name} is handed "
                "has to be kept. Give more."
            )
        trial = self._trial(self.linearized, found[0])
        return self._compile(trial), found[1]

    @property
    def name(self) -> str:
        """What people call the function."""
        return self.linearized.passes.function

    def _proposals(self) -> list[Proposal]:
        """Choices that others make, those first that compute least again: the first keeps all that JAX does."""
        everything = self._trial(self.linearized, self.linearized.kept)
        made = [self._trial(self.linearized, self.linearized.saved_by(policy)) for policy in _POLICIES]
        made += [self._trial(self.linearized, kept) for kept in self.cuts]
        if self.own is not None:
            made += [self._trial(self.own, self.own.kept), self._plain]
        return [everything, *sorted(made, key=lambda trial: trial.recomputed)]

    def _smallest(self, proposals: list[Proposal]) -> Proposal:
        """What is predicted to take least, of the rows and of proposals."""
        fresh = [t for t in (self._least_of_rows, *proposals) if not any(t.is_like(other) for other in self.trials)]
        return min(fresh or [self._least_of_rows], key=lambda trial: trial.predicted)

    @cached_property
    def _plain(self) -> Proposal:
        """The author's checkpoints, or one around each layer, as JAX makes them."""
        if self.own is not None:
            return self._trial(self.own, self.own.kept, ())
        return self._in_stretches(stretches(self.f, *self.args, **self.kwargs))

    def _in_stretches(self, cuts: tuple[int, ...]) -> Proposal:
        linearized = linearize(trace(in_stretches(self.f, cuts), *self.args, **self.kwargs))
        return self._trial(linearized, linearized.kept, cuts)

    @cached_property
    def _least_of_rows(self) -> Proposal:
        return self._trial(self.linearized, self.rows[0].smallest())

    def _known(self, known: "_Known") -> Proposal:
        """What an earlier call compiled."""
        if known.stretches:
            trial = self._in_stretches(known.stretches)
        else:
            linearized = self.own if known.of_own and self.own is not None else self.linearized
            trial = self._trial(linearized, values_at(linearized, known.places), known.stretches)
        trial.measurement = known.measurement
        self.trials.append(trial)
        return trial

    def _trimmed(self, trial: Proposal, most: float) -> Proposal:
        """A choice without the smallest of what it keeps, so many bytes of it at least."""
        dropped, rest = 0.0, sorted(trial.schedule.kept, key=lambda value: -value.nbytes)
        while rest and dropped < most:
            dropped += rest.pop().nbytes
        return self._trial(trial.linearized, frozenset(rest))

    def _trial(
        self, linearized: Linearized, kept: frozenset[Value], stretches: tuple[int, ...] | None = None
    ) -> Proposal:
        made = schedule(linearized, kept)
        function = keeping(self.f, linearized, kept) if stretches is None else _checkpointed(self.f, stretches)
        recomputed = max(0, _work(made) - self._least)
        returned = [*linearized.primal.outputs, *made.backward.outputs]
        predicted = temporary_bytes([made.forward, made.backward], returned, self.target)
        return Proposal(function, linearized, kept, made, predicted, recomputed, stretches)

    def _compile(self, trial: Proposal) -> Proposal:
        self.tell(f"compiling with {bytes_text(trial.schedule.kept_bytes)} kept", 0)
        made = trial.measurement = measure(trial.function, *self.args, target=self.target, **self.kwargs)
        if not made.out_of_memory:
            self.fixed = int(trial.peak_bytes) - made.temp_bytes
        self.trials.append(trial)
        return trial

    def _smallest_sentence(self, least: float | None) -> str:
        if least is None:
            return f"About {bytes_text(self.fixed + self._least_of_rows.predicted)} would do."
        return (
            f"The smallest that was found takes {bytes_text(least)}: give that much, make the batch smaller, or allow "
            f"more than compiles={self.compiles}."
        )


def load(path: str | os.PathLike[str], f: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The function that `auto` chose once, from a file that its result's `.save("choice.json")` wrote.

    Nothing is searched, solved or compiled: `f` is traced once.

    Args:
      path: the file.
      f: a function of the same structure: the same operations on the same shapes.
      *args, **kwargs: its arguments, as for `trace`.

    Returns:
      What `auto(f, …).function` is.

    Raises:
      PlanError: if the file is about another function, or holds no choice.
      OSError: if it cannot be read.

    Example:
      >>> import jax.numpy as jnp, pathlib, tempfile
      >>> from rematscope import auto, load
      >>> def net(w, x):
      ...     return jnp.sin(jnp.sin(x @ w) @ w).sum()
      >>> args = jnp.ones((8, 8)), jnp.ones((64, 8))
      >>> file = pathlib.Path(tempfile.mkdtemp(), "choice.json")
      >>> auto(net, *args, budget="3 KiB").save(file)
      >>> planned = load(file, net, *args)
    """
    __tracebackhide__ = True
    try:
        said = json.loads(Path(path).read_text(encoding="utf-8"))
        structure, chosen = said["structure"], [int(place) for place in said["kept"]]
    except (ValueError, KeyError, TypeError):
        raise PlanError(f"{os.fspath(path)} holds no choice. Write one with auto(f, …).save('choice.json').") from None
    cuts = said.get("stretches")
    own = f if said.get("checkpoints") else without_checkpoints(f)
    linearized = linearize(trace(own if cuts is None else _checkpointed(f, cuts), *args, **kwargs))
    if digest(linearized) != structure:
        raise PlanError(
            f"{os.fspath(path)} is about another function than {linearized.passes.function} with these arguments, or "
            "JAX writes it down otherwise now. Let auto choose again."
        )
    return keeping(f, linearized, values_at(linearized, chosen)) if cuts is None else _checkpointed(f, cuts)


def _checkpointed(f: Callable[..., Any], stretches: Sequence[int]) -> Callable[..., Any]:
    """`f` with plain checkpoints: around stretches, or as its author put them if there are none."""
    return in_stretches(f, stretches) if stretches else f


def _work(made: Schedule) -> float:
    """What both programs of a choice compute, as `work` counts it."""
    whole = program_cost(made.forward) + program_cost(made.backward)
    return whole.flops + whole.transcendentals


def _fixed(linearized: Linearized) -> int:
    """Bytes of arguments, constants, cotangents, outputs and gradients."""
    passes = linearized.passes
    given = [*passes.forward.inputs, *linearized.primal.constants, *passes.cotangents]
    returned = [*linearized.primal.outputs, *passes.backward.outputs]
    return sum(v.device_bytes for v in given) + sum(nbytes(v.on_device) for v in returned)
