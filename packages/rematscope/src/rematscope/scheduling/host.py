"""The host as a third choice: what a loop stacks waits in the host's memory, and is fetched for the backward pass.

Of each value in a loop's body the 0/1 program decides once more, h[v] ≤ x[v]: what is kept is on the host, and its
bytes are none of the device's but for the parts of two iterations, one in use and one on its way. What moves are waited
for is added to what is computed again:

* To the host they go on while the forward pass computes:  out ≥ Σ bytes · h[v] / bandwidth − overlap · its seconds
* What comes back is waited for:                           Σ bytes · h[v] / bandwidth

For so XLA compiles them for a TPU: what an iteration sends goes beside its products, and each iteration of the backward
pass begins with fetching its part, for what is read first.

Only stacks move. XLA writes each iteration's part of a stack to the host in that iteration. What else is sent there it
holds on the device too until the host's copy is read, as long as there is room.
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
from rematscope.errors import PlanError
from rematscope.ir.program import Value
from rematscope.planning.budget import budget_bytes
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.peak_program import MIB, PeakProgram
from rematscope.seconds.devices import Device
from rematscope.seconds.roofline import estimate_time

LEAST = 2**20  # bytes of a stack: what is smaller stays


@dataclasses.dataclass(frozen=True)
class HostOffload:
    """The host memory that `auto` may offload values to, and the link to it.

    Attributes:
      bandwidth: the bytes per second of the link, in each direction.
      capacity: the host memory available, in bytes or as a text such as `"64 GiB"`; None for no limit.
      overlap: the fraction of the forward pass's time during which values can move to the host. 1 if nothing else uses
        the link. With 0, the program waits for every transfer to the host, as it does for every transfer back.

    Raises:
      PlanError: if one of the values is not valid.

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
                f"bandwidth={self.bandwidth!r} of a HostOffload is not valid. Give the bytes per second that the link "
                "carries in each direction, a number above 0: bandwidth=16e9."
            )
        if not _is_number(self.overlap) or not 0 <= self.overlap <= 1:
            raise PlanError(
                f"overlap={self.overlap!r} of a HostOffload is not valid. Give the fraction of the forward pass during "
                "which values can move to the host, from 0 to 1."
            )
        if self.capacity is not None:
            object.__setattr__(self, "capacity", budget_bytes(self.capacity, "capacity", "64_000_000_000 or '64 GB'"))

    @property
    def available_bytes(self) -> float:
        """The bytes of host memory available."""
        return math.inf if self.capacity is None else float(self.capacity)


def _is_number(given: object) -> bool:
    return isinstance(given, numbers.Real) and not isinstance(given, bool)


@dataclasses.dataclass(frozen=True)
class Moves:
    """What a function may move to a host, and how long that is waited for.

    Attributes:
      host: the host.
      linearized: the function.
      hidden: seconds of its forward pass beside which values move to the host.
    """

    host: HostOffload
    linearized: Linearized
    hidden: float

    @classmethod
    def of(cls, linearized: Linearized, own: Linearized | None, host: HostOffload, device: Device) -> "Moves":
        """Those of a function on a device; `own` is the function with checkpoints that it has.

        Raises:
          PlanError: if nothing of it can move.
        """
        passes = linearized.trace
        if passes.axes:
            raise PlanError(
                f"{passes.function} is sharded across devices, and auto does not choose what each of them "
                "offloads. Remove host=, or offload by name: "
                "jax.checkpoint_policies.save_and_offload_only_these_names."
            )
        if passes.host_bytes() or (own is not None and own.trace.host_bytes()):
            raise PlanError(
                f"{passes.function} already offloads values, but host= lets auto choose them. Remove that policy "
                "from its checkpoints, or remove host=."
            )
        if not any(v.shape for v in linearized.loop_of):
            raise PlanError(
                f"{passes.function} has no loop, and auto offloads only the residuals that loops stack: XLA "
                "keeps other offloaded values on the device too while they fit. Put the layers into "
                "jax.lax.scan, or remove host=."
            )
        return cls(host, linearized, host.overlap * estimate_time(passes, device).forward)

    def may_move(self, value: Value) -> bool:
        """Whether a stack of such values is worth a move."""
        loop = self.linearized.loop_of.get(value)
        key = jnp.issubdtype(value.dtype, jax.dtypes.extended)
        return loop is not None and not key and loop.length * value.nbytes >= LEAST

    def seconds(self, size: float) -> float:
        """How long so many bytes take, in one direction."""
        return size / self.host.bandwidth

    def waited(self, size: float) -> float:
        """Seconds that both passes wait until so many bytes are there, and here again."""
        return max(0.0, self.seconds(size) - self.hidden) + self.seconds(size)


class HostPeakProgram(PeakProgram):
    """The 0/1 program with a third choice for each value of a loop: x says that it is kept, h that it is on the host.

    After the columns of `PeakProgram` stand those of h, and then what is waited for on the way to the host.
    """

    def __init__(self, moves: Moves, fixed: Collection[Value], cost: CostFunction):
        super().__init__(moves.linearized, fixed, cost)
        self._moves = moves

    @cached_property
    def _columns(self) -> tuple:
        x, r, size = super()._columns
        movable = [v for v in x if self._moves.may_move(v)]
        self.moves = {v: size + i for i, v in enumerate(movable)}
        self.waits = 1
        return x, r, size + len(movable) + self.waits

    @cached_property
    def _unit(self) -> float:
        """Seconds that a column of what is waited for counts in."""
        return max(self.costs.values(), default=0.0) or 1e-3

    @cached_property
    def _implied(self) -> tuple:
        matrix, least = super()._implied
        x, _, size = self._columns
        rows = [({x[v]: 1.0, h: -1.0}, 0.0) for v, h in self.moves.items()]
        row = {h: -self._moves.seconds(self.weight(v)) / self._unit for v, h in self.moves.items()}
        rows.append((row | {size - 1: 1.0}, -self._moves.hidden / self._unit))
        if self._moves.host.capacity is not None:
            row = {h: -self.weight(v) / MIB for v, h in self.moves.items()}
            rows.append((row, -self._moves.host.available_bytes / MIB))
        more = scipy.sparse.lil_array((len(rows), size))
        for i, (row, _) in enumerate(rows):
            for j, c in row.items():
                more[i, j] = c
        return scipy.sparse.vstack([matrix, more], format="csc"), np.append(least, [bound for _, bound in rows])

    @cached_property
    def _peaks(self) -> tuple:
        matrix, given = super()._peaks
        x, _, size = self._columns
        # What is on the host takes as much less as it took, but for the parts of two iterations.
        less = [2 / max(loop.length, 2) - 1 for v in self.moves if (loop := self._loop(v)) is not None]
        places = [x[v] for v in self.moves], [*self.moves.values()]
        return matrix + matrix @ scipy.sparse.csc_array((less, places), shape=(size, size)), given

    @cached_property
    def _bytes(self) -> np.ndarray:
        row = super()._bytes
        for value, h in self.moves.items():
            row[h] = -self.weight(value) / MIB
        return row

    @cached_property
    def _objective(self) -> np.ndarray:
        objective = super()._objective
        for value, h in self.moves.items():
            objective[h] = self._moves.seconds(self.weight(value))
        objective[-1] = self._unit
        return objective
