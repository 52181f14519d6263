"""What a loop carries, numbered optimistically: suppose, number an iteration, and see whether the supposition holds."""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence

from rematscope.ir.dependence import mark_dependence
from rematscope.ir.program import Program

_GUESSES = 64  # combinations of carries that depend on each other and start alike


@dataclasses.dataclass(frozen=True)
class Carry:
    """A loop's carry in value numbers.

    Attributes:
      start: before the first iteration.
      number: at the start of any iteration.
      result: what the iteration makes of it.
    """

    start: int
    number: int
    result: int


@dataclasses.dataclass(frozen=True)
class Group:
    """Carries that depend on each other.

    Attributes:
      members: their places among the loop's carries.
      needs: the places of all carries that they depend on, their own included where they do.
    """

    members: tuple[int, ...]
    needs: frozenset[int]


@dataclasses.dataclass(eq=False)
class CarrySearch:
    """The search for the numbers of one loop's carries.

    Attributes:
      starts: each carry's number before the first iteration.
      numbers: each carry's number at the start of an iteration, as far as it is known; at first, one like no other.
      groups: which carries are to be decided, and how they depend on each other.
      suppose: numbers an iteration that starts with these numbers, and returns the numbers of what it makes of them;
        None if there were enough iterations.
      decided: carries whose numbers are found.
    """

    starts: list[int]
    numbers: list[int]
    groups: list[Group]
    suppose: Callable[[list[int]], list[int] | None]
    decided: set[int] = dataclasses.field(default_factory=set)

    @property
    def pending(self) -> list[Group]:
        """The groups that are not decided."""
        return [group for group in self.groups if not self.decided.issuperset(group.members)]

    def compare(self, loops: Sequence[Sequence[Carry]]) -> None:
        """Decides carries that are those of other loops, though this one may read some values where they were saved.

        A carry is one seen before if an iteration makes the same of it, supposing that it is: that holds at its start,
        and then after each iteration. Carries that start alike are told apart by trying.

        Args:
          loops: the carries of each loop that this one may be.
        """
        # Mostly a loop has the same carries in the same order, which takes one iteration to see: that comes first.
        if any(self._is_again(known) for known in loops):
            return
        for known in loops:
            if self.decided and self._is_again(known):
                return
            self._tell_apart(known)

    def _is_again(self, known: Sequence[Carry]) -> bool:
        """Decides all pending carries if they are those of another loop, in its order."""
        rest = iter(known)
        wanted = sorted(i for group in self.pending for i in group.members)
        same = {i: carry for i in wanted if (carry := self._next_that_starts(rest, i)) is not None}
        if len(same) < len(wanted) or (wanted and not self._confirm_guess(same)):
            return False
        self.decided.update(same)
        return True

    def _tell_apart(self, known: Sequence[Carry]) -> None:
        """Decides the pending carries that are those of another loop in any order, group by group."""
        recognised: set[int] = set()
        in_turn = sorted(self.pending, key=lambda group: len(group.needs))  # what a group depends on comes before it
        for group in in_turn:
            guesses = itertools.product(*([k for k in known if k.start == self.starts[i]] for i in group.members))
            for guess in itertools.islice(guesses, _GUESSES):
                if self._confirm_guess(dict(zip(group.members, guess, strict=True))):
                    recognised.update(group.members)
                    break
        self.decided |= recognised

    def _next_that_starts(self, known: Iterator[Carry], i: int) -> Carry | None:
        return next((carry for carry in known if carry.start == self.starts[i]), None)

    def _confirm_guess(self, guess: dict[int, Carry]) -> bool:
        """Whether an iteration maps these carries as it mapped those; if so, their numbers are kept."""
        numbers = list(self.numbers)
        for i, carry in guess.items():
            numbers[i] = carry.number
        results = self.suppose(numbers)
        if results is None or any(results[i] != carry.result for i, carry in guess.items()):
            return False
        self.numbers = numbers
        return True

    def define(self, intern: Callable[..., int]) -> None:
        """Decides the rest, each group by its recurrence: its starts, and what an iteration makes of all its carries.

        A group waits until all that it depends on is decided.

        Args:
          intern: the number of a key that says what a carry is.
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
    """Divides the carries at these places of a loop's body into groups that depend on each other."""
    marks = {body.inputs[i]: 1 << i for i in carries}
    mark_dependence(body, marks)
    reach = {i: {j for j in carries if marks.get(body.outputs[i], 0) >> j & 1} for i in carries}
    for j in carries:
        for i in carries:
            if j in reach[i]:
                reach[i] |= reach[j]
    groups = {tuple(j for j in carries if j == i or (j in reach[i] and i in reach[j])): reach[i] for i in carries}
    return [Group(members, frozenset(needs)) for members, needs in groups.items()]
