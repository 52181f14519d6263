"""What devices compute, read and send in a second, by their vendors.

TPUs: Google Cloud's pages "TPU v4", "TPU v5e", "TPU v5p" and "TPU v6e" (docs.cloud.google.com/tpu/docs), each per chip;
links, and int8 of v5p, by "How to Scale Your Model" (Austin et al., 2025, jax-ml.github.io/scaling-book/tpus, "TPU
specs"), one link in one direction. A product of float32 numbers runs as one of bfloat16 there unless JAX is asked for
more. GPUs: NVIDIA's data sheets "A100 Tensor Core GPU" (SXM, 80 GB), "H100 Tensor Core GPU" (SXM), "H200 Tensor Core
GPU" (SXM) and "HGX B200", without sparsity; links are NVLink in one direction, half of what the sheets add up. A
product of float32 numbers runs in TF32 there unless JAX is asked for more. These are peaks, which no program reaches;
what they say of shares is nearer to the truth.

Read again in November 2026: Google's pages and the book themselves; of NVIDIA's sheets of A100 and H100 what pages that
quote them say (glennklockwood.com/garden/processors), and that H200 computes as H100 does, with 4.8 TB/s.
"""

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from rematscope.errors import PlanError, TargetError


@dataclasses.dataclass(frozen=True)
class Device:
    """What a device does in a second.

    Attributes:
      name: what it is called, `"tpu v5e"`.
      products: FLOPs of matrix products and convolutions, by the dtype of their operands.
      bandwidth: bytes read from memory or written to it.
      arithmetic: FLOPs of all other operations; infinite where nobody says: then what they move counts alone.
      transcendentals: elements that a function such as `exp` is applied to; infinite where nobody says.
      link: bytes sent over a link to another device, in one direction; 0 where there is none.
      source: where these figures come from.

    Raises:
      TargetError: if a figure is no number above 0, or there is none of products.
    """

    name: str
    products: dict[str, float]
    bandwidth: float
    arithmetic: float = float("inf")
    transcendentals: float = float("inf")
    link: float = 0
    source: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TargetError(f"a device called {self.name!r} has no name. Give a text that says which it is.")
        if not isinstance(self.products, Mapping) or not self.products:
            raise TargetError(
                f"{self.name} says of no dtype how fast its products are. Give FLOPs a second, {{'float32': 1e12}}."
            )
        for dtype in self.products:
            _width(dtype)
        rates = {f"products of {dtype}": rate for dtype, rate in self.products.items()}
        rates |= {each: getattr(self, each) for each in ("bandwidth", "arithmetic", "transcendentals", "link")}
        for what, rate in rates.items():
            is_number = type(rate) is not bool and isinstance(rate, numbers.Real)
            if not is_number or not (rate > 0 or (what == "link" and rate == 0)):
                least = "0, for none, or more" if what == "link" else "a number above 0"
                raise TargetError(f"{what} of {self.name} cannot be {rate!r} a second. Give {least}.")

    def rate(self, dtype: Any) -> float:
        """FLOPs a second of products of a dtype; of one that is not listed, those of the nearest that is as wide."""
        name = str(dtype)
        if name in self.products:
            return self.products[name]
        width = getattr(dtype, "itemsize", 4)
        wider = [rate for known, rate in self.products.items() if _width(known) >= width]
        return max(wider, default=min(self.products.values()))


def _width(dtype: str) -> int:
    """Bytes of a number of the dtype that has this name."""
    try:
        return jnp.dtype(str(dtype)).itemsize
    except TypeError:
        raise TargetError(f"products of {dtype!r} are of no dtype. Write it as JAX does: 'bfloat16'.") from None


def _tpu(name: str, bfloat16: float, int8: float, bandwidth: float, link: float) -> Device:
    products = {"bfloat16": bfloat16, "float32": bfloat16, "int8": int8}
    page = f"Google Cloud, {name.replace('tpu', 'TPU')}; link: How to Scale Your Model, chapter 2"
    return Device(name, products, bandwidth, link=link, source=page)


def _gpu(name: str, bfloat16: float, tf32: float, fp64: float, fp32: float, int8: float, *moved: float) -> Device:
    products = {"bfloat16": bfloat16, "float16": bfloat16, "float32": tf32, "float64": fp64, "int8": int8}
    bandwidth, link = moved
    sheet = "HGX B200" if name == "b200" else f"{name.upper()} Tensor Core GPU"
    return Device(name, products, bandwidth, arithmetic=fp32, link=link, source=f"NVIDIA, data sheet {sheet}")


_T, _G = 1e12, 1e9
DEVICES = {
    device.name: device
    for device in (
        _tpu("tpu v4", 275 * _T, 275 * _T, 1200 * _G, 45 * _G),
        _tpu("tpu v5e", 197 * _T, 393 * _T, 819 * _G, 45 * _G),
        _tpu("tpu v5p", 459 * _T, 918 * _T, 2765 * _G, 90 * _G),
        _tpu("tpu v6e", 918 * _T, 1836 * _T, 1638 * _G, 90 * _G),
        _gpu("a100", 312 * _T, 156 * _T, 19.5 * _T, 19.5 * _T, 624 * _T, 2039 * _G, 300 * _G),
        _gpu("h100", 989 * _T, 494 * _T, 67 * _T, 67 * _T, 1979 * _T, 3350 * _G, 450 * _G),
        _gpu("h200", 989 * _T, 494 * _T, 67 * _T, 67 * _T, 1979 * _T, 4800 * _G, 450 * _G),
        _gpu("b200", 2250 * _T, 1100 * _T, 37 * _T, 75 * _T, 4500 * _T, 7700 * _G, 900 * _G),
    )
}


def device_called(device: Device | str) -> Device:
    """The device that is meant: itself, or that of a name such as `"tpu v5e"`, spelled as `measure`'s targets are.

    Raises:
      TargetError: if there are no rates for it.
    """
    if isinstance(device, Device):
        return device
    name = str(device).partition(":")[0].strip().lower()
    if name in DEVICES:
        return DEVICES[name]
    raise TargetError(
        f"there are no rates for {device!r}. Give one of {', '.join(DEVICES)}; calibrate(), which measures the device "
        "that is here; or a Device of your own."
    )


def cost_meant(cost: Any, device: Device | str | None) -> Any:
    """What `plan`, `frontier` and a certificate are told of costs: a function of an equation, or a device.

    Raises:
      PlanError: if a device is missing, is given for nothing, or `cost` is another word than `"seconds"`.
      TargetError: if there are no rates for the device.
    """
    seconds = isinstance(cost, str) and cost == "seconds"
    if seconds and device is not None:
        return device_called(device)
    if seconds:
        raise PlanError(
            'seconds on which device? Add device="tpu v5e", or device=calibrate() for the one that is here.'
        )
    if device is not None:
        raise PlanError('device= says where seconds are spent: add cost="seconds", or leave it out.')
    if not callable(cost):
        raise PlanError(f'a cost of {cost!r} is none. Give "seconds" with a device, or a function of an Equation.')
    return cost
