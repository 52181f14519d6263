"""Parse limits in bytes, and find the fewest bytes that a function can save."""

import operator
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rematscope.choices.candidates import PolicyCandidate
from rematscope.choices.choice_graph import ChoiceGraph
from rematscope.choices.chooser import Chooser
from rematscope.errors import PlanError
from rematscope.render.units import BYTES


def least_possible(graph: ChoiceGraph) -> int:
    """Return the fewest bytes of computed residuals that a choice can save."""
    nbytes, cost = graph.evaluate(())  # no choice costs more, and few choices save less
    return nbytes if nbytes == graph.least_bytes else graph.evaluate(Chooser(graph).smallest(cost))[0]


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def least_of(found: Sequence[PolicyCandidate]) -> int:
    """Return the fewest bytes of computed residuals that a choice of any candidate can save."""
    return min(least_possible(candidate.graph) for candidate in found)


def most_of(found: Sequence[PolicyCandidate]) -> int:
    """Return the bytes of saving all names; without names, those of the candidate that saves the most bytes."""
    alone = found[0].graph
    if alone.names:
        return alone.evaluate(alone.names)[0]
    return max(candidate.graph.evaluate(candidate.graph.names)[0] for candidate in found)


def part_of_range(share: float, found: Sequence[PolicyCandidate]) -> int:
    """Return the bytes at a fraction of the range from the least possible bytes to the bytes of all names.

    Raises:
      PlanError: if `share` is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise PlanError(
            f"saved={share!r} is not a fraction. Give a float from 0.0 (as little as possible) to 1.0 (all "
            "names), bytes as an integer, or a string such as '12 MiB'."
        )
    least = least_of(found)
    return least + int(share * (most_of(found) - least))


def budget_code(nbytes: int) -> str:
    """Return Python code for exactly so many bytes, which `budget_bytes` reads: `"16 KiB"`, `1468`."""
    unit, size = max((each for each in BYTES.items() if nbytes % each[1] == 0), key=lambda each: each[1])
    return str(nbytes) if size == 1 or not nbytes else f'"{nbytes // size} {unit}"'


def check_count(count: Any, option: str) -> None:
    """Raise PlanError unless the value of an option is a positive integer."""
    if type(count) is not int or count < 1:
        raise PlanError(f"{option}={count!r} is not valid. Give a whole number, 1 or more.")


def budget_bytes(budget: int | str, what: str, like: str = "12_000_000 or '12 MB'") -> int:
    """Return the bytes that an integer or a string such as `"12 MiB"` or `"1.5 GB"` stands for.

    Raises:
      PlanError: if `budget` is not valid.
    """
    if isinstance(budget, str):
        parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?(?:ytes)?\s*", budget.lower().replace(",", ""))
        if parts is None or parts[2] not in _UNITS:
            raise PlanError(f"{what}={budget!r} cannot be read. Write bytes like '12 MiB', '1.5 GB' or '4096 B'.")
        return int(Fraction(parts[1]) * _UNITS[parts[2]])
    try:
        size = -1 if isinstance(budget, bool) else operator.index(budget)
    except TypeError:
        size = -1
    if size < 0:
        raise PlanError(f"{what}={budget!r} is not a number of bytes. Give {like}.")
    return size
