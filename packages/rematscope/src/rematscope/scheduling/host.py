"""Offloading as a third choice: host memory holds a loop's stacked residuals until the backward pass fetches them.

For each value in a loop's body, the 0/1 program has one more variable, h[v] ≤ x[v], which says that a saved value is
offloaded. An offloaded value takes no device memory except for the slices of two iterations, one in use and one in
transfer. The cost is the time of the recompute plus the time spent waiting for transfers:

* Transfers to the host overlap with the forward pass, which takes t seconds. The program waits for the rest:
  out ≥ Σ bytes · h[v] / bandwidth − overlap · t
* The program waits for all transfers back to the device: Σ bytes · h[v] / bandwidth

XLA compiles such a program for a TPU as follows: the transfer of an iteration's slice to the host overlaps with the
matmuls of this iteration, and each iteration of the backward pass begins by fetching its slice.

Only stacks are offloaded, because XLA writes their slices to the host in the iterations that compute them. An offloaded
value outside of loops also stays on the device until its copy on the host is read, as long as it fits there.
"""

import dataclasses
import math
import numbers
from collections.abc import Collection
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from rematscope.choices.build import CostFunction
from rematscope.choices.highs import sparse_rows
from rematscope.errors import PlanError
from rematscope.ir.program import Value
from rematscope.planning.budget import budget_bytes
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.peak_program import MIB, PeakProgram
from rematscope.seconds.devices import Device
from rematscope.seconds.roofline import estimate_time

MIN_OFFLOADED_BYTES = 2**20  # smaller stacks are not offloaded


@dataclasses.dataclass(frozen=True)
class HostOffload:
    """The host memory that `auto` may offload values to, and the link to it.

    Attributes:
      bandwidth: the bandwidth of the link in each direction, in bytes/s.
      capacity: the available host memory in bytes: an integer, or a string such as `"64 GiB"`; None for no limit.
      overlap: the fraction of the time of the forward pass during which values can move to the host: 1 if nothing else
        uses the link. With 0, the program waits for every transfer to the host, as it does for every transfer back.

    Raises:
      PlanError: if a field is not valid.

    Example:
      >>> from rematscope import HostOffload
      >>> HostOffload(bandwidth=16e9, capacity="64 GiB").capacity
      68719476736
    """

    bandwidth: float
    capacity: int | str | None = None
    overlap: float = 1.0

    def __post_init__(self) -> None:
        if not _is_number(self.bandwidth) or not 0 < self.bandwidth < math.inf:
            raise PlanError(
                f"bandwidth={self.bandwidth!r} of a HostOffload is not valid. Give the bandwidth of the link in each "
                "direction in bytes/s, a number above 0: bandwidth=16e9."
            )
        if not _is_number(self.overlap) or not 0 <= self.overlap <= 1:
            raise PlanError(
                f"overlap={self.overlap!r} of a HostOffload is not valid. Give the fraction of the forward pass during "
                "which values can move to the host, a number from 0 to 1."
            )
        if self.capacity is not None:
            object.__setattr__(self, "capacity", budget_bytes(self.capacity, "capacity", "64_000_000_000 or '64 GB'"))

    @property
    def available_bytes(self) -> float:
        """The available host memory in bytes; infinite if there is no limit."""
        return math.inf if self.capacity is None else float(self.capacity)


def _is_number(given: object) -> bool:
    return isinstance(given, numbers.Real) and not isinstance(given, bool)


@dataclasses.dataclass(frozen=True)
class Moves:
    """The values that a function may offload, and the time spent waiting for their transfers.

    Attributes:
      host: the host memory and its link.
      linearized: the function.
      hidden: the time of the forward pass, in seconds, that transfers to the host can overlap with.
    """

    host: HostOffload
    linearized: Linearized
    hidden: float

    @classmethod
    def of(cls, linearized: Linearized, own: Linearized | None, host: HostOffload, device: Device) -> "Moves":
        """Return the possible transfers of a function on a device; `own` is the function with its own checkpoints.

        Raises:
          PlanError: if no value of the function can be offloaded.
        """
        passes = linearized.trace
        if passes.axes:
            raise PlanError(
                f"{passes.function} is sharded across devices, and auto does not choose values to offload on each "
                "of them. Remove host=, or offload by name: "
                "jax.checkpoint_policies.save_and_offload_only_these_names."
            )
        if passes.host_bytes() or (own is not None and own.trace.host_bytes()):
            raise PlanError(
                f"{passes.function} already offloads values, but host= lets auto choose them. Remove that policy "
                "from its checkpoints, or remove host=."
            )
        if not any(v.shape for v in linearized.loop_of):
            raise PlanError(
                f"{passes.function} has no loop, and auto offloads only the residuals that loops stack, because XLA "
                "keeps other offloaded values on the device, too, while they fit. Put the layers into "
                "jax.lax.scan, or remove host=."
            )
        return cls(host, linearized, host.overlap * estimate_time(passes, device).forward)

    def may_move(self, value: Value) -> bool:
        """Return whether a value belongs to a loop whose stack of it is large enough to offload."""
        loop = self.linearized.loop_of.get(value)
        key = jnp.issubdtype(value.dtype, jax.dtypes.extended)
        return loop is not None and not key and loop.length * value.nbytes >= MIN_OFFLOADED_BYTES

    def seconds(self, size: float) -> float:
        """Return the time of a transfer in one direction."""
        return size / self.host.bandwidth

    def waited(self, size: float) -> float:
        """Return the seconds that both passes wait if `size` bytes are offloaded."""
        return max(0.0, self.seconds(size) - self.hidden) + self.seconds(size)


class HostPeakProgram(PeakProgram):
    """The 0/1 program in which x says that a value of a loop is saved, and h that it is offloaded.

    Its columns are those of `PeakProgram`, one column per h, and one for the time spent waiting for transfers.
    """

    def __init__(self, moves: Moves, fixed: Collection[Value], cost: CostFunction):
        super().__init__(moves.linearized, fixed, cost)
        self._moves = moves

    @cached_property
    def _column_layout(self) -> tuple:
        x, r, size = super()._column_layout
        movable = [v for v in x if self._moves.may_move(v)]
        self.moves = {v: size + i for i, v in enumerate(movable)}
        self.waits = 1
        return x, r, size + len(movable) + self.waits

    @cached_property
    def _seconds_unit(self) -> float:
        """The unit of the column of waiting time, in seconds: the largest recompute cost, for good scaling."""
        return max(self.costs.values(), default=0.0) or 1e-3

    @cached_property
    def _implication_rows(self) -> tuple:
        matrix, least = super()._implication_rows
        x, _, size = self._column_layout
        rows = [({x[v]: 1.0, h: -1.0}, 0.0) for v, h in self.moves.items()]
        row = {h: -self._moves.seconds(self.weight(v)) / self._seconds_unit for v, h in self.moves.items()}
        rows.append((row | {size - 1: 1.0}, -self._moves.hidden / self._seconds_unit))
        if self._moves.host.capacity is not None:
            row = {h: -self.weight(v) / MIB for v, h in self.moves.items()}
            rows.append((row, -self._moves.host.available_bytes / MIB))
        more = sparse_rows([row for row, _ in rows], size)
        return scipy.sparse.vstack([matrix, more], format="csc"), np.append(least, [bound for _, bound in rows])

    @cached_property
    def _peak_rows(self) -> tuple:
        matrix, given = super()._peak_rows
        x, _, size = self._column_layout
        # An offloaded stack of n slices frees its device memory except for the slices of two iterations.
        less = [2 / max(self.linearized.loop_of[v].length, 2) - 1 for v in self.moves]
        places = [x[v] for v in self.moves], [*self.moves.values()]
        return matrix + matrix @ scipy.sparse.csc_array((less, places), shape=(size, size)), given

    @cached_property
    def _saved_bytes_row(self) -> np.ndarray:
        row = super()._saved_bytes_row
        for value, h in self.moves.items():
            row[h] = -self.weight(value) / MIB
        return row

    @cached_property
    def _cost_row(self) -> np.ndarray:
        objective = super()._cost_row
        for value, h in self.moves.items():
            objective[h] = self._moves.seconds(self.weight(value))
        objective[-1] = self._seconds_unit
        return objective
