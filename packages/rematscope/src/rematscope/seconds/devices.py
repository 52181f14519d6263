"""The table of devices: peak FLOP/s, memory, and links to other devices and to the host, each with its source.

All figures are per device as JAX counts devices: a GPU, a TPU chip, or half of a TPU7x chip. They are peaks that no
program reaches, so shares of time are more reliable than times. Rates are in FLOP/s and bytes/s, and memory is in
bytes. FLOP/s of GPUs are without sparsity: half of the figures that NVIDIA's data sheets give "with sparsity". By
default, JAX multiplies float32 operands in bfloat16 on a TPU and in TF32 on a GPU, so the table has these rates for
float32.

**Links.** A TPU is a node of a torus. Along each axis, it has a link to each of its two neighbors, so a ring over one
axis sends in both directions, at 2 × `link`. This holds if the axis wraps around (with 16 chips on v5e and v6e; on v4,
v5p and TPU7x, if each axis of the slice is a multiple of 4 chips). Without the wraparound, a collective takes up to
twice as long. A collective over several axes of the torus has the bandwidth of all these axes. All NVLinks of a GPU
lead to switches, so any ring can use all of them; this counts as one axis.

Google's pages give 400 GB/s (v5e), 800 GB/s (v6e) and 1,200 GB/s (v5p, TPU7x) for all links of a chip in both
directions, so 50 or 100 GB/s per link and direction. The table has 45 and 90 GB/s, which the authors of "How to Scale
Your Model" use for estimates. The two devices of a TPU7x chip share its links, so each has half of their rate.

**Memory.** The memory of a TPU is what a program can use: libtpu reserves the rest, and names this size if a program
does not fit. The memory of a GPU is that of its data sheet. A GPU has up to 7 % more, because data sheets round to
multiples of 10⁹ bytes, and JAX reserves 75 % of it for programs by default.

All figures were checked in November 2026.
"""

import dataclasses
import numbers
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from rematscope.errors import PlanError, TargetError


class Topology(NamedTuple):
    """A torus of TPU chips that libtpu compiles for ahead of time.

    Attributes:
      sides: the numbers of chips along its axes.
      accelerator_type: its name in `TPU_ACCELERATOR_TYPE`, such as `v5litepod-4`.
      devices_per_chip: the number of JAX's devices on a chip.
    """

    sides: tuple[int, ...]
    accelerator_type: str
    devices_per_chip: int = 1


@dataclasses.dataclass(frozen=True)
class Device:
    """The peak rates and the memory of a device.

    Attributes:
      name: the name of the device, such as `"tpu v5e"`.
      matmul: the FLOP/s of matmuls and convolutions, by the name of their operands' dtype.
      bandwidth: the bytes/s that the device reads from and writes to its memory, in total.
      arithmetic: the FLOP/s of all other operations. Infinite if no source gives it; the time of these operations is
        then the time of their memory traffic.
      transcendentals: the elements per second of functions such as `exp`; infinite if no source gives it.
      link: the bytes/s of one link to another device, in one direction; 0 if there are no links.
      links: the number of links that a ring over one axis uses: 2 in a torus; all links of a GPU.
      axes: the number of axes of the links: 2 or 3 in a torus; 1 if all links lead to switches.
      host: the bytes/s of a transfer to or from host memory; 0 if no source gives it.
      memory: the bytes of the device's memory, for a TPU those that a program can use; 0 if no source gives it.
      topology: for a TPU that libtpu can compile for ahead of time, the smallest topology of several chips; None for
        other devices.
      source: the source of each figure, with a note on figures that no source confirms.

    Raises:
      TargetError: if a field is not valid, for example if a rate is not a positive number, or if `matmul` is empty.
    """

    name: str
    matmul: dict[str, float]
    bandwidth: float
    arithmetic: float = float("inf")
    transcendentals: float = float("inf")
    link: float = 0
    links: int = 1
    axes: int = 1
    host: float = 0
    memory: float = 0
    topology: Topology | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TargetError(f"name={self.name!r} is not a device name. Give a non-empty string.")
        if not isinstance(self.matmul, Mapping) or not self.matmul:
            raise TargetError(
                f"{self.name} has no FLOP/s of matmuls. Give FLOP/s by dtype: matmul={{'float32': 1e12}}."
            )
        for dtype in self.matmul:
            _dtype_called(dtype)
        rates = {f"matmul[{dtype!r}]": rate for dtype, rate in self.matmul.items()}
        optional = ("link", "host", "memory")
        rates |= {each: getattr(self, each) for each in ("bandwidth", "arithmetic", "transcendentals", *optional)}
        for what, rate in rates.items():
            is_number = type(rate) is not bool and isinstance(rate, numbers.Real)
            if not is_number or not (rate > 0 or (what in optional and rate == 0)):
                least = "0 (none) or a positive number" if what in optional else "a positive number"
                per_second = "" if what == "memory" else " per second"
                raise TargetError(f"{what} of {self.name} is {rate!r}{per_second}. Give {least}.")
        for what in ("links", "axes"):
            count = getattr(self, what)
            if type(count) is not int or count < 1:
                raise TargetError(f"{what} of {self.name} is {count!r}. Give a whole number, 1 or more.")

    def rate(self, dtype: Any) -> float:
        """Return the FLOP/s of matmuls whose operands have a dtype.

        A dtype that is not in `matmul` has the rate of the fastest listed dtype of the same kind (float or integer)
        that is at least as wide. For example, a device without FP8 units multiplies FP8 operands as bfloat16. If no
        listed dtype of the same kind is wide enough, the fastest wide-enough dtype of the other kind is used; if no
        listed dtype is wide enough, the lowest rate.
        """
        name = str(dtype)
        if name in self.matmul:
            return self.matmul[name]
        width, inexact = getattr(dtype, "itemsize", 4), _is_inexact(dtype)
        wide = {
            _dtype_called(known): rate for known, rate in self.matmul.items() if _dtype_called(known).itemsize >= width
        }
        like = [rate for known, rate in wide.items() if _is_inexact(known) == inexact]
        return max(like or wide.values(), default=min(self.matmul.values()))

    def ring(self, axes: int = 1) -> float:
        """Return the bytes/s that a device sends in a ring: `links` × `axes` × `link`.

        Args:
          axes: the number of axes of links that the ring uses.

        Raises:
          TargetError: if `axes` is not an integer from 1 to the number of axes of the device.

        Example:
          >>> from rematscope.seconds.devices import DEVICES
          >>> DEVICES["tpu v5p"].ring() / 1e9, DEVICES["tpu v5p"].ring(axes=3) / 1e9
          (180.0, 540.0)
        """
        if type(axes) is not int or not 1 <= axes <= self.axes:
            raise TargetError(
                f"{self.name} has {self.axes} {'axis' if self.axes == 1 else 'axes'} of links, so axes={axes!r} is not "
                f"valid. Give an integer from 1 to {self.axes}."
            )
        return self.links * axes * self.link


def _dtype_called(name: str) -> Any:
    try:
        return jnp.dtype(str(name))
    except TypeError:
        raise TargetError(f"{name!r} in matmul= is not a dtype. Write it as JAX does: 'bfloat16'.") from None


def _is_inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


_T, _G, _GIB = 1e12, 1e9, 2**30
_GOOGLE = "https://docs.cloud.google.com/tpu/docs/"
_BOOK = '"How to Scale Your Model" (Austin et al., 2025), https://jax-ml.github.io/scaling-book/tpus, "TPU specs"'
_LIBTPU = 'libtpu 0.0.50, "exceeds available HBM" of a program that does not fit'
_PCIE = "host: its PCIe of 16 lanes, one of two directions, less 2 bits in 130 for the code"


def _tpu_row(name: str, page: str, bfloat16: float, sources: str = "", **figures: Any) -> Device:
    """One row of a TPU: `matmul` has the other dtypes, in FLOP/s, and `page` is Google's."""
    matmul = {"bfloat16": bfloat16, "float32": bfloat16} | figures.pop("matmul")
    source = f"matmul, bandwidth: {_GOOGLE}{page}; memory: {_LIBTPU}; link, links, axes: {_BOOK}; {sources}"
    return Device(name, matmul, links=2, source=source, **figures)


def _gpu_row(name: str, sheet: str, bfloat16: float, tf32: float, sources: str = "", **figures: Any) -> Device:
    """One row of a GPU: `matmul` has the other dtypes; `sheet` is NVIDIA's data sheet."""
    matmul = {"bfloat16": bfloat16, "float16": bfloat16, "float32": tf32} | figures.pop("matmul")
    source = f"matmul, bandwidth, arithmetic, memory, link, links, axes: NVIDIA, data sheet {sheet}; {sources}"
    return Device(name, matmul, source=source, **figures)


# One row for each device: nothing else in the package has a figure of one. NVIDIA's sheets of A100, H100 and H200 were
# checked through pages that quote them (glennklockwood.com/garden/processors); so was that of Blackwell.
DEVICES = {
    device.name: device
    for device in (
        _tpu_row(
            "tpu v4", "v4", 275 * _T, matmul={"int8": 275 * _T}, bandwidth=1200 * _G, memory=30.75 * _GIB,
            link=45 * _G, axes=3, host=16 * _G, topology=Topology((2, 2, 1), "v4-8"),
            sources='host: the same chapter, "TPU networking", 16 GB/s each way',
        ),
        _tpu_row(
            "tpu v5e", "v5e", 197 * _T, matmul={"int8": 393 * _T}, bandwidth=819 * _G, memory=15.75 * _GIB,
            link=45 * _G, axes=2, host=15 * _G, topology=Topology((2, 2), "v5litepod-4"),
            sources="host: the same table, about 1.5e10 (in later editions 1.6e10)",
        ),
        _tpu_row(
            "tpu v5p", "v5p", 459 * _T, matmul={"int8": 918 * _T, "float8_e4m3fn": 459 * _T}, bandwidth=2765 * _G,
            memory=95.73 * _GIB, link=90 * _G, axes=3, host=15 * _G, topology=Topology((2, 2, 1), "v5p-8"),
            sources="int8: the same table; host: the same table, about 1.5e10 (in later editions 1.6e10)",
        ),
        _tpu_row(
            "tpu v6e", "v6e", 918 * _T, matmul={"int8": 1836 * _T, "float8_e4m3fn": 918 * _T}, bandwidth=1638 * _G,
            memory=31.24 * _GIB, link=90 * _G, axes=2, host=32 * _G, topology=Topology((2, 2), "v6e-4"),
            sources=f"float8: {_GOOGLE}tpu7x; host: the same table, 3.2e10",
        ),
        _tpu_row(
            "tpu7x", "tpu7x", 2307 / 2 * _T, matmul={"int8": 4614 / 2 * _T, "float8_e4m3fn": 4614 / 2 * _T},
            bandwidth=7380 / 2 * _G, memory=94.74 * _GIB, link=90 / 2 * _G, axes=3,
            topology=Topology((2, 2, 1), "tpu7x-8", devices_per_chip=2),
            sources="int8: the same table; host: not confirmed, left out; half of a chip's figures",
        ),
        _gpu_row(
            "a100", "A100 Tensor Core GPU (SXM, 80 GB)", 312 * _T, 156 * _T,
            matmul={"float64": 19.5 * _T, "int8": 624 * _T}, bandwidth=2039 * _G, arithmetic=19.5 * _T,
            memory=80 * _G, link=25 * _G, links=12, host=31.5 * _G, sources=_PCIE,
        ),
        _gpu_row(
            "h100", "H100 Tensor Core GPU (SXM)", 989 * _T, 494 * _T,
            matmul={"float64": 67 * _T, "int8": 1979 * _T, "float8_e4m3fn": 1979 * _T}, bandwidth=3350 * _G,
            arithmetic=67 * _T, memory=80 * _G, link=25 * _G, links=18, host=63 * _G,
            sources=_PCIE,
        ),
        _gpu_row(
            "h200", "H200 Tensor Core GPU (SXM)", 989 * _T, 494 * _T,
            matmul={"float64": 67 * _T, "int8": 1979 * _T, "float8_e4m3fn": 1979 * _T}, bandwidth=4800 * _G,
            arithmetic=67 * _T, memory=141 * _G, link=25 * _G, links=18, host=63 * _G,
            sources=_PCIE,
        ),
        _gpu_row(
            "b200", "Blackwell, column HGX B200", 2250 * _T, 1100 * _T,
            matmul={"float64": 37 * _T, "int8": 4500 * _T, "float8_e4m3fn": 4500 * _T}, bandwidth=7700 * _G,
            arithmetic=75 * _T, memory=180 * _G, link=50 * _G, links=18, host=63 * _G,
            sources=_PCIE,
        ),
        _gpu_row(
            "gb200", "Blackwell, column GB200 NVL72", 2500 * _T, 1250 * _T,
            matmul={"float64": 40 * _T, "int8": 5000 * _T, "float8_e4m3fn": 5000 * _T}, bandwidth=8000 * _G,
            arithmetic=80 * _T, memory=186 * _G, link=50 * _G, links=18,
            sources="host: NVLink-C2C, whose share of one GPU is not confirmed, left out",
        ),
    )
}  # fmt: skip

# The device that weighs bytes over links against FLOPs where no device is given.
REFERENCE_DEVICE = DEVICES["tpu v5e"]


# The part of a GPU's memory that JAX reserves for programs unless XLA_CLIENT_MEM_FRACTION is set: "GPU memory
# allocation" in JAX's documentation.
GPU_SHARE = 0.75


def is_gpu(device: Device) -> bool:
    """Return whether a device is a GPU of the table."""
    return DEVICES.get(device.name) == device and not is_tpu(device.name)


def usable_memory(device: Device) -> int:
    """Return the bytes that a program can use by default: for a GPU of the table, those that JAX reserves."""
    return int(device.memory * (GPU_SHARE if is_gpu(device) else 1))


def is_tpu(name: str) -> bool:
    """Return whether the name of a device or of a compilation target is that of a TPU, on this machine or not."""
    return name.startswith("tpu")


def device_called(device: Device | str) -> Device:
    """Return a device, or the device with a name such as `"tpu v5e"`, spelled like `measure`'s targets.

    Raises:
      TargetError: if the device is not known.
    """
    if isinstance(device, Device):
        return device
    name = str(device).partition(":")[0].strip().lower()
    if name in DEVICES:
        return DEVICES[name]
    meant = next((known for known in DEVICES if known.removeprefix("tpu ") in re.split(r"\W+", name)), "")
    question = f" Did you mean {meant!r}?" if meant else ""
    raise TargetError(
        f"device={device!r} is not known.{question} Give one of {', '.join(DEVICES)}; calibrate(), which measures this "
        "machine's device; or your own Device."
    )


def resolve_cost(cost: Any, device: Device | str | None) -> Any:
    """Return the cost function, or the device, that the options `cost` and `device` stand for.

    Raises:
      PlanError: if only one of `cost="seconds"` and `device` is given, or if `cost` is not valid.
      TargetError: if the device is not known.
    """
    seconds = isinstance(cost, str) and cost == "seconds"
    if seconds and device is not None:
        return device_called(device)
    if seconds:
        raise PlanError(
            'cost="seconds" needs a device: device="tpu v5e", or device=calibrate() for this machine\'s device.'
        )
    if device is not None:
        raise PlanError('device= is only used with cost="seconds". Add cost="seconds", or remove device=.')
    if not callable(cost):
        raise PlanError(f'cost={cost!r} is not a cost. Give "seconds" with a device, or a function of an Equation.')
    return cost
