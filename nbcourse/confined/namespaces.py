"""A private file system for a submission: limited in size, and with nothing else in it.

Where the kernel allows a user namespace, the process that calls `enter` gets a root folder in
memory, with room for a limited number of bytes and files. It holds what may be read, under the
usual paths, and the submission's folder. Whether any other file exists cannot be found out, and
all of it disappears with the process, however deep its folders are. Landlock says in addition what
may be opened; where there are no namespaces, it alone guards the files.
"""

import ctypes
import os
import platform
from collections.abc import Iterable
from pathlib import Path

NEWNS, NEWUSER = 0x00020000, 0x10000000  # linux/sched.h
# linux/mount.h
MS_BIND, MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 0x1000, 0x4000, 0x40000, 0x2, 0x4
DETACH = 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}  # asm/unistd.h
BYTES_A_FILE = 4096  # of the size, for each file that may be made
LINKS = ("/lib", "/lib64", "/etc/localtime")  # by which Python and libraries find others


def enter(folder: Path, size: int, readable: Iterable[Path]) -> bool:
    """Give this process a root with these files and this folder; whether the kernel allowed it.

    Args:
        folder: empty; the process is in it afterwards.
        size: bytes for everything that is written.
        readable: files and folders that are to be there.

    Raises:
        OSError: if the kernel allows the namespace but not its contents; the process must not go
            on then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    try:
        check(libc.unshare(NEWUSER | NEWNS), "a user namespace")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        _mount(libc, "none", Path("/"), MS_REC | MS_PRIVATE)
        _mount(libc, "tmpfs", folder, MS_NOSUID | MS_NODEV, f"size={size},nr_inodes={_files(size)}")
    except OSError:
        return False
    _fill(libc, folder, readable)  # outside of the try: nothing may run in a half-filled root
    return True


def _fill(libc: ctypes.CDLL, root: Path, readable: Iterable[Path]) -> None:
    """Make a file system's root the root of this process, and put into it what is to be there."""
    for path in sorted(readable):  # folders before what lies in them, which is there then
        place = root / path.relative_to("/")
        if place.exists():
            continue
        if path.is_dir():
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        _mount(libc, str(path), place, MS_BIND | MS_REC)
    for link in map(Path, LINKS):
        place = root / link.relative_to("/")
        if link.is_symlink() and not os.path.lexists(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(link.readlink())
    home, old = root / root.relative_to("/"), root / "before"
    home.mkdir(parents=True)
    old.mkdir()
    call = PIVOT_ROOT[platform.machine()]
    check(libc.syscall(call, bytes(root), bytes(old)), "another root")
    os.chdir("/")
    check(libc.umount2(b"/before", DETACH), "leaving the old root")
    os.rmdir("/before")
    os.chdir(root)


def _files(size: int) -> int:
    return size // BYTES_A_FILE + 200  # and those that are there from the beginning


def _mount(libc: ctypes.CDLL, source: str, place: Path, flags: int, options: str = "") -> None:
    kind = b"tmpfs" if source == "tmpfs" else None
    result = libc.mount(
        source.encode(), bytes(place), kind, ctypes.c_ulong(flags), options.encode() or None
    )
    check(result, f"mounting {source}")


def check(result: int, step: str) -> int:
    """The result of a call of the C library.

    Raises:
        OSError: if the call failed, saying which step the kernel refuses.
    """
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"the kernel refuses {step}: {os.strerror(error)}")
    return result
