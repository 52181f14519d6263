"""Parse XLA's message that a program does not fit into the memory of a device.

A TPU's compiler refuses such a program, and a TPU's runtime refuses to load it or to allocate an array. A GPU's runtime
fails at one allocation, often that of all temporaries. Older releases add a dump, which is left out.
"""

import dataclasses
import re

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"([\d.]+)\s*([KMGT]?)i?B?\b"

# Messages that state the needed bytes, and messages that also state the available bytes.
_NEEDED_OF_AVAILABLE = (
    rf"required\b[^.]*?\({_SIZE}\) exceeds available[^.]*?\({_SIZE}\)",
    rf"[Uu]sed {_SIZE} of {_SIZE}",
    rf"total memory \({_SIZE}\)[^.]*?\({_SIZE}\)",
    rf"Attempting to (?:allocate|reserve) {_SIZE}[^;]*?There are {_SIZE} free",
)
_NEEDED = (rf"trying to allocate {_SIZE}", rf"memory allocating {_SIZE}", rf"Failed to allocate request for {_SIZE}")
_DUMP = "BufferAssignment OOM Debugging"  # its first line


@dataclasses.dataclass(frozen=True)
class OutOfMemory:
    """XLA's message that a program does not fit into a device's memory.

    Attributes:
      text: the message, one sentence.
      needed_bytes: the bytes that are needed; None if the message does not say. A TPU's compiler counts
        arguments, temporaries and results, even if it calls them temporaries; a GPU's runtime, the allocation that
        failed.
      available_bytes: the bytes that are available, of a TPU's runtime those that are free; None if the message does
        not say.
    """

    text: str
    needed_bytes: int | None
    available_bytes: int | None


def out_of_memory(message: str) -> OutOfMemory | None:
    """Parse an error message of XLA, or a log that contains one; return None if it is about anything else.

    Example:
      >>> found = out_of_memory("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.5G of 15.75G hbm.")
      >>> found.needed_bytes, found.available_bytes
      (22011707392, 16911433728)
      >>> out_of_memory(
      ...     "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 192.00GiB with allocator GPU_0_bfc "
      ...     "on device 0."
      ... ).needed_bytes
      206158430208
    """
    message, _, _ = message.partition(_DUMP)
    found = re.search(r"RESOURCE_EXHAUSTED:\s*(?:E\d+:\s*)?(?:\w+:\s*)?(.*)", message, re.DOTALL)
    if found is None:  # a log may contain only the allocator's warning
        found = re.search(r"(Allocator \(\w+\) ran out of memory trying to allocate.*)", message)
    if found is None:
        return None
    text = " ".join(found[1].split())
    # XLA wraps the message of a failed allocation in others, such as one about autotuning.
    text = text[max(0, text.find("Out of memory while trying to allocate")) :]
    patterns = (*_NEEDED_OF_AVAILABLE, *_NEEDED)
    sizes = next((match.groups() for pattern in patterns if (match := re.search(pattern, text))), ())
    needed, available = [*(_parse_bytes(*sizes[i : i + 2]) for i in range(0, len(sizes), 2)), None, None][:2]
    # The sentence ends at a period that no digit follows, after the figures if the message has two.
    end = r"(?:\d[KMGT]?i?B?\)?[^.]*?\.(?=\s|$)|$)" if available is not None else r"(?:\.(?=\s|$)|$)"
    sentence = re.match(rf".*?{end}", text)
    text = (sentence[0] if sentence else text).rstrip(".")
    return OutOfMemory(text, needed, available)


def _parse_bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])
