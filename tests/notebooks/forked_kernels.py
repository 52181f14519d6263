"""Kernels for nbval, forked from a process that has imported JAX. This saves the import, over a second per page.

On Windows, which cannot fork, Jupyter starts its kernels as usual."""

import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

import nbval.kernel
from jupyter_client.provisioning import local_provisioner


class ForkedKernel:
    """A forked kernel with the methods of `subprocess.Popen` that Jupyter uses."""

    stdin = stdout = stderr = None

    def __init__(self, command, env, cwd):
        context = multiprocessing.get_context("forkserver")
        start_server()
        in_own_group = context.Event()  # Jupyter signals the kernel's process group, which must not be pytest's
        self.errors = tempfile.NamedTemporaryFile("r", errors="replace")  # noqa: SIM115 (it lives as long as the kernel)
        self.process = context.Process(target=run_kernel, args=(command, env, cwd, self.errors.name, in_own_group))
        self.process.start()
        in_own_group.wait()
        self.pid = self.process.pid

    def poll(self):
        if self.process.exitcode and (errors := self.errors.read()):
            print(f"A kernel ended with {self.process.exitcode}. Its error output:\n{errors}")  # pytest shows it
        return self.process.exitcode

    def wait(self):
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number):
        if self.process.exitcode is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def start_server():
    """Start the process that kernels are forked from, if it does not run yet."""
    multiprocessing.set_forkserver_preload(["page_imports"])
    # Python 3.13.0 does not pass sys.path on to this process, and the process ignores an import that fails.
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(path)):
        forkserver.ensure_running()


def run_kernel(command, env, cwd, errors, in_own_group):
    from ipykernel.kernelapp import IPKernelApp

    import grader

    assert "page_imports" in sys.modules, "the kernels' parent process did not import page_imports"
    os.setsid()
    in_own_group.set()
    os.dup2(os.open(errors, os.O_WRONLY), 2)
    os.environ.clear()
    os.environ.update(env)
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # the pages' programs run only once
    if cwd is not None:
        os.chdir(cwd)
    threading.Thread(target=end_with_pytest, daemon=True).start()
    kernel = IPKernelApp.instance()
    kernel.initialize(command[command.index("ipykernel_launcher") + 1 :])
    importlib.reload(grader)  # on import, it registers an exception handler with the shell that imports it
    kernel.start()


def end_with_pytest():
    """End this kernel when pytest ends for any reason: Jupyter's own watchdog only knows a kernel's parent process."""
    multiprocessing.parent_process().join()
    os._exit(1)


def fork_kernels(directory):
    """Make nbval fork its kernels, and connect to them with sockets in `directory`.

    By default, Jupyter selects free TCP ports, and another process can take one before the kernel does."""

    class KernelManager(nbval.kernel.KernelManager):
        def __init__(self, **kwargs):
            super().__init__(transport="ipc", ip=tempfile.mkdtemp(dir=directory) + "/kernel", **kwargs)

    if "forkserver" in multiprocessing.get_all_start_methods():
        nbval.kernel.KernelManager = KernelManager
        local_provisioner.launch_kernel = lambda command, env=None, cwd=None, **_: ForkedKernel(
            command, dict(env or os.environ), cwd
        )
