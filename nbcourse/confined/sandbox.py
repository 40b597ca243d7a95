"""Confinement of a process that is about to run untrusted code, on Linux.

Three mechanisms of the kernel, none of which needs privileges, and none of which can be undone by
the process that asked for it:

- Landlock: which files may be opened. Readable are Python, its packages and the system's libraries;
  writable is one folder, in which files stay where they can be counted. Not among them are the
  masters, other submissions, /proc, and so the memory of other processes; nor the packages that
  solve exercises, with `nbcourse` and its checks as the first.
- Seccomp: which calls of the kernel are refused, namely new processes, sockets and everything else
  that reaches other processes or files' attributes, locks and names, which Landlock does not guard.
- Limits on memory, processor time, file sizes and open files.

Where the kernel allows a user namespace, the process sees no file but these (`namespaces`), and the
folder has a limited size. Threads are limited by a control group (`cgroups`), or, where there is
none, with the namespace, unless the grader is root. Elsewhere, the parent process watches both. It
watches the clock in any case, and ends the process.

Two programs do parts of this, and were tried (in November 2026, on Debian 12). *bubblewrap* 0.8
starts a program in namespaces: each submission would import torch anew (2.7 seconds of processor
time, a fork .03), it has to be installed, and without user namespaces, as in most containers, it
starts nothing, where Landlock still guards the files here. *pyseccomp* 0.1.2 needs libseccomp
installed; version 2.5.4 refuses (EINVAL) a rule with two comparisons of one argument, and so
"`kill` none but oneself" and "no `ioctl` but these seven", and it does not know the three youngest
calls below. Neither has Landlock, limits or control groups.
"""

import ctypes
import os
import platform
import site
import struct
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from nbcourse.confined import namespaces
from nbcourse.confined.namespaces import check
from nbcourse.errors import UserError

# ---------------------------------------------------------------- the kernel's numbers
# linux/landlock.h. The calls have the same number on every architecture.

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
MAKE_DIR, MAKE_REG = 1 << 7, 1 << 8
TRUNCATE = 1 << 14
READ = READ_FILE | READ_DIR
# Nothing is removed: a file without a name takes up space that no listing shows.
WRITE = WRITE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE  # rights that a rule for a file may hold
# version of Landlock → how many rights on files, in networks, and scopes it knows
KNOWN = {1: (13, 0, 0), 2: (14, 0, 0), 3: (15, 0, 0), 4: (15, 2, 0), 5: (16, 2, 0), 6: (16, 2, 2)}

# asm/unistd.h: number on x86-64, number on 64-bit ARM, None where the call does not exist.
REFUSED = {
    # programs and processes; `clone` is below
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    # networks, and io_uring, which would open sockets past this filter
    "socket": (41, 198), "socketpair": (53, 199), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # other processes
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117), "kcmp": (312, 272), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # memory that no limit counts, or that is shared
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # space on the disk that a file's size does not show; `open` and `openat` are below
    "fallocate": (285, 47), "openat2": (437, 437),
    # other processes' files: what they are called, and locks on them
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "flock": (73, 32),
    # attributes of files
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "truncate": (76, 45), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469),
    # the machine
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "pivot_root": (155, 41), "chroot": (161, 51),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282),
}  # fmt: skip
KILL, TGKILL, PRLIMIT, SET_AFFINITY = (62, 129), (234, 131), (302, 261), (203, 122)
CLONE, CLONE3, PRCTL, FCNTL, IOCTL = (56, 220), (435, 435), (157, 167), (72, 25), (16, 29)
OPEN, OPENAT = 2, (257, 56)  # x86-64 alone has the first
CLONE_THREAD = 0x00010000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
UNNAMED = 0o20000000  # the bit of O_TMPFILE: a file without a name
# fcntl's F_SETOWN, F_SETSIG and F_SETOWN_EX: whom a file sends signals; F_SETLEASE: making others
# wait who open a file; F_NOTIFY: hearing of others' files
ON_OTHERS = (8, 10, 15, 1024, 1026)
# ioctl's TCGETS, TCGETS2, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX and FIOCLEX: what Python asks of
# files and sockets. Others change attributes of files that may only be read.
ASKED = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# machine → column above, linux/audit.h's name for it
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32 = 0x40000000  # a second numbering of the calls of x86-64

FOLDER_WATCHED = (
    "no user namespace: how much a submission writes is looked at four times a second, and it can "
    "find out which files there are, though not read them"
)
THREADS_WATCHED = (
    "no limit on threads that holds here (it needs a control group, or a user namespace and a "
    "grader who is not root): they are counted four times a second"
)
# Packages that do what exercises ask for. Where they are installed, no submission can read them.
SOLVERS = ("nbcourse", "trl", "torchrl", "polgrad", "stable_baselines3", "rlax", "verl", "openrlhf")

# linux/bpf_common.h, linux/seccomp.h
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL_PROCESS, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER_AT, MACHINE_AT, ARGUMENTS_AT = 0, 4, 16
EPERM, ENOSYS = 1, 38


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    Args:
        memory: bytes, beyond what Python and torch themselves take.
        seconds: on the clock, for one cell or one call of a function.
        total: seconds for everything.
        disk: bytes in the private folder.
        threads: at a time.
    """

    memory: int = 4 * 2**30
    seconds: float = 60.0
    total: float = 300.0
    disk: int = 256 * 2**20
    threads: int = 64


def missing() -> list[str]:
    """What this machine lacks to confine a process, in words; empty if nothing."""
    if sys.platform != "linux":
        return [f"Landlock and seccomp, which are Linux's (this is {platform.system()})"]
    lacking = []
    if _landlock_version() < 1:
        lacking.append("Landlock (Linux 5.13 or newer, switched on, and permitted in containers)")
    if platform.machine() not in MACHINES or _libc().prctl(21, 0, 0, 0, 0) < 0:  # PR_GET_SECCOMP
        lacking.append(f"seccomp on {' or '.join(MACHINES)}")
    return lacking


def readable() -> list[Path]:
    """What a confined process may read: the files that Python and its packages are made of."""
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own += [sysconfig.get_config_var("LIBDIR")]
    libraries = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
    others = ("/etc/localtime", "/usr/share/zoneinfo", "/dev/urandom", "/dev/null")
    paths = [Path(path).resolve() for path in (*own, *libraries, *others) if path]
    return [path for path in dict.fromkeys(paths) if path.exists()]


@cache
def rights() -> dict[Path, int]:
    """Each readable path with its rights; instead of a folder with a solver, what else is in it."""
    packages = [*site.getsitepackages([sys.prefix, sys.base_prefix]), *sys.path]
    solvers = {Path(folder).resolve() / name for folder in packages for name in SOLVERS}
    solvers = {path for path in solvers if path.exists()}
    found: dict[Path, int] = {}
    waiting = readable()
    while waiting:
        path = waiting.pop()
        if path in found or path in solvers:
            continue
        mixed = any(solver.is_relative_to(path) for solver in solvers)
        found[path] = READ_DIR if mixed else READ
        waiting += path.iterdir() if mixed else ()
    return found


def confine(folder: Path, limits: Limits, *, grouped: bool = False) -> list[str]:
    """Confine this process, for good, to computing and to its folder.

    Args:
        folder: the only one that it may write to.
        limits: what it may use.
        grouped: whether it is in a control group, which limits its threads.

    Returns:
        What the grader has to watch, since the kernel does not limit it here, in words.

    Raises:
        OSError: if the kernel refuses a step; the process must not go on then.
    """
    libc = _libc()
    _limit(limits)
    alone = namespaces.enter(folder, limits.disk, readable())
    counted = grouped
    if not grouped and alone and os.getuid() != 0:  # this limit on threads does not hold for root
        _bound({_resource().RLIMIT_NPROC: limits.threads})
        counted = True
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _guard_files(libc, folder)
    _drop_capabilities(libc)
    _filter_calls(libc)
    return [FOLDER_WATCHED] * (not alone) + [THREADS_WATCHED] * (not counted)


def require_confinement(secrets: Iterable[Path]) -> None:
    """Make sure that this machine can keep a process away from the secrets.

    Raises:
        UserError: if it cannot confine processes, or a secret is among what Python is made of.
    """
    if lacking := missing():
        raise UserError(
            f"submissions cannot be confined here, since this machine lacks {'; '.join(lacking)}. "
            "Grade them on Linux, in a container for example; --trust-submissions runs them all "
            "the same, and then they can do whatever you can do"
        )
    for secret in secrets:
        if exposed(secret):
            raise UserError(
                f"{secret} could be read by submissions, since it is among the folders of Python "
                "and its packages; move it to another place"
            )


def exposed(path: Path) -> bool:
    """Whether a confined process could read this file or folder, or a part of it."""
    path = path.resolve()
    return any(p.is_relative_to(path) or path.is_relative_to(p) for p in readable())


def _resource() -> ModuleType:
    import resource  # not on Windows, where `missing` must still answer

    return resource


def limit_memory(memory: int) -> None:
    """Let this process take this many bytes beyond what it has mapped already."""
    resource = _resource()
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _bound({resource.RLIMIT_AS: mapped + memory})


def _limit(limits: Limits) -> None:
    resource = _resource()
    limit_memory(limits.memory)
    bounds = {
        resource.RLIMIT_CPU: int(2 * limits.total) + 1,  # threads count together
        resource.RLIMIT_FSIZE: 16 * 2**20,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CORE: 0,
    }
    _bound(bounds)


def _bound(bounds: dict[int, int]) -> None:
    resource = _resource()
    for what, bound in bounds.items():
        _, hard = resource.getrlimit(what)
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(what, (bound, bound))


def _guard_files(libc: ctypes.CDLL, folder: Path) -> None:
    version = _landlock_version()
    files, networks, scopes = KNOWN[min(version, max(KNOWN))]
    handled = (1 << files) - 1
    attributes = struct.pack("QQQ", handled, (1 << networks) - 1, (1 << scopes) - 1)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = check(libc.syscall(CREATE_RULESET, attributes, size, 0), "Landlock's rules")
    own = [(folder, READ | WRITE), (Path("/dev/null"), READ | WRITE)]
    for path, wanted in [*rights().items(), *own]:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
        kept = wanted & handled & (-1 if path.is_dir() else ON_FILES)
        rule = struct.pack("=Qi", kept, at)
        check(libc.syscall(ADD_RULE, rules, 1, rule, 0), f"Landlock's rule for {path}")
        os.close(at)
    check(libc.syscall(RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Root without its powers, where the grader is root."""
    version_3_self, none = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0] * 6)
    check(libc.capset(version_3_self, none), "dropping capabilities")


def _filter_calls(libc: ctypes.CDLL) -> None:
    column, machine = MACHINES[platform.machine()]
    own, refuse = os.getpid(), REFUSE | EPERM
    program = [
        (LOAD, 0, 0, MACHINE_AT),
        (EQUAL, 1, 0, machine),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    if platform.machine() == "x86_64":
        program += [(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, REFUSE | ENOSYS)]
    for numbers in REFUSED.values():
        if (number := numbers[column]) is not None:
            program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, refuse)]
    # The C library tries `clone`, whose flags can be seen here, where there is no `clone3`.
    program += [(EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, REFUSE | ENOSYS)]
    program += _if_argument(CLONE[column], 0, ANY_BIT, [CLONE_THREAD], ALLOW, refuse)
    for call in (KILL, TGKILL, PRLIMIT, SET_AFFINITY):  # upon oneself only
        program += _if_argument(call[column], 0, EQUAL, [0, own], ALLOW, refuse)
    program += _if_argument(PRCTL[column], 0, EQUAL, [PR_SET_PDEATHSIG], refuse, ALLOW)
    program += _if_argument(FCNTL[column], 1, EQUAL, ON_OTHERS, refuse, ALLOW)
    program += _if_argument(IOCTL[column], 1, EQUAL, ASKED, ALLOW, refuse)
    program += _if_argument(OPENAT[column], 2, ANY_BIT, [UNNAMED], refuse, ALLOW)
    if platform.machine() == "x86_64":
        program += _if_argument(OPEN, 1, ANY_BIT, [UNNAMED], refuse, ALLOW)
    program += [(RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    check(libc.prctl(PR_SET_SECCOMP, 2, header, 0, 0), "seccomp")  # 2: a filter


def _if_argument(
    number: int, argument: int, test: int, values: list[int] | tuple[int, ...], hit: int, miss: int
) -> list[tuple[int, int, int, int]]:
    """What happens to call `number`, depending on the lower 32 bits of one of its arguments."""
    tests = [(test, len(values) - i, 0, value) for i, value in enumerate(values)]
    body = [(LOAD, 0, 0, ARGUMENTS_AT + 8 * argument), *tests, (RETURN, 0, 0, miss)]
    body += [(RETURN, 0, 0, hit)]
    return [(EQUAL, 0, len(body), number), *body]


def die_with_parent() -> None:
    """Have this process killed when its parent ends."""
    if sys.platform == "linux":
        _libc().prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)


def _landlock_version() -> int:
    """Version of the kernel's Landlock; below 1 where there is none."""
    return _libc().syscall(CREATE_RULESET, None, 0, 1)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
