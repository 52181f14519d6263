"""Put numbers, types and lists into words."""

from collections.abc import Sequence


def counted(number: int, things: str) -> str:
    """Return a number and its noun, such as `"2 steps"` and `"1 step"`; `things` is the plural of the noun."""
    singular = f"{things.removesuffix('ies')}y" if things.endswith("ies") else things.removesuffix("s")
    return f"{number} {singular if number == 1 else things}"


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article, such as `"an int"`."""
    return f"{'an' if noun[0] in 'aeioAEIO' else 'a'} {noun}"


def joined(names: Sequence[str]) -> str:
    """Return names as an enumeration, such as `"x, y and z"`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
