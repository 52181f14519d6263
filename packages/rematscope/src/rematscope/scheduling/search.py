"""What `auto` compiles, one after the other, until something keeps to the limit and uses it.

What to keep is chosen among all values by a 0/1 program whose rows are what is there at each step; then it is compiled.
Where the compiled peak is not what was predicted, the limit in the rows is set anew by the line through what was
compiled; what took hardly too much keeps a little less. Where nothing in them fits, or others compute less again,
others are compiled too: JAX's policies, the author's checkpoints, what crosses a net's narrow places, chains of these
run again more than once, and plain checkpoints around its blocks.
"""

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax

from rematscope.choices.build import CostFunction, work
from rematscope.errors import PlanError
from rematscope.ir.program import Value
from rematscope.render.units import bytes_text
from rematscope.scheduling.cached_choice import CachedChoice
from rematscope.scheduling.candidate import Candidate, Subject
from rematscope.scheduling.captured import captured
from rematscope.scheduling.chain import Chain
from rematscope.scheduling.checkpoint_placement import POLICIES, CheckpointPlacement, checkpointed
from rematscope.scheduling.checkpoint_search import CheckpointSearch
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.cuts import kept_at_cuts
from rematscope.scheduling.host import HostOffload, HostPeakProgram, Moves
from rematscope.scheduling.linearize import Linearized, linearize
from rematscope.scheduling.peak_program import PeakProgram
from rematscope.scheduling.revolve import RevolveSchedule, RevolveTable
from rematscope.scheduling.segments import Segmented
from rematscope.scheduling.tpu_blocks import BlockwiseRecompute
from rematscope.scheduling.value_indices import digest, snapshots_at, values_at
from rematscope.seconds.devices import Device
from rematscope.tracing.checkpoints import checkpoints, repeats_what_may_differ, without_checkpoints
from rematscope.tracing.signature import Signature
from rematscope.tracing.trace import trace_call
from rematscope.xla.compiling import Compiled
from rematscope.xla.measure import Measurement, measure_call

COMPILES = 4
_AT_WORST = 1.1  # of compiled to predicted temporaries, as a rule: for a choice after which nothing else is compiled
_ENOUGH = 0.97  # of the room used: what lies nearer is not looked for
_ALIKE = 0.99  # of two aims: the rows are not solved again
_ABOUT = 1.02  # of an aim: so exactly is it known what another target than a CPU makes of anything
_OVER = 1.005  # of an aim: what is predicted to take hardly more is tried too, as long as two more can be behind it
_NEAR = 0.9  # of an aim: where nothing in the rows is nearer, they may predict too much
_NEARER = 3  # times that the rows are solved for one aim, since they predict another peak than the programs do
_WORTH = 0.98  # of what is computed again: what spares less is not compiled
_SAFE = 0.95  # of the room: what is expected to take no more fits, as a rule
_HALVED = 4  # times that what may be kept is halved for one aim
_REMEMBERED = 31  # results of each function
_TRIMMED = 0.02  # of the room: what takes no more than that too much is trimmed
_CHEAP = 0.1  # of all that runs at all events: what is trimmed must not cost more
_CUTS = 3  # ways to divide a net that are looked at
_SOLVED = 2  # of them, with a 0/1 program of what is kept besides
_AGAIN = 4  # times the work of a whole chain: what computes more again is not proposed, for it takes long to compile
_POLICIES = [getattr(jax.checkpoint_policies, name) for name in POLICIES]

_RESULT_CACHE: dict[tuple[Any, ...], tuple[CachedChoice, ...]] = {}


class Search:
    """What was compiled of a function, and what is to be tried next."""

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: str,
        compiles: int,
        cost: CostFunction = work,
        host: HostOffload | None = None,
        grad_mask: tuple[bool, ...] | None = None,
    ):
        self.f, self.grad_mask, self.host = f, grad_mask, host
        self.args, self.kwargs, self.target, self.cost, self.compiles = args, kwargs, target, cost, compiles
        self.compiled: list[Candidate] = []
        self._found: list[tuple[Candidate, float]] = []  # in the rows, for any aim, with their bounds
        self._aims: list[float] = []  # that they were solved for
        self._asked: dict[PeakProgram, list[tuple[float, int]]] = {}  # limits, and what programs predict of the best
        self._by_placement: dict[CheckpointPlacement, Candidate] = {}
        self._table: RevolveTable | None = None  # of the chain, for a limit near the one that is looked at
        self.tell: Callable[[str, float], None] = lambda text, done: None
        once = captured(f, args, kwargs)
        self.linearized = self._linearized(without_checkpoints(once))
        has_own = any(checkpoints(once.jaxpr)) and not repeats_what_may_differ(once.jaxpr)
        self.own = self._linearized(once) if has_own else None
        counted = repr(cost) if isinstance(cost, Device) else cost if isinstance(cost, Hashable) else object()
        self.key = digest(self.linearized), digest(self.own) if self.own else "", target, counted, compiles, host
        self.cuts = [*itertools.islice(kept_at_cuts(self.linearized), _CUTS)]
        # What crosses narrow places is kept in any case: each stretch between is a small problem then, solved well.
        self.moves = Moves.of(self.linearized, self.own, host, cost) if host and isinstance(cost, Device) else None
        cuts = self.cuts[:_SOLVED] if self.moves is None else []  # it is for what is not kept otherwise, too, to move
        self.rows = [self._rows(kept) for kept in cuts or [frozenset()]]
        self._checkpoints = CheckpointSearch(once, args, kwargs, has_own, self.linearized.closed, target, self._with)
        whole = self.linearized.trace.cost
        self.subject = Subject(
            once, Signature(f, args, kwargs), target, cost, whole.flops + whole.transcendentals, self.moves, grad_mask
        )
        self._candidate = functools.partial(Candidate, self.subject)
        self.fixed = self.linearized.fixed_bytes
        self._segmented = Segmented(self.subject, self.rows[0])
        self._blockwise = BlockwiseRecompute(self.subject, self.linearized, self.cuts)

    def within_peak(self, limit: int) -> tuple[Candidate, float]:
        """The best trial whose compiled peak is within a limit; and what every choice costs at least in the rows."""
        known = [one for one in _RESULT_CACHE.get(self.key, ()) if one.peak <= limit]
        for one in known:  # what was found for a higher limit is the best here too if it fits: so peaks never rise
            if one.limit >= limit:
                return self._known(one), one.bound
        bound = self._look(max(limit, self.fixed))
        least = min((t.recompute_cost for t in self.compiled if t.fits(limit)), default=math.inf)
        if lower := [
            one for one in known if one.recompute_cost < least
        ]:  # what was found for a lower one may be better
            self._known(min(lower, key=lambda one: one.recompute_cost))
        within = [t for t in self.compiled if t.fits(limit)]
        best = min(within, key=lambda t: (t.recompute_cost, t.peak_bytes), default=None)
        # Whoever is refused may give what the smallest takes, which an earlier call may have found.
        if best is None and self.key in _RESULT_CACHE:
            self._known(min(_RESULT_CACHE[self.key], key=lambda one: one.peak))
        found = best or min(self.compiled, key=lambda t: t.peak_bytes)
        if found.measurement is not None and math.isfinite(found.peak_bytes):
            one = CachedChoice.of(found, limit if best else int(found.peak_bytes), found.linearized is self.own, bound)
            _RESULT_CACHE[self.key] = (*_RESULT_CACHE.get(self.key, ())[-_REMEMBERED:], one)
        if best is None:
            raise PlanError(self._refused(limit, found.peak_bytes))
        return best, bound

    def _look(self, limit: int) -> float:
        """Compiles choices until one fits and uses most of the limit; returns the bound of the rows for the last."""
        everything, *proposals = self._proposals()
        if everything.estimated_bytes <= limit - self.fixed and self._compile(everything).fits(limit):
            return 0.0
        bound, bounds = 0.0, list[float]()
        while len(self.compiled) < self.compiles:
            found = self._next(limit, proposals)
            if found is None or not self._is_new(found[0]):
                break
            candidate = self._compile(found[0])
            bounds += [found[1]] if found[1] else []
            if not candidate.fits(limit):
                continue
            bound = found[1] or min(bounds, default=0.0)  # what more room cannot do, less cannot
            # Checkpoints may use all of the room, and not well.
            if candidate.placement is None and candidate.peak_bytes - self.fixed >= _ENOUGH * (limit - self.fixed):
                break
        if len(self.compiled) < self.compiles:
            self._compile_better(proposals, limit)
        return bound

    def _next(self, limit: int, proposals: list[Candidate]) -> tuple[Candidate, float] | None:
        """What to compile next, with the bound of the rows; None if there is nothing better in them."""
        room, left = limit - self.fixed, self.compiles - len(self.compiled)
        within = [t for t in self.compiled if t.fits(limit)]
        above = [t for t in self.compiled if not t.fits(limit)]
        least = min((t.recompute_cost for t in within), default=math.inf)
        closest = min(above, key=lambda candidate: candidate.peak_bytes, default=None)
        scheduled = closest is not None and closest.placement is None and not closest.snapshots
        if closest is not None and scheduled and (within or left > 1):
            over = closest.peak_bytes - limit
            small = (max(4 * over, _TRIMMED * room), over) if over < _TRIMMED * room else (0,)
            for trimmed in map(closest.trimmed, small):
                now, before = (self.subject.work(t.schedule) for t in (trimmed, closest))
                cheap = now < before + _CHEAP * self.subject.least and trimmed.recompute_cost < least
                # What comes again in its place may take more.
                if cheap and self._is_new(trimmed) and trimmed.estimated_bytes <= closest.estimated_bytes:
                    return trimmed, 0.0
        late = [t for t in self.compiled if t.placement is None]
        ratio = 1.0 if left > 1 else _AT_WORST  # of compiled to predicted temporaries
        for candidate in late:
            taken = candidate.peak_bytes - self.fixed
            ratio = 1.5 * ratio if math.isinf(taken) else max(taken, 1) / max(candidate.estimated_bytes, 1)
        aim = room / ratio
        if over := min((t.estimated_bytes for t in late if not t.fits(limit)), default=0):
            under = max((t.estimated_bytes for t in late if t.fits(limit)), default=0)
            if under >= over:
                return None
            aim = (under + over) / 2 if under else min(aim if self.target == "cpu" else _ABOUT * aim, 0.98 * over)
        if above and not within and left == 2:  # behind this one there is but the smallest
            made = [t for t in late if math.isfinite(t.peak_bytes)]
            aim = min([aim, *(_SAFE * room * t.estimated_bytes / max(t.peak_bytes - self.fixed, 1) for t in made)])
        most = _OVER * aim if left > 2 and not above else aim
        found = self._chosen(aim, most)
        found = found if found is not None and self._is_new(found[0]) else None
        slack = self._blockwise.slack if left > 2 and not above else 1
        fits = found is not None and found[0].estimated_bytes <= slack * most and (left > 1 or not above)
        once = found is not None and found[0].recompute_cost <= max(
            (t.recompute_cost for t in proposals), default=math.inf
        )
        if self.linearized.closed or not (within or (fits and once and not above)):
            less = min(least, found[0].recompute_cost) if found and fits else least
            asked = self.linearized.closed or not self._is_proven(less, most)
            if (
                asked
                and (plain := self._checkpoints.within(room, self.fixed, self.compiled))
                and plain.recompute_cost < less
            ):
                return plain, 0.0
            smallest = None if within or fits else self._checkpoints.smallest
            much = math.inf if found is None else max(room / _SAFE, ratio * found[0].estimated_bytes)
            if smallest and smallest.estimated_bytes <= much and self._is_new(smallest):
                return smallest, 0.0
        if within:
            return found if found is not None and found[0].recompute_cost < least else None
        if above and left <= 2 and not fits:
            return self._smallest([*proposals, self._checkpoints.smallest]), 0.0
        return found or (self._smallest(proposals), 0.0)

    def _compile_better(self, proposals: list[Candidate], limit: int) -> None:
        """Compiles what others would keep, with what is left to compile, where it may be better than all so far."""
        least_taken = min(((t.peak_bytes - self.fixed) / max(t.estimated_bytes, 1) for t in self.compiled), default=1)
        room = limit - self.fixed
        used = max((t.peak_bytes - self.fixed for t in self.compiled if t.fits(limit)), default=0)
        aim = room / least_taken if least_taken else math.inf
        chosen = self._chosen(aim, aim) if least_taken and used < _ENOUGH * room else None
        least = min((t.recompute_cost for t in self.compiled if t.fits(limit)), default=math.inf)
        hopeless = self._is_proven(least, aim) or 2 * least <= max((t.recompute_cost for t in proposals), default=0)
        asked = self.linearized.closed or not hopeless  # for it is slow
        plain = self._checkpoints.within(room, self.fixed, self.compiled) if asked else None
        for candidate in filter(None, (plain, chosen and chosen[0], *proposals)):
            least = min((t.recompute_cost for t in self.compiled if t.fits(limit)), default=math.inf)
            if (
                len(self.compiled) == self.compiles
                or candidate.recompute_cost >= _WORTH * least
                or not self._is_new(candidate)
            ):
                continue
            if candidate is plain or (candidate.lower_bound_bytes <= aim and candidate.estimated_bytes <= aim):
                self._compile(candidate)
        while len(self.compiled) < self.compiles and (found := self._between(limit)) is not None:
            self._compile(found)

    def _is_proven(self, least: float, aim: float) -> bool:
        """Whether the rows, solved for what takes about as much as an aim, say that nothing computes much less."""
        near = (bound for candidate, bound in self._found if bound and _NEAR * aim <= candidate.estimated_bytes <= aim)
        return _WORTH * least <= min(near, default=0)

    def _between(self, limit: int) -> Candidate | None:
        """What is predicted to take more than all that fits, and less than what took too much, if it is worth it."""
        late = [t for t in self.compiled if t.placement is None]
        least = min((t.recompute_cost for t in self.compiled if t.fits(limit)), default=math.inf)
        under = max((t.estimated_bytes for t in late if t.fits(limit)), default=0)
        above = [
            t.estimated_bytes
            for t in late
            if not t.fits(limit) and t.estimated_bytes > under and t.recompute_cost < least
        ]
        aim = (under + min(above)) / 2 if under and above else 0
        found = self._chosen(aim, aim) if aim else None
        return found[0] if found and found[0].recompute_cost < _WORTH * least and self._is_new(found[0]) else None

    def _chosen(self, aim: float, most: float) -> tuple[Candidate, float] | None:
        """What is best in the rows, solved for an aim, of what is predicted to take no more than so much."""
        self.tell("choosing", 0)
        if not any(_ALIKE * aim <= other <= aim / _ALIKE for other in self._aims):
            self._aims.append(aim)
            for rows in self.rows if not (at_once := [*self._blockwise.within(aim)]) else ():
                self._solve(rows, aim)
            self._found += [(t, 0.0) for t in at_once or (*self._tours(aim), *self._segmented.within(aim))]
            if not at_once and not any(_NEAR * aim <= candidate.estimated_bytes <= aim for candidate, _ in self._found):
                self._found += [(candidate, 0.0) for rows in self.rows for candidate in self._keeping(rows, aim)]
        return min(
            self._found, key=lambda one: (max(one[0].estimated_bytes - most, 0), one[0].recompute_cost), default=None
        )

    def _solve(self, rows: PeakProgram, aim: float) -> None:
        """Solves some rows for limits nearer and nearer to the one for which the programs predict an aim."""
        asked, before, low = self._asked.setdefault(rows, []), -1, 0.0
        for count in range(1, _NEARER + 3):  # more where nothing is within the aim
            solved = rows.best(peak=(limit := max(low, _limit(asked, aim))))
            # Where others do with less, there is nothing for these rows to win.
            least = min(
                (bound for candidate, bound in self._found if bound and candidate.estimated_bytes <= aim),
                default=math.inf,
            )
            if solved is None and not low and (low := rows.least) not in dict(asked):
                continue  # the programs may predict less than the rows
            if solved is None or solved[2] >= least:
                return
            self._found.append(((candidate := self._candidate(rows.linearized, solved[0], moved=solved[1])), solved[2]))
            asked.append((limit, candidate.estimated_bytes))
            near = candidate.estimated_bytes <= aim and (
                _ENOUGH * aim <= candidate.estimated_bytes or not candidate.recompute_cost
            )
            enough = count >= _NEARER and any(predicted <= aim for _, predicted in asked)
            if (
                near
                or enough
                or candidate.estimated_bytes == before
                or (limit == low and candidate.estimated_bytes > aim)
            ):
                return
            before = candidate.estimated_bytes

    def _keeping(self, rows: PeakProgram, aim: float) -> Iterator[Candidate]:
        """What is best of those that keep so much that the programs predict no more than the aim.

        In the rows all that runs again in a bin is there at once: of a long stretch they predict too much.
        """
        least, most, before = 0.0, aim, math.inf
        for left in reversed(range(_HALVED)):
            if (solved := rows.best(kept=(least + most) / 2)) is None:
                break
            candidate = self._candidate(rows.linearized, solved[0], moved=solved[1])
            if candidate.estimated_bytes <= aim:
                yield candidate
                least = (least + most) / 2
            elif not least and candidate.estimated_bytes - left * (before - candidate.estimated_bytes) > aim:
                break  # if each further half spares as much as this one, it is too much in the end
            else:
                most = (least + most) / 2
            before = candidate.estimated_bytes

    def _tours(self, aim: float) -> Iterator[Candidate]:
        """Ways through the chain, of which the last are predicted to take about so much."""
        chain = self.chain
        if not chain.links or aim <= 0:
            return
        if self._table is None or not 1 / 3 < aim / (self._table.slots * self._table.slot) < 1:
            self._table = RevolveTable(chain.links, 1.5 * aim)
        tours = self._table
        again = min(
            (candidate.recompute_cost for candidate, _ in self._found if candidate.estimated_bytes <= aim),
            default=math.inf,
        )
        most = min(_WORTH * again, _AGAIN * sum(link.forward for link in chain.links))
        if (fewest := tours.fewest(most)) is None:
            return
        slots, tried = round(aim / tours.slot), set[RevolveSchedule]()
        for _ in range(_NEARER):
            tour = tours.best(max(slots, fewest))  # with fewer too much is computed again
            if tour is None or tour in tried:
                return
            tried.add(tour)
            candidate = self._candidate(self.linearized, *chain.choice(tour))
            yield candidate
            slots = max(slots, fewest) + math.floor((aim - candidate.estimated_bytes) / tours.slot)
            slots = min(max(slots, 0), tours.slots)

    def within_saved(self, limit: int) -> tuple[Candidate, float]:
        """The best trial that keeps no more than so many bytes."""
        found = self._rows().best(kept=limit)
        if found is None:
            raise PlanError(
                f"saved={bytes_text(limit)} is too small: the loops of {self.name} must save the carry of each "
                "iteration. Allow more."
            )
        candidate = self._candidate(self.linearized, found[0], moved=found[1])
        return self._compile(candidate), found[2]

    @property
    def name(self) -> str:
        """What people call the function."""
        return self.linearized.trace.function

    def _proposals(self) -> list[Candidate]:
        """Choices that others make, those first that compute least again: the first keeps all that JAX does."""
        everything = (
            self._with(CheckpointPlacement())
            if self.linearized.closed
            else self._candidate(self.linearized, self.linearized.kept)
        )
        made = [self._candidate(self.linearized, self.linearized.saved_by(policy)) for policy in _POLICIES]
        made += [self._candidate(self.linearized, kept) for kept in self.cuts]
        if self.own is not None:
            made += [self._candidate(self.own, self.own.kept), self._checkpoints.smallest]
        return [everything, *sorted(made, key=lambda candidate: candidate.recompute_cost)]

    def _smallest(self, proposals: list[Candidate]) -> Candidate:
        """What is predicted to take least, of the rows and of proposals; of what takes as much what computes least."""
        found = (candidate for candidate, _ in self._found)
        fresh = [*filter(self._is_new, (self._least_of_rows, *self._least_of_chain, *found, *proposals))]
        least = min((t.estimated_bytes for t in fresh), default=0)
        alike = [t for t in fresh if t.estimated_bytes <= least / _ENOUGH]
        return min(alike or [self._least_of_rows], key=lambda candidate: candidate.recompute_cost)

    def _with(self, plain: CheckpointPlacement) -> Candidate:
        if plain not in self._by_placement:
            same = {CheckpointPlacement(): self.linearized, CheckpointPlacement(own=True): self.own}.get(plain)
            linearized = same or self._linearized(checkpointed(self.subject.once, plain))
            self._by_placement[plain] = self._candidate(linearized, linearized.kept, placement=plain)
        return self._by_placement[plain]

    @functools.cached_property
    def _least_of_rows(self) -> Candidate:
        kept, moved = self.rows[0].smallest()
        return self._candidate(self.linearized, kept, moved=moved)

    def _linearized(self, f: Callable[..., Any]) -> Linearized:
        return linearize(trace_call(f, self.args, self.kwargs, grad_mask=self.grad_mask))

    def _rows(self, kept: frozenset[Value] = frozenset()) -> PeakProgram:
        return (
            PeakProgram(self.linearized, kept, self.cost)
            if self.moves is None
            else HostPeakProgram(self.moves, kept, self.cost)
        )

    @functools.cached_property
    def _least_of_chain(self) -> list[Candidate]:
        """What the chain takes at least, if it does not compute too much again."""
        least = max((link.enters + link.least for link in self.chain.links), default=0)
        found = (candidate for i in range(5) for candidate in itertools.islice(self._tours(2**i * least), 1))
        return [*itertools.islice(found, 1)]

    @functools.cached_property
    def chain(self) -> Chain:
        """The function as a chain of what is between its narrow places."""
        return Chain(self.linearized, cost_in(self.linearized, self.cost))

    def _known(self, known: CachedChoice) -> Candidate:
        """What an earlier call compiled."""
        if known.placement is not None:
            candidate = self._with(known.placement)
        else:
            linearized = self.own if known.of_own and self.own is not None else self.linearized
            linearized = self._segmented.linearized(known.segments) if known.segments else linearized
            snapshots = snapshots_at(linearized, known.snapshots)
            kept, moved = (values_at(linearized, said) for said in (known.places, known.moved))
            candidate = self._candidate(linearized, kept, snapshots, moved=moved, segments=known.segments)
        candidate.measurement = known.measurement
        self.compiled.append(candidate)
        return candidate

    def recall(self, known: CachedChoice, made: Compiled) -> None:
        """Add a choice that another process compiled."""
        candidate = self._known(known)
        passes = trace_call(candidate.function, self.args, self.kwargs, grad_mask=self.grad_mask)
        candidate.measurement = Measurement(passes, self.target, made)

    def _is_new(self, candidate: Candidate) -> bool:
        return not any(t.is_like(candidate) for t in self.compiled)

    def _compile(self, candidate: Candidate) -> Candidate:
        self.tell(
            f"compile {len(self.compiled) + 1} of {self.compiles}, {bytes_text(candidate.schedule.saved_bytes)} saved",
            0,
        )
        made = candidate.measurement = measure_call(
            candidate.function, self.args, self.kwargs, self.target, self.grad_mask
        )
        if not made.out_of_memory:
            self.fixed = int(candidate.peak_bytes) - made.temp_bytes
        self.compiled.append(candidate)
        return candidate

    def _refused(self, limit: int, least: float) -> str:
        """That nothing keeps to a limit, with what the smallest takes that was compiled."""
        if limit < self.fixed:
            why = (
                f"{self.name} needs {bytes_text(self.fixed)} for its arguments, outputs and gradients alone, "
                f"{bytes_text(self.fixed - limit)} more than {bytes_text(limit)}."
            )
        else:
            why = f"no compiled choice for {self.name} on {self.target} stays within {bytes_text(limit)}."
        if math.isinf(least):
            return f"{why} None of them fits: reduce the batch size."
        return (
            f"{why} The smallest peak found is {int(least):,} bytes ({bytes_text(least)}): allow that much, "
            f"reduce the batch size, or try more with compiles={2 * self.compiles}."
        )


def _limit(asked: list[tuple[float, int]], aim: float) -> float:
    """The limit in rows for which programs should predict an aim, by those that were asked for, and predicted what."""
    low, under = max((pair for pair in asked if pair[1] <= aim), default=(0.0, 0))
    high, over = min((pair for pair in asked if pair[1] > aim), default=(math.inf, 0))
    if 0 < low < high < math.inf:  # what programs predict jumps, as tensors are large
        return low + (high - low) * min(max(0.1, (aim - under) / (over - under)), 0.9)
    return (low * aim / max(under, 1) if low else high * min(0.98, aim / max(over, 1))) if asked else aim
