"""The imports of the pages, which `forked_kernels` makes once for all pages."""

import builtins
import gc


class ZMQInteractiveShell:
    """A class with the name of a kernel's shell: JAX looks for this name on import, and then prints in color."""


builtins.get_ipython = ZMQInteractiveShell
import jax  # noqa: E402, F401

del builtins.get_ipython

import ipykernel.kernelapp  # noqa: E402, F401
import matplotlib.pyplot  # noqa: E402, F401

import grader.learner  # noqa: E402, F401
import rematscope  # noqa: E402

for _name in rematscope.__all__:
    getattr(rematscope, _name)  # rematscope imports its modules at their first use

# JAX's caches hold many objects and no garbage: see conftest.py.
gc.set_threshold(100_000, 20, 100)
gc.freeze()
