"""The thresholds of `auto`'s search, in one place."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """The thresholds of `auto`'s search.

    They are judgements, checked with `benchmarks/auto.py`. None of them changes a gradient: they decide which
    candidates are looked at, and for how long. Fractions are shares of the quantity that the sentence names.

    Attributes:
      compiles: The number of candidates that are compiled at most, if the caller does not say.
      remembered_results: The number of results that are remembered for each function in a process.
      min_improvement: A candidate is compiled only if it recomputes less than the best one that fits, by this share.
      same_target: Nothing is proposed again for a target that differs from an earlier one by less than this share.
      near_target: An estimate that is below the target by less than this share is near it.
      filled_target: A 0/1 program is given up if its bound is above that of others, for a candidate whose estimate
        fills this share of the target.
      solves_per_target: The number of times that a proposer approaches a target; estimates differ from its own model.
      halvings: The number of times that an interval of saved bytes is halved for one target.
      overshoot: Until a candidate has failed, estimates may exceed the target by this share: a candidate that fails by
        little is tried without its smallest values.
      target_slack: On devices other than a CPU, for which estimates are rough, the target may rise by this share.
      step_below: After a candidate that needs too much memory, the target lies below its estimate by this share.
      safe_fill: A candidate that is expected to fill at most this share of the memory fits, as a rule.
      unmeasured_growth: The factor of measured to estimated bytes after a candidate that did not fit on the device.
      trim_limit: A candidate that exceeds the memory by less than this share is tried without its smallest values.
      trim_cost: Trimming may add this share of the FLOPs of both passes.
      checkpoints_share: Plain checkpoints are looked at if the best candidate recomputes more than this share of what
        the costliest policy recomputes: to trace all of them is slow.
      cuts: The number of ways to cut a model at its narrow places that are looked at.
      solved_cuts: The number of these for which the 0/1 program is solved, with the values at the cuts saved.
      max_chain_recompute: A reversal of a chain that recomputes more than this many forward passes is not proposed.
      bins: The number of bins of steps, at most, in the 0/1 program for the peak.
      peak_gap: The gap to the bound at which the solver of this program stops.
      solver_nodes: The number of nodes of branch and bound after which it stops, on every machine the same.
      solver_seconds: The seconds after which it stops in any case.
      max_chain_segments: The number of segments, at most, that a chain is divided into.
      min_chain_segments: A function with fewer narrow places than this is not treated as a chain.
      memory_slots: The least and the largest number of slots that the reversal of a chain divides the memory into.
      segment_price: In a function with segments, a saved byte must avoid this many times the recompute that it avoids
        if all values of a loop are saved.
      segment_saving: Segments of a loop must take less than this share of one checkpoint per iteration.
      partitions: The number of ways to divide a function into its calls, where no schedule reaches into a part of it.
      near_smallest: Estimates of checkpoints for a device other than a CPU count as equal within this factor.
      small_reduction: On a TPU, reductions whose result is smaller than their operand by this factor are saved.
      block_slack: On a TPU, estimates may exceed the target by this factor until a candidate has failed.
      last_block_counts: The number of ways to save values of the last block that are tried on a TPU.
      cut_lengths: The number of lengths of the longest stretch between two cuts that are tried.
      min_call: A function that makes less than this share of all bytes is no layer.
      min_calls: Layers that make less than this share of all bytes are no way to divide a model.
    """

    compiles: int = 4
    remembered_results: int = 31
    min_improvement: float = 0.02
    same_target: float = 0.01
    near_target: float = 0.1
    filled_target: float = 0.97
    solves_per_target: int = 3
    halvings: int = 4
    overshoot: float = 0.005
    target_slack: float = 0.02
    step_below: float = 0.02
    safe_fill: float = 0.95
    unmeasured_growth: float = 1.5
    trim_limit: float = 0.02
    trim_cost: float = 0.1
    checkpoints_share: float = 0.5
    cuts: int = 3
    solved_cuts: int = 2
    max_chain_recompute: float = 4
    bins: int = 40
    peak_gap: float = 1e-2
    solver_nodes: int = 100
    solver_seconds: float = 300
    max_chain_segments: int = 320
    min_chain_segments: int = 4
    memory_slots: tuple[int, int] = (128, 512)
    segment_price: float = 1.1
    segment_saving: float = 0.9
    partitions: int = 3
    near_smallest: float = 1.2
    small_reduction: float = 32
    block_slack: float = 1.1
    last_block_counts: int = 8
    cut_lengths: int = 24
    min_call: float = 0.005
    min_calls: float = 0.5


SETTINGS = SearchSettings()
