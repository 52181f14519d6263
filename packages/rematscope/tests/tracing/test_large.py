"""Models at the size that people train, looked at in seconds: a sixth of them a run, by its seed.

All of them with `REMATSCOPE_EXAMPLES` in the environment.
"""

import collections
import os

import jax
import large
import pytest

from rematscope import SideBySide, jax_compat, lint, liveness, plan, residual_table, trace
from rematscope.render.view import plain_text

NAMES = sorted(large.MODELS)
DRAWN = NAMES if "REMATSCOPE_EXAMPLES" in os.environ else NAMES[int(os.environ.get("REMAT_SEED", "0")) % 6 :: 6]
NAMED = ["eight_experts", "seven_billion_in_a_scan", "unrolled_layers_with_names"]


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_a_large_model_is_looked_at_whole(name):
    f, arguments = large.MODELS[name]
    args = arguments()
    passes = trace(f, *args)
    if passes.step is None:
        _, pullback = jax.eval_shape(lambda *args: jax.vjp(f, *args), *args)
        kept = collections.Counter((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(pullback))
        assert collections.Counter((r.shape, str(r.dtype)) for r in passes.residuals) == kept
        assert {finding.kind for finding in lint(f, *args).findings} <= {"whole model", "not needed"}
    assert liveness(f, *args).peak_bytes >= passes.saved_bytes() > 2**28
    for view in (SideBySide(passes), residual_table(f, *args)):
        assert max(map(len, plain_text(view, 80).splitlines())) <= 80
    if name in NAMED and not jax_compat.remat3():  # choices are found without it
        found = plan(f, *args, saved="8 GiB")
        assert 0 < found.saved_bytes <= 2**33
        found.check()
        found.certificate.verify(f, *args)
