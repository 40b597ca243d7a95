"""A tokenizer and a model from a folder in the hub's layout, or from the hub itself."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nbcourse.errors import NotFound

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load(
    source: str | Path, device: torch.device | str
) -> tuple["PreTrainedTokenizerBase", "PreTrainedModel"]:
    """A tokenizer and a model from a folder, or from the hub, in float32.

    Raises:
        FileNotFoundError: if the source is a path and there is no model.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # ours say what they are about
    made = tokenizer(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, use_safetensors=True)
    return made, model.to(device).eval()  # type: ignore[arg-type]


def tokenizer(source: str | Path, *, local: bool = False) -> "PreTrainedTokenizerBase":
    """A tokenizer from a folder, or from the hub.

    Args:
        source: a path, or a name on the hub.
        local: ask no hub: only what is on this machine will do.

    Raises:
        FileNotFoundError: if the source is a path and there is no model.
        OSError: if it is not to be had.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    check_source(source)
    # Beside a Qwen2, AutoTokenizer would cut texts as Qwen2 does, whatever tokenizer.json says.
    config = get_tokenizer_config(source, local_files_only=local)
    own = config.get("tokenizer_class") == "TokenizersBackend"
    kind = PreTrainedTokenizerFast if own else AutoTokenizer
    return kind.from_pretrained(source, local_files_only=local)


def check_source(source: str | Path) -> None:
    """See that a source that can only be a path leads to a model.

    Raises:
        FileNotFoundError: if it does not.
    """
    names_a_path = str(source).startswith((".", "/", "~")) or str(source).count("/") > 1
    if (names_a_path or Path(source).exists()) and not (Path(source) / "config.json").is_file():
        raise NotFound(
            f"no model in {source}: expected a folder with a config.json. If another run is to "
            "make it, train that one first"
        )
