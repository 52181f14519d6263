"""Kernels for nbval, forked from a process that has imported JAX. This saves the import, over a second per page.

On Windows, which cannot fork, Jupyter starts its kernels as usual."""

import multiprocessing
import os
import signal
import threading

from jupyter_client.provisioning import local_provisioner


class ForkedKernel:
    """A forked kernel with the methods of `subprocess.Popen` that Jupyter uses."""

    stdin = stdout = stderr = None

    def __init__(self, command, env, cwd):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["page_imports"])
        in_own_group = context.Event()  # Jupyter signals the kernel's process group, which must not be pytest's
        self.process = context.Process(target=run_kernel, args=(command, env, cwd, in_own_group))
        self.process.start()
        in_own_group.wait()
        self.pid = self.process.pid

    def poll(self):
        return self.process.exitcode

    def wait(self):
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def run_kernel(command, env, cwd, in_own_group):
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    in_own_group.set()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ.clear()
    os.environ.update(env)
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # the pages' programs run only once
    if cwd is not None:
        os.chdir(cwd)
    threading.Thread(target=end_with_pytest, daemon=True).start()
    IPKernelApp.launch_instance(command[command.index("ipykernel_launcher") + 1 :])


def end_with_pytest():
    """End this kernel when pytest ends for any reason: Jupyter's own watchdog only knows a kernel's parent process."""
    multiprocessing.parent_process().join()
    os._exit(1)


def fork_kernels():
    """Make Jupyter fork its kernels."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        local_provisioner.launch_kernel = lambda command, env=None, cwd=None, **_: ForkedKernel(
            command, dict(env or os.environ), cwd
        )
