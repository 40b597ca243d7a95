"""A model folder that cannot be used is refused in one line, and no code in it is ever run."""

import json
import shutil

import pytest
import torch

from nbcourse.errors import NotAvailable
from nbcourse.lm import loading
from tests import hub


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return hub.checkpoint(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def changed(file, **entries):
    held = json.loads(file.read_text(encoding="utf-8")) | entries
    file.write_text(json.dumps({k: v for k, v in held.items() if v is not ...}), encoding="utf-8")


def pointer(folder):
    (folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )


def pointer_for_texts(folder):
    (folder / "tokenizer.json").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )


def cut_off(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def cut_off_in_the_head(folder):
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:50])


def empty(folder):
    (folder / "model.safetensors").write_bytes(b"")


def without_weights(folder):
    (folder / "model.safetensors").unlink()


def in_pickles(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def without_a_shard(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    files = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def quantized(folder):
    changed(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})


def without_an_end(folder):
    changed(folder / "tokenizer_config.json", eos_token=None)


def encoder(folder):
    changed(folder / "config.json", model_type="bert", architectures=["BertForMaskedLM"])


def both(folder):
    changed(folder / "config.json", model_type="t5", architectures=["T5ForConditionalGeneration"])


def unknown(folder):
    changed(folder / "config.json", model_type="tomorrow")


def damaged_config(folder):
    (folder / "config.json").write_text('{"model_type": "qwen2"')


def damaged_texts(folder):
    (folder / "tokenizer.json").write_text("{}")


def with_code(folder):
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"}
    changed(folder / "config.json", model_type="own", auto_map=names)
    (folder / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")


DAMAGES = {
    pointer: "model.safetensors is only a pointer of Git LFS; run `git lfs pull`",
    pointer_for_texts: "tokenizer.json is only a pointer of Git LFS",
    cut_off: "model.safetensors is cut off: it has ",
    cut_off_in_the_head: "model.safetensors is cut off or damaged",
    empty: "model.safetensors is cut off or damaged",
    without_weights: "it has no weights in safetensors",
    in_pickles: "only in files that could run code",
    without_a_shard: "1 of 2 files of weights are missing: model-00002-of-00002.safetensors",
    quantized: "is quantized (gptq), and such weights cannot be trained",
    without_an_end: "has no end token, so that no answer could end",
    encoder: "is a model of type bert, which does not continue texts from left to right",
    both: "is a model of type t5, which does not continue texts",
    unknown: "cannot be loaded: ",
    damaged_config: "cannot be loaded: ",
    damaged_texts: "cannot be loaded: ",
    with_code: "cannot be loaded: it needs code of its own, which is never run",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_what_is_wrong_with_a_folder_is_said_in_one_line(folder, damage, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *words: "y")  # to run it, it would be asked
    damage(folder)
    with pytest.raises(NotAvailable) as refused:
        loading.load(folder, "cpu")
    assert DAMAGES[damage] in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate"
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_too_little_memory_is_said_in_one_line(folder, error, monkeypatch):
    from transformers import AutoModelForCausalLM

    def full(*given, **named):
        raise error

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", full)
    with pytest.raises(
        NotAvailable, match=r"^there is no room for the model .* in float32: "
    ) as no:
        loading.load(folder, "cpu")
    assert "\n" not in str(no.value)


def test_a_whole_folder_is_loaded(folder):
    tokenizer, model = loading.load(folder, "cpu")
    assert tokenizer.eos_token == hub.END
    assert model.dtype == torch.float32
