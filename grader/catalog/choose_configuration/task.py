"""What an answer is asked."""

import functools
import math
from typing import NamedTuple

from grader.exercises.spec import Integers, OneOf, Question

FITS = "none", "one", "some", "all"

ranges = {
    "heads": Integers(8, 128),
    "sequence_length": Integers(1024, 65536, "a power of two"),
    "layers": Integers(1, 96),
    "batch": Integers(1, 48),
    "devices": Integers(1, 256, "a power of two"),
    "fits": OneOf(FITS),
}
signature = "choose_configuration(width, sequence_length, layers, batch, devices, capacity)"
returns = "a tuple (policy, microbatches, peak_bytes, cost), or an empty tuple"

HEAD_WIDTH = 128
VOCABULARY = 32_768
FLOPS_PER_BYTE = 2_200
POLICIES = {
    "full": (),
    "save_context": ("context",),
    "save_out_proj": ("out_proj",),
    "save_qkv_proj": ("qkv_proj",),
    "save_dot_except_mlp": ("qkv_proj", "out_proj"),
    "save_dot_with_context_except_mlp": ("qkv_proj", "out_proj", "context"),
    "minimal": ("qkv_proj", "out_proj", "mlpwi"),
    "minimal_with_context": ("qkv_proj", "out_proj", "mlpwi", "context"),
}


class Step(NamedTuple):
    """The sizes of a training step: `batch` is the number of sequences per device."""

    width: int
    sequence_length: int
    layers: int
    batch: int
    devices: int


class Configuration(NamedTuple):
    """A checkpoint policy and a number of microbatches."""

    policy: str
    microbatches: int


def configurations(step: Step) -> list[Configuration]:
    """Return each policy with each number of microbatches, in increasing order of these numbers."""
    numbers = [k for k in range(1, step.batch + 1) if step.batch % k == 0]
    return [Configuration(policy, k) for k in numbers for policy in POLICIES]


def weight_count(step: Step) -> int:
    """Return the number of elements of all weights."""
    return 12 * step.layers * step.width**2 + VOCABULARY * step.width


def memory(step: Step, choice: Configuration) -> dict[str, dict[str, int]]:
    """Return the bytes of each array: of the state, of the residuals, and in the backward pass of a layer and of the
    loss."""
    width, length, layers, batch, devices = step
    tokens = batch // choice.microbatches * length
    shard = weight_count(step) // devices
    elements = {"qkv_proj": 3 * width, "context": width, "out_proj": width, "mlpwi": 4 * width}
    residuals = {name: 2 * elements[name] * tokens * layers for name in POLICIES[choice.policy]}
    if "context" in residuals:
        residuals["log-sum-exp"] = 4 * width // HEAD_WIDTH * tokens * layers
    return {
        "state": {
            "parameters": 4 * shard,
            "moments": 8 * shard,
            "gradients": 4 * shard,
            "sum of the gradients": 4 * shard if choice.microbatches > 1 else 0,
        },
        "residuals": {"inputs": 2 * width * tokens * layers} | residuals,
        "layer": {
            "values": 32 * width * tokens,
            "gradient of mlpwi": 8 * width * tokens,
            "weights": 24 * width**2,
            "gradients of the weights": 24 * width**2,
        },
        "loss": {
            "logits": 4 * VOCABULARY * tokens,
            "gradient of the logits": 4 * VOCABULARY * tokens,
            "table": 2 * VOCABULARY * width,
            "gradient of the table": 2 * VOCABULARY * width,
        },
    }


def peak_bytes(parts: dict[str, dict[str, int]]) -> int:
    """Return the largest number of bytes that are live at the same time."""
    state, residuals, layer, loss = (sum(parts[name].values()) for name in ("state", "residuals", "layer", "loss"))
    return state + residuals + max(layer, loss)


def matmul_flops(step: Step) -> dict[str, int]:
    """Return the FLOPs of a layer's matmuls that a backward pass may recompute, per token."""
    width, length = step.width, step.sequence_length
    return {
        "qkv_proj": 6 * width**2,
        "context": 2 * length * width,
        "out_proj": 2 * width**2,
        "mlpwi": 8 * width**2,
    }


def recomputed_flops(step: Step, choice: Configuration) -> int:
    """Return the FLOPs that a step recomputes on each device."""
    recomputed = sum(flops for name, flops in matmul_flops(step).items() if name not in POLICIES[choice.policy])
    return recomputed * step.batch * step.sequence_length * step.layers


def link_bytes(step: Step) -> int:
    """Return the bytes that each device sends per microbatch: two all-gathers and a reduce-scatter of each weight."""
    return 3 * 2 * weight_count(step) // step.devices * (step.devices - 1)


def cost(step: Step, choice: Configuration) -> int:
    """Return the recomputed FLOPs, plus the link traffic of all microbatches except the first as FLOPs."""
    return recomputed_flops(step, choice) + (choice.microbatches - 1) * link_bytes(step) * FLOPS_PER_BYTE


@functools.lru_cache(maxsize=64)
def priced(step: Step) -> list[tuple[int, int, Configuration]]:
    """Return the peak bytes and the cost of each configuration, the cheapest first."""
    found = [(cost(step, each), peak_bytes(memory(step, each)), each) for each in configurations(step)]
    found.sort(key=lambda each: each[:2])
    return [(peak, spent, each) for spent, peak, each in found]


def cheapest(step: Step, capacity: int) -> Configuration | None:
    """Return the cheapest configuration that fits, or None if none does."""
    return next((each for peak, _, each in priced(step) if peak <= capacity), None)


def cases(rng):
    """Draw some sixty questions. The best configuration has each policy, and one, several or all sequences in a
    microbatch."""
    smallest, largest = (8, 1024, 1, 1, 1), (128, 65536, 96, 48, 256)
    asked = [(sizes, fits) for sizes in (smallest, largest) for fits in FITS]
    for symbol in range(5):
        for end in (smallest[symbol], largest[symbol]):
            sizes = list(_draw_sizes(rng))
            sizes[symbol] = end
            asked.append((tuple(sizes), "some"))
    asked += [(_draw_sizes(rng), fits) for fits in ("none", "one", "all") for _ in range(4)]
    drawn = [case(rng, *sizes, fits) for sizes, fits in asked]
    wanted = [(policy, kind) for policy in POLICIES for kind in ("one sequence", "several sequences")]
    wanted.remove(("full", "one sequence"))  # the smallest peak of all: never the best if another configuration fits
    wanted += [("any policy", "whole batch")] * 6
    while wanted:
        question = case(rng, *(*_draw_sizes(rng), "some"))
        for kind in _best_kinds(question):
            if kind in wanted:
                wanted.remove(kind)
                drawn.append(question)
    drawn.sort(key=lambda question: (question.structure["batch"], math.prod(question.arguments[:3])))
    return tuple({question.name: question for question in drawn}.values())


def _best_kinds(question):
    """Return what is special about the best configuration."""
    *sizes, capacity = question.arguments
    best = cheapest(Step(*sizes), capacity)
    assert best is not None  # some configurations fit
    if best.microbatches == 1:
        return [("any policy", "whole batch")]
    return [(best.policy, "one sequence" if best.microbatches == question.structure["batch"] else "several sequences")]


def case(rng, heads, sequence_length, layers, batch, devices, fits):
    """Return the question for these sizes, with a capacity in which no, one, some or all configurations fit."""
    step = Step(HEAD_WIDTH * heads, sequence_length, layers, batch, devices)
    capacity = _draw_capacity(rng, step, fits)
    sizes = f"width {step.width:,}, {sequence_length:,} tokens, layers = {layers}, batch = {batch}, devices = {devices}"
    structure = dict(zip(ranges, (heads, sequence_length, layers, batch, devices, fits), strict=True))
    return Question(f"{sizes}, {capacity:,} bytes", (*step, capacity), structure=structure)


def _draw_sizes(rng):
    """Draw heads, sequence length, layers, batch and devices."""
    batch = int(rng.choice([*range(2, 49), *(12, 16, 18, 20, 24, 30, 36, 40, 48) * 5]))
    length, devices = 2 ** int(rng.integers(10, 17)), 2 ** int(rng.integers(1, 9))
    return _up_to(rng, 8, 128), length, _up_to(rng, 1, 96), batch, devices


def _up_to(rng, low, high):
    """Draw an integer log-uniformly."""
    return int(low * ((high + 1) / low) ** rng.random())


def _draw_capacity(rng, step, fits):
    """Draw a capacity, often one that a configuration needs exactly: the best one, or another."""
    found = priced(step)
    peaks = sorted(peak for peak, _, _ in found)
    least, most = peaks[0], peaks[-1]
    if fits == "none":
        return least - int(rng.choice([1, least // 20]))
    if fits == "one":
        return least
    if fits == "all":
        return most + int(rng.choice([0, most // 20]))
    best, lowest = [], most
    # A dearer configuration is the best one for some capacity if it has the lowest peak so far.
    for peak, _, _ in found:
        if least < peak < lowest:
            best.append(lowest := peak)
    if best and rng.random() < 0.4:
        return best[int(rng.integers(len(best)))]
    return peaks[int(rng.integers(1, len(peaks) - 1))] + int(rng.integers(0, 2)) * (least // 10**6)


shown = None
