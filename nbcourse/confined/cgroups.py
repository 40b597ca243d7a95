"""A control group for each submission: its processes share their limits, and are killed together.

Linux counts processes, memory and processor time by groups. A process that is forked, detached or
started again stays in its group, whatever it does. So the limits hold for all processes of a
submission together, the kernel reports which limit was reached, and the whole group can be killed.

A group is a folder in a file system of the kernel. In version 2 of control groups there is one
hierarchy, and an ordinary user can be given a part of it, as systemd does with
`systemd-run --user --scope -p Delegate=yes`. Version 1 has a hierarchy for each controller, and
requires root. The two name their files differently; a file that does not exist is skipped.
"""

import errno
import functools
import os
import secrets
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

REQUIRED = ("pids", "memory")
CONTROLLERS = (*REQUIRED, "cpu", "cpuacct")  # the last is a part of "cpu" in version 2
UNIFIED = ""  # the controller's name that stands for all of version 2 in /proc/PID/cgroup
LEAF = "nbcourse"  # where the grader itself is, if it must not be in the group that has groups
PROCESSOR = 100_000  # microseconds in each 100,000: one processor's worth
COPIED = 2**28  # bytes: the most that a fork comes to copy of Python's and torch's own memory
KILLING = 10.0  # seconds to wait for killed processes to end
LACKING = (
    "no control group that the grader may use (see the guide): threads of a submission may take "
    "the time of several processors, and memory is limited for each of its processes alone"
)


@dataclass(frozen=True)
class ControlGroup:
    """A control group.

    Args:
        folders: controller → the group's folder; the same for all in version 2.
    """

    folders: dict[str, Path]

    def file(self, name: str) -> Path | None:
        """The file of this name, which begins with the controller's; None if it is not there."""
        folder = self.folders.get(name.partition(".")[0])
        return folder / name if folder is not None and (folder / name).exists() else None

    def enter(self) -> None:
        """Put this process into the group; what it starts will be in it too."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text("0")

    def processes(self) -> list[int]:
        return [int(line) for line in (self.folders["pids"] / "cgroup.procs").open()]

    def seconds(self) -> float:
        """Processor seconds of all processes that were ever in the group."""
        if (file := self.file("cpuacct.usage")) is not None:
            return int(file.read_text()) / 1e9
        return self._count("cpu.stat", "usage_usec") / 1e6

    def peak(self) -> int:
        """The most bytes of memory that it held at any time; 0 if the kernel does not say."""
        files = map(self.file, ("memory.peak", "memory.max_usage_in_bytes"))
        return next((int(file.read_text()) for file in files if file is not None), 0)

    def limits_met(self) -> tuple[int, int]:
        """How often a process or thread could not start, and how often one ran out of memory."""
        killed = (self._count(name, "oom_kill") for name in ("memory.events", "memory.oom_control"))
        return self._count("pids.events", "max"), sum(killed)

    def _count(self, name: str, key: str) -> int:
        file = self.file(name)
        rows = file.read_text().splitlines() if file is not None else []
        return next((int(row.split()[1]) for row in rows if row.split()[0] == key), 0)

    def kill(self) -> None:
        """Kill every process in it. None can start meanwhile, so this ends."""
        most = self.folders["pids"] / "pids.max"
        before = most.read_text()
        most.write_text("0")
        give_up_at = time.monotonic() + KILLING
        while (processes := self.processes()) and time.monotonic() < give_up_at:
            if (at_once := self.folders["pids"] / "cgroup.kill").exists():
                at_once.write_text("1")
            else:
                for process in processes:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
            time.sleep(0.001)
        most.write_text(before)

    def remove(self) -> None:
        """Kill what is in it, and remove it; nothing happens if it is gone already."""
        with suppress(FileNotFoundError):
            self.kill()
        for folder in set(self.folders.values()):
            with suppress(OSError):  # gone, or a process that the kernel does not let go
                folder.rmdir()


def make(parent: ControlGroup, *, processes: int, memory: int) -> ControlGroup:
    """Make a group inside another one, with limits on processes and threads, and on bytes.

    Raises:
        OSError: if the kernel refuses it, or one of the two limits.
    """
    name = f"submission-{os.getpid()}-{secrets.token_hex(8)}"  # the process that removes it
    made = ControlGroup(
        {controller: folder / name for controller, folder in parent.folders.items()}
    )
    settings = {
        "pids.max": processes,
        "memory.max": memory,
        "memory.swap.max": 0,
        "memory.oom.group": 1,
        "memory.limit_in_bytes": memory,  # version 1; next, with swap, which may not be lower
        "memory.memsw.limit_in_bytes": memory,
        "cpu.max": f"{PROCESSOR} {PROCESSOR}",
        "cpu.cfs_quota_us": PROCESSOR,
    }
    try:
        for folder in set(made.folders.values()):
            folder.mkdir()
        limited = set()
        for setting, value in settings.items():
            if (file := made.file(setting)) is not None:
                file.write_text(str(value))
                limited.add(setting.partition(".")[0])
        if not limited.issuperset(REQUIRED):
            raise OSError(errno.ENOTSUP, "no limit on processes or memory")
    except OSError:
        made.remove()
        raise
    return made


def group(*, processes: int, memory: int) -> ControlGroup | None:
    """A group for a submission, which is to be removed at the end; None where none can be made."""
    parent = place()
    return None if parent is None else make(parent, processes=processes, memory=memory)


# ---------------------------------------------------------------- where groups can be made


@functools.cache
def place() -> ControlGroup | None:
    """A group in which this process may make others, found out once by making one; or None.

    In version 2, no group may have both processes and groups that are limited. There, this process
    moves into a group beside those that it will make, if it is alone in its own. Processes that it
    starts find the same place.
    """
    try:
        here = own(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    except FileNotFoundError:  # not on Linux
        return None
    candidates = [{name: here[name] for name in CONTROLLERS if name in here}]
    if UNIFIED in here and (folder := _shared_out(here[UNIFIED])) is not None:
        candidates.insert(0, dict.fromkeys(CONTROLLERS, folder))
    for parent in map(ControlGroup, candidates):
        with suppress(OSError):
            if parent.folders.keys() >= set(REQUIRED):
                make(parent, processes=1, memory=COPIED).remove()
                return parent
    return None


def own(groups: str, mounts: str) -> dict[str, Path]:
    """Controller → the folder of the group in which a process is.

    Args:
        groups: the text of its /proc/PID/cgroup.
        mounts: that of /proc/PID/mountinfo.
    """
    paths: dict[str, PurePosixPath] = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), PurePosixPath(path))
    found: dict[str, Path] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(maxsplit=2)
        names = {"cgroup2": [UNIFIED], "cgroup": options.split(",")}.get(kind, [])
        for name in paths.keys() & names:
            group = paths[name]
            if group.is_relative_to(root) and ".." not in group.parts:  # else it is not mounted
                found[name] = Path(point) / group.relative_to(root)
    return found


def _shared_out(folder: Path) -> Path | None:
    """A group of version 2 whose groups can be limited, if this one is or can become one."""
    if folder.name == LEAF:
        folder = folder.parent
    there = set(CONTROLLERS) & set((folder / "cgroup.controllers").read_text().split())
    shares = folder / "cgroup.subtree_control"
    if not there.issuperset(REQUIRED):
        return None
    if there.issubset(shares.read_text().split()):
        return folder
    words = " ".join(f"+{name}" for name in sorted(there))
    with suppress(OSError):  # it has processes
        shares.write_text(words)
        return folder
    leaf = folder / LEAF
    try:
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text("0")
        shares.write_text(words)
    except OSError:  # it has others as well, or is not for this user
        with suppress(OSError):
            (folder / "cgroup.procs").write_text("0")
            leaf.rmdir()
        return None
    return folder
