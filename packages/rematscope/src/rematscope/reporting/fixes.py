"""Search for changes that lower the peak of a training step: apply and trace them, and compile the best ones."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from rematscope.choices.candidates import MATMUL_POLICIES
from rematscope.errors import PlanError
from rematscope.ir.program import Value
from rematscope.jax_compat.policies import policy_name
from rematscope.memory.estimate_warning import estimate_warning
from rematscope.render.units import bytes_text
from rematscope.reporting.flat_step import OtherSizeError
from rematscope.reporting.rewrite import NESTED, Changes
from rematscope.reporting.subject import Subject, Traced, divisors
from rematscope.xla.measure import Measurement

_MARGIN = 0.995  # the usable share of the limit, because other tools may count a few additional scalars
# The limits of the search count operations, so that every machine proposes the same: see `Subject.operations`.
_OPERATIONS = 12_000  # the operations, about 5 seconds, after which no further changes are traced
_DIVISION_OPERATIONS = 20_000  # the operations after which the search for the best number of parts ends
_FAR = 2.0  # a peak above this multiple of the limit is too far from it for variants of checkpoints
_NEAR = 1.1  # a peak below this multiple of the lowest one is about the lowest
_CHEAP = 1.02  # work below this multiple of that of the function as written is almost no recompute
_SMALL = 0.9  # a predicted peak below this share of the limit is expected to fit
_OVER = 1.1  # changes with a predicted peak above this multiple of the limit do not fit
_PLAN_OPERATIONS = 120_000  # the operations within which a plan of `auto` must be expected to be ready
_PLAN_TRACES = 30  # the traces of the step as written that take about as long as the search for a plan
_PLANS = 4  # the limits for which `auto` plans the gradient
_GROUP_COMPILES = 4  # the most groups from which one change each is compiled although it is not predicted to fit
_NEGLIGIBLE = 0.001  # donated bytes below this share of the limit are not worth the loss of the donated arguments
_FEW = 0.1  # donated bytes below this share of the free memory do not change what checkpoints can save
_SAVED = (0.92, 0.7)  # the shares of the free memory that checkpoints fill with saved values until they fit


def whole_kib(nbytes: float) -> int:
    """Return a number of bytes rounded down to whole KiB, or to whole MiB above 100 MiB."""
    unit = 2**20 if nbytes > 100 * 2**20 else 2**10
    return int(nbytes // unit) * unit


@dataclasses.dataclass
class Fix:
    """Changes to a function, with their effects on memory and cost.

    Attributes:
      changes: the changes.
      peak_bytes: the predicted peak in bytes.
      compiled_bytes: the compiled peak in bytes; None if the changed function was not compiled.
      extra_work: the FLOPs and transcendentals in addition to those of the function as written.
      extra_seconds: the extra time in seconds, estimated by a roofline; 0 if no device was given.
      extra_link_bytes: the bytes that each device sends to other devices, and to host memory and back, in addition to
        those of the function as written. Collectives that XLA adds are not included.
      reduction_bytes: the bytes by which the changes lower the peak of the function as written; the difference between
        both compiled peaks if they are known, else between both predicted peaks.
    """

    changes: Changes
    peak_bytes: int
    compiled_bytes: int | None
    extra_work: int
    extra_seconds: float
    extra_link_bytes: int
    reduction_bytes: int

    @property
    def best_bytes(self) -> int:
        """The compiled peak if there is one, else the predicted peak."""
        return self.peak_bytes if self.compiled_bytes is None else self.compiled_bytes


def described_changes(changes: Changes) -> str:
    """Return changes as text, such as `checkpoint per layer + donation`."""
    parts = []
    where = {
        "layers": "checkpoint per layer",
        "all layers but the last": "checkpoint per layer but the last",
        "groups of layers": "checkpoint per layer and per group of layers",
        "halves of layers": "checkpoint per half of a layer, per layer and per group of layers",
        "segments": "checkpoint per segment",
        "loops": "checkpoint per loop iteration",
        "inner loops": "checkpoint per inner loop iteration",
        "offloaded loops": "checkpoint per loop iteration, carries offloaded",
        "whole": "policy for the whole loss",
    }
    if changes.checkpoint is not None:
        text = where[changes.checkpoint]
        if changes.policy is not None:
            text += f", {policy_name(changes.policy)}"
        elif changes.saved is not None:
            text += f", saving {bytes_text(changes.saved)}"
        elif changes.checkpoint == "whole":
            text = "checkpoint of the whole loss"
        parts.append(text)
    if changes.auto is not None:
        parts.append(f"auto within {bytes_text(changes.auto)}")
    if changes.donate_argnums:
        parts.append("donation")
    if changes.microbatches > 1:
        parts.append(f"{changes.microbatches} microbatches")
    if changes.chunks > 1:
        parts.append(f"{changes.chunks} chunks of the batch")
    if changes.head_chunks > 1:
        parts.append(f"head in {changes.head_chunks} chunks")
    return " + ".join(parts)


def _group_of(changes: Changes) -> tuple[bool, ...]:
    """Return a key that is equal for changes of the same group of the search."""
    nested, donated = changes.checkpoint in NESTED, bool(changes.donate_argnums)
    parts = changes.head_chunks > 1, changes.microbatches > 1, changes.chunks > 1
    return changes.checkpoint is not None, nested, changes.auto is not None, donated, *parts


class Search:
    """The search for the cheapest changes within a limit.

    Attributes:
      subject: the function.
      limit: the capacity in bytes.
      measured: the compiled programs, by their changes.
      refused: for each kind of change that cannot be applied, the reason as a sentence.
    """

    def __init__(self, subject: Subject, limit: int, compiles: int, tell: Callable[[str, float], None]):
        self.subject, self.limit, self.compiles, self.tell = subject, limit, compiles, tell
        self.measured: dict[Changes, Measurement] = {}
        self.refused: dict[str, str] = {}
        self.tried: dict[Changes, Traced] = {}
        self._errors: dict[Changes, Exception] = {}  # those of changes that cannot be applied
        self.is_complete = True  # whether all changes were traced

    def run(self) -> Changes | None:
        """Return the cheapest changes that were compiled and fit; None if none do."""
        self.tell("tracing the function", 0)
        self.tried[Changes()] = self.subject.traced(Changes())  # an error of the function itself is the caller's
        if self._compile_changes(Changes()) <= self.limit:
            return Changes()
        if self.least_fixed_bytes > self.limit:
            return None  # no change can make it fit
        for compiles in self._trace_in_stages():
            found = self._compile_in_order(compiles)
            if found is not None:
                return self._improve_on(found)
        found = self._plan_gradient()
        if found is None:  # each loop over the chunks recomputes the loss from its start, and stores no activations
            self._trace_chunks([Changes("whole", donate_argnums=self._useful_donation)])
            found = self._compile_in_order(len(self.measured) + 1)
        if found is None and self.may_overestimate:
            found = self._compile_each_group()
        return found if found is None else self._improve_on(found)

    def _trace_in_stages(self) -> Iterator[int]:
        """Trace more and more changes, and yield after each kind of them how many programs may be compiled in all."""
        self._look_at_checkpoints()
        for alone in (Changes(), Changes("layers"), Changes("loops")):
            self._chunk_head(alone)
        self._trace_donation()
        yield self.compiles - 1
        self._trace_microbatches()
        yield self.compiles
        if Changes("loops") in self.tried and self.subject.target != "cpu":
            self._trace_offloading()
            yield self.compiles + 1
        self._trace_chunks(self._smallest_undivided())
        yield self.compiles + 2
        if Changes("layers") in self.tried:
            layers = Changes("layers", donate_argnums=self._useful_donation)
            if layers not in self._smallest_undivided():
                self._trace_chunks([layers])  # chunks divide the memory inside of checkpoints, so others may be better
                yield len(self.measured) + 1
            self._nest_checkpoints()
            yield len(self.measured) + 1

    # Changes to consider

    def _chunk_head(self, alone: Changes, within_limit: bool = True) -> None:
        """Trace changes with the head of the loss in chunks, if it takes a large part of their peak.

        Args:
          alone: changes without chunks; if they were not traced, nothing is.
          within_limit: whether the limit on traced operations applies.
        """
        without = self.tried.get(alone)
        if without is None:
            return
        rest = self._peak_without_head(without)
        donated = 0 if alone.donate_argnums else self._donation_bytes()
        if rest > _SMALL * without.memory.peak_bytes or rest - donated > self.limit:
            return
        for counts in dict.fromkeys(tuple(divisors(length)) for length in self.subject.head_lengths):
            with_chunks = counts and self._trace_changes(
                dataclasses.replace(alone, head_chunks=counts[0]), within_limit
            )
            if not with_chunks:
                continue
            peak, whole_peak = with_chunks.memory.peak_bytes, without.memory.peak_bytes
            # The peak is convex in the length of a chunk, so this is at most the peak with chunks of length 0.
            least = peak - (whole_peak - peak) / (counts[0] - 1)
            may_fit = peak < 0.9 * whole_peak and least - donated <= self.limit
            if may_fit and self._trace_in_parts([alone], "head_chunks", counts):
                break

    def _peak_without_head(self, found: Traced) -> int:
        """Return the predicted peak without arrays of about as many elements as the result of the head's matmul.

        It is about the lowest peak that chunks of the head can reach. A loss may also have values of slightly fewer
        elements, such as those of `logits[:, :-1]`.
        """
        memory, sizes = found.memory, self.subject.head_sizes

        def is_of_head(value: Value | None) -> bool:
            return value is not None and any(size <= 2 * math.prod(value.shape) <= 2 * size for size in sizes)

        others = [each for each in memory.temporaries if not is_of_head(each.value)]
        return dataclasses.replace(memory, temporaries=others).peak_bytes

    def _look_at_checkpoints(self) -> None:
        """Trace checkpoints at each kind of place, until checkpoints with almost no recompute fit."""
        donated = self._donation_bytes()
        loops = [*self.subject.loop_places]
        for place in ("layers", *loops[:1]):
            self._trace_changes(Changes(place))
        lowest = min(t.memory.peak_bytes for t in self.tried.values())
        if lowest - donated > _FAR * self.limit:
            return  # no variant of these checkpoints halves their peak

        def may_fit(place: str) -> bool:
            """Return whether checkpoints that save more than those at a place may fit."""
            base = self.tried.get(Changes(place))
            return base is not None and base.memory.peak_bytes - donated <= self.limit

        # Without the loss's own checkpoints and with layers or loops, one checkpoint around the loss saves no memory.
        has_places = any(Changes(place) in self.tried for place in ("layers", "loops"))
        whole = ["whole"] * (self.subject.has_checkpoints or not has_places)
        policies = (*(getattr(jax.checkpoint_policies, name) for name in reversed(MATMUL_POLICIES)), None)
        for policy, place in itertools.product(policies, ("layers", "loops", *whole)):
            if (place == "whole" or may_fit(place)) and not self._is_cheap_enough():
                self._trace_changes(Changes(place, policy))
        others = ["segments"] * (not may_fit("layers") and not self.subject.segments_are_layers)
        others += ["all layers but the last"] * may_fit("layers")
        for place in (*others, *loops[1:]):
            if not self._is_cheap_enough():
                self._trace_changes(Changes(place))
        self._save_more(donated)

    def _is_cheap_enough(self) -> bool:
        """Return whether traced changes with almost no recompute are predicted to fit."""
        least = _CHEAP * self.tried[Changes()].work
        return any(
            t.memory.peak_bytes <= _MARGIN * self.limit and t.work <= least
            for c, t in self.tried.items()
            if c.checkpoint
        )

    def _save_more(self, donated: int) -> None:
        """Trace checkpoints that save as many of the most valuable results as fit in memory."""
        for place in ("layers", "all layers but the last", "segments"):
            base = self.tried.get(Changes(place))
            if base is None:
                continue
            free = _MARGIN * self.limit - base.memory.peak_bytes
            rooms = [0] * (free > 0) + [donated] * (donated > _FEW * free)
            for room in rooms if not self._is_cheap_enough() else ():
                self._trace_with_saved(Changes(place), free + room, room)

    def _trace_with_saved(self, changes: Changes, free: float, room: float = 0.0, within_limit: bool = True) -> None:
        """Trace checkpoints that also save as much as is expected to fit.

        Args:
          changes: the checkpoints.
          free: the free memory in bytes.
          room: the bytes by which donation will lower the peak.
          within_limit: whether the limit on traced operations applies.
        """
        for share in _SAVED if free > 0 else ():
            saving = dataclasses.replace(changes, saved=whole_kib(share * free), policy=None)
            found, without = self._trace_changes(saving, within_limit), self._trace_changes(changes, within_limit)
            if found is None or without is None:
                continue
            saves_nothing = found.work == without.work
            if saves_nothing or self._expected_bytes(found) - room <= _MARGIN * self.limit:
                return

    def _donation_bytes(self) -> int:
        """Return the bytes by which donating parameters and optimizer state lowers the predicted peak; 0 for a few."""
        argnums = self.subject.updated_argnums
        found = self._trace_changes(Changes(donate_argnums=argnums)) if argnums else None
        if found is None:
            return 0
        spared = self.tried[Changes()].memory.fixed_bytes - found.memory.fixed_bytes
        return spared if spared > _NEGLIGIBLE * self.limit else 0

    @property
    def least_fixed_bytes(self) -> int:
        """The bytes of the arguments and results, which are live throughout, after all donations."""
        return self.tried[Changes()].memory.fixed_bytes - self._donation_bytes()

    @property
    def gradient_bytes(self) -> int:
        """The bytes of the largest gradient that the function as written takes; of a gradient per example, of one."""
        passes = self.tried[Changes()].passes
        taken = [passes.backward.outputs] if passes.step is None else [g.differentiated for g in passes.step.gradients]
        return max(sum(v.device_bytes for v in {*each}) for each in taken)

    def _trace_donation(self) -> None:
        """Trace earlier changes with donation: the cheapest ones that may fit, and those with the lowest peak."""
        argnums, spared = self.subject.updated_argnums, self._donation_bytes()
        if not spared:
            return
        plain = [t for t in self.tried.values() if not t.changes.donate_argnums]
        within = [t.work for t in plain if t.memory.peak_bytes <= self.limit]
        least = min(within, default=math.inf)
        fitting = [t for t in plain if t.memory.peak_bytes - spared <= self.limit and t.work < least]
        smallest = min(plain, key=lambda t: t.memory.peak_bytes)
        for found in [*sorted(fitting, key=lambda t: t.work)[:4], smallest]:
            self._trace_changes(dataclasses.replace(found.changes, donate_argnums=argnums))

    def _trace_microbatches(self) -> None:
        """Trace microbatches, alone and with the checkpoints that have the lowest peaks."""
        counts, chosen = self._part_counts("microbatches"), self._smallest_undivided()
        first = self._first_that_may_fit(chosen, "microbatches", counts) if counts else 1
        if len(counts) > 1 and first == self._batch_size("microbatches"):
            first = counts[-2]  # the proof may fail for single examples alone
        if why := self.subject.why_no_microbatches(first):
            if not self.subject.find_other_axes():
                self.refused["microbatches"] = why
                return
            counts = self._part_counts("microbatches")
        self._trace_in_parts(chosen, "microbatches", counts)
        errors = [str(error) for changes, error in self._errors.items() if changes.microbatches > 1]
        if any(changes.microbatches > 1 for changes in self.tried):  # only some numbers of microbatches are refused
            self.refused.pop("microbatches", None)
        elif errors:
            self.refused.setdefault("microbatches", errors[0])

    def _divided_axes(self, option: str) -> tuple[Any, ...]:
        """Return the axes of the arguments that an option of `rewrite` divides."""
        return self.subject.microbatch_axes if option == "microbatches" else self.subject.in_axes

    def _batch_size(self, option: str) -> int:
        return self.subject.batch_size(self._divided_axes(option))

    def _part_counts(self, option: str) -> list[int]:
        """Return the numbers of parts to try for an option of `rewrite`."""
        return divisors(self._batch_size(option))

    def _trace_offloading(self) -> None:
        """Trace loops whose carries are offloaded to host memory, alone and in microbatches if these can be used."""
        offloaded = Changes("offloaded loops", donate_argnums=self._useful_donation)
        found = self._trace_changes(offloaded, within_limit=False)
        if found is None or not found.passes.host_bytes():
            self.tried.pop(offloaded, None)
            return
        if not self._are_small([found]) and "microbatches" not in self.refused:
            self._trace_in_parts([offloaded], "microbatches", self._part_counts("microbatches"))

    @property
    def _useful_donation(self) -> tuple[int, ...]:
        """The indices of the arguments to donate; () if this saves nothing."""
        return self.subject.updated_argnums if self._donation_bytes() else ()

    def _smallest_undivided(self) -> list[Changes]:
        """Return changes with donation: the cheapest checkpoints whose peak is near the lowest, and no checkpoints."""
        donated = self._useful_donation
        undivided = [t for c, t in self.tried.items() if c.microbatches == c.chunks == c.head_chunks == 1]
        least = min(t.memory.peak_bytes for t in undivided)
        lowest = min((t for t in undivided if t.memory.peak_bytes <= _NEAR * least), key=lambda t: t.work).changes
        alone = Changes(donate_argnums=donated)
        return list(dict.fromkeys([dataclasses.replace(lowest, donate_argnums=donated, saved=None), alone]))

    def _trace_in_parts(self, chosen: Sequence[Changes], option: str, numbers: Sequence[int]) -> bool:
        """Trace changes in the smallest number of parts that is expected to fit.

        Args:
          chosen: the changes.
          option: the option of `rewrite` that sets the number of parts.
          numbers: the numbers of parts to choose from, in increasing order.

        Returns:
          Whether any number of parts is expected to fit.
        """
        counts = [number for number in numbers if not self._is_impossible(option, number)]
        # The largest number that a step on several devices does not refuse leaves one example for each device.
        are_single = len(counts) < len(numbers) or (
            option != "head_chunks" and counts[-1:] == [self._batch_size(option)]
        )
        if are_single and len(counts) > 1:
            # Single examples come last: JAX traces axes of length 1 differently, so the proof takes long and may fail.
            if self._trace_in_parts(chosen, option, counts[:-1]):
                return True
            if not any(getattr(each, option) > 1 for each in self.tried) and not self._may_divide_further:
                return False  # all other numbers of parts were refused
            counts = counts[-1:]
        if not counts:
            return False
        first = self._first_that_may_fit(chosen, option, counts)
        if self._are_small(self._trace_parts(chosen, option, first)):
            return True
        counts = [count for count in counts if count > first]
        while counts and not (found := self._trace_parts(chosen, option, counts[-1])):
            if not self._is_impossible(option, counts.pop()) and not self._may_divide_further:
                return False
        if not counts or not self._are_small(found):
            return False

        def is_small(which: int) -> bool:
            return self._are_small(self._trace_parts(chosen, option, counts[which]))

        last, which = len(counts) - 1, counts.index(self._enough_parts(counts, found, option))
        is_known = which == last or is_small(which)  # one number is traced despite the limit
        while not is_known and which < last and self._may_divide_further:
            which += 1
            is_known = is_small(which)
        while is_known and which > 0 and self._may_divide_further and is_small(which - 1):
            which -= 1
        return True

    def _first_that_may_fit(self, chosen: Sequence[Changes], option: str, counts: Sequence[int]) -> int:
        """Return the smallest number of parts that may be expected to fit, by lower bounds; else the largest one."""
        small = _SMALL * self.limit
        fitting = (n for n in counts if any(self._least_peak(changes, option, n) <= small for changes in chosen))
        return next(fitting, counts[-1])

    def _least_peak(self, changes: Changes, option: str, count: int) -> float:
        """Return a lower bound on the predicted peak of changes in a number of parts, by their peak without parts.

        At the moment of this peak, parts divide at most the bytes of the temporaries.
        """
        undivided: dict[str, Any] = {option: 1}
        whole = self._trace_changes(dataclasses.replace(changes, **undivided))
        if whole is None:
            return 0.0
        fixed = whole.memory.fixed_bytes
        return fixed + (whole.memory.peak_bytes - fixed) / count

    def _enough_parts(self, counts: Sequence[int], found: Sequence[Traced], option: str) -> int:
        """Return the smallest number of parts that is sure to fit, by the peaks of the whole and of `counts[-1]` parts.

        The peak is the maximum of functions that are linear in the length of a part. So it is convex in this length,
        and at most the linear interpolation between two known peaks.
        """
        most, base = counts[-1], self.tried[Changes()].memory.peak_bytes
        undivided: dict[str, Any] = {option: 1}
        for count in counts:
            share = (1 / count - 1 / most) / (1 - 1 / most)
            for t in found:
                whole = self.tried.get(dataclasses.replace(t.changes, **undivided))
                rise = (whole.memory.peak_bytes if whole else base) - t.memory.peak_bytes
                if t.memory.peak_bytes + share * rise <= _SMALL * self.limit:
                    return count
        return most

    def _are_small(self, found: Sequence[Traced]) -> bool:
        return any(t.memory.peak_bytes <= _SMALL * self.limit for t in found)

    def _trace_parts(self, chosen: Sequence[Changes], option: str, count: int) -> list[Traced]:
        """Trace changes in a number of parts, and return the traces of all changes that can be applied."""
        if option == "microbatches" and (why := self.subject.why_no_microbatches(count)):
            self.refused["microbatches"] = why
            return []
        parts: dict[str, Any] = {option: count}
        if option != "head_chunks":
            parts["in_axes"] = self._divided_axes(option)
        made = list[Traced | None]()
        for changes in chosen:
            if self._least_peak(changes, option, count) > _OVER * self.limit:
                continue
            if self._may_divide_further or not any(made):
                made.append(self._trace_changes(dataclasses.replace(changes, **parts), within_limit=False))
                if self._is_impossible(option, count):
                    break
        return [t for t in made if t is not None]

    def _is_impossible(self, option: str, count: int) -> bool:
        """Return whether the step is known to refuse the batch size of a number of parts."""
        errors = self._errors.items()
        return any(getattr(c, option) == count and isinstance(error, OtherSizeError) for c, error in errors)

    @property
    def _may_divide_further(self) -> bool:
        """Whether to trace more numbers of parts; if not, the search is marked as incomplete."""
        may_divide = self.subject.operations <= _DIVISION_OPERATIONS
        self.is_complete &= may_divide
        return may_divide

    def _trace_chunks(self, chosen: Sequence[Changes]) -> None:
        """Trace the loss in chunks, with each of the chosen changes."""
        if not self.subject.in_axes:
            self.refused["chunks"] = f"{self.subject.name} has no argument with a batch axis."
            return
        self._trace_in_parts(chosen, "chunks", self._part_counts("chunks"))

    def _nest_checkpoints(self) -> None:
        """Trace the changes with the lowest peak, with checkpoints around groups and halves of layers instead."""
        lowest = min(self.tried.values(), key=lambda t: t.memory.peak_bytes).changes
        for place in NESTED:
            nested = dataclasses.replace(lowest, checkpoint=place, policy=None, saved=None)
            found = self._trace_changes(nested, within_limit=False)
            if found is not None and not self._are_small([found]) and nested.chunks == nested.head_chunks == 1:
                self._chunk_head(nested, within_limit=False)
            if self._are_small([t for t in self.tried.values() if t.changes.checkpoint == place]):
                break

    def _plan_gradient(self) -> Changes | None:
        """Compile the step with plans of `auto` for its loss, with lower limits until the step fits."""
        if self.subject.target != jax.default_backend():
            return None  # `rewrite` plans for the device that JAX uses
        takes = _PLAN_TRACES * self.subject.size
        donated = self._useful_donation
        around = self.tried[Changes(donate_argnums=donated)].memory.fixed_bytes - self.subject.gradient_bytes
        excess = 0.0
        for _ in range(_PLANS):
            peak = whole_kib(_MARGIN * self.limit - around - excess)
            changes = Changes(auto=peak, donate_argnums=donated)
            self.subject.operations += takes
            if self.subject.operations > _PLAN_OPERATIONS:
                self.is_complete = False
                self.refused["auto"] = "the search for a plan would take minutes for so many operations."
                return None
            if peak <= 0 or self._trace_changes(changes, within_limit=False) is None:
                if not isinstance(self._errors.get(changes), PlanError):  # an error before the search for a plan
                    self.subject.operations -= takes
                return None
            over = self._compile_changes(changes) - self.limit
            if over <= 0:
                return changes
            excess += over
        return None

    # Tracing and compiling changes

    def _trace_changes(self, changes: Changes, within_limit: bool = True) -> Traced | None:
        """Trace the function with some changes; None if they cannot be applied, or if the limit is reached."""
        if changes in self.tried:
            return self.tried[changes]
        is_known = bool(changes.donate_argnums) and dataclasses.replace(changes, donate_argnums=()) in self.tried
        if within_limit and not is_known and len(self.tried) > 4 and self.subject.operations > _OPERATIONS:
            self.is_complete = False
            return None
        self.tell(f"tracing {changes}", 0)
        try:
            self.tried[changes] = self.subject.traced(changes)
        except Exception as error:  # a change that a step cannot have is left out, whatever its library says
            self._errors[changes] = error
            return None
        return self.tried[changes]

    def traced_alone(self, changes: Changes) -> Traced | None:
        """Return the trace of changes that the search does not propose; None if they cannot be applied."""
        try:
            return self.subject.traced(changes)
        except Exception:  # as in `_trace_changes`
            return None

    def _compile_changes(self, changes: Changes) -> float:
        """Compile the function with some changes, and return its peak; infinite if the target has no memory for it."""
        if changes not in self.measured:
            self.tell(f"compiling {str(changes) or 'the function as written'}", 0)
            try:
                self.measured[changes] = self.subject.compiled(changes)
            except PlanError as error:  # for example, rewrite needs arguments that can be hashed
                self._errors[changes] = error
                del self.tried[changes]
                return math.inf
        return self.measured[changes].peak_or_infinity

    def peak_bytes(self, changes: Changes) -> float:
        """Return the compiled peak of changes; if they were only traced, the predicted peak."""
        if changes not in self.measured:
            return self.tried[changes].memory.peak_bytes
        return self._compile_changes(changes)

    @property
    def _ratio_to_prediction(self) -> float:
        """The factor by which temporaries of similar compiled programs exceed the prediction."""
        ratios = []
        for changes, measured in self.measured.items():
            if measured.memory is None or changes == Changes():
                continue
            predicted = self.tried[changes].memory
            extra = measured.memory.peak_bytes - predicted.fixed_bytes
            ratios.append(extra / max(predicted.peak_bytes - predicted.fixed_bytes, 1))
        return max(1.0, *ratios) if ratios else 1.0

    def _expected_bytes(self, found: Traced) -> float:
        """Return the expected compiled peak of changes that were not compiled yet."""
        memory = found.memory
        return memory.fixed_bytes + self._ratio_to_prediction * (memory.peak_bytes - memory.fixed_bytes)

    def cost(self, changes: Changes) -> tuple[float, ...]:
        """Return the sort key of changes: parts of the batch, work, link bytes, donated arguments, predicted peak.

        The parts come first, so changes without microbatches and chunks are preferred.
        """
        found = self.tried[changes]
        parts, donated = changes.microbatches * changes.chunks, len(changes.donate_argnums)
        return parts, found.work, found.link_bytes, donated, found.memory.peak_bytes

    def _compile_in_order(self, compiles: int) -> Changes | None:
        """Compile the cheapest changes that are expected to fit, until one does."""
        while len(self.measured) <= compiles:
            fresh = [t for t in self.tried.values() if t.changes not in self.measured]
            fits = [t for t in fresh if self._expected_bytes(t) <= _MARGIN * self.limit]
            if (
                not fits
                and not any(c.microbatches > 1 or c.chunks > 1 for c in self.tried)
                and not self._last_resort(fresh)
            ):
                return None
            pool = fits or [t for t in fresh if t.memory.peak_bytes <= _OVER * self.limit]
            if not pool:
                return None
            order = self.cost if fits else lambda c: (self.tried[c].memory.peak_bytes,)
            changes = min((t.changes for t in pool), key=order)
            if self._compile_changes(changes) <= self.limit:
                return changes
        return None

    @property
    def may_overestimate(self) -> bool:
        """Whether predicted peaks may be far too high.

        This is so if the compiler decides shardings, or for a reason that `estimate_warning` names.
        """
        base = self.tried[Changes()]
        return base.passes.has_auto_sharded_work or bool(estimate_warning(base.passes, base.memory.peak_bytes))

    def _compile_each_group(self) -> Changes | None:
        """Compile the changes with the lowest predicted peak of each group without compiled changes, until one fits."""
        known = {_group_of(changes) for changes in self.measured}
        compiles = 0
        for found in sorted(self.tried.values(), key=lambda t: t.memory.peak_bytes):
            group = _group_of(found.changes)
            if group in known or found.memory.peak_bytes > _FAR * self.limit or compiles == _GROUP_COMPILES:
                continue
            known.add(group)
            compiles += 1
            if self._compile_changes(found.changes) <= self.limit:
                return found.changes
        return None

    def _last_resort(self, fresh: list[Traced]) -> bool:
        """Return whether a predicted peak is so close to the limit that compiling the changes may be worth it."""
        return any(t.memory.peak_bytes <= self.limit for t in fresh)

    def _improve_on(self, found: Changes) -> Changes:
        """Compile changes that are cheaper than the fitting ones, if later compiles suggest that they fit too."""
        best = found
        chunked = best.chunks > 1
        places = ("layers", "segments", *((*NESTED, "whole") if chunked else ()))
        if best.microbatches == 1 and best.saved is None and best.checkpoint in places:
            free = _MARGIN * self.limit - self._compile_changes(best)
            if free > 0.02 * self.limit:
                # Between two loops over chunks, a stored result, its cotangent so far and the next loop's share of this
                # cotangent are live.
                self._trace_with_saved(best, free / 3 if chunked else free, within_limit=not chunked)
        for _ in range(2):
            cheaper = [
                t.changes
                for t in self.tried.values()
                if t.changes not in self.measured
                and self.cost(t.changes) < self.cost(best)
                and t.work < self.tried[best].work
                and self._expected_bytes(t) <= _MARGIN * self.limit
            ]
            if not cheaper or len(self.measured) > self.compiles + 1:
                break
            changes = min(cheaper, key=self.cost)
            if self._compile_changes(changes) <= self.limit:
                best = changes
        return best

    def _compiled_bytes(self, changes: Changes) -> int | None:
        """Return the compiled peak of changes; None if it is not known, or if the target has too little memory."""
        measured = self.measured.get(changes)
        return None if measured is None or not measured.memory else measured.memory.peak_bytes

    def fixes(self) -> list[Fix]:
        """Return all traced changes that lower the peak, the cheapest first."""
        base = self.tried[Changes()]
        compiled_base = self._compiled_bytes(Changes())
        rows = []
        for changes, found in self.tried.items():
            if changes == Changes():
                continue
            compiled = self._compiled_bytes(changes)
            reduction = base.memory.peak_bytes - found.memory.peak_bytes
            if compiled is not None and compiled_base is not None:
                reduction = compiled_base - compiled
            rows.append(
                Fix(
                    changes,
                    found.memory.peak_bytes,
                    compiled,
                    found.work - base.work,
                    found.seconds - base.seconds,
                    found.link_bytes - base.link_bytes,
                    reduction,
                )
            )
        return sorted((row for row in rows if row.reduction_bytes > 0), key=lambda row: self.cost(row.changes))
