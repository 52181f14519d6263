"""Numbers with units as text."""

from collections.abc import Iterable, Sequence

THOUSANDS = ["", "k", "M", "G", "T", "P"]
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def bytes_text(count: float) -> str:
    """Return bytes as text, exact below 1 KiB, else with three digits: `72 B`, `16 KiB`, `1.25 MiB`."""
    return _scaled_text(count, 1024, list(BYTES))


def count_text(count: int, unit: str = "") -> str:
    """Return a count with its unit, exact below 10,000, else with three digits: `11 transcendentals`, `1.2 M FLOPs`."""
    unit = unit if count != 1 else unit.removesuffix("s")
    number = f"{count:,}" if count < 10_000 else _scaled_text(count, 1000, THOUSANDS)
    return f"{number} {unit}".rstrip()


def amount_text(cost: float) -> str:
    """Return a cost as text: `9,999` or `1.2 M`; for a float in the user's unit, `0.0123`."""
    return count_text(cost) if isinstance(cost, int) else f"{cost:.3g}"


def amount_texts(costs: Sequence[float]) -> list[str]:
    """Return the costs of a column as texts in the unit of the largest: `0.0974 T`, `6.69 T`.

    An amount below 1,000, or that would be less than 0.001, keeps its own unit.
    """
    largest, i = float(max(costs, default=0)), 0
    if not all(isinstance(cost, int) for cost in costs) or largest < 10_000:
        return [amount_text(cost) for cost in costs]
    while largest >= 1000 and i < len(THOUSANDS) - 1:
        largest, i = largest / 1000, i + 1
    size, least = 1000.0**i, max(1000, 1000.0 ** (i - 1))
    return [amount_text(cost) if cost < least else f"{_format_size(cost / size)} {THOUSANDS[i]}" for cost in costs]


SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12}


def seconds_text(seconds: float) -> str:
    """Return a time as text with three digits: `5.58 ms`, `12 µs`."""
    unit = next((unit for unit, size in SECONDS.items() if seconds >= size), "ps" if seconds else "s")
    return f"{seconds / SECONDS[unit]:.3g} {unit}"


def _scaled_text(count: float, step: int, units: list[str]) -> str:
    size, i = float(count), 0
    while size >= step and i < len(units) - 1:
        size, i = size / step, i + 1
    return f"{_format_size(size)} {units[i]}".rstrip()


def _format_size(size: float) -> str:
    return f"{size:.3g}" if size < 1000 else f"{size:.0f}"


def counted(count: int, word: str) -> str:
    """Return a count with a noun: `1 point`, `1,234 points`."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def joined(words: Sequence[str]) -> str:
    """Return words as text: `a`, `a and b`, or `a, b and c`; empty without words."""
    *others, last = words or [""]
    return f"{', '.join(others)} and {last}" if others else last


def first_of(texts: Iterable[str], most: int = 3) -> str:
    """Return the first of some texts without duplicates, and how many more there are: `a, b, c and 2 more`."""
    distinct = list(dict.fromkeys(texts))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more


_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar_text(fraction: float, width: int = 6) -> str:
    """Return a bar of block characters, padded to `width`: `███▎ ` for 0.55."""
    eighths = round(8 * width * min(max(fraction, 0.0), 1.0))
    full, part = divmod(max(eighths, fraction > 0), 8)
    return ("█" * full + _EIGHTHS[part] * (part > 0)).ljust(width)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table without lines: the first column is aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


_FACTOR = 9  # a difference of +900 %, ten times as much, is the first that is written as a factor


def difference_text(difference: float, digits: int = 1) -> str:
    """Return a relative difference as text: `+3.1 %`, or a factor such as `× 24,000` if it is at least 10."""
    if difference >= _FACTOR:
        return f"× {difference + 1:,.0f}"
    text = f"{100 * difference:+.{digits}f} %"
    return text[1:] if not float(text[:-2]) else text.replace("-", "−")
