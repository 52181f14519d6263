"""Check rematscope against models of eleven libraries that it was not written for.

    python benchmarks/foreign.py              install the libraries into an environment of their own, and check all
    python benchmarks/foreign.py diffrax ott  check these

Each library has a process of its own. The table shows for each model:

- the saved bytes of the trace, and those of JAX's `saved_residuals`, which must be equal;
- the FLOPs and the peak that the trace predicts, over those that XLA compiles for this machine's CPU. FLOPs are not
  compared where there is a loop, because `cost_analysis` counts its body once;
- the largest difference between the gradient of `auto`'s function and JAX's, relative to the largest gradient;
- the processor time of `trace`, `compare`, `lint`, `plan`, `fit`, `measure` and `auto` together;
- the calls that refused the model with one of rematscope's errors. Any other exception is a failure, and then the exit
  status is 1.
"""

import argparse
import importlib.metadata
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 300
REQUIREMENTS = {
    "diffrax": ["diffrax"],
    "optimistix": ["optimistix"],
    "lineax": ["lineax"],
    "ott": ["ott-jax"],
    "numpyro": ["numpyro"],
    "jax_md": ["jax-md"],
    "e3nn_jax": ["e3nn-jax"],
    "penzai": ["penzai"],
    "blackjax": ["blackjax"],
    "qwix": ["qwix"],
    "haiku": ["dm-haiku"],
}


def draw(*shape: int) -> Any:
    import jax.numpy as jnp
    import numpy as np

    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)


# Each function returns a loss of arrays, which is differentiated with respect to its first argument, and its arguments.


def diffrax() -> tuple[Callable, tuple]:
    """A neural ordinary differential equation, with steps of a controlled size."""
    import diffrax
    import jax.numpy as jnp

    def loss(weights, y0):
        def field(t, y, args):
            return jnp.tanh(y @ weights[0]) @ weights[1]

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.05, y0, max_steps=64,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
        )  # fmt: skip
        return jnp.sum(solution.ys**2)

    return loss, ((draw(16, 64) / 4, draw(64, 16) / 8), draw(128, 16))


def optimistix() -> tuple[Callable, tuple]:
    """A deep equilibrium layer: the root of a function, differentiated implicitly."""
    import jax.numpy as jnp
    import optimistix

    def loss(weights, x):
        def residual(z, args):
            return z - jnp.tanh(z @ weights / 8 + x)

        root = optimistix.root_find(residual, optimistix.Newton(1e-4, 1e-4), jnp.zeros_like(x), throw=False)
        return jnp.sum(root.value**2)

    return loss, (draw(24, 24) / 5, draw(24))


def lineax() -> tuple[Callable, tuple]:
    """A linear system solved by conjugate gradients."""
    import jax.numpy as jnp
    import lineax

    def loss(matrix, b):
        operator = lineax.MatrixLinearOperator(
            matrix @ matrix.T + 5 * jnp.eye(len(b)), lineax.positive_semidefinite_tag
        )
        return jnp.sum(lineax.linear_solve(operator, b, lineax.CG(1e-5, 1e-5), throw=False).value ** 2)

    return loss, (draw(48, 48) / 7, draw(48))


def ott() -> tuple[Callable, tuple]:
    """The cost of regularized optimal transport between two point clouds, by Sinkhorn's algorithm."""
    from ott.geometry import pointcloud
    from ott.solvers import linear

    def loss(x, y):
        geometry = pointcloud.PointCloud(x, y, epsilon=0.5)
        return linear.solve(geometry, max_iterations=40, min_iterations=40, inner_iterations=10).reg_ot_cost

    return loss, (draw(64, 3), draw(80, 3) + 1)


def numpyro() -> tuple[Callable, tuple]:
    """The log density of a Bayesian neural network."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as distributions
    from numpyro.infer.util import log_density

    def model(x, y):
        first = numpyro.sample("first", distributions.Normal(jnp.zeros((8, 32)), 1).to_event(2))
        second = numpyro.sample("second", distributions.Normal(jnp.zeros(32), 1).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", distributions.Normal(jnp.tanh(x @ first) @ second, 0.1), obs=y)

    def loss(parameters, x, y):
        return -log_density(model, (x, y), {}, parameters)[0]

    return loss, ({"first": draw(8, 32), "second": draw(32)}, draw(256, 8), draw(256))


def jax_md() -> tuple[Callable, tuple]:
    """The energy of a Lennard-Jones fluid, whose gradient is the forces."""
    from jax_md import energy, space

    displacement, _ = space.periodic(10.0)
    return energy.lennard_jones_pair(displacement), (draw(100, 3) * 3 + 5,)


def e3nn_jax() -> tuple[Callable, tuple]:
    """Spherical harmonics of vectors, multiplied by features and summed."""
    import e3nn_jax as e3nn
    import jax.numpy as jnp

    def loss(features, vectors):
        harmonics = e3nn.spherical_harmonics("0e + 1o + 2e", vectors, normalize=True)
        product = e3nn.tensor_product(e3nn.IrrepsArray("8x0e + 4x1o", features), harmonics)
        return jnp.sum(product.array**2)

    return loss, (draw(128, 20), draw(128, 3))


def penzai() -> tuple[Callable, tuple]:
    """A multilayer perceptron with named axes."""
    import jax
    import jax.numpy as jnp
    from penzai import pz
    from penzai.models import simple_mlp

    model = simple_mlp.MLP.from_config(
        name="mlp", init_base_rng=jax.random.key(0), feature_sizes=[16, 64, 64, 4], activation_fn=jax.nn.gelu
    )
    parameters, rest = pz.unbind_params(model)[1], pz.unbind_params(model)[0]
    frozen = [parameter.freeze() for parameter in parameters]

    def loss(frozen, x):
        bound = pz.bind_variables(rest, frozen)
        return jnp.sum(bound(pz.nx.wrap(x, "batch", "features")).unwrap("batch", "features") ** 2)

    return loss, (frozen, draw(128, 16))


def blackjax() -> tuple[Callable, tuple]:
    """A trajectory of Hamiltonian Monte Carlo, differentiated with respect to where it begins."""
    import jax.numpy as jnp
    from blackjax.mcmc import integrators, metrics

    def logdensity(x):
        return -jnp.sum(x**4) / 4 - jnp.sum((x[1:] - x[:-1]) ** 2)

    def loss(position, momentum):
        metric = metrics.default_metric(jnp.ones(len(momentum)))
        step = integrators.velocity_verlet(logdensity, metric.kinetic_energy)
        state = integrators.new_integrator_state(logdensity, position, momentum)
        for _ in range(8):
            state = step(state, 0.05)
        return jnp.sum(state.position**2)

    return loss, (draw(65536), draw(65536))


def qwix() -> tuple[Callable, tuple]:
    """Quantization-aware training of a Flax model with int8 weights."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import qwix

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(16)(jax.nn.gelu(nn.Dense(64)(x)))

    rule = qwix.QuantizationRule(weight_qtype="int8", act_qtype="int8")
    model = qwix.quantize_model(Model(), qwix.QtProvider([rule]))
    x = draw(128, 16)
    parameters = model.init(jax.random.key(0), x)
    return lambda parameters, x: jnp.sum(model.apply(parameters, x) ** 2), (parameters, x)


def haiku() -> tuple[Callable, tuple]:
    """A multilayer perceptron."""
    import haiku
    import jax
    import jax.numpy as jnp

    model = haiku.without_apply_rng(haiku.transform(lambda x: jnp.sum(haiku.nets.MLP([64, 64, 8])(x) ** 2)))
    x = draw(256, 16)
    return model.apply, (model.init(jax.random.key(0), x), x)


MODELS = {name: globals()[name] for name in REQUIREMENTS}


def check(name: str) -> dict[str, Any]:
    """Run all calls on a library's model and return a row of the table."""
    import jax
    import numpy as np
    from jax._src.ad_checkpoint import saved_residuals  # private: JAX's own opinion

    import rematscope

    loss, arguments = MODELS[name]()
    leaves, tree = jax.tree.flatten(arguments)

    def flat(*leaves):
        return loss(*jax.tree.unflatten(tree, leaves))

    start, refused = time.process_time(), []

    def attempt(call: str, run: Callable) -> Any:
        try:
            return run()
        except (rematscope.TraceError, rematscope.PlanError, rematscope.TargetError) as error:
            refused.append(f"{call}: {str(error).splitlines()[0]}")
        return None

    found = rematscope.trace(flat, *leaves)
    saved = sum(residual.nbytes for residual in found.residuals)
    jax_saved = sum(math.prod(aval.shape) * aval.dtype.itemsize for aval, _ in saved_residuals(flat, *leaves))
    attempt("compare", lambda: str(rematscope.compare({"as it is": loss}, *arguments)))
    attempt("lint", lambda: str(rematscope.lint(loss, *arguments)))
    attempt("plan", lambda: rematscope.plan(loss, *arguments, saved="1 GiB"))
    attempt("fit", lambda: rematscope.fit(loss, *arguments, peak="1 GiB"))
    measured = attempt("measure", lambda: rematscope.measure(flat, *leaves))
    reference = jax.grad(loss)(*arguments)
    gradient = attempt("auto", lambda: jax.grad(rematscope.auto(loss, peak="1 GiB"))(*arguments))
    seconds = time.process_time() - start
    loops = any(equation.primitive in ("scan", "while") for equation in found.forward.equations)
    row = {"saved": saved, "jax_saved": jax_saved, "refused": refused, "seconds": seconds, "loops": loops}
    if measured is not None:
        row |= {"peak": measured.predicted_peak_bytes / measured.peak_bytes, "flops": None}
        if not loops and measured.cost.flops:
            row["flops"] = found.cost.flops / measured.cost.flops
    if gradient is not None:
        pairs = [*zip(jax.tree.leaves(gradient), jax.tree.leaves(reference), strict=True)]
        largest = max(float(np.max(np.abs(r))) for _, r in pairs if r.dtype != jax.dtypes.float0)
        row["difference"] = (
            max(float(np.max(np.abs(g - r))) for g, r in pairs if r.dtype != jax.dtypes.float0) / largest
        )
    return row


def environment(names: list[str]) -> str:
    """Install the libraries and this rematscope, and return the environment's Python."""
    own = ROOT / ".uv" / "bin" / "uv"  # where start.py installs it
    uv = shutil.which("uv") or (str(own) if own.exists() else None)
    if uv is None:
        sys.exit("uv is not installed: `pip install uv`, then run this again.")
    folder = ROOT / ".foreign"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    needed = [requirement for name in names for requirement in REQUIREMENTS[name]]
    jax = f"jax=={importlib.metadata.version('jax')}"
    command = [uv, "pip", "install", "--quiet", "--python", python, jax, *needed, ROOT / "packages" / "rematscope"]
    subprocess.run(command, check=True)
    return str(python)


def print_row(name: str, row: dict[str, Any]) -> bool:
    """Print a row, and return whether everything in it is right."""
    if "failed" in row:
        print(f"{name:11} FAILED  {row['failed']}", flush=True)
        return False
    agrees = row["saved"] == row["jax_saved"]
    ratio = {key: f"{row[key]:.2f}" if row.get(key) is not None else "–" for key in ("flops", "peak")}
    difference = f"{row['difference']:.0e}" if "difference" in row else "–"
    saved = f"{row['saved'] / 1024:9.1f} KiB {'=' if agrees else '≠'} {row['jax_saved'] / 1024:9.1f} KiB"
    print(
        f"{name:11} {saved} {ratio['flops']:>6} {ratio['peak']:>6} {difference:>7} {row['seconds']:6.1f} s"
        f"  {'; '.join(row['refused'])}",
        flush=True,
    )
    return agrees and row.get("difference", 0) < 1e-4


def main() -> int:
    parser = argparse.ArgumentParser(description="Check rematscope against models of other libraries.")
    parser.add_argument("names", nargs="*", metavar="LIBRARY", help="the libraries; all by default")
    parser.add_argument("--inside", metavar="NAME", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        try:
            print(json.dumps(check(asked.inside)))
        except Exception as error:
            traceback.print_exc()
            print(json.dumps({"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"}))
        return 0
    names = asked.names or [*REQUIREMENTS]
    unknown = sorted({*names} - {*REQUIREMENTS})
    if unknown:
        parser.error(f"there is no model of {', '.join(unknown)}. Choose from {', '.join(REQUIREMENTS)}.")
    python, right = environment(names), True
    print(f"{'':11} {'saved':>13}   {'JAX':>13} {'FLOPs':>6} {'peak':>6} {'grad':>7} {'CPU':>8}  refused")
    for name in names:
        command = [python, __file__, "--inside", name]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
            row = json.loads(run.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            row = {"failed": f"it took more than {LIMIT_S} s"}
        except (IndexError, ValueError):
            row = {"failed": (run.stderr.strip().splitlines() or ["no output"])[-1][:100]}
        right = print_row(name, row) and right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
