"""Kernels for notebooks, forked from a process that has imported what chapters import.

A kernel by itself spends 3 to 7 processor seconds on torch, transformers and Matplotlib before it
runs its first cell, a forked one half a second. It is a process of its own all the same: nothing
that a notebook does reaches another.
"""

import os
import signal
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

from tests import forked_programs, script


def use() -> None:
    """Let every kernel that this process starts be forked, where the system can fork."""
    if sys.platform != "linux":
        return
    factory = KernelProvisionerFactory.instance()
    factory.provisioners["forked"] = EntryPoint("forked", f"{__name__}:Forked", factory.GROUP_NAME)
    factory.default_provisioner_name = "forked"


class Forked(LocalProvisioner):
    """Starts a kernel of this environment without starting Python."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start it; `cmd` is how it would be started as a program, `kwargs` are Popen's."""
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        silent = kwargs.get("stderr") is not None
        started = script.process(
            _kernel, script.server(), arguments, kwargs["cwd"], dict(kwargs["env"]), silent
        )
        self.process, self.pid, self.pgid = Started(started), started.pid, started.pid
        return self.connection_info


class Started:
    """A process of `multiprocessing` as the provisioner knows one: as a `Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, process: BaseProcess) -> None:
        self.process = process

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _kernel(
    server: Mapping[str, Any], arguments: list[str], folder: str, env: dict[str, str], silent: bool
) -> None:
    """What `python -m ipykernel_launcher` does, in a folder and with variables."""
    import matplotlib
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()  # what the kernel starts ends with it
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, "")
    matplotlib.rcParams["backend"] = "module://matplotlib_inline.backend_inline"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if Path("nbcourse").is_dir():  # a folder with checks of its own, as students get it
        for name in [name for name in sys.modules if name.partition(".")[0] == "nbcourse"]:
            del sys.modules[name]
    if silent:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    script.end_with_the_parent()
    script.share(server)
    forked_programs.use()
    IPKernelApp.launch_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
