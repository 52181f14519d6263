"""JAX's next rematerialization, `JAX_REMAT3=1`: the same tests pass, and here is what differs.

The flag is read when JAX is imported, so the second mode runs in a process of its own: a tenth of the tests, drawn by
the run's seed, since all of them take most of a minute. All of a folder: `JAX_REMAT3=1 pytest
packages/rematscope/tests/tracing`.
"""

import os
import pathlib
import subprocess
import sys

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from releases import since

from rematscope import jax_compat, trace

REMAT3 = jax_compat.remat3()
X = np.float32(0.5)


@since("0.12", "JAX_REMAT3 keeps names and policies as these tests expect")
@pytest.mark.skipif(REMAT3, reason="this is that process")
def test_the_tests_of_what_is_traced_pass_with_remat3(pytestconfig):
    here, root = pathlib.Path(__file__).parent, pytestconfig.rootpath
    # With the settings of this run, which are not the workbook's where on_jax.py runs the tests.
    alike = ["-c", pytestconfig.inipath, "--rootdir", root, "--confcutdir", pytestconfig.option.confcutdir or root]
    # What is done with two programs once there are two is the same, and so is what an operation costs; models of
    # libraries take long.
    folders = [
        here / folder
        for folder in ("ir", "jax_compat", "tracing", "linting", "choices/test_predicted_choices.py", __file__)
    ]
    others = {
        "ir": ("test_cost_rules.py", "test_conv_windows.py"),
        "tracing": ("test_large.py", "test_libraries.py", "test_meshes.py", "test_remat_cases.py", "test_unopened.py"),
        "linting": ("test_libraries_values.py",),
    }
    alike += [f"--ignore={here / folder / file}" for folder, files in others.items() for file in files]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *alike, "-q", "--numprocesses", "0", "-p", "no:cacheprovider", *folders],
        env={**os.environ, "JAX_REMAT3": "1", "REMATSCOPE_SHARE": "10"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


# The default path asks a policy about every operation; remat3 about names and matrix products only.


def test_a_policy_that_saves_all():
    """sin(sin x) needs cos x and cos(sin x). Saving all keeps sin x too, where every operation is asked about."""
    f = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=lambda *_, **__: True)
    passes = trace(f, X)
    late = passes.backward.count("cos", "D")
    assert (len(passes.residuals), late) == ((1, 2) if REMAT3 else (2, 0))


def test_a_policy_about_sines():
    f = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=lambda prim, *_, **__: prim.name == "sin")
    recomputed = trace(f, X).backward.count("sin", "R")
    assert recomputed == (1 if REMAT3 else 0)


def test_a_name_inside_a_custom_rule():
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    def forward(x):
        y = checkpoint_name(jnp.exp(x), "y")
        return jnp.sin(x), y

    f.defvjp(forward, lambda y, ct: (ct * y,))
    policy = jax.checkpoint_policies.save_only_these_names("y")
    passes = trace(jax.checkpoint(f, policy=policy), X)
    assert [r.kind for r in passes.residuals] == (["argument"] if REMAT3 else ["computed"])


@since("0.10", "jax.checkpoint takes static_argnames")
def test_static_argument_names():
    f = jax.checkpoint(lambda x, twice: jnp.sin(jnp.sin(x)) if twice else x, static_argnames=("twice",))

    def traced():
        return trace(lambda x: f(x, twice=True), X).backward.count("sin", "R")

    if REMAT3:
        assert traced() == 1
    else:
        with pytest.raises(jax.errors.TracerBoolConversionError):
            traced()
