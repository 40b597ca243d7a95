"""A tokenizer and a model from a folder in the hub's layout, by a name, or from the hub itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nbcourse.errors import NotAvailable, NotFound, UserError
from nbcourse.lm.attention import attend_without_cudnn
from nbcourse.lm.importing import without_collection
from nbcourse.lm.places import PUBLISHED, located

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


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
    with _answered(source):
        model = AutoModelForCausalLM.from_pretrained(
            located(source) or source, dtype=torch.float32, use_safetensors=True
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
        config = get_tokenizer_config(place, local_files_only=local)
        own = config.get("tokenizer_class") == "TokenizersBackend"
        kind = PreTrainedTokenizerFast if own else AutoTokenizer
        return kind.from_pretrained(place, local_files_only=local)


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
        return AutoConfig.from_pretrained(located(source) or source)


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
    """Says in one line what transformers says in many when a model is not to be had."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise NotAvailable(
            f"no model {str(source)!r}: there is no folder of this name, or it is damaged, and the "
            f"hub does not have it or cannot be reached ({reason})"
        ) from error


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Raise safetensors' own error, as for a full disk, as a `UserError` with the path."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise UserError(f"{path}: {error}") from error
