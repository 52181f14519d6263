"""List the buffers that fill the memory of a function, with modules and source lines, over time and at the peak."""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from rematscope.ir.cost import cost_of, operations
from rematscope.ir.program import Equation, Literal, Value, type_text
from rematscope.ir.source import calls_to
from rematscope.memory.xla_estimate.estimate import Allocation, Allocations
from rematscope.tracing.trace import Trace, programs_of

KINDS = (
    "parameters",
    "optimizer state",
    "arguments",
    "outputs",
    "gradients",
    "saved activations",
    "recomputed",
    "temporaries",
)
_SAMPLES = 600  # of the memory over time; each is the maximum over several steps
_BANDS = 60  # that are not merged
_DEEPEST = 5  # the number of innermost functions that replace the module of an operation without one


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A buffer that is live at the peak.

    Attributes:
      name: the path of an argument, such as `params.w`; else the operation that computes the buffer.
      type: the dtype and shape, such as `f32[16,64]`.
      nbytes: the size in bytes.
      kind: one of `KINDS`.
      module: the parts of the module's path, or the names of the functions that computed the buffer.
      operation: the operation that computes the buffer; "" for an argument.
      source: the source line, such as `model.py:12`; "" if it is not known.
      times: for an array that a loop stacks, the number of iterations that write it; else 1.
    """

    name: str
    type: str
    nbytes: int
    kind: str
    module: tuple[str, ...]
    operation: str
    source: str
    times: int = 1


@dataclasses.dataclass(frozen=True)
class Module:
    """The FLOPs and bytes of a module.

    Attributes:
      path: the parts of the module's path.
      forward_flops, recompute_flops, backward_flops: the FLOPs and transcendentals of all iterations of loops.
      peak_bytes: the bytes of the module's buffers that are live at the peak.
    """

    path: tuple[str, ...]
    forward_flops: int
    recompute_flops: int
    backward_flops: int
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class BufferGroup:
    """Buffers of repeated layers, whose names and modules differ only in numbers.

    Attributes:
      buffers: the buffers, at least one.
    """

    buffers: tuple[Buffer, ...]

    @property
    def nbytes(self) -> int:
        """The total bytes of the buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)

    @property
    def array(self) -> str:
        """The dtype and shape of the buffers, after their number if there are several."""
        count, kind_of_array = len(self.buffers), self.buffers[0].type
        return f"{count} × {kind_of_array}" if count > 1 else kind_of_array

    @property
    def kind(self) -> str:
        """The kind of the buffers, and the number of iterations of the loop that stacks them."""
        first = self.buffers[0]
        return f"{first.kind}, {first.times} iterations" if first.times > 1 else first.kind

    def name(self, depth: int = 0) -> str:
        """Return the module of the buffers, or the name of an argument, with `*` for numbers that differ.

        Args:
          depth: the number of parts at the end of the module's path to include; 0 for all.
        """
        names = ["/".join(b.module[-depth:]) if b.operation else b.name for b in self.buffers]
        return names[0] if len(set(names)) == 1 else _any_number(names[0])


def _any_number(name: str) -> str:
    return re.sub(r"\d+", "*", name)


def grouped(buffers: Iterable[Buffer]) -> list[BufferGroup]:
    """Group buffers whose names and modules differ only in numbers, and return the groups by decreasing bytes."""
    groups: dict[Any, list[Buffer]] = {}
    for buffer in buffers:
        names = tuple(map(_any_number, (buffer.name, *buffer.module)))
        key = buffer.type, buffer.kind, buffer.operation, buffer.source, buffer.times, names
        groups.setdefault(key, []).append(buffer)
    return sorted((BufferGroup(tuple(each)) for each in groups.values()), key=lambda group: -group.nbytes)


def grouped_modules(modules: Iterable[Module]) -> list[tuple[int, Module]]:
    """Add up modules whose paths differ only in numbers.

    Returns:
      for each group, by decreasing bytes at the peak: its number of modules, and a module with their sums.
    """
    groups: dict[tuple[str, ...], list[Module]] = {}
    for module in modules:
        groups.setdefault(tuple(map(_any_number, module.path)), []).append(module)
    found = []
    for path, group in groups.items():
        columns = [(m.forward_flops, m.recompute_flops, m.backward_flops, m.peak_bytes) for m in group]
        sums = Module(path, *map(sum, zip(*columns, strict=True)))
        found.append((len(group), sums if len(group) > 1 else group[0]))
    return sorted(found, key=lambda each: -each[1].peak_bytes)


class Contents:
    """The buffers of a function over time, from its trace."""

    def __init__(self, passes: Trace, memory: Allocations):
        self.passes, self.memory = passes, memory

    @cached_property
    def peak_step(self) -> int:
        """The step with the most live bytes, the first one if there are several."""
        temporaries = self.memory.temporary_bytes
        return max(range(len(temporaries)), key=temporaries.__getitem__, default=0)

    @cached_property
    def backward(self) -> tuple[int, int]:
        """The first step of the backward pass, and the step after its last one.

        XLA runs some operations of the backward pass early. The first step is chosen so that the fewest operations are
        on the wrong side of it.
        """
        roles = [self._role_at(i) != "" for i in range(len(self.memory.steps))]
        last = max((i + 1 for i, role in enumerate(roles) if role), default=len(roles))
        early, late = 0, last - sum(roles)  # the operations on the wrong side if the backward pass begins at this step
        least, first = late, 0
        for i, role in enumerate(roles[:last], 1):
            early, late = early + role, late - (not role)
            if early + late < least:
                least, first = early + late, i
        return first, last

    def _role_at(self, place: int) -> str:
        """Return the role of the operation at a step; "" outside of the backward pass."""
        step = self.memory.steps[place] if 0 <= place < len(self.memory.steps) else ""
        return step.role if isinstance(step, Equation) else ""

    @cached_property
    def _maker_of(self) -> dict[Value, Equation]:
        found: dict[Value, Equation] = {}
        for step in self.memory.steps:
            if isinstance(step, Equation):
                found.update(dict.fromkeys(step.outputs, step))
        return found

    @cached_property
    def fixed(self) -> list[Buffer]:
        """The buffers that are live throughout: arguments, constants and outputs, the largest first."""
        step = self.passes.step
        gradients = set(self.passes.backward.outputs) if step is None else set[Value]()
        found = []
        for value in self.memory.given:
            kind = "arguments"
            if step is not None and value in step.parameters | step.state:
                kind = "parameters" if value in step.parameters else "optimizer state"
            name = value.name or "a constant"
            path = tuple(name.replace("[", ".[").split(".")) if value.name else ("constants",)
            found.append(Buffer(name, type_text(value), value.device_bytes, kind, path, "", ""))
        for value in self.memory.results:
            kind = "gradients" if value in gradients else "outputs"
            found.append(self._buffer_of(value, value.device_bytes, kind))
        if self.memory.copied_bytes:
            found.append(
                Buffer("copies of arguments", "", self.memory.copied_bytes, "outputs", ("copies",), "copy", "")
            )
        return sorted(found, key=lambda buffer: -buffer.nbytes)

    @cached_property
    def peak(self) -> list[Buffer]:
        """The buffers that are live at the peak, the largest first. Their bytes add up to the peak."""
        live = [each for each in self.memory.temporaries if each.start <= self.peak_step < each.stop]
        found = [self._of_allocation(each) for each in live if each.nbytes]
        return sorted([*self.fixed, *found], key=lambda buffer: -buffer.nbytes)

    @property
    def peak_bytes(self) -> int:
        """The predicted peak."""
        return self.memory.peak_bytes

    @cached_property
    def bytes_by_kind(self) -> dict[str, int]:
        """The bytes at the peak by kind; they add up to the peak."""
        found = Counter[str]()
        for buffer in self.peak:
            found[buffer.kind] += buffer.nbytes
        return {kind: found[kind] for kind in KINDS if found[kind]}

    def _of_allocation(self, each: Allocation) -> Buffer:
        if each.value is None:
            step = self.memory.steps[min(each.start, len(self.memory.steps) - 1)]
            maker = step if isinstance(step, Equation) else None
            return self._named_buffer("scratch memory", "", each.nbytes, "temporaries", maker)
        return self._buffer_of(each.value, each.nbytes, self._kind_of(each))

    def _kind_of(self, each: Allocation) -> str:
        maker = self._maker_of.get(each.value) if each.value is not None else None
        made = maker.role if maker is not None else ""
        # The last reader of a buffer is the last step that it is live in, or the next step, which overwrites it.
        read = self._role_at(each.stop - 1) or self._role_at(each.stop)
        if not made:
            return "saved activations" if read else "temporaries"
        if made in ("R", "D"):
            return "recomputed"
        return "temporaries" if self._role_at(each.stop - 1) else "gradients"

    def _buffer_of(self, value: Value, nbytes: int, kind: str) -> Buffer:
        maker, times = _inner_maker(value, self._maker_of)
        return self._named_buffer("", type_text(value), nbytes, kind, maker, times)

    def _named_buffer(
        self, name: str, kind_of_array: str, nbytes: int, kind: str, maker: Equation | None, times: int = 1
    ) -> Buffer:
        if maker is None:
            return Buffer(name or "a copy", kind_of_array, nbytes, kind, ("copies",), "copy", "")
        source = "" if maker.source is None else maker.source.where
        return Buffer(
            name or maker.primitive, kind_of_array, nbytes, kind, path_of(maker), maker.primitive, source, times
        )

    # Over time

    def timeline(self) -> "Timeline":
        """Return the live bytes over time, by kind and by module."""
        groups: dict[tuple[str, str], list[Allocation]] = {}
        depth = self._module_depth()
        for each in self.memory.temporaries:
            maker = None if each.value is None else _inner_maker(each.value, self._maker_of)[0]
            path = path_of(maker)[:depth] if maker is not None else ()
            groups.setdefault((self._kind_of(each), "/".join(path) or "other"), []).append(each)
        fixed = Counter[str]()
        for buffer in self.fixed:
            fixed[buffer.kind] += buffer.nbytes
        edges = self._sample_edges()
        samples = self._peak_steps(edges)
        bands = [Band(kind, "", tuple([fixed[kind]] * (len(edges) - 1))) for kind in KINDS if fixed[kind]]
        made = [Band(kind, name, _bytes_at(samples, of)) for (kind, name), of in groups.items()]
        order = {kind: i for i, kind in enumerate(KINDS)}
        made.sort(key=lambda band: (order[band.kind], min(each.start for each in groups[band.kind, band.module])))
        return Timeline(
            tuple(bands + _merge_small_bands(made)),
            tuple(samples),
            len(self.memory.steps),
            self.backward[0],
            self.peak_step,
        )

    def _module_depth(self) -> int:
        """Return the largest number of leading parts of a path that gives at most 40 groups."""
        paths = [path_of(maker) for maker in set(self._maker_of.values())]
        counts = [len({path[:depth] for path in paths}) for depth in range(1, _DEEPEST + 2)]
        fitting = [depth for depth, count in enumerate(counts, 1) if count <= 40]
        return max(fitting, default=1)

    def _sample_edges(self) -> list[int]:
        count = len(self.memory.steps) + 1
        samples = min(_SAMPLES, count)
        return [count * i // samples for i in range(samples + 1)]

    def _peak_steps(self, edges: Sequence[int]) -> list[int]:
        """Return the step with the most live bytes between each two edges, so that the peak is among the samples."""
        live = self.memory.temporary_bytes
        return [max(range(a, b), key=lambda i: live[i] if i < len(live) else 0) for a, b in itertools.pairwise(edges)]

    # By module

    @cached_property
    def modules(self) -> list[Module]:
        """The FLOPs and the bytes at the peak of each module, the largest first."""
        work: dict[tuple[str, ...], list[int]] = {}
        for equation, times in itertools.chain.from_iterable(program.walk() for program in programs_of(self.passes)):
            if equation.bodies:
                continue
            which = 0 if not equation.role else 1 if equation.role in ("R", "D") else 2
            work.setdefault(path_of(equation), [0, 0, 0])[which] += operations(cost_of(equation)) * times
        nbytes = Counter[tuple[str, ...]]()
        for buffer in self.peak:
            if buffer.kind not in ("parameters", "optimizer state", "arguments"):
                nbytes[buffer.module] += buffer.nbytes
        for path in nbytes:
            work.setdefault(path, [0, 0, 0])
        rows = [Module(path, f, r, b, nbytes[path]) for path, (f, r, b) in work.items()]
        return sorted(rows, key=lambda m: (-m.peak_bytes, -(m.forward_flops + m.recompute_flops + m.backward_flops)))

    def trace_events(self) -> dict[str, Any]:
        """Return the memory over time and the operations as a Chrome trace, for Perfetto."""
        events: list[dict[str, Any]] = [
            {
                "ph": "M",
                "pid": 1,
                "name": "process_name",
                "args": {"name": f"{self.passes.function}: one unit per step"},
            }
        ]
        live, fixed = self.memory.temporary_bytes, self.memory.fixed_bytes
        kinds = [Counter[str]() for _ in range(len(live) + 1)]
        for each in self.memory.temporaries:
            kind = self._kind_of(each)
            kinds[each.start][kind] += each.nbytes
            kinds[min(each.stop, len(live))][kind] -= each.nbytes
        now = Counter[str]({"arguments and outputs": fixed})
        for i, step in enumerate(self.memory.steps):
            now.update(kinds[i])
            events.append({"ph": "C", "pid": 1, "ts": i, "name": "live bytes", "args": dict(now)})
            if isinstance(step, Equation):
                events.append(
                    {
                        "ph": "X", "pid": 1, "tid": 1 + bool(step.role), "ts": i, "dur": 1, "name": step.primitive,
                        "args": {"module": "/".join(path_of(step)), "source": str(step.source or "")},
                    }
                )  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ns"}


@dataclasses.dataclass(frozen=True)
class Band:
    """The live bytes of one kind and module over time.

    Attributes:
      kind: one of `KINDS`.
      module: the module; "" for buffers that are live throughout.
      nbytes: the bytes at each sample.
    """

    kind: str
    module: str
    nbytes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The live bytes over time, stacked by kind and module.

    Attributes:
      bands: the bands, from the bottom to the top.
      samples: the step of each sample.
      steps: the number of steps.
      boundary: the first step of the backward pass.
      peak_step: the step of the peak.
    """

    bands: tuple[Band, ...]
    samples: tuple[int, ...]
    steps: int
    boundary: int
    peak_step: int

    @property
    def totals(self) -> list[int]:
        """The live bytes at each sample."""
        return [sum(column) for column in zip(*(band.nbytes for band in self.bands), strict=True)]


def _bytes_at(samples: Sequence[int], of: Iterable[Allocation]) -> tuple[int, ...]:
    """Return the bytes of the given buffers that are live at each sampled step."""
    changes = Counter[int]()
    for each in of:
        changes[each.start] += each.nbytes
        changes[each.stop] -= each.nbytes
    found, now, places = [], 0, iter(sorted(changes))
    place = next(places, None)
    for step in samples:
        while place is not None and place <= step:
            now += changes[place]
            place = next(places, None)
        found.append(now)
    return tuple(found)


def _merge_small_bands(bands: Sequence[Band]) -> list[Band]:
    """Return the bands, with all bands that stay small merged into one per kind."""
    largest = sorted((max(band.nbytes, default=0) for band in bands), reverse=True)
    least = max(largest[_BANDS] if len(largest) > _BANDS else 0, 0.004 * max(largest, default=0))
    kept = [band for band in bands if max(band.nbytes, default=0) > least]
    for kind in KINDS:
        small = [band.nbytes for band in bands if band.kind == kind and max(band.nbytes, default=0) <= least]
        if small:
            kept.append(Band(kind, "other", tuple(map(sum, zip(*small, strict=True)))))
    order = {kind: i for i, kind in enumerate(KINDS)}
    return sorted(kept, key=lambda band: order[band.kind])  # stable: modules stay in the order of the program


def _inner_maker(value: Value, makers: dict[Value, Equation]) -> tuple[Equation | None, int]:
    """Return the operation that computes a value, and the number of iterations that stack the value.

    For a result of a loop or a `shard_map`, the operation is the one in the body.
    """
    maker, times = makers.get(value), 1
    while maker is not None and maker.bodies and maker.primitive in ("scan", "while", "shard_map"):
        place = maker.outputs.index(value) if value in maker.outputs else None
        body = maker.bodies[-1]
        if place is None or place >= len(body.outputs):
            break
        if maker.primitive == "scan" and place >= maker.carries:
            times *= maker.length
        inner = body.outputs[place]
        inside = next((e for e in body.equations if inner in e.outputs), None)
        if inside is None or isinstance(inner, Literal):
            break
        value, maker = inner, inside
    return maker, times


def path_of(equation: Equation) -> tuple[str, ...]:
    """Return the parts of an operation's module path.

    For an operation without a module, return the names of the user's functions that called it, outermost first. A
    model's `__call__` has the name of its class.
    """
    if equation.module:
        return tuple(equation.module.split("/"))
    for record in (equation.eqn.source_info, *(eqn.source_info for eqn in equation.calls)):
        names = [
            call.rstrip(")").rpartition(" ")[2].rpartition("<locals>.")[2].removesuffix(".__call__")
            for call, place in calls_to(record)
            if _is_users(place)
        ]
        names = [name for name in names if not name.startswith("<")]
        if names:
            return tuple(names[1:][-_DEEPEST:] or names)
    return ("other",)


def _is_users(place: str) -> bool:
    return "site-packages" not in place and "dist-packages" not in place and "/lib/python3" not in place
