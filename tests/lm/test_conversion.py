"""GGUF files as folders: what is tied, what was quantized, and how often a file is read."""

import pytest
import torch
from transformers import modeling_gguf_pytorch_utils

from nbcourse.errors import UserError
from nbcourse.lm import conversion, loading
from tests import gguf_model


def converted(file, **options):
    """What a conversion found, the tensors of the file, and the model as it is loaded."""
    tensors = gguf_model.write(file, **options)
    found = conversion.convert(file, file.with_suffix(""))
    return found, tensors, loading.load(file.with_suffix(""), "cpu")[1]


def test_a_matrix_that_a_file_stores_twice_is_one_matrix_of_the_finer_copy(tmp_path):
    found, tensors, model = converted(tmp_path / "twice.gguf", output="again")
    coarse, fine = (tensors[f"{name}.weight"] for name in ("token_embd", "output"))
    assert not (coarse == fine).all()
    assert model.config.tie_word_embeddings
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(model.lm_head.weight, torch.from_numpy(fine))
    assert found.parameters == sum(tensor.size for tensor in tensors.values()) - coarse.size
    said = "the tied matrix was stored twice, and output.weight (Q8_0) was kept for token_embd"
    assert said in found.weights


def test_two_matrices_stay_two(tmp_path):
    found, tensors, model = converted(tmp_path / "two.gguf", output="other")
    assert not model.config.tie_word_embeddings
    for name, weight in (
        ("output", model.lm_head.weight),
        ("token_embd", model.model.embed_tokens.weight),
    ):
        assert torch.equal(weight, torch.from_numpy(tensors[f"{name}.weight"]))
    assert found.parameters == sum(tensor.size for tensor in tensors.values())
    assert "twice" not in found.weights


def test_a_file_is_parsed_once(tmp_path, monkeypatch):
    """gguf's reader takes seconds for a large vocabulary, each time that one is made."""
    import gguf

    gguf_model.write(tmp_path / "once.gguf")
    made, initialise = [], gguf.GGUFReader.__init__

    def counted(self, path, *options):
        made.append(path)
        initialise(self, path, *options)

    monkeypatch.setattr(gguf.GGUFReader, "__init__", counted)
    conversion.convert(tmp_path / "once.gguf", tmp_path / "once")
    assert made == [tmp_path / "once.gguf"]


def test_a_tensor_is_unpacked_the_same_in_however_many_slices(tmp_path, monkeypatch):
    tensors = gguf_model.write(tmp_path / "slices.gguf")
    monkeypatch.setattr(conversion, "AT_ONCE", 200)  # two rows
    conversion.convert(tmp_path / "slices.gguf", tmp_path / "slices")
    model = loading.load(tmp_path / "slices", "cpu")[1]
    stored = torch.from_numpy(tensors["blk.1.ffn_up.weight"])
    assert torch.equal(model.model.layers[1].mlp.up_proj.weight, stored)


def test_a_file_that_lacks_a_tensor_is_no_model(tmp_path, monkeypatch):
    gguf_model.write(tmp_path / "half.gguf")
    names = modeling_gguf_pytorch_utils.get_gguf_hf_weights_map

    def fewer(*told, **options):
        known = names(*told, **options)
        return {k: v for k, v in known.items() if k != "blk.1.ffn_up.weight"}

    monkeypatch.setattr(modeling_gguf_pytorch_utils, "get_gguf_hf_weights_map", fewer)
    with pytest.raises(
        UserError, match=r"lacks model\.layers\.1\.mlp\.up_proj\.weight, and 0 more"
    ):
        conversion.convert(tmp_path / "half.gguf", tmp_path / "half")


def test_a_file_that_is_no_model_is_named_with_the_reason(tmp_path):
    file = tmp_path / "note.gguf"
    file.write_bytes(b"not a model at all, but long enough for a header")
    with pytest.raises(UserError, match=rf"^{file} cannot be read as a model in GGUF: \S"):
        conversion.convert(file, tmp_path / "made")
