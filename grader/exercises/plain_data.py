"""Answers that are plain data, and what is wanted of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grader.util.words import with_article


@dataclass(frozen=True)
class Choice:
    """What a reference returns where some names are to be chosen: order and spaces do not matter.

    A finding says how many are right, not which: the names are what a learner is to find out.

    Attributes:
      chosen: the right names.
      among: all names that the exercise's page offers.
    """

    chosen: tuple[str, ...]
    among: tuple[str, ...]


@dataclass(frozen=True)
class CostedAnswer:
    """What a reference returns where many answers are right: they are carried out, and what they cost is compared.

    Attributes:
      what: what such an answer is, such as `"schedule"`; it is a list.
      cost: what a list costs, a number of `unit`. It takes the answer as it came, and raises Impossible if that breaks
        a rule.
      least: what the best ones cost.
      unit: what the cost is a number of, such as `"steps"`, with an s.
    """

    what: str
    cost: Callable[[list], int]
    least: int
    unit: str


class Impossible(Exception):
    """A plan breaks a rule of the page: the first argument says which one, the second is the question that leads on."""


def plain(value: Any) -> Any:
    """A value in JSON's types. Raises TypeError, which says what it is, for what is no plain data."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Choice):
        return sorted(value.chosen)
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a dict with keys that are not strings")
        return {key: plain(element) for key, element in value.items()}
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number that came from an array
        return plain(value.item())
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        raise TypeError("an array" if hasattr(value, "__array__") else "the shape and dtype of an array")
    raise TypeError(with_article(type(value).__name__))
