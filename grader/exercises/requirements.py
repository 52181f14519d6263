"""Requirements on the forward and the backward pass: small declarations that explain why a case fails them."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from grader.exercises.observation import CaseObservation, Exchange, MatchedResidual, ResidualKind
from grader.util.words import counted
from grader.verdicts.verdict import Finding, FindingKind
from rematscope.render import bytes_text, joined

_NO_CHECKPOINT = (
    "Which function marks a computation so that its intermediate values are recomputed instead of saved? (If you wrote "
    "your own gradient rule, which residuals does it save?)"
)


class Requirement:
    """A requirement of an exercise, checked in each case separately."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the reference's values that the requirement refers to."""
        return ()

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        """Yield a finding for each violation in a case."""
        raise NotImplementedError

    def claim(self, seen: CaseObservation) -> str | None:
        """Return what a case without findings shows, as the end of a sentence; None if there is nothing to say."""
        return None


@dataclass(frozen=True)
class Saves(Requirement):
    """The forward pass saves exactly these computed values. It may also save arguments and constants, which take no
    memory.

    Attributes:
      saved: the names of the reference's values, as in `expect.reference`.
      too_much: the question for an answer that saves more.
      too_little: the question for an answer that saves less.
      by_hand: True if an answer need not call `jax.checkpoint`; then no question asks about it.
      on_host: the subset of `saved` whose values are in host memory; the others are on the device.
      unnamed: True if the learner has to find out which values to save; then no finding names them.
      optional: the names of values that may be saved, because they are reshaped arguments.
    """

    saved: tuple[str, ...]
    too_much: str
    too_little: str | None = None
    by_hand: bool = False
    on_host: tuple[str, ...] = ()
    unnamed: bool = False
    optional: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        # A value can have several names, for example in a loop of one iteration; an allowed name takes precedence.
        return *self.saved, *self.optional

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        wanted: dict[str | None, MatchedResidual] = {
            name: dataclasses.replace(seen.wanted[name], memory="pinned_host" if name in self.on_host else "device")
            for name in self.saved
        }
        left = Counter[str | None](self.saved)
        extra = {}
        for place, residual in enumerate(seen.residuals):
            if residual.kind is not ResidualKind.COMPUTED or residual.name in self.optional:
                continue
            want = wanted.get(residual.name)
            as_wanted = want and residual.memory == want.memory and residual.nbytes <= want.nbytes
            if left[residual.name] > 0 and as_wanted:
                left[residual.name] -= 1
            else:
                extra[place] = residual
        missing = [wanted[name] for name in left.elements()]
        asked_for, listed = self._expected_and_got(seen)
        moved = {p: r for p, r in extra.items() if left[r.name] > 0 and r.memory != wanted[r.name].memory}
        if moved:
            what = "a residual" if len(moved) == 1 else f"{len(moved)} residuals"
            asked = dict.fromkeys(f"{each.name} in {wanted[each.name].memory} memory" for each in moved.values())
            given = dict.fromkeys(f"{each.name} in {each.memory} memory" for each in moved.values())
            yield Finding(
                FindingKind.WRONG_MEMORY,
                f"Your forward pass saves {what} in the wrong memory: {_residuals_text(moved.values())}.",
                expected=", ".join(asked),
                got=", ".join(given),
                nbytes=sum(residual.nbytes for residual in moved.values()),
                next=self.too_much,
                marked=tuple(moved),
            )
            return
        # A value that is saved in a wider dtype is not missing.
        wider = Counter(residual.name for residual in extra.values())
        missing = [residual for residual in missing if not wider[residual.name]]
        if extra:
            yield Finding(
                FindingKind.EXTRA_RESIDUAL,
                f"Your forward pass saves {_extra_residuals_text(extra.values())}."
                + "".join(_wider_dtype_text(residual, wanted.get(residual.name)) for residual in extra.values())
                + "".join(
                    f" {each} differs from {name} only in case." for each, name in self._case_typos(extra.values())
                )
                + (f" It does not save {self._missing_finding(missing)}." if missing else ""),
                expected=asked_for,
                got=listed,
                nbytes=sum(residual.nbytes for residual in extra.values()),
                source="; ".join(dict.fromkeys(residual.source for residual in extra.values() if residual.source))
                or None,
                next=self._choose_question(extra.values(), seen),
                marked=tuple(extra),
                includes=(FindingKind.MISSING_RESIDUAL,) if missing else (),
            )
        elif missing:
            yield Finding(
                FindingKind.MISSING_RESIDUAL,
                f"Your forward pass does not save {self._missing_finding(missing)}.",
                expected=asked_for,
                got=listed,
                nbytes=sum(residual.nbytes for residual in missing),
                next=self.too_little,
            )

    def _choose_question(self, extra: Collection[MatchedResidual], seen: CaseObservation) -> str:
        if self._case_typos(extra):
            return "Does your comparison of names ignore the difference between upper and lower case?"
        # Without a barrier, nothing shows that the answer called jax.checkpoint.
        return self.too_much if seen.barriers or self.by_hand else _NO_CHECKPOINT

    def _case_typos(self, extra: Iterable[MatchedResidual]) -> list[tuple[str, str]]:
        """Return the extra residuals whose names differ only in case from the name of a required one."""
        required = {name.casefold(): name for name in self.saved}
        names = dict.fromkeys(residual.name for residual in extra if residual.name)
        return [(name, required[name.casefold()]) for name in names if required.get(name.casefold(), name) != name]

    def _expected_and_got(self, seen: CaseObservation) -> tuple[str, str]:
        """Return the expected residuals and the answer's residuals, as text. Arguments and constants may always be
        saved.
        """
        saved = [r.name or r.type for r in seen.residuals if r.kind is ResidualKind.COMPUTED]
        arguments = [r.name or r.type for r in seen.residuals if r.kind is ResidualKind.ARGUMENT]
        if self.unnamed:
            expected = counted(len(self.saved), "computed values")
        else:
            expected = _abbreviate_names(self.saved) or "no computed value"
        got = _abbreviate_names(saved) or "no computed value"
        if arguments:
            got += f"; and the {'argument' if len(arguments) == 1 else 'arguments'} {_abbreviate_names(arguments)}"
        return f"{expected}; and any arguments", got

    def _missing_finding(self, missing: Sequence[MatchedResidual]) -> str:
        if self.unnamed:
            return "the required value" if len(missing) == 1 else f"{len(missing)} required values"
        return _residuals_text(missing)

    def claim(self, seen: CaseObservation) -> str:
        if not self.saved:
            return "the forward pass saves only arguments"
        places = [f"{name} (in host memory)" if name in self.on_host else name for name in self.saved]
        return f"the forward pass saves {_in_words(places)}, and otherwise only arguments"


@dataclass(frozen=True)
class SavesAtMost(Requirement):
    """The computed residuals take no more memory than a value of the reference.

    Attributes:
      limit: the name of this value, a stack of equal parts.
      count: the number of parts. A residual that is smaller than one part, such as a loop counter, does not count.
      parts: what findings call the parts, in the plural.
      too_much: the question for an answer that saves more.
      extra_parts: the number of additional parts that may be saved, because some of the stacked parts are arguments.
    """

    limit: str
    count: int
    parts: str
    too_much: str
    extra_parts: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.limit,)

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        limit = seen.wanted[self.limit].nbytes
        part = limit // self.count
        kept = {place: r for place, r in enumerate(seen.residuals) if r.kind is ResidualKind.COMPUTED}
        nbytes = sum(residual.nbytes for residual in kept.values())
        if nbytes >= limit + (1 + self.extra_parts) * part:
            # Near the limit, only a fraction shows that the answer exceeds it.
            as_much = f"{nbytes / part:.{1 if nbytes < 10 * part else 0}f} {self.parts}"
            yield Finding(
                FindingKind.EXTRA_RESIDUAL,
                f"Your forward pass saves {bytes_text(nbytes)}, as much as {as_much}: "
                f"{_residuals_text(kept.values())}.",
                expected=f"at most {counted(self.count, self.parts)} ({bytes_text(limit)})",
                got=f"as much as {as_much} ({bytes_text(nbytes)})",
                nbytes=nbytes - limit,
                next=self.too_much,
                marked=tuple(kept),
            )

    def claim(self, seen: CaseObservation) -> str:
        return f"in addition to arguments, the forward pass saves at most {counted(self.count, self.parts)}"


@dataclass(frozen=True)
class StillSaves(Requirement):
    """The forward pass still saves these values, whatever else it saves.

    Attributes:
      forms: the forms in which the values may be saved, such as stacked or one by one: names of the reference's values,
        of which all names of one form must be saved.
      too_little: the question for an answer that does not save them.
    """

    forms: tuple[tuple[str, ...], ...]
    too_little: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for form in self.forms for name in form)

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        saved = {residual.name for residual in seen.residuals}
        if not any(saved.issuperset(form) for form in self.forms):
            missing = [seen.wanted[name] for name in self.forms[0]]
            yield Finding(
                FindingKind.MISSING_RESIDUAL,
                f"Your forward pass does not save {_residuals_text(missing)}.",
                expected=f"{_in_words(self.forms[0])} among the residuals",
                got=_abbreviate_names(r.name or r.type for r in seen.residuals if r.kind is ResidualKind.COMPUTED)
                or "no computed value",
                nbytes=sum(residual.nbytes for residual in missing),
                next=self.too_little,
            )

    def claim(self, seen: CaseObservation) -> str:
        return f"the forward pass still saves {_in_words(self.forms[0])}"


@dataclass(frozen=True)
class MatmulsAtMost(Requirement):
    """The matmuls of both passes take at most `max_ratio` times the FLOPs of the reference, which saves everything.

    Attributes:
      max_ratio: the largest allowed ratio.
      too_many: the question for an answer that computes more.
    """

    max_ratio: int
    too_many: str

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        once = sum(seen.reference_flops)
        if seen.matmul_flops >= self.max_ratio * once + seen.negligible:
            yield Finding(
                FindingKind.RECOMPUTES,
                f"Your two passes spend {seen.matmul_flops:,} FLOPs on matmuls, {seen.matmul_flops / once:.1f} times "
                "as many as without a checkpoint.",
                expected=f"at most {self.max_ratio * once:,} FLOPs, {self._ratio_text()} as without a checkpoint",
                got=f"{seen.matmul_flops:,} FLOPs",
                flops=seen.matmul_flops - self.max_ratio * once,
                next=self.too_many,
            )

    def claim(self, seen: CaseObservation) -> str:
        return f"both passes spend at most {self._ratio_text()} FLOPs on matmuls as without a checkpoint"

    def _ratio_text(self) -> str:
        return "as many" if self.max_ratio == 1 else f"{self.max_ratio} times as many"


@dataclass(frozen=True)
class Recomputes(Requirement):
    """The backward pass recomputes at most `count` matmuls, and none of them is hidden by a fake use of the cotangent.

    A matmul is recomputed if it does not depend on the cotangent. Because `x + 0 * cotangent` would make any recomputed
    matmul depend on it, the FLOPs of all other matmuls are limited to those of the reference. In addition, any
    operation whose result equals the result of a matmul counts as this matmul.

    Attributes:
      count: the number of matmuls.
      too_many: the question for an answer that recomputes more.
      elsewhere: the question for an answer with extra matmuls that are not recomputed ones.
    """

    count: int
    too_many: str
    elsewhere: str = "Which of your matmuls belongs to neither the plain function nor its gradient?"

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        if self._is_too_much(seen.recomputed, seen):
            yield self._too_many(seen.recomputed, seen)
            return  # other extra FLOPs usually have the same cause
        # A sum of squares written as a dot product also counts as FLOPs here, but these are few.
        over = seen.matmul_flops - sum(seen.recomputed) - sum(seen.reference_flops)
        if over >= seen.negligible:
            yield Finding(
                FindingKind.EXTRA_MATMULS,
                f"Your two passes spend {over:,} FLOPs on matmuls that neither the value nor its gradient needs: "
                "either the forward pass has an extra matmul, or the backward pass recomputes one in a form that "
                "depends on the cotangent.",
                expected=f"{sum(seen.reference_flops):,} FLOPs on matmuls, apart from recompute",
                got=f"{over + sum(seen.reference_flops):,} FLOPs",
                flops=over,
                next=self.elsewhere,
            )
        elif self._is_too_much(every := (*seen.recomputed, *seen.hidden_recompute_flops()), seen):
            yield self._too_many(every, seen)

    def _is_too_much(self, recomputed: Sequence[int], seen: CaseObservation) -> bool:
        flops, allowed = sum(recomputed), self._allowed_flops(seen)
        whole = [each for each in recomputed if each >= seen.negligible]
        return (len(whole) > self.count and flops > allowed) or flops >= allowed + seen.negligible

    def _allowed_flops(self, seen: CaseObservation) -> int:
        # In FLOPs, because a matmul that a loop computes row by row consists of many matmuls with the same FLOPs.
        once = sorted(seen.forward_flops, reverse=True)
        rounds, more = divmod(self.count, len(once) or 1)
        return rounds * sum(once) + sum(once[:more])

    def _too_many(self, recomputed: Sequence[int], seen: CaseObservation) -> Finding:
        whole, flops = len([each for each in recomputed if each >= seen.negligible]), sum(recomputed)
        pieces = "" if whole else f" in {len(recomputed)} pieces"
        allowed = f" ({self._allowed_flops(seen):,} FLOPs)" if self.count else ""
        return Finding(
            FindingKind.RECOMPUTES,
            f"Your backward pass recomputes {counted(whole or 1, 'matmuls')}{pieces}: {flops:,} FLOPs.",
            expected=f"at most {counted(self.count, 'matmuls')}{allowed}" if self.count else "no recomputed matmul",
            got=f"{counted(whole or 1, 'matmuls')}{pieces} ({flops:,} FLOPs)",
            flops=flops,
            next=self.too_many,
        )

    def claim(self, seen: CaseObservation) -> str:
        # An answer may recompute less than is allowed, or the same FLOPs in more and smaller matmuls.
        dots = min(len(seen.recomputed), self.count)
        return f"the backward pass recomputes {counted(dots, 'matmuls') if dots else 'no matmul'}"


@dataclass(frozen=True)
class SendsAtMost(Requirement):
    """The collectives of both passes send at most as many bytes as this many transfers, such as gathers of all weights.

    Bytes are counted, not collectives: a ring of permutations that gathers a weight sends as much as an all-gather, and
    an all-reduce sends twice as much.

    Attributes:
      times: the number of transfers. All-gathers of every weight, one each, are a transfer, and so are reduce-scatters.
      of: the bytes that each device sends for one transfer.
      weights: the number of arrays that a transfer sends, such as weights.
      in_loop: the question for an answer that sends more and runs a collective in a loop.
      all_reduced: the question for one that all-reduces, which sends each array twice.
      too_many: the question for one that runs more collectives of a kind in a pass than there are weights.
      too_large: the question for any other, which sends more bytes per collective.
      transfer: what one transfer does, as words that follow "as much as it takes to".
    """

    times: int
    of: int
    weights: int
    in_loop: str
    all_reduced: str
    too_many: str
    too_large: str
    transfer: str = "gather every weight once"

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        sent = sum(each.link_bytes for each in seen.exchanges)
        if sent > self.times * self.of:
            counts = _collectives_text(seen.exchanges)
            yield Finding(
                FindingKind.LINK_BYTES,
                f"Your two passes run {counts}. Each device sends {bytes_text(sent)}, {sent / self.of:.1f} times as "
                f"much as it takes to {self.transfer}.",
                expected=f"at most {self.times} times as much ({bytes_text(self.times * self.of)})",
                got=f"{sent / self.of:.1f} times as much ({bytes_text(sent)})",
                nbytes=sent - self.times * self.of,
                next=self._question_about(seen.exchanges),
            )

    def _question_about(self, exchanges: Collection[Exchange]) -> str:
        if any(each.kind == "all-reduce" for each in exchanges):
            return self.all_reduced
        if any(each.count > 1 for each in exchanges):
            return self.in_loop
        if max(Counter((each.kind, each.backward) for each in exchanges).values()) > self.weights:
            return self.too_many
        return self.too_large

    def claim(self, seen: CaseObservation) -> str:
        return f"the two passes run {_collectives_text(seen.exchanges)}"


@dataclass(frozen=True)
class GathersLayers(Requirement):
    """Each pass gathers the weights of one layer at a time by sharding constraints, and every weight `times` times.

    Attributes:
      times: how many times a pass gathers every weight.
      of: the bytes of all weights of one layer, when they are whole.
      layers: the number of layers.
      too_few: the question for an answer in which a pass does not gather every weight.
      at_once: the question for an answer that gathers several layers at once.
      too_many: the question for an answer that gathers more.
    """

    times: int
    of: int
    layers: int
    too_few: str
    at_once: str
    too_many: str

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        if any(each.nbytes > self.of for each in seen.gathers):
            largest = max(each.nbytes for each in seen.gathers)
            yield Finding(
                FindingKind.GATHERS,
                f"Your answer gathers {bytes_text(largest)} at once. The weights of one layer have "
                f"{bytes_text(self.of)}.",
                expected=f"at most {bytes_text(self.of)} at once",
                got=f"{bytes_text(largest)} at once",
                nbytes=largest - self.of,
                next=self.at_once,
            )
            return
        for backward, which in ((False, "forward"), (True, "backward")):
            got = sum(each.count * each.nbytes for each in seen.gathers if each.backward == backward)
            most = self.times * self.layers * self.of
            if self.layers * self.of <= got <= most:
                continue
            yield Finding(
                FindingKind.GATHERS,
                f"The sharding constraints in your {which} pass gather {bytes_text(got)}. The weights of all layers "
                f"have {bytes_text(self.layers * self.of)}.",
                expected=f"{bytes_text(most)} gathered in the {which} pass",
                got=bytes_text(got),
                nbytes=abs(got - most),
                next=self.too_many if got > most else self.too_few,
            )
            return

    def claim(self, seen: CaseObservation) -> str:
        return "each pass gathers the weights of one layer at a time"


@dataclass(frozen=True)
class ShardsGradients(Requirement):
    """No sharding constraint gives every device a whole gradient.

    Attributes:
      whole: the question for an answer with such a gradient.
    """

    whole: str

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        if seen.whole_gradients:
            yield Finding(
                FindingKind.GATHERS,
                f"Your sharding constraints give every device the whole gradient of {_in_words(seen.whole_gradients)}.",
                expected="no gradient that a constraint makes whole",
                got=f"a whole gradient of {_in_words(seen.whole_gradients)}",
                next=self.whole,
            )

    def claim(self, seen: CaseObservation) -> str:
        return "no sharding constraint makes a gradient whole"


@dataclass(frozen=True)
class AdvisesBarrier(Requirement):
    """Without a barrier, the compiler may merge recomputed values with the original ones. This is advice, not a
    failure.
    """

    def findings(self, seen: CaseObservation) -> Iterator[Finding]:
        if seen.barriers == 0:
            yield Finding(
                FindingKind.NO_BARRIER,
                "No optimization barrier separates the recomputed values from the forward pass (perhaps because of "
                "prevent_cse=False). Under jax.jit, the compiler's common-subexpression elimination may merge the two "
                "and save the values after all. This cannot happen to a checkpoint that is alone in the body of a "
                "jax.lax.scan with unroll=1. Elsewhere, the default, prevent_cse=True, is safer.",
                advice=True,
            )


def _collectives_text(exchanges: Iterable[Exchange]) -> str:
    """Return the number of runs of each kind of collective in each pass, such as `"2 all-gathers (forward)"`."""
    counts = Counter[tuple[str, bool]]()
    for each in exchanges:
        counts[each.kind, each.backward] += each.count
    texts = [
        f"{counted(count, f'{kind}s')} ({'backward' if backward else 'forward'})"
        for (kind, backward), count in counts.items()
    ]
    return _in_words(texts) if texts else "no collective"


def _extra_residuals_text(residuals: Collection[MatchedResidual]) -> str:
    if len(residuals) == 1:
        return f"one extra residual: {_residuals_text(residuals)}"
    total = bytes_text(sum(residual.nbytes for residual in residuals))
    return f"{len(residuals)} extra residuals ({total} in total): {_residuals_text(residuals)}"


def _residuals_text(residuals: Iterable[MatchedResidual]) -> str:
    """Return residuals in one line, with equal residuals listed once and unnamed residuals grouped."""
    residuals = list(residuals)
    named = _merge_repeated(str(residual) for residual in residuals if residual.name)
    others = [residual for residual in residuals if not residual.name]
    if len(named) > _MOST_IN_FULL:
        named[3:-1] = [f"… {len(named) - 4} more …"]
    if len(others) > 1:
        types = ", ".join(f"{n} × {type_}" if n > 1 else type_ for type_, n in Counter(r.type for r in others).items())
        total = bytes_text(sum(residual.nbytes for residual in others))
        return "; ".join([*named, f"{len(others)} intermediate values ({types}), {total}"])
    return "; ".join([*named, *map(str, others)])


def _merge_repeated(texts: Iterable[str]) -> list[str]:
    return [text if times == 1 else f"{text} ({times} times)" for text, times in Counter(texts).items()]


_MOST = 8  # the most names that are listed in full; of more names, the first three and the last are listed
_MOST_IN_FULL = 12  # the same for residuals with their types and sizes


def _abbreviate_names(names: Iterable[str]) -> str:
    names = list(names)
    each = _merge_repeated(names)
    if len(each) > _MOST:
        return f"{', '.join(each[:3])}, …, {each[-1]} ({len(names)} in total)"
    return ", ".join(each)


def _in_words(names: Iterable[str]) -> str:
    return joined(_merge_repeated(names))


def _wider_dtype_text(residual: MatchedResidual, wanted: MatchedResidual | None) -> str:
    if wanted is None or residual.nbytes <= wanted.nbytes:
        return ""
    return f" {residual.name} is in a wider dtype than it needs: {residual.type} instead of {wanted.type}."
