"""Parse JSON from an untrusted source, within a bound on memory."""

import json
from typing import Any

_MAX_PARTS = 1_000_000


def loads(text: str | bytes) -> Any:
    """Parse JSON. Raise ValueError if it is invalid, or might take much more memory than its text does.

    A list that is two characters long takes some hundred bytes; so lists, dicts and commas are counted first, those in
    strings too.
    """
    parts = sum(map(text.count, "[{,")) if isinstance(text, str) else sum(map(text.count, b"[{,"))
    if parts > _MAX_PARTS:
        raise ValueError(f"JSON of more than {_MAX_PARTS:,} parts")
    return json.loads(text)
