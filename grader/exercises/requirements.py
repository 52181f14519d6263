"""What an exercise may ask of a backward pass: small declarations, each of which explains itself when it is not met."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from grader.exercises.behaviour import Behaviour, MatchedResidual, ResidualKind
from grader.util.words import counted
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding
from rematscope.render.units import bytes_text

_NO_CHECKPOINT = "Which function marks a computation as one to be recomputed, instead of kept, for the backward pass?"


@dataclass(frozen=True)
class Mistake:
    """What is often computed in place of what is asked for; where an answer's results are these, the finding says so.

    Attributes:
      says: the mistake, in words.
      function: computes what the mistake leads to; takes what an answer takes.
      next: the question that leads on.
      in_gradient: True where the value is right, and the mistake shows in the gradients alone.
    """

    says: str
    function: Callable
    next: str = "Which of your lines does that?"
    in_gradient: bool = False


class Requirement(Protocol):
    """What an exercise asks of a backward pass, in one case at a time.

    Attributes:
      names: the reference's values that it speaks of.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        """What stands against a case's behaviour."""

    def claim(self, seen: Behaviour) -> str | None:
        """What a behaviour shows once nothing does, as the end of a sentence; None if that is nothing to speak of."""


@dataclass(frozen=True)
class Saves:
    """The forward pass saves exactly these computed values, and any arguments and constants, which cost nothing more.

    Attributes:
      saved: names of the reference's values, as `expect.reference` gives them.
      too_much: the question that leads on from an answer that keeps more.
      too_little: the question that leads on from an answer that keeps less.
      by_hand: True where an answer need not call `jax.checkpoint`, so that nothing leads there.
      on_host: those of the names whose values lie in the host's memory; the others lie on the device.
      unnamed: True where it is for the learner to find out which values are meant: then no finding tells.
      spare: names of values that may be saved or not, since they are arguments in another shape.
    """

    saved: tuple[str, ...]
    too_much: str
    too_little: str | None = None
    by_hand: bool = False
    on_host: tuple[str, ...] = ()
    unnamed: bool = False
    spare: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        # One value can have several names, as in a loop of one iteration: a residual is called by one that is allowed.
        return *self.saved, *self.spare

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        wanted: dict[str | None, MatchedResidual] = {
            name: dataclasses.replace(seen.wanted[name], memory="pinned_host" if name in self.on_host else "device")
            for name in self.saved
        }
        left = Counter[str | None](self.saved)
        extra = {}
        for place, residual in enumerate(seen.residuals):
            if residual.kind is not ResidualKind.COMPUTED or residual.name in self.spare:
                continue
            want = wanted.get(residual.name)
            as_wanted = want and residual.memory == want.memory and residual.nbytes <= want.nbytes
            if left[residual.name] > 0 and as_wanted:
                left[residual.name] -= 1
            else:
                extra[place] = residual
        missing = [wanted[name] for name in left.elements()]
        asked_for, listed = self._listed(seen)
        moved = {p: r for p, r in extra.items() if left[r.name] > 0 and r.memory != wanted[r.name].memory}
        if moved:
            yield Finding(
                FindingKind.WRONG_MEMORY,
                f"Your forward pass saves {'; '.join(map(str, moved.values()))}: the right value in the wrong memory.",
                expected=", ".join(f"{r.name} in {wanted[r.name].memory} memory" for r in moved.values()),
                got=", ".join(f"{r.name} in {r.memory} memory" for r in moved.values()),
                nbytes=sum(residual.nbytes for residual in moved.values()),
                next=self.too_much,
                marked=tuple(moved),
            )
            return
        if extra:
            yield Finding(
                FindingKind.ALSO_SAVED,
                f"Your forward pass also saves {_enumerated(extra.values())}: "
                f"{bytes_text(sum(residual.nbytes for residual in extra.values()))} that were not asked for."
                + "".join(_wider(residual, wanted.get(residual.name)) for residual in extra.values()),
                expected=asked_for,
                got=listed,
                nbytes=sum(residual.nbytes for residual in extra.values()),
                source="; ".join(dict.fromkeys(residual.source for residual in extra.values() if residual.source))
                or None,
                # Without a barrier nothing shows that jax.checkpoint was called at all.
                next=self.too_much if seen.barriers or self.by_hand else _NO_CHECKPOINT,
                marked=tuple(extra),
            )
        if missing:
            yield Finding(
                FindingKind.NOT_SAVED,
                f"Your forward pass does not save {self._missing(missing)}.",
                expected=None if extra else asked_for,
                got=None if extra else listed,
                nbytes=sum(residual.nbytes for residual in missing),
                next=None if extra else self.too_little,
            )

    def _listed(self, seen: Behaviour) -> tuple[str, str]:
        """What is asked for and what is saved. Constants cost nothing more, and are counted apart."""
        asked = [*seen.arguments, *self.saved]
        saved = [r.name or r.type for r in seen.residuals if r.kind is not ResidualKind.CONSTANT]
        constants = len(seen.residuals) - len(saved)
        beside = f"; and {counted(constants, 'constants')}, which does not matter"
        if self.unnamed:
            expected = f"the arguments and {counted(len(self.saved), 'computed values')}"
        else:
            expected = f"{counted(len(asked), 'saved values')}: {', '.join(asked)}"
        got = f"{counted(len(saved), 'saved values')}: {', '.join(saved)}{beside if constants else ''}"
        return expected, got

    def _missing(self, missing: Sequence[MatchedResidual]) -> str:
        if self.unnamed:
            return "the value that is asked for" if len(missing) == 1 else "the values that are asked for"
        return "; ".join(map(str, missing))

    def claim(self, seen: Behaviour) -> str:
        if not self.saved:
            return "it saves nothing but arguments"
        places = [f"{name} (on the host)" if name in self.on_host else name for name in self.saved]
        return f"besides arguments it saves {' and '.join(places)}, and nothing else"


@dataclass(frozen=True)
class SavesAtMost:
    """The computed values that the forward pass keeps take no more memory than one of the reference's would.

    Attributes:
      room: that value's name, several equal parts that are stacked.
      count: how many parts these are. What is smaller than one, a loop's counters, does not count.
      parts: what findings call several of them, with an s.
      too_much: the question that leads on from an answer that keeps more.
      spare: how many parts more may be kept, since arguments are among those that are stacked.
    """

    room: str
    count: int
    parts: str
    too_much: str
    spare: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.room,)

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        room = seen.wanted[self.room].nbytes
        part = room // self.count
        kept = {place: r for place, r in enumerate(seen.residuals) if r.kind is ResidualKind.COMPUTED}
        nbytes = sum(residual.nbytes for residual in kept.values())
        if nbytes >= room + (1 + self.spare) * part:
            as_much = counted(nbytes // part, self.parts)
            yield Finding(
                FindingKind.ALSO_SAVED,
                f"Your forward pass saves {_enumerated(kept.values())}: as much as {as_much}.",
                expected=f"{counted(self.count, self.parts)} at most, {bytes_text(room)}",
                got=f"{as_much}, {bytes_text(nbytes)}",
                nbytes=nbytes - room,
                next=self.too_much,
                marked=tuple(kept),
            )

    def claim(self, seen: Behaviour) -> str:
        return f"besides arguments it saves no more {self.parts} than it may"


@dataclass(frozen=True)
class MatmulsAtMost:
    """Both passes do at most so many times the matmuls of the reference's, which keeps everything.

    Attributes:
      times: how many times as many, in FLOPs.
      too_many: the question that leads on from an answer that does more.
    """

    times: int
    too_many: str
    names = ()

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        once = sum(seen.reference_flops)
        if seen.matmul_flops >= self.times * once + seen.negligible:
            yield Finding(
                FindingKind.RECOMPUTES,
                f"Your two passes spend {seen.matmul_flops:,} FLOPs on matmuls, {seen.matmul_flops / once:.1f} times "
                "as many as without a checkpoint.",
                expected=f"at most {self.times} times as many, {self.times * once:,} FLOPs",
                got=f"{seen.matmul_flops:,} FLOPs",
                flops=seen.matmul_flops - self.times * once,
                next=self.too_many,
            )

    def claim(self, seen: Behaviour) -> str:
        return f"it does at most {self.times} times the matmuls that it would do without a checkpoint"


@dataclass(frozen=True)
class Recomputes:
    """The backward pass recomputes at most this many matmuls, and none behind the cotangent's back.

    A matmul is recomputed if it does not depend on the cotangent. Since `x + 0 * cotangent` would make any
    recomputation depend on it, the FLOPs of all other matmuls are bounded too, by those of the reference. And whatever
    is made that has a product's value is that product once more.

    Attributes:
      dots: the number of matmuls.
      too_many: the question that leads on from an answer that recomputes more.
      elsewhere: the question that leads on from an answer with matmuls too many that are not recomputed ones.
    """

    dots: int
    too_many: str
    elsewhere: str = "Which matmul is not among those of the plain function and its gradient?"
    names = ()

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        if self._is_too_much(seen.recomputed, seen):
            yield self._again(seen.recomputed, seen)
            return  # what else is spent is most often the same
        # A sum of squares written as a dot product costs FLOPs here too, but few.
        over = seen.matmul_flops - sum(seen.recomputed) - sum(seen.reference_flops)
        if over >= seen.negligible:
            yield Finding(
                FindingKind.EXTRA_MATMULS,
                f"Your two passes spend {over:,} FLOPs on matmuls beyond those that the value and its gradient need: "
                "a matmul too many in the forward pass, or one done again with the cotangent mixed in.",
                expected=f"{sum(seen.reference_flops):,} FLOPs of matmuls, recomputed ones aside",
                got=f"{over + sum(seen.reference_flops):,} FLOPs",
                flops=over,
                next=self.elsewhere,
            )
        elif self._is_too_much(every := (*seen.recomputed, *seen.disguised()), seen):
            yield self._again(every, seen)

    def _is_too_much(self, recomputed: Sequence[int], seen: Behaviour) -> bool:
        flops = sum(recomputed)
        # By FLOPs: a matmul done row by row in a loop is many, but no more work.
        once = sorted(seen.forward_flops, reverse=True)
        rounds, more = divmod(self.dots, len(once) or 1)
        allowed = rounds * sum(once) + sum(once[:more])
        whole = [each for each in recomputed if each >= seen.negligible]
        return (len(whole) > self.dots and flops > allowed) or flops >= allowed + seen.negligible

    def _again(self, recomputed: Sequence[int], seen: Behaviour) -> Finding:
        whole = len([each for each in recomputed if each >= seen.negligible])
        what = f"{whole} {_matmuls(whole)} again" if whole else f"a matmul again, in {len(recomputed)} pieces"
        return Finding(
            FindingKind.RECOMPUTES,
            f"Your backward pass computes {what}, {sum(recomputed):,} FLOPs that the forward pass has done before.",
            expected=f"{self.dots or 'no'} {_matmuls(self.dots)} recomputed",
            got=f"{whole} recomputed" if whole else f"{len(recomputed)} pieces recomputed",
            flops=sum(recomputed),
            next=self.too_many,
        )

    def claim(self, seen: Behaviour) -> str:
        # What is seen may be less than what is allowed, or as much in more and smaller pieces.
        dots = min(len(seen.recomputed), self.dots)
        return f"it recomputes {dots or 'no'} {_matmuls(dots)}"


@dataclass(frozen=True)
class RecomputesNoLess:
    """The backward pass recomputes no fewer matmuls than the checkpoints that are asked for make it.

    This shows a checkpoint inside another one, which changes nothing of what crosses.

    Attributes:
      dots: the number of matmuls.
      too_few: the question that leads on from an answer that recomputes fewer.
    """

    dots: int
    too_few: str
    names = ()

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        if (count := len(seen.recomputed)) < self.dots:
            yield Finding(
                FindingKind.RECOMPUTES,
                f"Your backward pass computes only {count} {_matmuls(count)} again, so that a checkpoint is missing "
                "inside another one.",
                expected=f"{self.dots} {_matmuls(self.dots)} recomputed",
                got=f"{count} recomputed",
                next=self.too_few,
            )

    def claim(self, seen: Behaviour) -> None:
        return None  # Recomputes says it


@dataclass(frozen=True)
class AdvisesBarrier:
    """Advice, never a failure: without a barrier the compiler may merge what is recomputed with what was computed."""

    names = ()

    def findings(self, seen: Behaviour) -> Iterator[Finding]:
        if seen.barriers == 0:
            yield Finding(
                FindingKind.NO_BARRIER,
                "What is recomputed here is not kept apart from the forward pass (prevent_cse=False, perhaps): under "
                "jax.jit the compiler's common-subexpression elimination may undo it and save the values after all. "
                "Inside jax.lax.scan that cannot happen, elsewhere the default is safer.",
                advice=True,
            )

    def claim(self, seen: Behaviour) -> None:
        return None


def _enumerated(residuals: Iterable[MatchedResidual]) -> str:
    """Residuals one by one, but those together that have no name."""
    named = [str(residual) for residual in residuals if residual.name]
    others = [residual for residual in residuals if not residual.name]
    if len(others) > 1:
        types = ", ".join(f"{n} × {type_}" if n > 1 else type_ for type_, n in Counter(r.type for r in others).items())
        total = bytes_text(sum(residual.nbytes for residual in others))
        return "; ".join([*named, f"{len(others)} values that are none of the usual ones ({types}), {total}"])
    return "; ".join([*named, *map(str, others)])


def _wider(residual: MatchedResidual, wanted: MatchedResidual | None) -> str:
    if wanted is None or residual.nbytes <= wanted.nbytes:
        return ""
    return f" This is {residual.name} in a wider dtype: {residual.type}, where {wanted.type} was asked for."


def _matmuls(count: int) -> str:
    return "matmul" if count == 1 else "matmuls"
