"""A GGUF file as a folder in the hub's layout: float32 weights, tied as the model was trained.

Book: chapter 15.

Source: the GGUF specification of ggml, and `transformers.modeling_gguf_pytorch_utils`, whose names
of weights are used here.
"""

import math
import os
import struct
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from nbcourse.errors import UserError
from nbcourse.lm import loading

if TYPE_CHECKING:
    from gguf import GGUFReader
    from gguf.gguf_reader import ReaderTensor
    from transformers import PreTrainedModel

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"
SAME = 0.99  # cosine of two roundings of one matrix: .999 at 5 and 8 bits; of two matrices: near 0
COMPARED = 1_000  # rows of both that are looked at
AT_ONCE = 1 << 20  # numbers that a thread unpacks in one go, so that its temporaries stay small


class Converted(NamedTuple):
    """What a conversion found.

    Attributes:
        parameters: how many, tied ones counted once.
        licence: as the file says it; None if it does not.
        weights: how the weights were stored, and what became of a matrix that was stored twice.
    """

    parameters: int
    licence: str | None
    weights: str


def convert(file: Path, folder: Path) -> Converted:
    """Write the model of a GGUF file into a folder in the hub's layout, in float32.

    The file is parsed once, and its tensors are unpacked by as many threads as there are
    processors. An output matrix that is a second rounding of the embedding becomes one matrix with
    it, as the model was trained; of the two copies the one with more bits is kept.

    Raises:
        ValueError: if the file is damaged, or transformers does not know its architecture.
    """
    from transformers import AutoTokenizer

    try:
        with _parsed_once(file) as (reader, parsed):
            place = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
            tokenizer = AutoTokenizer.from_pretrained(**place)
        licence = reader.get_field("general.license")
        stored = {tensor.name: tensor for tensor in reader.tensors}
        left_out = _second_copy(stored)
        if left_out:
            parsed["config"]["tie_word_embeddings"] = True
        architecture = str(reader.fields["general.architecture"].contents())
        model = _model(architecture, parsed["config"], stored, left_out)
    except (ValueError, KeyError, IndexError, struct.error, OSError, NotImplementedError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"{file} cannot be read as a model in GGUF: {reason}") from error
    with loading.disk(folder):
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    said = None if licence is None else str(licence.contents())
    return Converted(model.num_parameters(), said, _described(stored, left_out))


@contextmanager
def _parsed_once(file: Path) -> Iterator[tuple["GGUFReader", dict[str, Any]]]:
    """A reader of the file, and what transformers makes of its header; it parses it no second time.

    transformers would make a reader for the configuration, and another for the tokenizer. Each
    makes several NumPy views for each of the 300,000 tokens and merges of a vocabulary.
    """
    import gguf
    from gguf import GGUFValueType
    from transformers import modeling_gguf_pytorch_utils as theirs

    class Reader(gguf.GGUFReader):
        """gguf's reader, with arrays read in one pass."""

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            blob, at = memoryview(self.data), orig_offs  # type: ignore[arg-type]  # it is one
            kind, count = struct.unpack_from("<IQ", blob, at)
            at += 12
            if kind != GGUFValueType.STRING:
                values = self._get(at, self.gguf_scalar_to_np[GGUFValueType(kind)], count)
                parts: list[Any] = list(values.reshape(-1, 1))
                at += values.nbytes
            else:
                parts = []
                for _ in range(count):
                    start = at + 8
                    at = start + struct.unpack_from("<Q", blob, at)[0]
                    parts.append(blob[start:at])
            types = [GGUFValueType.ARRAY, GGUFValueType(kind)]
            return at - orig_offs, parts, list(range(count)), types

    reader = Reader(file)
    parsed: dict[str, Any] = {}

    def again(path: str, **options: Any) -> dict[str, Any]:
        return {group: dict(values) for group, values in parsed.items()}

    # transformers 5.19's tokenizers have the function by a name of their own, and parse with the
    # reader that there is.
    with mock.patch.object(gguf, "GGUFReader", return_value=reader):
        parsed |= theirs.load_gguf_checkpoint(str(file))
        with mock.patch.object(theirs, "load_gguf_checkpoint", again):
            yield reader, parsed


def _second_copy(stored: dict[str, "ReaderTensor"]) -> str | None:
    """The coarser one of embedding and output matrix, where these are roundings of one matrix."""
    if not {EMBEDDING, OUTPUT} <= set(stored):
        return None
    pair = stored[EMBEDDING], stored[OUTPUT]
    if pair[0].shape.tolist() != pair[1].shape.tolist():
        return None
    one, other = (_unpacked(tensor, COMPARED).double().flatten() for tensor in pair)
    if torch.cosine_similarity(one, other, dim=0) < SAME:
        return None
    return min(pair, key=lambda tensor: (tensor.n_bytes, tensor.name != EMBEDDING)).name


def _model(
    architecture: str,
    settings: dict[str, Any],
    stored: dict[str, "ReaderTensor"],
    left_out: str | None,
) -> "PreTrainedModel":
    """The model with its weights, each of which is made once.

    Raises:
        ValueError: if the file lacks one.
    """
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers import modeling_gguf_pytorch_utils as theirs

    config = AutoConfig.for_model(**settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    kind = theirs.TENSOR_PROCESSORS.get(architecture, theirs.TensorProcessor)
    processor = kind(config=settings)
    # by the plain processor, which knows no experts: a model that has some is refused below
    names = theirs.get_gguf_hf_weights_map(model, theirs.TensorProcessor(), architecture)

    def made(name: str) -> tuple[str, Tensor]:
        unpacked = _unpacked(stored[name]).numpy()
        done = processor.process(weights=unpacked, name=name)
        return done.name, torch.from_numpy(done.weights).contiguous()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        weights = dict(pool.map(made, [name for name in stored if name != left_out]))
    if config.tie_word_embeddings:
        weights[EMBEDDING] = weights[OUTPUT] = weights.pop(
            OUTPUT if left_out == EMBEDDING else EMBEDDING
        )
    known = {names[name]: weight for name, weight in weights.items() if name in names}
    model.load_state_dict(known, strict=False, assign=True)
    model.tie_weights()
    missing = [name for name, weight in model.named_parameters() if weight.is_meta]
    if missing:
        raise ValueError(f"it lacks {missing[0]}, and {len(missing) - 1} more")
    return model


def _unpacked(tensor: "ReaderTensor", rows: int | None = None) -> Tensor:
    """A tensor of the file in float32, or its first rows."""
    import numpy as np
    from gguf import dequantize

    shape = tensor.shape.tolist()[::-1]
    unpacked = torch.empty(shape[0] if rows is None else min(rows, shape[0]), *shape[1:])
    numbers = unpacked.numpy()
    step = max(1, AT_ONCE // math.prod(shape[1:]))
    for first in range(0, len(numbers), step):
        packed = np.asarray(tensor.data[first : first + step][: len(numbers) - first])
        numbers[first : first + step] = dequantize(packed, tensor.tensor_type)
    return unpacked


def _described(stored: dict[str, "ReaderTensor"], left_out: str | None) -> str:
    """How a file's weights were stored, by the share of them."""
    counts: Counter[str] = Counter()
    for name, tensor in stored.items():
        if name != left_out:
            counts[tensor.tensor_type.name] += int(tensor.n_elements)
    total = sum(counts.values())
    kinds = ", ".join(f"{kind} {n / total:.0%}" for kind, n in counts.most_common())
    full = set(counts) <= {"F32", "F16", "BF16", "F64"}
    said = f"not quantized ({kinds})" if full else f"quantized, unpacked to float32 ({kinds})"
    if left_out is None:
        return said
    kept = OUTPUT if left_out == EMBEDDING else EMBEDDING
    return (
        f"{said}; the tied matrix was stored twice, and {kept} "
        f"({stored[kept].tensor_type.name}) was kept for {left_out} "
        f"({stored[left_out].tensor_type.name}) too"
    )
