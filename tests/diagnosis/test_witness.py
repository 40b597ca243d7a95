"""The witness: it is bounded, it is read back as it was, and it changes nothing of the run."""

import json
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import BPE
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from nbcourse.diagnosis.draft import drawn
from nbcourse.diagnosis.plain_pass import distributions, plainly
from nbcourse.diagnosis.recorder import Recorder
from nbcourse.diagnosis.witness import FORMAT, Witness
from nbcourse.errors import UserError
from nbcourse.experiments import evidence
from nbcourse.experiments.run import train
from nbcourse.lm.sampling import end_tokens
from nbcourse.training import loop
from nbcourse.training.watch import Watch, fingerprint
from tests.diagnosis.runs import broken, sound
from tests.small import ALONE, learner, recipe, without_costs

WARM = {"steps": 25, "batch_size": 32}


def steps(made, watch=None):
    made.watch = watch or Watch()
    return without_costs(loop.steps(made, loop.begin(made.recipe), ALONE))


def witnesses(name="grpo", *, every=1, tokens=1024, **changes):
    made, found = learner(recipe(name, warm_start=WARM, **changes)), []
    steps(made, Recorder(every, tokens, found.append))
    return made, found


def test_a_run_with_witnesses_is_the_run_without():
    plain, watched = (learner(recipe("grpo", warm_start=WARM, steps=3)) for _ in range(2))
    found = []
    assert str(steps(plain)) == str(steps(watched, Recorder(1, 1024, found.append)))
    for one, other in zip(plain.policy.parameters(), watched.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [witness.step for witness in found] == [1, 2, 3]


def test_the_first_step_has_one_and_every_nth():
    _, found = witnesses(every=3, steps=7)
    assert [witness.step for witness in found] == [1, 3, 6]


def test_slices_are_counted_from_0_and_one_process_is_one():
    _, found = witnesses(optimiser={"minibatches": 2})
    assert [witness.facts["processes"] for witness in found] == [1, 1]
    for number in ("slice", "minibatch"):  # -1 of a row that nothing is learned from
        seen = {int(one) for witness in found for one in witness[number]}
        assert seen - {-1} == {0, 1}


def test_it_is_read_back_as_it_was_written():
    _, (witness, _) = witnesses("ppo", kl={"beta": 0.1})
    again = Witness.from_bytes(witness.to_bytes(), name="x")
    assert again.facts == json.loads(json.dumps(witness.facts))
    assert again.tensors.keys() == witness.tensors.keys()
    for name, tensor in witness.tensors.items():
        assert_close(again[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_what_is_no_witness_is_refused_in_one_line(content):
    with pytest.raises(UserError, match="step-1 is not a witness batch") as refused:
        Witness.from_bytes(content, name="step-1")
    assert "\n" not in str(refused.value)


def test_another_format_is_refused():
    _, (witness, _) = witnesses()
    later = replace(witness, facts={**witness.facts, "format": FORMAT + 1})
    with pytest.raises(UserError, match=f"format {FORMAT + 1}, expected {FORMAT}"):
        Witness.from_bytes(later.to_bytes(), name="x")


def test_it_holds_whole_groups_up_to_a_number_of_tokens_and_one_in_any_case():
    for tokens, groups in ((1, 1), (1024, 6)):
        _, (witness, _) = witnesses(tokens=tokens)
        assert len(witness["tokens"]) == 4 * groups
    _, (witness, _) = witnesses(tokens=30)
    assert 0 < len(witness["tokens"]) < 24
    assert len(witness["tokens"]) % 4 == 0
    assert int(witness["lengths"].sum()) <= 30
    for text, pieces, length in zip(
        witness.facts["responses"], witness.facts["pieces"], witness["lengths"], strict=True
    ):
        assert len(pieces) == length
        assert "".join(pieces).startswith(text)  # and then perhaps what ends a response


def test_the_plain_log_probs_are_those_of_sampler_and_learner():
    made, (_, witness) = witnesses("rloo", kl={"beta": 0.1})
    mask = witness["mask"]
    for name in ("sampler_log_probs", "scored_log_probs"):
        assert_close(witness[name][mask], witness["plain_log_probs"][mask], rtol=0, atol=1e-4)
    assert_close(
        witness["ref_log_probs"][mask], witness["plain_ref_log_probs"][mask], rtol=0, atol=1e-4
    )
    ends = torch.tensor(end_tokens(made.policy, made.tokenizer))
    last = witness["tokens"].gather(1, witness["lengths"][:, None].long() - 1).squeeze(1)
    assert torch.equal(torch.isin(last, ends), ~witness["truncated"])


def test_equally_long_responses_are_read_together_as_each_would_be_alone(monkeypatch):
    """At most `TOGETHER` tokens at once, of which one row may have more."""
    made = learner(recipe("rloo", warm_start=WARM))
    generator = torch.Generator().manual_seed(0)
    sizes = [(3, 2), (4, 1), (3, 2), (3, 5), (4, 1), (3, 2)]
    texts = [torch.randint(3, 9, (p + r,), generator=generator) for p, r in sizes]
    texts[4] = texts[1].clone()
    prompts, responses = zip(
        *(ids.split(list(size)) for ids, size in zip(texts, sizes, strict=True)), strict=True
    )
    seen: list[tuple[int, ...]] = []

    def answers(ids, prompt):
        seen.append(tuple(ids.shape))
        return distributions(made.policy, ids, prompt, 1.0)

    monkeypatch.setattr("nbcourse.diagnosis.plain_pass.TOGETHER", 12)
    found = plainly(prompts, responses, 5, answers, answers)
    assert sorted(seen) == sorted(2 * [(2, 5), (1, 5), (1, 5), (1, 8)])
    for row, ((prompt, response), ids) in enumerate(zip(sizes, texts, strict=True)):
        logits = made.policy(input_ids=ids[None]).logits[0].double().log_softmax(dim=1)
        chosen = logits[:-1].gather(1, ids[1:, None])[prompt - 1 :, 0]
        for name in ("plain_log_probs", "plain_ref_log_probs"):
            assert_close(found[name][row, :response].double(), chosen, rtol=0, atol=1e-5)
            assert (found[name][row, response:] == 0).all()
        likely = logits[prompt - 1 : -1].exp()
        entropy = -(likely * likely.log()).sum(dim=1)
        assert_close(found["entropy"][row, :response].double(), entropy, rtol=0, atol=1e-5)


def test_the_coefficients_are_the_derivative_of_the_loss():
    """GRPO before it has moved: −A / (N |y|)."""
    _, (witness, _) = witnesses()
    mask, rows = witness["mask"], len(witness["mask"])
    expected = -witness["advantages"] / (rows * mask.sum(dim=1, keepdim=True))
    taken = (witness["minibatch"] >= 0)[:, None] & mask
    assert taken.any()
    assert_close(witness["coefficients"][taken], expected[taken])


def test_fingerprints_differ_when_the_weights_do():
    made = learner(recipe("grpo"))
    before = fingerprint(made.policy.parameters())
    assert before == fingerprint(made.policy.parameters())
    with torch.no_grad():
        next(iter(made.policy.parameters())).view(-1)[0] += 1e-4
    assert before != fingerprint(made.policy.parameters())


def test_a_run_in_a_folder_keeps_its_witnesses_and_goes_on_with_them(tmp_path):
    made = recipe("grpo", steps=2, witness={"every": 2}, checkpoint={"every": 1}, warm_start=WARM)
    folder, whole = tmp_path / "run", tmp_path / "whole"
    train(made, folder=folder, progress=False)
    longer = recipe("grpo", steps=4, witness={"every": 2}, checkpoint={"every": 1}, warm_start=WARM)
    train(longer, folder=folder, resume=True, progress=False)
    train(longer, folder=whole, progress=False)
    names = [f"step-{step:06d}.safetensors" for step in (1, 2, 4)]
    assert sorted(path.name for path in (folder / "witness").iterdir()) == names
    for name in names:
        assert (folder / "witness" / name).read_bytes() == (whole / "witness" / name).read_bytes()
    found = evidence.read(folder)
    assert [witness.step for witness in found.witnesses] == [1, 2, 4]
    assert len(found.history) == 4


def test_witnesses_may_be_asked_for_when_a_run_goes_on(tmp_path):
    train(recipe("grpo", warm_start=WARM), folder=tmp_path, progress=False)
    later = recipe("grpo", steps=3, witness={"every": 3}, warm_start=WARM)
    train(later, folder=tmp_path, resume=True, progress=False)
    assert [witness.step for witness in evidence.read(tmp_path).witnesses] == [3]


def test_there_are_none_unless_they_are_asked_for(tmp_path):
    train(recipe("grpo"), folder=tmp_path, progress=False)
    assert not (tmp_path / "witness").exists()
    with pytest.raises(UserError, match=r"witness.tokens is not used: witness.every is 0"):
        recipe("grpo", witness={"tokens": 5})


def test_the_tokens_of_the_text_are_kept_beside_those_that_were_drawn():
    """a and b were drawn, and are written as one token, ab."""
    core = Tokenizer(BPE(vocab={"a": 0, "b": 1, "ab": 2, "<end>": 3}, merges=[("a", "b")]))
    core.decoder = Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>")
    found = drawn(tokenizer, [[0, 1, 3, 3], [2, 0, 1, 0], [1, 1, 1, 1]], [3])
    assert found["drawn_tokens"].tolist() == [[0, 1, 3, -1], [2, 0, 1, 0], [1, 1, 1, 1]]
    assert found["encoded_tokens"].tolist() == [[2, 3, -1, -1], [2, 2, 0, -1], [1, 1, 1, 1]]


def test_packed_evidence_is_read_back(tmp_path):
    for found in (sound("grpo"), broken("mixed-groups")):
        path = tmp_path / "run.zip"
        path.write_bytes(evidence.pack(found))
        again = evidence.read(path)
        assert evidence.pack(again) == path.read_bytes()
        assert len(path.read_bytes()) < 40_000
