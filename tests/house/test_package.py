"""The package by itself: a wheel that stands alone, the locks, the doctor, versions, provenance.

Nothing here needs the network: the wheel is built with the setuptools that is installed, and
an environment is a folder of links to packages that are installed here.
"""

import compileall
import contextlib
import functools
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import nbcourse
from nbcourse import installation, repository
from nbcourse.display import listings
from nbcourse.experiments import records

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCKS = ("requirements.txt", "requirements-dev.txt")
LOCKED_EXTRAS = {"requirements.txt": set(installation.READERS) - {installation.CORE}}
# What the peers say is asked of the versions of the day.
LOCKED_EXTRAS["requirements-dev.txt"] = set(PROJECT["optional-dependencies"]) - {"peers"}
HERE = default_environment()
MACHINES = [
    {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "sys_platform": platform,
        "os_name": "nt" if platform == "win32" else "posix",
        "platform_system": {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}[platform],
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    for python in ("3.11", "3.12", "3.13", "3.14")
    for platform, machine in (
        ("linux", "x86_64"),
        ("linux", "aarch64"),
        ("darwin", "arm64"),
        ("win32", "AMD64"),
    )
]


# ---------------------------------------------------------------- the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, since building leaves files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    ours = ("nbcourse", "tests", "solutions", "pyproject.toml", "README.md")
    for name in (*ours, "LICENSE", "LICENSE-TEXT"):
        source, copy = ROOT / name, folder / "source" / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    built = subprocess.run(
        [*pip, "--no-index", "--wheel-dir", str(folder), str(folder / "source")],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder for the path, with what `pip install --no-deps` would put into an environment."""
    folder = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    compileall.compile_dir(folder, quiet=2)  # as pip does
    return folder


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = [path for path in (ROOT / "nbcourse").rglob("*") if path.is_file()]
    ours = {path.relative_to(ROOT).as_posix() for path in files if path.suffix != ".pyc"}
    assert packed == ours
    assert "nbcourse/recipes/arithmetic-grpo.toml" in packed


def test_the_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode("utf-8")
        licences = {Path(name).name for name in archive.namelist() if "/licenses/" in name}
    assert f"\nVersion: {nbcourse.__version__}\n" in text
    assert "\nLicense-Expression: MIT AND CC-BY-4.0\n" in text
    assert licences == {"LICENSE", "LICENSE-TEXT"}
    assert set(re.findall(r"^Provides-Extra: (.+)$", text, re.M)) == {
        "lm", "agents", "lunar-lander", "book", "classroom", "trl", "peers", "dev"
    }  # fmt: skip
    core = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", text, re.M)
    assert set(core) == {"annotated-types", "torch", "typer", "rich", "tqdm", "packaging"}


def closure(names: Iterable[str]) -> set[str]:
    """The packages of these names and all that they ask for, as far as they are installed here."""
    found: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name not in found and is_installed(name):
            found.add(name)
            lines = map(Requirement, metadata.requires(name) or ())
            waiting += [canonicalize_name(line.name) for line in lines if applies(line)]
    return found


def is_installed(name: str) -> bool:
    return next(iter(metadata.distributions(name=name)), None) is not None


# A Python that has imported torch forks a child for each line: the folder to be in, the folders on
# the path, and the words behind `python`. No one tidies up behind torch: that takes half a second.
FORKS = """
import json, os, runpy, sys, traceback
import torch

def run(folder, path, words):
    os.chdir(folder)
    for number, name in enumerate([os.devnull, "printed.txt", "errors.txt"]):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.path[:0] = ["", *path]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    flag, name, *sys.argv[1:] = words
    try:
        if flag == "-c":
            exec(name, {"__name__": "__main__"})
        else:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for line in sys.stdin:
    if not (child := os.fork()):
        code = run(*json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    """links("torch") → a folder of links to torch and what that asks for, as far as it is here."""

    @functools.cache
    def make(*names: str) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        for name in closure(names):
            for top in tops(name) - {"..", "__pycache__"}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(metadata.distribution(name).locate_file(top))
        return folder

    return make


@functools.cache
def tops(name: str) -> set[str]:
    """What a package has put beside other packages."""
    return {file.parts[0] for file in metadata.files(name)}


@pytest.fixture(scope="module")
def runner(links):
    """runner(path, "torch") → a runner of programs with these folders on the path.

    Each is forked from a Python that knows torch and nothing else, or what is named. It looks for
    no other packages. Torch is imported once for all, which takes a second and a half.
    """

    @functools.cache
    def server(*names: str) -> subprocess.Popen[str]:
        return started.enter_context(
            subprocess.Popen(
                [sys.executable, "-S", "-B", "-c", FORKS],
                env={**os.environ, "PYTHONPATH": str(links(*names))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )

    def make(path: Iterable[object], *names: str):
        def run(cwd: Path, *words: str) -> subprocess.CompletedProcess:
            forks = server(*names)
            forks.stdin.write(f"{json.dumps([str(cwd), [*map(str, path)], words])}\n")
            forks.stdin.flush()
            code = int(forks.stdout.readline())
            printed, errors = ((cwd / f"{of}.txt").read_text() for of in ("printed", "errors"))
            return subprocess.CompletedProcess(words, code, printed, errors)

        return run

    with contextlib.ExitStack() as started:
        yield make


@pytest.fixture(scope="module")
def environment(installed, links, runner):
    """environment("torch") → a runner of programs in an environment with the wheel and torch.

    What torch asks for is there too, and nothing else: a folder of links. Where NumPy is there,
    torch has found it.
    """

    def make(*names: str):
        found = [name for name in ("numpy", "torch") if name in closure(names)]
        return runner([installed, links(*names)], *found)

    return make


@pytest.fixture(scope="module")
def core(environment):
    """The runner of an environment after `pip install nbcourse`."""
    return environment(*(Requirement(line).name for line in requirements("")))


@pytest.fixture(scope="module")
def lm(environment):
    """The runner of an environment after `pip install nbcourse[lm]`."""
    return environment(*(Requirement(line).name for e in ("", "lm") for line in requirements(e)))


def test_functional_and_toys_stand_on_torch_and_annotated_types(environment, installed, tmp_path):
    program = """
import importlib, pkgutil, nbcourse
from nbcourse.functional import advantages
import torch
print(nbcourse.__file__)
print(advantages.leave_one_out(torch.tensor([1.0, 0.0]), group_size=2).tolist())
for room in ("functional", "toys", "checks"):
    for module in pkgutil.iter_modules(importlib.import_module(f"nbcourse.{room}").__path__):
        importlib.import_module(f"nbcourse.{room}.{module.name}")
for name in ("numpy", "transformers", "pydantic", "typer", "rich", "tqdm", "packaging"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    print(name, "was there")
"""
    done = environment("annotated-types", "torch")(tmp_path, "-c", program)
    assert done.returncode == 0, done.stderr
    file, values, *others = done.stdout.splitlines()
    assert Path(file).is_relative_to(installed)
    assert values == "[1.0, -1.0]"
    assert others == []


def test_a_missing_package_is_one_line_that_says_what_to_install(environment, core, tmp_path):
    done = environment("torch")(tmp_path, "-m", "nbcourse", "--help")
    line = 'nbcourse: this needs the package typer, which is missing; run: python -m pip install "'
    assert (done.returncode, done.stderr) == (2, f'{line}nbcourse"\n')
    done = core(tmp_path, "-m", "nbcourse", "train", "arithmetic-grpo", "--out", "run")
    line = line.replace("typer", "transformers")
    # torch, too, says something on standard error where NumPy is missing
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f'{line}nbcourse[lm]"')
    assert "Traceback" not in done.stderr


def test_importing_every_layer_below_display_loads_nothing_heavy(runner, tmp_path):
    """Transformers, datasets, matplotlib and IPython load where they are used, not before."""
    program = """
import sys, nbcourse, nbcourse.installation, nbcourse.cli
from nbcourse.functional import advantages, aggregation, kl, masking, returns, rewards
from nbcourse.functional import surrogates, values
from nbcourse.lm import log_probs, sampling, tiny
from nbcourse.tasks import answers, arithmetic, gsm8k
from nbcourse.toys import bandit, sequences
heavy = {"transformers", "datasets", "matplotlib", "IPython", "ipywidgets", "nbclient", "trl"}
print(*sorted(heavy & set(sys.modules)))
"""
    everything = [ROOT, *site.getsitepackages()]
    done = runner(everything, "numpy", "torch")(tmp_path, "-c", program)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stdout + done.stderr


LOSS = """
import torch

def loss(log_probs, old_log_probs, advantages, mask):
    ratio = (log_probs - old_log_probs).exp()
    weighed = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -(weighed * mask).sum() / mask.sum()
"""


def test_a_loss_is_examined_with_the_core_alone(core, tmp_path):
    (tmp_path / "mine.py").write_text(LOSS)
    done = core(tmp_path, "-m", "nbcourse", "examine", "mine.py:loss")
    assert done.returncode == 0, done.stderr
    assert "0.8" in next(line for line in done.stdout.splitlines() if line.startswith("Clip"))


def test_a_module_of_ours_that_is_missing_keeps_its_trace():
    assert installation.remedy(ModuleNotFoundError(name="nbcourse.lost")) is None
    assert installation.remedy(ModuleNotFoundError("said by a library")) is None
    assert "-r requirements-dev.txt" in installation.remedy(ModuleNotFoundError(name="trl.x"))
    assert "ask for" not in installation.remedy(ModuleNotFoundError(name="neverheard"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "1"),
        ("site",),
        ("twins", "--check"),
        ("exercises",),
        ("release", "2"),
        ("grade", "submissions", "--assignment", "2"),
    ],
    ids=" ".join,
)
def test_a_command_for_the_repository_says_so(core, tmp_path, arguments):
    done = core(tmp_path, "-m", "nbcourse", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("nbcourse: this command works on the book's repository, and this")
    assert done.stderr.count("\n") == 1


def test_arithmetic_is_trained_from_an_empty_folder(lm, tmp_path):
    """By the recipe's name, and in a foreign repository, whose commit is not the run's."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "theirs")
    small = "steps=2 model.layers=1 model.width=16 model.heads=2 warm_start.steps=2"
    small += " warm_start.careless_steps=0 rollouts.prompts=4 rollouts.group_size=2"
    small += " evaluation.problems=20"
    changes = [word for change in small.split() for word in ("--set", change)]
    done = lm(tmp_path, "-m", "nbcourse", "train", "arithmetic-grpo", *changes)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "arithmetic-grpo-seed0"
    found = json.loads((run / "environment.json").read_text("utf-8"))
    assert found["commit"] is None
    assert found["uncommitted_changes"] is False
    assert found["versions"]["nbcourse"] == nbcourse.__version__
    assert [row["step"] for row in records.read_metrics(run)] == [1, 2]


# ---------------------------------------------------------------- provenance


def git(folder: Path, *arguments: str) -> str:
    options = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    answer = subprocess.run(
        ["git", *options, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return answer.stdout.strip()


@pytest.fixture
def clone(tmp_path) -> Path:
    """A repository with one commit that holds a package and a book."""
    folder = tmp_path / "clone"
    for name in ("nbcourse/__init__.py", "book/00.ipynb", "pyproject.toml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def test_the_commit_is_that_of_the_books_own_repository(clone):
    assert repository.commit(clone) == git(clone, "rev-parse", "HEAD")
    assert not repository.has_changes("nbcourse", root=clone)
    (clone / "book" / "00.ipynb").write_text("changed")
    assert not repository.has_changes("nbcourse", root=clone)
    (clone / "nbcourse" / "__init__.py").write_text("changed = True")
    assert repository.has_changes("nbcourse", root=clone)


def test_the_commit_of_a_repository_around_it_is_not_reported(clone):
    """Installed into a clone or a repository of installed packages, unpacked in one, untracked."""
    inside = clone / ".venv" / "site-packages"
    shutil.copytree(clone / "nbcourse", inside / "nbcourse")
    assert repository.commit(inside) is None
    git(inside, "init", "-q")
    git(inside, "add", ".")
    git(inside, "commit", "-q", "-m", "all that is installed")
    assert repository.commit(inside) is None
    shutil.rmtree(inside / ".git")
    unpacked = clone / "vendor"
    for name in ("nbcourse", "book", "pyproject.toml"):
        copy = shutil.copytree if (clone / name).is_dir() else shutil.copy
        unpacked.mkdir(exist_ok=True)
        copy(clone / name, unpacked / name)
    assert repository.commit(unpacked) is None
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "two")
    assert repository.commit(unpacked) is None
    git(clone, "rm", "-q", "--cached", "nbcourse/__init__.py")
    assert repository.commit(clone) is None
    assert not repository.has_changes("nbcourse", root=clone)


# ---------------------------------------------------------------- the locks


def requirements(extra: str) -> list[str]:
    return PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]


def lines_of(lock: str) -> list[str]:
    lines = (ROOT / lock).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def applies(requirement: Requirement, machine: dict[str, str] = HERE, extra: str = "") -> bool:
    marker = requirement.marker
    return marker is None or marker.evaluate({**machine, "extra": extra})


def versions(lock: str, machine: dict[str, str]) -> dict[str, str]:
    """What the lock installs on a machine."""
    asked = [line for line in map(Requirement, lines_of(lock)) if applies(line, machine)]
    found = {canonicalize_name(line.name): str(line.specifier)[2:] for line in asked}
    assert len(found) == len(asked), "a package is locked twice for one machine"
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_exactly(lock):
    lines = lines_of(lock)
    assert len(lines) > 150  # those that others ask for are there as well
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][a-z0-9.]*( ; [^#@]+)?", line), line


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_holds_a_vendors_package_a_local_version_or_an_address(lock):
    text = (ROOT / lock).read_text("utf-8")
    assert re.search(r"^torch==\d+\.\d+\.\d+$", text, re.M)
    for forbidden in ("nvidia", "cuda", "triton", "rocm", "+cpu", "://", "--", "@"):
        assert forbidden not in "\n".join(lines_of(lock)), forbidden
    assert "://" not in text


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_satisfies_the_ranges_on_every_machine(lock):
    for machine in MACHINES:
        locked = versions(lock, machine)
        for extra in ("", *LOCKED_EXTRAS[lock]):
            for wanted in map(Requirement, requirements(extra)):
                if wanted.name != "nbcourse" and applies(wanted, machine, extra):
                    version = locked[canonicalize_name(wanted.name)]
                    assert wanted.specifier.contains(version), (machine, str(wanted))


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_holds_what_its_packages_ask_for(lock):
    """As far as they are installed here, in the locked versions; for this machine."""
    locked = versions(lock, HERE)
    unasked = {canonicalize_name(name) for name in excluded()}
    for name, version in locked.items():
        try:
            installed_version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if installed_version.split("+")[0] != version:
            continue
        for wanted in map(Requirement, metadata.requires(name) or ()):
            asked = canonicalize_name(wanted.name)
            if applies(wanted) and asked not in unasked:
                assert asked in locked, f"{name} asks for {wanted}"
                assert wanted.specifier.contains(locked[asked], prereleases=True), (name, wanted)


def excluded() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    return tomllib.loads(text)["tool"]["uv"]["exclude-dependencies"]


def test_the_readers_lock_is_part_of_the_developers():
    assert set(lines_of("requirements.txt")) < set(lines_of("requirements-dev.txt"))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: "-".join([*m.values()][:4:2]))
def test_box2d_is_asked_for_only_where_it_has_a_wheel(machine):
    there = machine["python_version"] != "3.14" and machine["platform_machine"] != "aarch64"
    for lock in LOCKS:
        assert ("box2d" in versions(lock, machine)) == there
        assert "gymnasium" in versions(lock, machine)


def test_every_package_that_is_imported_is_declared():
    """In the core, or in an extra: none only comes along with another package."""
    declared = {
        canonicalize_name(Requirement(line).name)
        for extra in ("", *PROJECT["optional-dependencies"])
        for line in requirements(extra)
    }
    bring = metadata.packages_distributions()  # `bs4` comes with beautifulsoup4
    stubs = ROOT / "nbcourse" / "builds" / "trainer"  # they lie in a folder and import each other
    for path in (ROOT / "nbcourse").rglob("*.py"):
        if path.parent == stubs:
            continue
        text = path.read_text("utf-8")
        modules = re.findall(r"^\s*(?:from|import) (\w+)(?:\.[\w.]+)?(?: import| as|$)", text, re.M)
        foreign = set(modules) - sys.stdlib_module_names - {"nbcourse"}
        missing = {
            module
            for module in foreign
            if declared.isdisjoint(map(canonicalize_name, bring.get(module, [module])))
        }
        assert not missing, path


# ---------------------------------------------------------------- the doctor


def rows() -> dict[str, installation.Finding]:
    return {row.name: row for row in installation.report()}


def test_every_direct_requirement_of_a_reader_is_checked():
    found = rows()
    for extra in installation.READERS:
        for wanted in map(Requirement, requirements(extra)):
            if applies(wanted, HERE, extra) and wanted.name != "nbcourse":
                assert wanted.name in found
    assert {"Python", "nbcourse"} < set(found)
    assert "pytest" not in found
    if applies(Requirement(requirements("lunar-lander")[1])):
        assert "box2d" in found  # comes with an extra of Gymnasium


@pytest.fixture
def pretend(monkeypatch):
    """pretend(torch="2.12.0", rich=None): another version, or none."""

    def change(**versions: str | None) -> None:
        ask = metadata.version

        def version(name: str) -> str:
            known = {name.replace("_", "-"): version for name, version in versions.items()}
            if name not in known:
                return ask(name)
            if known[name] is None:
                raise metadata.PackageNotFoundError(name)
            return known[name]

        monkeypatch.setattr(metadata, "version", version)

    return change


@pytest.fixture
def without_repository(monkeypatch, installed):
    """The metadata of the wheel, and no book beside the package."""
    monkeypatch.setattr(repository, "is_here", lambda: False)
    monkeypatch.syspath_prepend(str(installed))


def test_in_the_repository_the_lock_decides(pretend):
    locked = versions("requirements.txt", HERE)
    pretend(torch=f"{locked['torch']}+cpu", rich="1.0", jupyterlab=None)
    found = rows()
    assert found["torch"].ok
    assert not found["rich"].ok
    assert found["rich"].remark == f"the book was tested with {locked['rich']}"
    missing = found["jupyterlab"]
    assert (missing.version, missing.ok) == ("missing", False)
    assert missing.remark == "run: python -m pip install -r requirements.txt"


def test_without_the_repository_the_ranges_decide(without_repository, pretend):
    (wanted,) = [line for line in requirements("lm") if line.startswith("pydantic")]
    pretend(torch="2.99.0+cu130", pydantic="1.0", matplotlib=None, tqdm=None, gymnasium=None)
    found = rows()
    assert found["torch"].ok
    assert found["pydantic"].remark == f'run: python -m pip install "{wanted}"'
    assert (found["tqdm"].ok, found["tqdm"].version) == (False, "missing")
    book = found["nbcourse[book]"]
    assert book.ok is None
    assert book.remark == 'without matplotlib; run: python -m pip install "nbcourse[book]"'
    assert found["nbcourse[agents]"].ok is None
    assert "matplotlib" not in found


def test_the_doctor_survives_a_package_without_metadata(without_repository, pretend, monkeypatch):
    def requires(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    pretend(nbcourse=None)
    found = rows()
    assert set(found) == {"Python", "platform", "nbcourse"}
    assert found["nbcourse"].ok is False
    assert "not installed; run: python -m pip install nbcourse" in found["nbcourse"].remark


@pytest.mark.parametrize(
    ("system", "machine", "ok", "remark"),
    [
        ("Linux", "x86_64", True, ""),
        ("Windows", "AMD64", None, "not tested; its packages have wheels for it"),
        ("Darwin", "arm64", None, "not tested; its packages have wheels for it"),
        ("Darwin", "x86_64", None, "not tested, and torch may have no wheel for it"),
    ],
)
def test_the_doctor_says_where_the_book_was_tested(monkeypatch, system, machine, ok, remark):
    monkeypatch.setattr(installation.platform, "system", lambda: system)
    monkeypatch.setattr(installation.platform, "machine", lambda: machine)
    found = rows()["platform"]
    assert (found.version, found.ok, found.remark) == (f"{system} {machine}", ok, remark)


@pytest.mark.parametrize(
    ("version", "ok"),
    [((3, 11, 7), True), ((3, 14, 0), True), ((3, 15), None)],
)
def test_the_doctor_says_which_python_the_lock_is_for(monkeypatch, version, ok):
    monkeypatch.setattr(installation.sys, "version_info", version)
    assert installation._python().ok is ok


def test_the_doctor_in_an_environment_for_language_models(lm, tmp_path):
    """The book is not there: nothing to complain of, and one line says so."""
    done = lm(tmp_path, "-m", "nbcourse", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"✓ +│ +transformers", done.stdout)
    assert re.search(r"· +│ +nbcourse\[book\] +│ +not installed", done.stdout)


def test_the_doctor_looks_at_the_machine(tmp_path, monkeypatch):
    def found() -> dict[str, installation.Finding]:
        return {row.name: row for row in installation.machine()}

    monkeypatch.delenv("NBCOURSE_GSM8K", raising=False)
    file = tmp_path / installation.SAVING
    file.parent.mkdir(parents=True)
    file.touch()
    with monkeypatch.context() as environment:
        environment.setattr(sys, "prefix", str(tmp_path))
        here = found()
    assert here["saving in Jupyter"].ok
    extensions = {"MyST in JupyterLab", "widgets in JupyterLab"}
    assert set(here) == extensions | {"saving in Jupyter", "GSM8K", "GPU", "browser", "disk"}
    assert all(here[name].ok for name in extensions)
    assert here["GSM8K"].ok is None

    (tmp_path / "train.jsonl").touch()
    monkeypatch.setenv("NBCOURSE_GSM8K", str(tmp_path))
    monkeypatch.setattr(metadata, "files", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(installation, "MAC_CHROME", tmp_path / "none")
    monkeypatch.setattr(installation, "ROOM", 2**40)
    monkeypatch.setattr(installation, "SAVING", Path("none"))
    poor = found()
    assert {name for name, row in poor.items() if row.ok is False} == {
        "MyST in JupyterLab",
        "widgets in JupyterLab",
        "GSM8K",
        "disk",
    }
    remark = poor["widgets in JupyterLab"].remark
    assert remark.endswith("--force-reinstall --no-deps jupyterlab-widgets")
    assert poor["GSM8K"].remark.endswith("has no test.jsonl")
    assert poor["browser"].ok is None
    assert poor["saving in Jupyter"].remark.endswith("python -m nbcourse.publishing.reading helps")


@pytest.mark.parametrize("text", [b"torch==2\xff", b"torch==2\nno such thing ==\n", None])
def test_the_doctor_survives_requirements_that_cannot_be_read(tmp_path, monkeypatch, text):
    for name in ("pyproject.toml", "requirements.txt"):
        shutil.copy(repository.ROOT / name, tmp_path)
    lock = tmp_path / "requirements.txt"
    lock.unlink() if text is None else lock.write_bytes(text)
    monkeypatch.setattr(repository, "ROOT", tmp_path)
    monkeypatch.setattr(repository, "is_here", lambda: True)
    found = rows()
    assert found["requirements.txt"].ok is False
    assert found["requirements.txt"].remark
    assert found["torch"].ok  # by its range
    assert "not installed" not in {row.version for row in found.values()}
    (tmp_path / "pyproject.toml").write_bytes(b"\xff")
    assert rows()["requirements"].ok is False


def test_the_doctor_survives_a_broken_driver(monkeypatch):
    def broken():
        raise RuntimeError("the driver is too old\nand more")

    monkeypatch.setattr(torch.cuda, "is_available", broken)
    (gpu,) = [row for row in installation.machine() if row.name == "GPU"]
    assert (gpu.ok, gpu.remark) == (False, "the driver is too old")


def test_chapter_0_shows_the_main_packages_and_what_is_amiss(pretend, monkeypatch):
    shown: list = []
    monkeypatch.setattr(listings, "display", shown.append)
    pretend(jupytext="0.1")
    listings.show_installation()
    text = shown[0].data
    assert "| torch |" in text
    assert "| jupytext | 0.1 | ✗ | the book was tested with" in text
    assert "nbclient" not in text


# ---------------------------------------------------------------- versions


def test_there_is_one_version():
    assert PROJECT["dynamic"] == ["version"]
    Version(nbcourse.__version__)
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    (cited,) = re.findall(r"^version: (.+)$", citation, re.M)
    assert cited == nbcourse.__version__


def test_the_front_page_says_which_edition_this_is():
    text = (ROOT / "book/intro.md").read_text("utf-8")
    assert f" {nbcourse.EDITION}, release {nbcourse.__version__}.\n" in text
    assert f"edition = {{{nbcourse.EDITION.split()[0]}}},\n" in text
    assert f"note   = {{nbcourse {nbcourse.__version__}}},\n" in text


def test_the_changelog_begins_with_what_is_unreleased_or_this_version():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    sections = re.findall(r"^## (.+)$", text, re.M)
    released = [section for section in sections if section != "Unreleased"]
    assert sections.index(released[0]) <= 1
    version, date = re.fullmatch(r"(\S+) - (\d{4}-\d\d-\d\d)", released[0]).groups()
    assert version == nbcourse.__version__
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f'date-released: "{date}"' in citation


def test_the_command_prints_the_version():
    asked = [sys.executable, "-m", "nbcourse", "--version"]
    answer = subprocess.run(asked, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, f"{nbcourse.__version__}\n")
