"""The whole way of a checkpoint from the hub: chat format, two precisions, two special tokens.

The checkpoint is a Qwen2 with random weights in the hub's layout. As in Qwen2.5-Instruct the token
that ends a message is not the one that pads, and the output matrix has rows without a token.
"""

import json
from dataclasses import replace
from types import SimpleNamespace
from zlib import crc32

import pytest
import torch
from torch.testing import assert_close

from nbcourse.experiments import evaluation, records
from nbcourse.experiments.run import train
from nbcourse.lm import sampling
from nbcourse.lm.rollouts import from_texts
from nbcourse.tasks.gsm8k import GSM8K
from nbcourse.tasks.questions import Verified
from nbcourse.training.experience import Draws, collect, score
from nbcourse.training.recipe import check
from tests import hub
from tests.effort import swept
from tests.small import ALONE, learner, weights, without_costs

ALGORITHMS = ("ppo", "grpo", "rloo", "reinforce")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    model, data = hub.checkpoint(folder / "qwen"), hub.data(folder / "gsm8k")
    return SimpleNamespace(model=str(model), data=str(data))


def content(places, name="grpo", **more):
    """As the recipes for Qwen2.5, at toy size."""
    own_critic = {"critic": {"shared": False, "learning_rate": 1e-3}} if name == "ppo" else {}
    minibatches = {"minibatches": 2} if name in ("ppo", "grpo") else {}
    return {
        "steps": 2,
        "algorithm": {"name": name},
        "task": {"name": "gsm8k", "path": places.data},
        "prompt": {"style": "chat", "instruction": 'Output the final answer after "####".'},
        "model": {
            "source": places.model,
            "precision": "bfloat16",
            "gradient_checkpointing": True,
        },
        "rollouts": {"prompts": 4, "group_size": 3, "max_new_tokens": 8},
        "optimiser": {"learning_rate": 1e-3, "prompts_at_once": 1, **minibatches},
        "reward": {"accept_truncated": True},  # of random weights, few responses end themselves
        "evaluation": {"every": 1, "problems": 3},
        "checkpoint": {"every": 1},
        **own_critic,
        **more,
    }


@pytest.fixture
def generous(monkeypatch):
    """A verdict that random weights can earn: a hash of the response and what was asked."""

    def rewards(self, responses, asked):
        pairs = zip(responses, asked, strict=True)
        return torch.tensor([float(crc32((r + p.question).encode()) % 2) for r, p in pairs])

    monkeypatch.setattr(Verified, "rewards", rewards)


@pytest.mark.parametrize("name", swept(ALGORITHMS, keep=("ppo", "grpo")))
def test_it_is_trained_stopped_resumed_and_loaded_again(places, tmp_path, generous, name):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    recipe = check(content(places, name))
    whole, history = train(recipe, folder=tmp_path / "whole", progress=False)
    train(check({**content(places, name), "steps": 1}), folder=tmp_path / "parts", progress=False)
    parts, again = train(recipe, folder=tmp_path / "parts", resume=True, progress=False)
    assert without_costs(history) == without_costs(again)
    before = weights(learner(recipe))
    for (key, ours), (other, theirs) in zip(whole.trained(), parts.trained(), strict=True):
        assert key == other
        assert torch.equal(ours, theirs)
    assert any(not torch.equal(before[key], parameter) for key, parameter in whole.trained())
    assert all(row["grad_norm"] > 0 for row in history)

    folder = tmp_path / "parts" / "model"
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.dtype == torch.float32
    for key, parameter in model.named_parameters():
        assert torch.equal(parameter, dict(whole.policy.named_parameters())[key])
    assert (tokenizer.eos_token, tokenizer.pad_token) == (hub.END, hub.PADDING)
    assert model.generation_config.eos_token_id == [2, 0]
    assert model.config.use_cache
    problems = recipe.task.build().draw(4, split="test", generator=torch.Generator())
    for prompt in whole.prompts(problems):
        ids = torch.tensor([tokenizer(prompt, add_special_tokens=False).input_ids])
        theirs = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=8,
            do_sample=False,
            repetition_penalty=1.0,
        )[0, ids.shape[1] :]
        ours = sampling.sample(whole.policy, tokenizer, [prompt], max_new_tokens=8, greedy=True)
        assert theirs.tolist() == ours.tokens[0].tolist()


def test_it_is_evaluated_on_the_test_split_before_and_after(places, tmp_path):
    """Also where the checkpoint it came from is no longer there."""
    source = hub.checkpoint(tmp_path / "qwen")
    tables = content(places, "rloo")
    tables["model"]["source"] = str(source)
    train(check(tables), folder=tmp_path / "run", progress=False)
    source.rename(tmp_path / "gone")
    result = evaluation.evaluate(tmp_path / "run", final=True, samples=2, progress=False)
    assert (result["split"], result["problems"]) == ("test", 8)
    for name in ("before", "after"):
        assert result[name]["strict"]["of"] == 8
        assert result[name]["truncated"]["share"] > 0.5  # random weights do not end
    assert json.loads((tmp_path / "run" / "evaluation-gsm8k-test.json").read_text("utf-8"))


def test_a_run_that_cannot_go_on_without_its_source_says_so(places, tmp_path):
    source = hub.checkpoint(tmp_path / "qwen")
    tables = content(places, "rloo", steps=1)
    tables["model"]["source"] = str(source)
    train(check(tables), folder=tmp_path / "run", progress=False)
    source.rename(tmp_path / "gone")
    with pytest.raises(
        FileNotFoundError, match=r"no model in .*qwen: expected a folder with a conf"
    ):
        train(check({**tables, "steps": 2}), folder=tmp_path / "run", resume=True, progress=False)


def test_a_source_that_is_not_there_is_not_looked_for_on_the_hub(places, tmp_path):
    """A name on the hub has one stroke at most."""
    for source in ("runs/base-seed0/model", "./model", str(tmp_path)):
        tables = content(places, model={"source": source})
        with pytest.raises(FileNotFoundError, match=f"no model in {source}: expected a folder"):
            learner(check(tables))


# ---------------------------------------------------------------- what ends a response


@pytest.fixture(scope="module")
def made(places):
    model = {"source": places.model}  # in float32, so that numbers can be compared
    return learner(check({**content(places, "rloo"), "model": model}))


def forced(policy, *columns):
    """Until the handle is removed: the token that the policy takes, by its number, in each step."""
    steps = iter(columns)

    def hook(module, arguments, output):
        output.logits[:, -1] = output.logits[:, -1].masked_fill(
            torch.arange(output.logits.shape[-1]) != next(steps), -1e4
        )

    return policy.register_forward_hook(hook)


def test_the_end_of_the_message_and_of_the_text_end_a_response(made):
    """As when the model is put to use. Any other special token is a token: in mask, and in text."""
    tokenizer = made.tokenizer
    number, other = tokenizer("#### 7").input_ids, 1
    assert tokenizer.convert_ids_to_tokens(other) == "<|im_start|>"
    assert sampling.end_tokens(made.policy, tokenizer) == [0, tokenizer.eos_token_id] == [0, 2]
    for end in (0, 2):
        handle = forced(made.policy, *number, other, *number, end)
        rollout = sampling.sample(
            made.policy, tokenizer, ["Six?"], max_new_tokens=40, greedy=True, group_size=2
        )
        handle.remove()
        assert rollout.tokens.tolist() == [[*number, other, *number, end]] * 2
        assert rollout.mask.all()
        assert not rollout.truncated.any()
        assert rollout.texts(tokenizer) == ["#### 7<|im_start|>#### 7"] * 2
    handle = forced(made.policy, *[other] * 5)
    rollout = sampling.sample(made.policy, tokenizer, ["Six?"], max_new_tokens=5, greedy=True)
    handle.remove()
    assert rollout.truncated.all()
    assert rollout.mask.sum() == 5
    assert rollout.texts(tokenizer) == ["<|im_start|>" * 5]


def test_a_special_token_is_not_read_over(made):
    """Left out of the text, it would make 42 of what is 4 and 2, and a reward of it."""
    problems = made.recipe.task.build().draw(1, split="train", generator=torch.Generator())
    problems = [replace(problems[0], answer=42)] * 4
    texts = ["#### 42", "#### 4<|endoftext|>2", "#### 42<|im_start|>", "<|im_start|>#### 42"]
    rollout = from_texts(made.tokenizer, made.prompts(problems), texts)
    assert rollout.texts(made.tokenizer) == texts
    scores, correct = score(made, rollout, problems)
    assert scores.tolist() == correct.tolist() == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(("accepted", "score_if_right"), [(True, 1.0), (False, 0.0)])
def test_an_answer_that_was_cut_off_earns_its_verdict_and_its_penalty(
    places, accepted, score_if_right
):
    reward = {"accept_truncated": accepted, "truncation_penalty": 0.25}
    tables = content(places, "rloo", reward=reward)
    tables["model"] = {"source": places.model}
    made = learner(check(tables))
    problems = GSM8K(places.data).draw(2, split="train", generator=torch.Generator())
    problems = [replace(problem, answer=7) for problem in problems]
    whole = from_texts(made.tokenizer, made.prompts(problems), ["#### 7"] * 2)
    cut = replace(
        whole,
        tokens=whole.tokens[:, :-1],
        mask=whole.mask[:, :-1],
        log_probs=whole.log_probs[:, :-1],
        truncated=torch.tensor([True, True]),
    )
    assert score(made, whole, problems)[0].tolist() == [1.0, 1.0]
    assert score(made, cut, problems)[0].tolist() == [score_if_right - 0.25] * 2


def test_log_probs_are_those_of_one_response_after_the_other(made):
    """From a batch that is padded on both sides, with cache and without, up to the end of each.

    No token of a row without a text is out of reach: the model has them, and so has the sum.
    """
    end, *_ = ends = [made.tokenizer.eos_token_id, 0]

    def likely(module, arguments, output):  # so that there are responses of several lengths
        output.logits[..., end] += 4.0

    handle = made.policy.register_forward_hook(likely)
    rollout = collect(made, Draws(made.recipe), ALONE).rollout
    assert 0 < rollout.truncated.sum() < len(rollout.truncated)
    with torch.no_grad():
        log_probs, _ = made.log_probs_and_values(rollout, group_size=3)
        for i in range(len(rollout.tokens)):
            prompt = rollout.prompt_ids[i][rollout.prompt_mask[i]]
            response = rollout.tokens[i][: int(rollout.mask[i].sum())]
            ended = torch.isin(response, torch.tensor(ends)).nonzero().flatten().tolist()
            assert ended == ([] if rollout.truncated[i] else [len(response) - 1])
            logits = made.policy(torch.cat([prompt, response])[None]).logits[0]
            whole = logits.log_softmax(dim=-1)
            expected = torch.stack(
                [whole[len(prompt) - 1 + t, token] for t, token in enumerate(response)]
            )
            assert_close(log_probs[i][rollout.mask[i]], expected, rtol=1e-4, atol=1e-5)
            assert_close(rollout.log_probs[i][rollout.mask[i]], expected, rtol=1e-4, atol=1e-5)
    handle.remove()


def test_prompts_are_messages_in_training_and_in_evaluation(places, tmp_path, monkeypatch):
    seen = []
    whole = sampling.sample

    def watch(model, tokenizer, prompts, **options):
        seen.extend(prompts)
        return whole(model, tokenizer, prompts, **options)

    monkeypatch.setattr(sampling, "sample", watch)
    train(check(content(places, "rloo", steps=1)), folder=tmp_path, progress=False)
    evaluation.evaluate(tmp_path, problems=2, progress=False)
    assert len(seen) == 3 + 4 + 3 + 3 + 2 + 2  # start, step, evaluation, summary, after, before
    questions = {p.question for p in GSM8K(places.data).draw(99, split="train", generator=None)}
    questions |= {
        p.question for p in GSM8K(places.data).draw(99, split="validation", generator=None)
    }
    messages = {hub.rendered(f'{q} Output the final answer after "####".') for q in questions}
    assert set(seen) <= messages
    assert not {p.question for p in GSM8K(places.data).draw(99, split="test", generator=None)} & {
        message.partition("user\n")[2].partition(" Output")[0] for message in seen
    }
    assert records.read_recipe(tmp_path).prompt.style == "chat"
