"""Wrap text in narrow columns, including long words such as paths into parameters."""

import re

from rich.cells import cell_len


def wrap(text: str, width: int | None, hang: str = "") -> list[str]:
    """Break `text`, after commas or spaces if possible, so that no line is longer than `width`.

    Args:
      text: one line.
      width: the maximum number of characters; None does not break the text.
      hang: the prefix of all lines except the first.
    """
    if width is None or len(text) <= width:
        return [text]
    hang = hang[: width // 2]  # for deep nesting in a narrow column, so that the rest of the text still gets shorter
    parts = []
    while len(text) > width:
        cut = max(text.rfind(" ", len(hang) + 1, width), text.rfind(",", len(hang), width - 1))
        cut = cut + 1 if cut > len(hang) else _break_position(text, len(hang), width)
        parts.append(text[:cut].rstrip())
        text = hang + text[cut:].lstrip()
    return [*parts, text]


def break_words(text: str, width: int) -> list[str]:
    """Break the words of `text` that are longer than `width`. Lines may still be longer."""
    lines = [""]
    for word in re.split(r"(?<=\s)", text):
        while cell_len(word.rstrip()) > width:
            cut = _break_position(word, 0, width)
            lines[-1] += word[:cut]
            lines.append("")
            word = word[cut:]
        lines[-1] += word
    return lines


def longest_part(text: str) -> int:
    """Return the width of the longest unbreakable piece of `text`: a word, or a part of a path."""
    return max(cell_len(part) for word in text.split() or [""] for part in _OF_PATHS.split(word))


def _break_position(text: str, start: int, width: int) -> int:
    """Return the position where a word is broken: at the end of a part, else of a part of a name, else at the width."""
    for ends in (_PARTS, _OF_NAMES):
        places = [found.end() for found in ends.finditer(text[: width + 1]) if found.end() <= width]
        if places and places[-1] > start + (width - start) // 3:
            return places[-1]
    return width


_OF_PATHS = re.compile(r"(?<=/)|(?=\.(?!py\b|(?<=\d\.)\d))")
_PARTS = re.compile(rf"(?<=[,(\[])|{_OF_PATHS.pattern}")
_OF_NAMES = re.compile(r"(?<=_)|(?=[.:])|(?<=[a-z\d])(?=[A-Z])")
