"""Is everything here that the book needs? A table for chapter 0 and for `nbcourse doctor`."""

import os
import platform
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import nbcourse
from nbcourse import repository

if TYPE_CHECKING:
    from packaging.requirements import Requirement

CORE = ""
READERS = (CORE, "lm", "agents", "lunar-lander", "book", "classroom")
"""The extras that reading, running and teaching the book needs; requirements.txt locks them."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_CHROME = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
NEWEST = (3, 14)
"""Python for which each locked package has a wheel; on one before 3.11 the package does not run."""
TESTED = {("Linux", "x86_64")}
WITH_WHEELS = {("Linux", "aarch64"), ("Darwin", "arm64"), ("Windows", "amd64")}
ROOM = 2  # GiB: what the models and runs of chapters 0 to 14 take together, with some to spare
EXTENSIONS = {  # of JupyterLab, in the packages that bring them
    "MyST in JupyterLab": "jupyterlab-myst",  # draws the book's boxes
    "widgets in JupyterLab": "jupyterlab-widgets",  # and the live panels
}
SAVING = Path("etc", "jupyter", "jupyter_server_config.d", "nbcourse.json")
"""Of an environment: makes its Jupyter load `publishing.reading`, which writes this file."""
FOR_PHONES = "NBCOURSE_FOR_PHONES"
"""Environment variable of kernels whose outputs are stored: their figures are drawn twice."""
MARKS = {True: "✓", False: "✗", None: "·"}


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: of a package, or of an extra of which nothing is there.
        version: what is installed.
        ok: False where something has to be done; None for what this installation does without.
        remark: what to do.
    """

    name: str
    version: str
    ok: bool | None
    remark: str = ""


def report() -> list[Finding]:
    """Compare what is installed with what is asked for.

    In the book's repository every package must be there, in the version that requirements.txt
    locks. Elsewhere the core must be there, extras may be missing, and versions must be in the
    ranges of the package's metadata.

    Returns:
        One row each for Python, the platform, nbcourse, and each package that the core and the
        readers' extras ask for directly, and one for each extra that is not there as a whole. What
        cannot be read is one row more, and then versions need only be in range.
    """
    rows = [_python(), _platform(), _nbcourse()]
    locked: dict[str, str] = {}
    try:
        if repository.is_here():
            locked = _locked()
    except Exception as error:  # no permission, other bytes than text, lines that are no packages
        rows.append(_not_checked("requirements.txt", error))
    seen: set[str] = set()
    for extra in READERS:
        try:
            direct = _direct(extra)
        except Exception as error:
            rows.append(_not_checked(f"nbcourse[{extra}]" if extra else "requirements", error))
            continue
        packages = {name: wanted for name, wanted in direct.items() if name not in seen}
        seen.update(packages)
        missing = [name for name in packages if version_of(name) is None]
        for name, wanted in packages.items():
            if name not in missing:
                rows.append(_checked(wanted, locked.get(_normal(name))))
            elif locked or extra == CORE:
                rows.append(Finding(name, "missing", False, _install(extra)))
        if missing and extra != CORE and not locked:
            remark = f"without {', '.join(missing)}; {_install(extra)}"
            rows.append(Finding(f"nbcourse[{extra}]", "not installed", None, remark))
    return rows


def machine(**others: Callable[[], Finding]) -> list[Finding]:
    """What the book uses beside packages: JupyterLab's extensions, data, GPU, browser, disk.

    A check that raises an error becomes a line of the report, like the others.

    Args:
        others: checks of higher layers, by the name of their line.
    """
    checks: dict[str, Callable[[], Finding]] = {
        **{name: partial(_extension, name, package) for name, package in EXTENSIONS.items()},
        "saving in Jupyter": _saving,
        "GSM8K": _gsm8k,
        **others,
        "GPU": _gpu,
        "browser": _browser,
        "disk": _disk,
    }
    return [_survived(name, check) for name, check in checks.items()]


def browser() -> str | None:
    """The path of a Chromium or Chrome; None if none is found."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    return found or (str(MAC_CHROME) if MAC_CHROME.exists() else None)


def processor() -> str:
    """The processor's model, or its kind where the system does not say more."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _survived(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # broken drivers and packages raise what they like
        return _not_checked(name, error)


def _not_checked(name: str, error: Exception) -> Finding:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return Finding(name, "not checked", False, reason)


def _extension(name: str, package: str) -> Finding:
    """Whether an extension of JupyterLab has its files where JupyterLab looks."""
    if version_of(package) is None:
        return Finding(name, "none", None, "for the chapters in JupyterLab only")
    files = metadata.files(package) or []
    if any("labextensions" in file.parts and Path(file.locate()).exists() for file in files):
        return Finding(name, "found", True)
    remark = f"run: python -m pip install --force-reinstall --no-deps {package}"
    return Finding(name, "missing", False, remark)


def _saving() -> Finding:
    """Whether Jupyter loads what keeps the chapters that were only run as the book has them."""
    name = "saving in Jupyter"
    if version_of("jupyterlab") is None:
        return Finding(name, "none", None, "for the chapters in JupyterLab only")
    if Path(sys.prefix, SAVING).is_file():
        return Finding(name, "found", True)
    remark = "git lists chapters that were only run; python -m nbcourse.publishing.reading helps"
    return Finding(name, "not set up", None, remark)


def _gsm8k() -> Finding:
    folder = os.environ.get("NBCOURSE_GSM8K")
    if not folder:
        remark = "training fetches it; NBCOURSE_GSM8K may name a folder that has it"
        return Finding("GSM8K", "not here", None, remark)
    missing = [f for f in ("train.jsonl", "test.jsonl") if not Path(folder, f).is_file()]
    if missing:
        remark = f"NBCOURSE_GSM8K names {folder}, which has no {' and no '.join(missing)}"
        return Finding("GSM8K", "missing", False, remark)
    return Finding("GSM8K", "found", True)


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", "none", None, "only the runs of chapters 15 and 17 need one")
    properties = torch.cuda.get_device_properties(0)
    return Finding("GPU", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB", True)


def _browser() -> Finding:
    if browser() is None:
        remark = "only `make pdf` and tests need Chromium or Chrome: apt install chromium"
        return Finding("browser", "none", None, remark)
    return Finding("browser", "found", True)


def _disk() -> Finding:
    free = shutil.disk_usage(repository.ROOT).free / 2**30
    remark = f"the book needs {ROOM} GiB for models and runs"
    return Finding("disk", f"{free:.0f} GiB free", free >= ROOM, "" if free >= ROOM else remark)


def declared() -> dict[str, list[str]]:
    """The direct requirements of each extra as they are written, those of the core under CORE.

    They come from pyproject.toml where the repository is here, and otherwise from the metadata of
    the installed package; where it has none, there are no requirements.
    """
    if repository.is_here():
        text = (repository.ROOT / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text)["project"]
        return {CORE: project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, list[str]] = {CORE: []}
    try:
        lines = metadata.requires("nbcourse") or []
    except metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        extra = re.search(r"""extra == ["']([^"']+)["']""", line)
        found.setdefault(extra[1] if extra else CORE, []).append(line)
    return found


def remedy(error: ModuleNotFoundError) -> str | None:
    """What to install, as one line, for a module that was not found; None if it is one of ours."""
    module = (error.name or "").split(".")[0]
    if module in ("", "nbcourse"):
        return None
    name = _normal(module)
    for extra, lines in declared().items():
        if name in {_normal(_name(line)) for line in lines}:
            return f"this needs the package {name}, which is missing; {_install(extra)}"
    return f"this needs the module {module}, which is missing; see also: nbcourse doctor"


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info[:2] > NEWEST:
        remark = "newer than any that all locked packages have wheels for"
        return Finding("Python", version, None, remark)
    return Finding("Python", version, True)


def _platform() -> Finding:
    """Whether the book was tested on a machine of this kind, or its packages have wheels for it."""
    kind = platform.system(), platform.machine().lower()
    version = f"{platform.system()} {platform.machine()}"
    if kind in TESTED:
        return Finding("platform", version, True)
    if kind in WITH_WHEELS:
        return Finding("platform", version, None, "not tested; its packages have wheels for it")
    return Finding("platform", version, None, "not tested, and torch may have no wheel for it")


def _nbcourse() -> Finding:
    there = version_of("nbcourse") is not None
    what = "--no-deps --editable ." if repository.is_here() else "nbcourse"
    remark = f"on the path, but not installed; run: python -m pip install {what}"
    return Finding("nbcourse", nbcourse.__version__, there, "" if there else remark)


def _checked(wanted: "Requirement", locked: str | None) -> Finding:
    """A package that is there, against its locked version, or its range if none is locked."""
    version = metadata.version(wanted.name)
    if locked is not None:
        ok, remark = version.split("+")[0] == locked, f"the book was tested with {locked}"
    else:
        ok = wanted.specifier.contains(version, prereleases=True)
        remark = f'run: python -m pip install "{wanted.name}{wanted.specifier}"'
    return Finding(wanted.name, version, ok, "" if ok else remark)


def _direct(extra: str) -> "dict[str, Requirement]":
    """What an extra asks for on this machine, by name.

    An extra of another package, such as gymnasium[box2d], counts as the packages that it adds.
    """
    from packaging.requirements import Requirement

    found: dict[str, Requirement] = {}
    for wanted in map(Requirement, declared().get(extra, ())):
        if wanted.name == "nbcourse" or not _applies(wanted, extra):
            continue
        found[wanted.name] = wanted
        if wanted.extras and version_of(wanted.name):
            for added in map(Requirement, metadata.requires(wanted.name) or ()):
                if not _applies(added, CORE) and any(_applies(added, e) for e in wanted.extras):
                    found[added.name] = added
    return found


def _applies(requirement: "Requirement", extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _locked() -> dict[str, str]:
    """The versions that requirements.txt locks for this machine, by normalised name."""
    from packaging.requirements import Requirement

    text = (repository.ROOT / "requirements.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {
        _normal(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in map(Requirement, lines)
        if _applies(requirement, CORE)
    }


def version_of(name: str) -> str | None:
    """The version of a package as it is installed; None if it is not."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _install(extra: str) -> str:
    """The command that brings what an extra asks for."""
    if repository.is_here():
        return f"run: python -m pip install -r requirements{'' if extra in READERS else '-dev'}.txt"
    return f'run: python -m pip install "nbcourse{f"[{extra}]" if extra else ""}"'


def _name(line: str) -> str:
    """The package that a line of requirements is about."""
    match = re.match(r"[A-Za-z0-9._-]+", line)
    assert match is not None, line
    return match[0]


def _normal(name: str) -> str:
    """A package's name as indexes and locks write it; modules nearly always have the same."""
    return re.sub(r"[-_.]+", "-", name).lower()
