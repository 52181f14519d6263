"""Each rule of XLA that the predicted peak rests on, by name: without it the peak of some model is farther off.

If a release of XLA breaks a rule, the test with its name fails: the prediction is as good, or better, without it.
"""

import functools

import pytest
from releases import since
from sampling import sampled
from test_xla_estimate import MODELS, measured

from rematscope import trace
from rematscope.memory.live_ranges import LiveRanges
from rematscope.memory.xla_estimate import broadcasts, estimate, fusion, hlo_rewrites
from rematscope.memory.xla_estimate.estimate import FirstFit, _WrittenRanges, estimate_compiled_bytes
from rematscope.memory.xla_estimate.hlo_rewrites import _Lowering


def unchanged(*arguments):
    """Return the first argument that is no object of this package's: the equation or program that a rule rewrites."""
    return next(each for each in arguments if not isinstance(each, _Lowering))


def nothing(*_):
    return None


# The rule → the model whose peak it changes most, what applies the rule, and what takes its place.
RULES = {
    "a scan of one iteration is no loop": ("step_muon", hlo_rewrites, "unroll_scan", lambda scan: [scan]),
    "elementwise operations come before broadcasts": ("quotients", broadcasts.Broadcasts, "later", nothing),
    "a quotient by a broadcast is a product": ("quotients", broadcasts.Broadcasts, "is_inverted", lambda *_: False),
    "constants sink into loops": ("numbers", _Lowering, "_with_constants_inside", unchanged),
    "a cond with a constant index is one branch": ("step_accumulated", _Lowering, "_only_branch", nothing),
    "a branch writes the results of a cond": ("step_if_finite", _WrittenRanges, "_add_cond", LiveRanges._add_cond),
    "a product with a mask is a select": ("points", _Lowering, "_masked_as_select", unchanged),
    "a matmul's operands are copied to rows and columns": ("language_model", _Lowering, "_expand_matmul", unchanged),
    "a convolution's operands are copied": ("small_sides", _Lowering, "_expand_convolution", unchanged),
    "a depthwise kernel's gradient is dense": ("depthwise", _Lowering, "_expand_depthwise_gradient", unchanged),
    "a pooling's gradient is a scatter": ("pooled", _Lowering, "_expand_pooling_gradient", unchanged),
    "a grouped matmul is dense": ("experts", _Lowering, "_expand_grouped_matmul", unchanged),
    "random bits take two integers per element": ("dropped", _Lowering, "_expand_random_bits", unchanged),
    "a broadcast operand is an operation": ("generator", _Lowering, "_with_broadcasts", unchanged),
    "a known operand is the result": ("generator", _Lowering, "_operand_as_result", nothing),
    "a contraction of length one is elementwise": ("private", hlo_rewrites, "is_outer", lambda *_: False),
    "a scatter into zeros becomes one into the summand": ("step_preferred", estimate, "scattered_into", unchanged),
    "cheap operands of matmuls are copied": ("private", estimate, "with_flattened", unchanged),
    "sums of padded parts are fused": ("associative", fusion, "_padded_sums", lambda *_: set()),
    "YNNPACK computes sums with what is around them": ("quotients", fusion, "ynnpack_groups", lambda *_: {}),
    "two operands fuse only if all paths fuse": ("spectral", fusion._Paths, "are_fused", lambda *_: True),
    "what is read later is copied before it is overwritten": ("step_preferred", estimate, "with_copies", unchanged),
    "donated arguments that are read later are copied": ("step_lion", estimate, "copied_arguments", lambda *_: []),
    "results' buffers hold other values before": ("associative", FirstFit, "allocate", lambda *_: False),
    "a slice of a stack is read where it is used": ("transformer", _WrittenRanges, "_note_slices", nothing),
}
ALREADY_OFF = 0.02  # of the compiled peak: a rule that changes less is not worth its lines


@functools.cache
def traced(name):
    return trace(*MODELS[name])


@pytest.mark.slow
@since("0.11", "XLA on a CPU keeps unrolled checkpoints, and writes less of a loss over many words")
@pytest.mark.parametrize("rule", sampled(list(RULES), 3))
def test_the_prediction_is_worse_without_the_rule(rule, monkeypatch):
    name, owner, attribute, instead = RULES[rule]
    (row,) = [row for row in measured(name).rows if row.metric == "peak"]
    monkeypatch.setattr(owner, attribute, instead)
    without = estimate_compiled_bytes(traced(name)) / row.compiled - 1
    assert abs(without) > abs(row.error) + ALREADY_OFF
