"""Parse XLA's message that a program does not fit into the memory of a device.

A TPU's compiler refuses such a program, and a TPU's runtime refuses to load it or to allocate an array. A GPU's runtime
fails at one allocation, often that of all temporaries. Older releases add a dump, "BufferAssignment OOM Debugging",
with the allocations of the program and its largest buffers at the peak; JAX 0.11.2 on an H200 does not.
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
_DUMP = "BufferAssignment OOM Debugging"


@dataclasses.dataclass(frozen=True)
class PeakBuffer:
    """A buffer that is live at the peak, as a GPU's dump lists it.

    Attributes:
      nbytes: its bytes, as far as the dump's rounded figure tells.
      shape: its type and shape, `f32[4096,128,3]`; "" if the dump does not say.
      operation: the operation that writes it, as JAX's name stack names it; "" for an argument.
      source: the line of that operation, `model.py:689`; "" if the dump does not say.
      is_argument: whether it is an argument of the program.
    """

    nbytes: int
    shape: str
    operation: str
    source: str
    is_argument: bool


@dataclasses.dataclass(frozen=True)
class OutOfMemory:
    """XLA's message that a program does not fit into a device's memory.

    Attributes:
      text: the message, one sentence.
      needed_bytes: the bytes that are needed; None if the message does not say. A TPU's compiler counts temporaries
        alone, a GPU's runtime the allocation that failed.
      available_bytes: the bytes that are available, of a TPU's runtime those that are free; None if the message does
        not say.
      allocations: of a GPU's dump, the bytes by kind: `"parameter"`, `"constant"`, `"maybe_live_out"` (results),
        `"preallocated temp"` and `"total"`.
      buffers: of a GPU's dump, the largest buffers at the peak, largest first.
    """

    text: str
    needed_bytes: int | None
    available_bytes: int | None
    allocations: dict[str, int] = dataclasses.field(default_factory=dict)
    buffers: tuple[PeakBuffer, ...] = ()


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
    message, _, dump = message.partition(_DUMP)
    found = re.search(r"RESOURCE_EXHAUSTED:\s*(?:E\d+:\s*)?(?:\w+:\s*)?(.*)", message, re.DOTALL)
    if found is None:  # a log may contain only the allocator's warning
        found = re.search(r"(Allocator \(\w+\) ran out of memory trying to allocate.*)", message)
    if found is None:
        return None
    said = " ".join(found[1].split())
    # XLA wraps the message of a failed allocation in others, such as one about autotuning.
    said = said[max(0, said.find("Out of memory while trying to allocate")) :]
    patterns = (*_NEEDED_OF_AVAILABLE, *_NEEDED)
    sizes = next((match.groups() for pattern in patterns if (match := re.search(pattern, said))), ())
    needed, available = [*(_parse_bytes(*sizes[i : i + 2]) for i in range(0, len(sizes), 2)), None, None][:2]
    # The sentence ends at a period that no digit follows, after the figures if the message has two.
    end = r"(?:\d[KMGT]?i?B?\)?[^.]*?\.(?=\s|$)|$)" if available is not None else r"(?:\.(?=\s|$)|$)"
    sentence = re.match(rf".*?{end}", said)
    text = (sentence[0] if sentence else said).rstrip(".")
    _, *blocks = re.split(r"^\s*Buffer \d+:\s*$", dump, flags=re.MULTILINE)  # of the dump's `Peak buffers`
    return OutOfMemory(text, needed, available, _read_allocations(dump), tuple(map(_peak_buffer, blocks)))


def _parse_bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])


def _read_allocations(dump: str) -> dict[str, int]:
    """Return the bytes of each kind of allocation from a dump's `BufferAssignment stats`."""
    found = re.findall(rf"^ *([\w ]+?) allocation: *{_SIZE}", dump, re.MULTILINE)
    return {kind: _parse_bytes(number, unit) for kind, number, unit in found}


def _peak_buffer(block: str) -> PeakBuffer:
    def field(pattern: str) -> str:
        found = re.search(pattern, block)
        return found[1] if found else ""

    size = re.search(rf"Size: {_SIZE}", block)
    argument = field(r"Entry Parameter Subshape: (\S+)")
    file, line = field(r'source_file="([^"]*)"'), field(r"source_line=(\d+)")
    return PeakBuffer(
        nbytes=_parse_bytes(*size.groups()) if size else 0,
        shape=argument or field(r"\bShape: (\S+)"),
        operation=field(r'op_name="([^"]*)"'),
        source=f"{file}:{line}" if file else "",
        is_argument=bool(argument),
    )
