"""What XLA says where a target has no room for a program, as data."""

import dataclasses
import re

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"([\d.]+)\s*([KMGT]?)i?B?\b"


@dataclasses.dataclass(frozen=True)
class OutOfMemory:
    """A compiler's word that a target has no room for a program.

    Attributes:
      text: what it says, one sentence.
      needed_bytes: what it needs; None where the compiler does not say so. A TPU's compiler counts temporaries alone.
      available_bytes: what there is; or None.
    """

    text: str
    needed_bytes: int | None
    available_bytes: int | None


def out_of_memory(message: str) -> OutOfMemory | None:
    """Reads an error message of XLA's; None if it is about anything else.

    Args:
      message: the message, with whatever stands around it.

    Example:
      >>> found = out_of_memory("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.5G of 15.75G hbm.")
      >>> found.needed_bytes, found.available_bytes
      (22011707392, 16911433728)
    """
    found = re.search(r"RESOURCE_EXHAUSTED:\s*(?:E\d+:\s*)?(?:\w+:\s*)?(.*)", message, re.DOTALL)
    if found is None:
        return None
    said = " ".join(found[1].split())
    ways = [
        rf"required\b[^.]*?\({_SIZE}\) exceeds available[^.]*?\({_SIZE}\)",
        rf"[Uu]sed {_SIZE} of {_SIZE}",
        rf"total memory \({_SIZE}\)[^.]*?\({_SIZE}\)",
    ]
    sizes = next((match.groups() for way in ways if (match := re.search(way, said))), None)
    needed, available = (_bytes(*sizes[:2]), _bytes(*sizes[2:])) if sizes else (None, None)
    # The sentence ends at a point that no digit follows, behind the figures if there are any.
    sentence = re.match(r".*?(?:\.(?=\s|$)|$)" if not sizes else r".*?(?:\d[KMGT]?i?B?\)?[^.]*?\.(?=\s|$)|$)", said)
    return OutOfMemory((sentence[0] if sentence else said).rstrip("."), needed, available)


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])
