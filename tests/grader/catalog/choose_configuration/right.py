"""Right answers to choose_configuration, spelled in many ways."""

import dataclasses
import functools
import math

import numpy as np
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes

NAMES = {
    "full": "",
    "save_context": "c",
    "save_out_proj": "o",
    "save_qkv_proj": "q",
    "save_dot_except_mlp": "qo",
    "save_dot_with_context_except_mlp": "qoc",
    "minimal": "qom",
    "minimal_with_context": "qomc",
}


def numbers(h, s, layers, b, n, policy, k):
    """Return the peak and the cost, as integers."""
    p = 12 * layers * h * h + 32768 * h
    t = s * b // k
    widths = {"q": 3 * h, "o": h, "m": 4 * h, "c": h + h // 64}
    residuals = 2 * layers * t * (h + sum(widths[name] for name in NAMES[policy]))
    peak = (20 - 4 * (k == 1)) * p // n + residuals + max(40 * t * h + 48 * h * h, 4 * 32768 * (2 * t + h))
    flops = {"q": 6 * h * h, "o": 2 * h * h, "m": 8 * h * h, "c": 2 * s * h}
    left = sum(flops[name] for name in "qomc" if name not in NAMES[policy])
    return peak, layers * b * s * left + (k - 1) * 6 * (p - p // n) * 2200


def choices(batch):
    return [(policy, k) for policy in NAMES for k in range(1, batch + 1) if batch % k == 0]


@passes
def as_a_list(width, sequence_length, layers, batch, devices, capacity):
    rows = [
        [policy, k, *numbers(width, sequence_length, layers, batch, devices, policy, k)] for policy, k in choices(batch)
    ]
    return min((row for row in rows if row[2] <= capacity), key=lambda row: row[3], default=[])


@passes
def most_microbatches_of_equally_good_ones(width, sequence_length, layers, batch, devices, capacity):
    """Break ties the other way round: with one device, microbatches cost nothing."""
    sizes = width, sequence_length, layers, batch, devices
    rows = [(policy, k, *numbers(*sizes, policy, k)) for policy, k in reversed(choices(batch))]
    fitting = [row for row in rows if row[2] <= capacity]
    return min(fitting, key=lambda row: (row[3], -row[1])) if fitting else ()


@passes
def in_floats(width, sequence_length, layers, batch, devices, capacity):
    """Divide where integers are not needed; the numbers are rounded."""
    weights = 12.0 * layers * width**2 + 32768.0 * width
    best = ()
    for policy, k in choices(batch):
        tokens = sequence_length * batch / k
        saved = {"q": 6.0, "o": 2.0, "m": 8.0, "c": 2.0 + 4 / 128}
        peak = weights * (16.0 if k == 1 else 20.0) / devices
        peak += layers * tokens * width * (2.0 + sum(saved[name] for name in NAMES[policy]))
        peak += max(40.0 * tokens * width + 48.0 * width**2, 8.0 * tokens * 32768 + 4.0 * 32768 * width)
        per_token = {"q": 6.0 * width**2, "o": 2.0 * width**2, "m": 8.0 * width**2, "c": 2.0 * sequence_length * width}
        recomputed = sum(flops for name, flops in per_token.items() if name not in NAMES[policy])
        cost = recomputed * layers * batch * sequence_length
        cost += (k - 1) * 3 * 2.0 * weights * (1 - 1 / devices) * 2200
        if peak <= capacity and (not best or cost < best[3]):
            best = policy, k, peak, cost
    return best


@passes
def with_numpy(width, sequence_length, layers, batch, devices, capacity):
    found = choices(batch)
    sizes = width, sequence_length, layers, batch, devices
    table = np.array([numbers(*sizes, policy, k) for policy, k in found], dtype=np.int64)
    order = np.lexsort((table[:, 0], table[:, 1], table[:, 0] > capacity))
    first = order[0]
    if table[first, 0] > capacity:
        return ()
    return found[first][0], np.int64(found[first][1]), table[first, 0], table[first, 1]


@dataclasses.dataclass(frozen=True)
class Model:
    width: int
    length: int
    layers: int
    batch: int
    devices: int

    @functools.cached_property
    def parameters(self):
        return self.layers * 12 * self.width**2 + 32768 * self.width

    def table(self):
        for k in range(self.batch, 0, -1):
            if math.gcd(k, self.batch) == k:
                for policy in NAMES:
                    yield policy, k, *numbers(*dataclasses.astuple(self), policy, k)


@passes
def with_a_class(width, sequence_length, layers, batch, devices, capacity):
    model = Model(width, sequence_length, layers, batch, devices)
    best = None
    for row in model.table():
        if row[2] <= capacity and (best is None or row[3] < best[3]):
            best = row
    return best or ()
