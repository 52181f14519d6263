"""Number a loop's carries optimistically: assume numbers, number an iteration, and check the assumption."""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Sequence

from rematscope.ir.dependence import mark_dependence
from rematscope.ir.program import Program

_GUESSES = 64  # the maximum number of assignments to try for carries with equal start values that depend on each other


@dataclasses.dataclass(frozen=True)
class Carry:
    """The value numbers of a loop's carry.

    Attributes:
      start: the number of the initial value.
      number: the number at the start of any iteration.
      result: the number at the end of this iteration.
    """

    start: int
    number: int
    result: int


@dataclasses.dataclass(frozen=True)
class Group:
    """Carries that depend on each other.

    Attributes:
      members: the indices of these carries among the loop's carries.
      needs: the indices of all carries that they depend on, which may include their own.
    """

    members: tuple[int, ...]
    needs: frozenset[int]


@dataclasses.dataclass(eq=False)
class CarrySearch:
    """The search for the numbers of one loop's carries.

    Attributes:
      starts: each carry's number before the first iteration.
      numbers: each carry's number at the start of an iteration. It is unique until the carry is decided.
      groups: the carries to decide, in groups that depend on each other.
      suppose: a function that numbers an iteration that starts with the given numbers, and returns the numbers of the
        carries after it; None if the limit on the number of steps is reached.
      decided: the carries whose numbers are found.
    """

    starts: list[int]
    numbers: list[int]
    groups: list[Group]
    suppose: Callable[[list[int]], list[int] | None]
    decided: set[int] = dataclasses.field(default_factory=set)

    @property
    def pending(self) -> list[Group]:
        return [group for group in self.groups if not self.decided.issuperset(group.members)]

    def compare(self, loops: Sequence[Sequence[Carry]]) -> None:
        """Decide the carries that equal those of an earlier loop, although this loop may read some saved values.

        A carry equals a known carry if both have the same initial value and if, assuming that they are equal before an
        iteration, they are equal after it. For carries with equal initial values, several assignments are tried.

        Args:
          loops: the carries of each earlier loop that this loop may equal.
        """
        # Most loops have the same carries in the same order, which a single iteration confirms, so this comes first.
        if any(self._equals_known(known) for known in loops):
            return
        for known in loops:
            self._match_groups(known)

    def _equals_known(self, known: Sequence[Carry]) -> bool:
        """Decide all pending carries if they equal those of another loop in the same order."""
        rest = iter(known)
        wanted = sorted(i for group in self.pending for i in group.members)
        found = {i: next((carry for carry in rest if carry.start == self.starts[i]), None) for i in wanted}
        same = {i: carry for i, carry in found.items() if carry is not None}
        if len(same) < len(wanted) or (wanted and not self._confirm_guess(same)):
            return False
        self.decided.update(same)
        return True

    def _match_groups(self, known: Sequence[Carry]) -> None:
        """Decide the pending carries that equal those of another loop in any order, group by group."""
        recognised: set[int] = set()
        in_turn = sorted(self.pending, key=lambda group: len(group.needs))  # dependencies come first
        for group in in_turn:
            guesses = itertools.product(*([k for k in known if k.start == self.starts[i]] for i in group.members))
            for guess in itertools.islice(guesses, _GUESSES):
                if self._confirm_guess(dict(zip(group.members, guess, strict=True))):
                    recognised.update(group.members)
                    break
        self.decided |= recognised

    def _confirm_guess(self, guess: dict[int, Carry]) -> bool:
        """Return whether an iteration gives the guessed carries the same results; if so, adopt their numbers."""
        numbers = list(self.numbers)
        for i, carry in guess.items():
            numbers[i] = carry.number
        results = self.suppose(numbers)
        if results is None or any(results[i] != carry.result for i, carry in guess.items()):
            return False
        self.numbers = numbers
        return True

    def define(self, intern: Callable[..., int]) -> None:
        """Decide the remaining groups, each by its recurrence: the initial values and the results of an iteration.

        A group is decided after all groups that it depends on.

        Args:
          intern: a function that returns the number of a key that identifies a carry.
        """
        while pending := self.pending:
            waiting = {i for group in pending for i in group.members}
            ready = [group for group in pending if group.needs.isdisjoint(waiting.difference(group.members))]
            numbers = list(self.numbers)
            for group in ready:
                for place, i in enumerate(group.members):
                    numbers[i] = intern(self.starts[i], place)
            results = self.suppose(numbers)
            if results is None:
                return
            for group in ready:
                recurrence: Hashable = tuple((self.starts[i], results[i]) for i in group.members)
                for place, i in enumerate(group.members):
                    self.numbers[i] = intern(recurrence, place)
                self.decided.update(group.members)


def groups_of(body: Program, carries: list[int]) -> list[Group]:
    """Divide the carries with the given indices into groups of carries that depend on each other."""
    marks = {body.inputs[i]: 1 << i for i in carries}
    mark_dependence(body, marks)
    reach = {i: {j for j in carries if marks.get(body.outputs[i], 0) >> j & 1} for i in carries}
    for j in carries:
        for i in carries:
            if j in reach[i]:
                reach[i] |= reach[j]
    groups = {tuple(j for j in carries if j == i or (j in reach[i] and i in reach[j])): reach[i] for i in carries}
    return [Group(members, frozenset(needs)) for members, needs in groups.items()]
