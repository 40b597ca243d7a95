"""A tokenizer and a model from a folder in the hub's layout, by a name, or from the hub itself."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nbcourse import hub
from nbcourse.errors import NotAvailable, NotFound, UserError
from nbcourse.lm.attention import attend_without_cudnn
from nbcourse.lm.importing import without_collection
from nbcourse.lm.places import PUBLISHED, located

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

NO_CODE: dict[str, Any] = {
    "trust_remote_code": False
}  # a model is data: no code that lies beside it is ever run
POINTER = b"version https://git-lfs"  # what Git leaves where the Large File Storage was not asked
QUANTIZED = "quantization_config"


@without_collection()
def load(
    source: str | Path, device: torch.device | str
) -> tuple["PreTrainedTokenizerBase", "PreTrainedModel"]:
    """A tokenizer and a model from a folder, or from the hub, in float32.

    Args:
        source: a path, the name of a model that `nbcourse model` fetched or converted, or a name on
            the hub.
        device: for the model.

    Raises:
        FileNotFoundError: if the source is a path and there is no model.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # ours have labels
    attend_without_cudnn()
    made = tokenizer(source)
    _check_kind(source, config(source))
    place = located(source)
    if place is not None and (damage := _damage(place)):
        raise NotAvailable(f"the model in {place} cannot be loaded: {damage}")
    with _answered(source):
        model = AutoModelForCausalLM.from_pretrained(
            place or source, dtype=torch.float32, use_safetensors=True, **NO_CODE
        )
        return made, model.to(device).eval()  # type: ignore[arg-type]


@without_collection()
def tokenizer(source: str | Path, *, local: bool = False) -> "PreTrainedTokenizerBase":
    """A tokenizer from a folder, or from the hub.

    Args:
        source: as for `load`.
        local: ask no hub: only what is on this machine will do.

    Raises:
        FileNotFoundError: if the source is a path and there is no model.
        OSError: if it is not to be had.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    check_source(source)
    place = located(source) or source
    # Beside a Qwen2, AutoTokenizer would cut texts as Qwen2 does, whatever tokenizer.json says.
    with _answered(source):
        config = get_tokenizer_config(place, local_files_only=local, **NO_CODE)
        own = config.get("tokenizer_class") == "TokenizersBackend"
        kind = PreTrainedTokenizerFast if own else AutoTokenizer
        found = kind.from_pretrained(place, local_files_only=local, **NO_CODE)
    if found.eos_token_id is None:
        raise NotAvailable(
            f"the tokenizer of {str(source)!r} has no end token, so that no answer could end; name "
            "one as eos_token in its tokenizer_config.json"
        )
    return found


@without_collection()
def config(source: str | Path) -> "PreTrainedConfig":
    """The configuration of a model from a folder, or from the hub; no weight is read.

    Raises:
        FileNotFoundError: if the source is a path and there is no model.
        OSError: if it is not to be had.
    """
    from transformers import AutoConfig

    check_source(source)
    with _answered(source):
        return AutoConfig.from_pretrained(located(source) or source, **NO_CODE)


def check_source(source: str | Path) -> None:
    """See that a source that can only be a path, or a published name, leads to a model.

    Raises:
        FileNotFoundError: if it does not.
    """
    if located(source) is not None:
        return
    if source in PUBLISHED:
        raise NotFound(
            f"no model {source!r} on this machine yet: run `nbcourse model {source}` once"
        )
    names_a_path = str(source).startswith((".", "/", "~")) or str(source).count("/") > 1
    if names_a_path or Path(source).exists():
        raise NotFound(
            f"no model in {source}: expected a folder with a config.json. If another run is to "
            "make it, train that one first"
        )


@contextmanager
def _answered(source: str | Path) -> Iterator[None]:
    """The boundary to transformers and what it calls: one line, whatever they raise, and why."""
    try:
        if located(source) is not None:
            yield
        else:
            with hub.within_seconds():
                yield
    except Exception as error:
        lines = str(error).splitlines()
        reason = next((line for line in lines if line.strip()), type(error).__name__)
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "not enough memory" in reason:
            raise NotAvailable(
                f"there is no room for the model {str(source)!r} in float32: {reason:.200}"
            ) from error
        if "trust_remote_code" in str(error):
            reason = "it needs code of its own, which is never run"
        if (place := located(source)) is not None:
            reason = _pointer(place) or reason
            raise NotAvailable(f"the model in {place} cannot be loaded: {reason:.300}") from error
        raise NotAvailable(
            f"no model {str(source)!r}: there is no folder of this name, or it is damaged, and the "
            f"hub does not have it or cannot be reached ({reason})"
        ) from error


def _check_kind(source: str | Path, config: "PreTrainedConfig") -> None:
    """See that a model continues texts, and that its weights are numbers that can be trained.

    Raises:
        NotAvailable: if it does not, or they cannot.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    kind = config.model_type
    both_ways = kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", 0)
    if config.is_encoder_decoder or both_ways:
        raise NotAvailable(
            f"{str(source)!r} is a model of type {kind}, which does not continue texts from left "
            "to right; expected a causal language model"
        )
    if (quantized := getattr(config, QUANTIZED, None)) is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        raise NotAvailable(
            f"{str(source)!r} is quantized ({method or 'method not said'}), and such weights "
            "cannot be trained; name the model that it was made of"
        )


def _damage(folder: Path) -> str:
    """What is wrong with the weights in a folder, in words; empty if nothing can be seen."""
    if pointer := _pointer(folder):
        return pointer
    files = sorted(folder.glob("*.safetensors"))
    listed = folder / "model.safetensors.index.json"
    if listed.is_file():
        try:
            shards = set(json.loads(listed.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError):
            return f"{listed.name} is damaged"
        if missing := sorted(shards - {file.name for file in files}):
            return f"{len(missing)} of {len(shards)} files of weights are missing: {missing[0]}"
    if not files:
        others = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        return "it has no weights in safetensors" + (
            ", only in files that could run code; convert them" if others else ""
        )
    return next((words for file in files if (words := _cut_off(file))), "")


def _pointer(folder: Path) -> str:
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.stat().st_size < 1024 and file.read_bytes().startswith(POINTER):
            return (
                f"{file.name} is only a pointer of Git LFS; run `git lfs pull` where it came from"
            )
    return ""


def _cut_off(file: Path) -> str:
    """Whether a file of weights ends before what its head announces."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length >= size:
                return f"{file.name} is cut off or damaged"
            head = json.loads(stream.read(length))
        ends = [entry["data_offsets"][1] for name, entry in head.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{file.name} is cut off or damaged"
    whole = 8 + length + max(ends, default=0)
    return "" if size >= whole else f"{file.name} is cut off: it has {size:,} of {whole:,} bytes"


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Raise safetensors' own error, as for a full disk, as a `UserError` with the path."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise UserError(f"{path}: {error}") from error
