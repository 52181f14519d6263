"""Whether this machine has a sandbox to test: bubblewrap, and user namespaces inside of it."""

import functools
import shutil
import subprocess

import pytest


@functools.cache
def _works() -> bool:
    if shutil.which("bwrap") is None:
        return False
    inside = ["bwrap", "--unshare-all", "--uid", "1000", "--gid", "1000", "--ro-bind", "/", "/", "--proc", "/proc"]
    return subprocess.run([*inside, "unshare", "--user", "true"], capture_output=True).returncode == 0


needed = pytest.mark.skipif(not _works(), reason="needs bubblewrap, and user namespaces inside of it")
