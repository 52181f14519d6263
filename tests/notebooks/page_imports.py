"""Import what the pages import, once for all pages, on behalf of `forked_kernels`."""

import builtins
import gc


class ZMQInteractiveShell:
    """A stand-in for the kernel's shell class: JAX looks for this name on import, and then prints in color."""


builtins.get_ipython = ZMQInteractiveShell
import jax  # noqa: E402, F401

del builtins.get_ipython

import ipykernel.kernelapp  # noqa: E402, F401
import matplotlib.pyplot  # noqa: E402, F401

import grader.learner  # noqa: E402, F401
import rematscope  # noqa: E402

for _name in rematscope.__all__:
    getattr(rematscope, _name)  # rematscope imports its modules at their first use

# As in conftest.py: JAX's caches hold many objects and no garbage, so collecting them often only costs time.
gc.set_threshold(100_000, 20, 100)
gc.freeze()
