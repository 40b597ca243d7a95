"""Appendix K: what its table says of a library is what an installed release defaults to."""

import re
import subprocess
import sys
from datetime import date

import pytest
from typer.testing import CliRunner

from nbcourse.cli import app
from nbcourse.errors import UserError
from nbcourse.publishing import chapters, libraries, stored

REGISTRY = libraries.read()
NAMES = [library.name for library in REGISTRY]
HERE = {library.name: library.installed() for library in REGISTRY}
COLUMNS = libraries.COLUMNS


def parted(here):
    """The settings whose default is another one than the table's."""
    return [name for name, _, table in libraries.rows(here) if table.startswith("≠ ")]


@pytest.mark.parametrize("name", [name for name, here in HERE.items() if here is not None])
def test_the_table_and_an_installed_version_agree(name):
    """If this fails after an upgrade: read the library again, and mend its entry."""
    here = HERE[name]
    assert parted(here) == []
    if here.library.version is not None:
        assert here.version == here.library.version


def test_at_least_trl_is_installed():
    assert {"TRL, GRPO", "TRL, RLOO"} <= {n for n, here in HERE.items() if here}


def test_the_page_has_a_row_for_each_library():
    page = stored.read(chapters.find("libraries"))
    shown = "\n".join(
        output["data"]["text/markdown"]
        for cell in page.cells
        for output in cell.get("outputs", [])
        if "text/markdown" in output.get("data", {})
    )
    for library in REGISTRY:
        reference, estimator, mismatch, loss = map(library.said, COLUMNS)
        assert f"| {library.markdown()} | {reference} | {estimator} |" in shown
        assert f"| {library.name} | {mismatch} | {loss} |" in shown


def test_a_default_is_said_where_the_text_asks_for_it():
    trl = REGISTRY[0]
    assert trl.said("reference") == "off: `beta=0.0`, and no reference model is loaded"
    assert not re.search(r"[{}]", "".join(one.said(c) for one in REGISTRY for c in COLUMNS))


CONFIG = """
from dataclasses import dataclass, field
from somewhere import Kind, heavy
@dataclass
class Other:
    beta: float = 1.0
@dataclass
class Config(heavy.Base):
    beta: float = field(default=0.25, metadata={"help": "of the KL"})
    tau: float = Field(1e-3, ge=0)
    plain: int = 3
    of_kind: Kind = Kind.dapo
    absent: float | None = None
    made: list = field(default_factory=list)
    def after(self):
        if self.given is None:
            self.given = 0.04
parser.add_argument("--clip", "-c", type=float, default=0.2)
parser.add_argument("--use-kl", action="store_true")
parser.add_argument("--no-std", action="store_false", dest="std")
parser.add_argument("--given-none")
changes = {"correction": False, 3: 4, **more}
"""
YAML = "actor:\n  kl: {use: false, type: low_var_kl}\n  steps: ${other.steps}\n"


@pytest.mark.parametrize(
    ("kind", "name", "default"),
    [
        ("field", "beta", 0.25),
        ("field", "tau", 1e-3),
        ("field", "plain", 3),
        ("field", "of_kind", "Kind.dapo"),
        ("field", "absent", None),
        ("field", "made", None),
        ("option", "--clip", 0.2),
        ("option", "--use-kl", False),
        ("option", "--no-std", True),
        ("option", "--given-none", None),
        ("entry", "correction", False),
        ("assignment", "self.given", 0.04),
        ("yaml", "actor.kl.type", "low_var_kl"),
        ("yaml", "actor.kl.use", False),
    ],
)
def test_what_a_file_says(tmp_path, kind, name, default):
    """None of these files could be imported: their own imports lead nowhere."""
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "config.yaml").write_text(YAML)
    owner = "Config" if kind == "field" else None
    file = f"config.{'yaml' if kind == 'yaml' else 'py'}"
    setting = libraries.Setting(name=name, kind=kind, file=file, owner=owner)
    found = setting.read([tmp_path / "elsewhere", tmp_path])
    assert (found, type(found)) == (default, type(default))


@pytest.mark.parametrize("kind", list(libraries.KINDS))
def test_a_setting_that_is_gone_is_missed(tmp_path, kind):
    (tmp_path / "config.py").write_text(YAML if kind == "yaml" else CONFIG)
    owner = "Config" if kind == "field" else None
    setting = libraries.Setting(name="gone", kind=kind, file="config.py", owner=owner)
    with pytest.raises(KeyError):
        setting.read([tmp_path])


ENTRY = {
    "name": "Lib",
    "repository": "a/lib",
    "package": "nbcourse_test_library",
    "version": "1.0",
    "as_of": date(2026, 1, 2),
    "reference": "`beta={beta}`",
    "estimator": "k1",
    "mismatch": "{Config.plain}",
    "loss": "ppo",
    "settings": [
        {"name": name, "kind": "field", "owner": "Config", "default": default, "file": FILE}
        for FILE in ["nbcourse_test_library/config.py"]
        for name, default in (("beta", 0.5), ("plain", 3), ("lost", 1))
    ],
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "nbcourse_test_library"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('this was imported')")
    (folder / "config.py").write_text(CONFIG)
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_what_is_installed_is_compared(package):
    here = libraries.Library.parse(ENTRY).installed()
    assert here.version is None
    assert here.defaults == (0.25, 3, libraries.MISSING)
    assert parted(here) == ["beta", "lost"]
    assert libraries.rows(here) == [
        ("beta", "0.25", "≠ 0.5"),
        ("plain", "3", "3"),
        ("lost", "gone", "≠ 1"),
    ]


def test_a_namesake_is_not_the_library(package):
    (package / "config.py").unlink()
    assert libraries.Library.parse(ENTRY).installed() is None


def test_what_is_not_installed_is_none():
    assert libraries.Library.parse(ENTRY).installed() is None


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"version": None}, "the version that was read, or the commit"),
        ({"commit": "0" * 40}, "the version that was read, or the commit"),
        ({"version": None, "commit": "0" * 7}, "40 digits"),
        ({"loss": "{alpha}"}, "loss speaks of 'alpha'"),
        ({"settings": [{**ENTRY["settings"][0], "kind": "guess"}]}, "kind is 'guess'"),
        ({"settings": [{**ENTRY["settings"][0], "owner": None}]}, "names the class"),
    ],
)
def test_an_entry_that_cannot_be_looked_up_is_refused(changed, complaint):
    with pytest.raises(UserError, match=complaint):
        libraries.Library.parse({**ENTRY, **changed})


def test_a_row_as_it_is_printed():
    of_release = libraries.Library.parse(ENTRY)
    assert of_release.markdown() == "[Lib](https://github.com/a/lib) 1.0, 2026-01-02"
    assert (of_release.said("reference"), of_release.said("mismatch")) == ("`beta=0.5`", "3")
    of_commit = libraries.Library.parse({**ENTRY, "version": None, "commit": "12345678" * 5})
    assert of_commit.markdown() == (
        f"[Lib](https://github.com/a/lib/tree/{'12345678' * 5}) 1234567, 2026-01-02"
    )


def test_the_command_prints_what_is_installed_and_names_what_is_not():
    result = CliRunner().invoke(app, ["libraries"])
    assert result.exit_code == 0
    version = REGISTRY[0].version
    assert f"TRL, GRPO {version}, in appendix K {version}" in result.output
    assert re.search(r"vllm_importance_sampling_mode\W+sequence_mask", result.output)
    absent = [name for name in NAMES if HERE[name] is None]
    assert f"Not installed here: {', '.join(absent)}." in result.output.replace("\n", " ")


def test_the_command_imports_neither_torch_nor_a_library():
    code = (
        "import sys; from nbcourse.publishing import libraries; "
        "[one.installed() for one in libraries.read()]; "
        "print(sorted({'torch', 'trl', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
