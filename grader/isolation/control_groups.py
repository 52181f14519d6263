"""A control group for each answer (cgroup v2), in which the kernel counts all memory, tasks and processor time.

A process's own limits (rlimits) apply to its address space, which does not include the memory that the kernel allocates
for the process. A control group's limit includes this memory. When a group reaches its limit, the kernel kills the
processes of this group only. Creating groups requires a subtree of the hierarchy that is delegated to the user who
grades. systemd delegates a subtree on request; see `HOW`. Without one, `NotDelegated` gives the reason.
"""

import contextlib
import errno
import functools
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from grader.isolation.sandboxed.lockdown import THREADS, ProcessLimits

HOW = "systemd-run --user --scope -p Delegate=yes python -m grader batch …"
_NEEDED, _WANTED = {"memory", "pids"}, {"cpu"}  # systemd before 252 does not delegate `cpu` to users
# Allowed in addition to the answer's limit: the pages that the answer shares with the zygote until it writes to them,
# and the memory that the kernel allocates for it.
_BESIDES = 512 * 2**20
_COUNT = itertools.count()


class NotDelegated(Exception):
    """Raised if no control groups can be created. The message gives the reason, as words that follow a colon."""


class ControlGroup:
    """A control group with limits, for one process. Call `remove` when the process has ended.

    Attributes:
      joining: the group's `cgroup.procs` file. A process that writes b"0" to it joins the group, and so does every
        process that it starts from then on.
    """

    def __init__(self, place: Path, limits: ProcessLimits):
        self._place = place
        place.mkdir()
        settings = {
            "memory.max": limits.memory + limits.disk + _BESIDES,
            "memory.swap.max": 0,
            "memory.oom.group": 1,
            "pids.max": THREADS + 1,
            "cpu.max": "100000 100000",  # at most 0.1 s of processor time per 0.1 s: one processor
        }
        for name, value in settings.items():
            # A file is missing if the kernel has no swap accounting or if the cpu controller is not delegated. The mode
            # "r+" does not try to create it.
            with contextlib.suppress(FileNotFoundError), (place / name).open("r+") as file:
                file.write(str(value))
        self.joining = (place / "cgroup.procs").open("wb", buffering=0)

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the group because the group reached its memory limit."""
        events = dict(line.split() for line in (self._place / "memory.events").read_text().splitlines())
        return int(events["oom_kill"]) > 0

    @property
    def joined(self) -> bool:
        """Whether a process is in the group."""
        return bool((self._place / "cgroup.procs").read_text())

    def remove(self) -> None:
        """Remove the group. Its processes must have ended."""
        self.joining.close()
        with contextlib.suppress(OSError):
            self._place.rmdir()


class ControlGroups:
    """The subtree of control groups that is delegated to this process.

    Raises:
      NotDelegated: no subtree is delegated.
    """

    def __init__(self) -> None:
        self._place = _delegated_group()
        try:
            self.group(ProcessLimits(processor_seconds=1, address_space=0)).remove()
        except OSError as error:
            raise NotDelegated(f"no child group can be created in its control group ({error.strerror})") from None

    def group(self, limits: ProcessLimits) -> ControlGroup:
        """Create a group for a process that has not started yet. Raises OSError."""
        return ControlGroup(self._place / f"answer-{os.getpid()}-{next(_COUNT)}", limits)


def limit_of_all(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the limit in bytes on the total memory of all processes, for example of a container; None if there is no
    limit below the machine's memory. `root` is the mount point of the control groups. In a container, it shows the
    container's own group."""
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # version 2, version 1
        with contextlib.suppress(OSError, ValueError):  # "max" is not a number
            limit = int((root / file).read_text())
            if limit < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
                return limit
    return None


def limit_of_tasks() -> int | None:
    """Return the lowest limit on the number of processes and threads in this process's control group and its parents,
    for example of a container; None if there is no such limit. Both versions of control groups are considered."""
    limits = []
    for group in (*_own_groups("pids"), *_own_groups("")):
        with contextlib.suppress(OSError, ValueError):  # no file, or "max", which is not a number
            limits.append(int((group / "pids.max").read_text()))
    return min(limits, default=None)


def start_in_a_scope() -> None:
    """Restart this command in its own delegated systemd scope, if control groups are available there. Return without a
    restart if this process already has control groups, or if it cannot get any; code that needs them then reports the
    reason."""
    run = shutil.which("systemd-run")
    if not run or not why_none() or f"/{_SCOPE}-" in Path("/proc/self/cgroup").read_text():
        return
    options = [run, *(["--user"] if os.geteuid() else []), "--scope", "--quiet", "--collect", "-p", "Delegate=yes"]
    with contextlib.suppress(subprocess.SubprocessError, OSError):
        tried = [*options, sys.executable, "-c", "from grader.isolation.control_groups import *; ControlGroups()"]
        if subprocess.run(tried, capture_output=True, timeout=_SECONDS_TO_TRY).returncode == 0:
            command = [*options, f"--unit={_SCOPE}-{os.getpid()}", sys.executable, "-m", "grader", *sys.argv[1:]]
            os.execv(run, command)


_SCOPE, _SECONDS_TO_TRY = "remat-grader", 30


def why_none() -> str:
    """Return why this process cannot create control groups, or "" if it can."""
    try:
        _delegated_group()
    except NotDelegated as error:
        return str(error)
    return ""


@functools.cache  # the first call moves this process to another group
def _delegated_group() -> Path:
    own = _own_group()
    there = set((own / "cgroup.controllers").read_text().split())
    if missing := _NEEDED - there:
        names = " and ".join(sorted(missing))
        if missing <= _of_version_1():
            raise NotDelegated(
                f"{names} are managed by control groups version 1 here, which cannot be delegated. Add "
                "`systemd.unified_cgroup_hierarchy=1` to the kernel's parameters and restart first"
            )
        raise NotDelegated(f"its control group (cgroup v2) has no {names} controller")
    control = own / "cgroup.subtree_control"
    if not all(os.access(place, os.W_OK) for place in (own, own / "cgroup.procs", control)):
        raise NotDelegated("its control group is not delegated to the user who grades")
    leaf = own / "grader"
    try:
        # In cgroup v2, a group with child groups must not contain processes itself, except the root, which has no type.
        if (own / "cgroup.type").exists():
            leaf.mkdir(exist_ok=True)
            (leaf / "cgroup.procs").write_text(str(os.getpid()))
        control.write_text(" ".join(f"+{name}" for name in sorted((_NEEDED | _WANTED) & there)))
    except OSError as error:
        with contextlib.suppress(OSError):
            (own / "cgroup.procs").write_text(str(os.getpid()))
            leaf.rmdir()
        why = "is shared with other processes" if error.errno == errno.EBUSY else "cannot have child groups"
        raise NotDelegated(f"its control group {why} ({error.strerror})") from None
    return own


def _own_group() -> Path:
    for group in _own_groups(""):
        return group
    raise NotDelegated("no control group hierarchy of version 2 is mounted")


def _own_groups(controller: str) -> list[Path]:
    """Return the folders of this process's control group and its parents in the hierarchy of version 1 that has this
    controller, or in the hierarchy of version 2 for "". The list is empty if the hierarchy is not mounted."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return []
    own = next((Path(path) for _, names, path in groups if controller in names.split(",")), None)
    for mount in mounts:
        root, place, kind, options = mount[3], Path(mount[4]), mount[mount.index("-") + 1], mount[-1].split(",")
        wanted = (kind == "cgroup" and controller in options) if controller else kind == "cgroup2"
        if wanted and own and own.is_relative_to(root):
            group = place / own.relative_to(root)
            return [group, *(parent for parent in group.parents if parent.is_relative_to(place))]
    return []


def _of_version_1() -> set[str]:
    """Return the controllers that cgroup v1 manages, which cgroup v2 therefore does not have."""
    groups = (line.split(":") for line in Path("/proc/self/cgroup").read_text().splitlines())
    return {name for _, names, _ in groups for name in names.split(",")}
