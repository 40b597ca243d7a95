"""What stands ready before the first step: problems, warm start, reference, reward model."""

import pytest
import torch
from transformers import PreTrainedModel

from nbcourse.experiments.run import keep_model
from nbcourse.lm import bpe, loading, lora, tiny
from nbcourse.lm.actor_critic import ActorCritic, Critic
from nbcourse.lm.rollouts import encode, from_texts
from nbcourse.seeds import generator
from nbcourse.tasks.arithmetic import Problem
from nbcourse.tasks.gsm8k import GSM8K
from nbcourse.training import learner as learners
from nbcourse.training import models, preparation
from nbcourse.training.experience import Draws
from nbcourse.training.models import load_model, load_tokenizer
from nbcourse.training.preparation import sample_comparisons, train_reward_model
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import check
from tests import hub, small
from tests.small import learner, recipe

WARM = {"steps": 40, "batch_size": 64}


def test_every_step_has_problems_of_its_own_and_none_is_held_out():
    wanted = recipe("rloo", task={"digits": 3}, rollouts={"prompts": 16})
    draws = Draws(wanted)
    batches = [draws.next() for _ in range(4)]
    assert [number for number, _ in batches] == [0, 1, 2, 3]
    assert draws.taken == 4
    assert len({problem.prompt for _, batch in batches for problem in batch}) > 60
    assert not any(problem.held_out for _, batch in batches for problem in batch)
    assert Draws(wanted, taken=2).next() == batches[2]
    other = recipe("rloo", seed=1, task={"digits": 3}, rollouts={"prompts": 16})
    assert Draws(other).next() != batches[0]


@pytest.fixture
def few_texts(monkeypatch):
    """A tokenizer is learned from 60 texts, where it does not matter how good it is."""
    monkeypatch.setattr(models, "TEXTS", 60)


def test_a_learned_tokenizer_belongs_to_who_asked_for_it_and_to_the_recipe(few_texts):
    """It is learned once for a recipe, and handed out as a copy."""
    asked = small.base_recipe()
    first, second = load_tokenizer(asked), load_tokenizer(asked)
    first.padding_side = "right"
    first.add_tokens(["<answer>"])
    assert second.padding_side == load_tokenizer(asked).padding_side == "left"
    assert first.get_vocab() != second.get_vocab() == load_tokenizer(asked).get_vocab()
    other = load_tokenizer(small.base_recipe(seed=1))
    texts = [p.prompt + p.solution for p in asked.examples(60, generator(1, "tokenizer"))]
    by_hand = bpe.train_tokenizer(texts, vocabulary=asked.model.vocabulary)
    assert other.get_vocab() == by_hand.get_vocab() != second.get_vocab()


def test_a_base_and_a_run_of_the_same_task_learn_tokenizers_of_their_own(few_texts):
    """Their texts are others: a base first draws which problems are GSM8K's."""
    base = small.base_recipe()
    tables = small.tables(model=base.model.model_dump()) | {"task": base.task.model_dump()}
    run = check(tables)
    assert (run.seed, run.task, run.prompt, run.model) == (
        *(base.seed, base.task, base.prompt, base.model),
    )
    learned = {}
    for first, then in ((base, run), (run, base)):
        models._learned.cache_clear()
        learned[first] = [load_tokenizer(one).get_vocab() for one in (first, then)]
    assert learned[base] == learned[run][::-1]
    assert learned[base][0] != learned[base][1]


def test_of_finitely_many_problems_none_comes_again_before_all_have_come(tmp_path):
    """GSM8K in batches of 7, some of which lie across the end of an epoch."""
    data = hub.data(tmp_path / "gsm8k", train=40)
    task = {"name": "gsm8k", "path": str(data)}
    tables = small.tables(task={"digits": None}, rollouts={"prompts": 7})
    tables |= {"task": task, "model": {"source": "./somewhere"}}
    wanted = check(tables)
    there = [problem.question for problem in wanted.task.build().listed("train")]
    size = len(there)
    assert 30 < size < 40  # a tenth is held out
    draws = Draws(wanted)
    taken = [problem.question for _ in range(3 * size) for problem in draws.next()[1]]
    epochs = [taken[i : i + size] for i in range(0, 21 * size, size)]
    assert all(sorted(epoch) == sorted(there) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 21
    assert [p.question for p in Draws(wanted, taken=5).next()[1]] == taken[35:42]
    other = check({**tables, "seed": 1})
    assert [p.question for p in Draws(other).next()[1]] != taken[:7]


def test_a_base_sees_each_problem_of_gsm8k_once_before_any_twice(tmp_path, monkeypatch):
    """Two of three examples, in a cursor of their own; steps are drawn in any order."""
    monkeypatch.setenv("NBCOURSE_GSM8K", str(hub.data(tmp_path / "gsm8k", train=30)))
    made = small.base_recipe(gsm8k_share=2 / 3)
    theirs = {problem.question for problem in GSM8K().listed("train")}
    batches = [made.batch("supervised", step) for step in range(3 * len(theirs))]
    assert all(len(batch) == 5 for batch in batches)
    drawn = [p.question for batch in batches for p in batch if p.question in theirs]
    assert len(drawn) == 10 * len(theirs)
    epochs = [drawn[i : i + len(theirs)] for i in range(0, len(drawn), len(theirs))]
    assert all(set(epoch) == theirs for epoch in epochs)
    own = [p.question for batch in batches for p in batch if p.question not in theirs]
    assert len(set(own)) > 0.9 * len(own)
    assert made.batch("supervised", 3) == batches[3]
    assert made.batch("pretraining", 3) != batches[3]


def test_the_warm_start_first_teaches_and_then_spoils(monkeypatch, tmp_path):
    """Right answers at the full rate; then mostly careless ones, at a fifth of it."""
    monkeypatch.setenv("NBCOURSE_WARM_STARTS", str(tmp_path))
    seen = []

    def watch(model, tokenizer, examples, *, steps, batch_size, learning_rate, progress):
        pairs = examples(300)
        right = sum(str(eval(prompt.removesuffix("="))) == answer for prompt, answer in pairs)
        seen.append((steps, batch_size, learning_rate, right / 300))

    monkeypatch.setattr(preparation, "warm_start", watch)
    settings = {"steps": 7, "batch_size": 5, "learning_rate": 1e-2}
    careless = {"careless_steps": 3, "careless_share": 1.0}
    for changes in (
        {"task": {"digits": 2}, "warm_start": {**settings, **careless}},
        {"warm_start": settings},
        {},
    ):
        preparation.build(recipe("rloo", **changes), small.ALONE)
    assert len(seen) == 3
    assert seen[0] == seen[2] == (7, 5, 1e-2, 1.0)
    assert seen[1][:3] == (3, 5, pytest.approx(2e-3))
    assert 0.15 < seen[1][3] < 0.5  # two digits have nothing to carry about 0.3 of the time


def test_a_teacher_who_is_never_careless_teaches_too(few_texts):
    tables = small.tables(model={"vocabulary": 300})
    asked = check(tables | {"task": {"name": "word-problems"}})
    pairs = preparation.demonstrations(asked, load_tokenizer(asked), generator(0, "x"), 0.0, 5)
    assert len(pairs) == 5
    assert all(prompt and "####" in solution for prompt, solution in pairs)


def test_a_bar_is_drawn_of_a_warm_start_only_if_it_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("NBCOURSE_WARM_STARTS", str(tmp_path))
    seen = []
    monkeypatch.setattr(preparation, "warm_start", lambda *_, progress, **__: seen.append(progress))
    for seed, options in enumerate(({}, {"progress": True})):
        preparation.build(recipe("rloo", seed=seed, warm_start=WARM), small.ALONE, **options)
    assert seen == [False, True]


def test_processes_wait_for_each_other_and_take_the_first_one_s_weights(monkeypatch):
    told = []
    monkeypatch.setattr(torch.distributed, "barrier", lambda: told.append("barrier"))
    monkeypatch.setattr(torch.distributed, "broadcast", lambda _, src: told.append(src))
    for count in (1, 2):
        among = Processes(0, count, torch.device("cpu"))
        among.wait()
        among.agree([torch.zeros(1), torch.zeros(2)])
    assert told == ["barrier", 0, 0]


@pytest.mark.parametrize("shared", [True, False])
def test_with_a_kl_over_the_vocabulary_values_are_the_critic_s(shared):
    exact = {"beta": 0.1, "placement": "surrogate", "estimator": "exact"}
    made = learner(recipe("ppo", kl=exact, critic={"shared": shared}))
    head = made.critic.head.linear.weight
    with torch.no_grad():
        head.normal_(generator=generator(0, "head"))
    batch = from_texts(made.tokenizer, ["1+2=", "3+4="], ["3", "7"])
    log_probs, values = made.log_probs_and_values(batch, group_size=1)
    found, others, divergences = made.log_probs_values_and_divergences(batch, group_size=1)
    assert values.abs().max() > 0.1
    torch.testing.assert_close(others, values)
    torch.testing.assert_close(found, log_probs)
    assert divergences.abs().max() < 1e-5  # of a policy that is its reference


@pytest.mark.parametrize("forward", ["transformers", "packed"])
def test_whatever_is_asked_of_policy_and_reference_goes_the_way_that_the_recipe_says(
    forward, monkeypatch
):
    """Without a KL over the vocabulary, transformers' own way is asked for logits at once."""
    seen, layers = [], dict(learners.FORWARDS)

    def watch(model, *arguments, **inputs):
        seen.append(model)
        return layers[forward](model, *arguments, **inputs)

    monkeypatch.setattr(learners, "FORWARDS", {**layers, forward: watch})
    exact = {"beta": 0.1, "placement": "surrogate", "estimator": "exact"}
    for kl in ({"beta": 0.1}, exact):
        made = learner(recipe("grpo", kl=kl, model={"forward": forward}))
        batch = from_texts(made.tokenizer, ["1+2=", "3+4="], ["3", "7"])
        seen.clear()
        found, values = made.log_probs_and_values(batch, group_size=1)
        torch.testing.assert_close(made.log_probs(batch, group_size=1), found.detach())
        torch.testing.assert_close(made.ref_log_probs(batch, group_size=1), found.detach())
        assert values is None
        expected = [made.policy, made.policy, made.reference]
        if kl is exact:
            made.log_probs_values_and_divergences(batch, group_size=1)
            expected += [made.policy, made.reference]
        elif forward == "transformers":
            expected = []
        assert [id(model) for model in seen] == [id(model) for model in expected]


@pytest.mark.parametrize("shared", [True, False])
def test_the_models_stand_beside_each_other(shared):
    made = learner(recipe("ppo", warm_start=WARM, critic={"shared": shared}))
    assert isinstance(made.critic, ActorCritic if shared else Critic)
    assert (
        (made.critic.policy is made.policy) if shared else made.critic.backbone is not made.policy
    )
    for ours, theirs in zip(made.policy.parameters(), made.reference.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()
        assert ours.requires_grad
        assert not theirs.requires_grad
    names = [name for name, _ in made.trained()]
    parameters = {id(p) for _, p in made.trained()}
    assert len(names) == len(set(names)) == len(parameters)
    assert {id(p) for p in made.policy.parameters()} < parameters
    assert {id(p) for p in made.critic.parameters()} <= parameters
    grouped = {id(p) for group in made.optimiser.param_groups for p in group["params"]}
    assert grouped == parameters
    assert learner(recipe("grpo")).critic is None


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_preferred_response_is_the_nearer_one(split):
    """To the same prompt, of the split that was asked for; ties are dropped."""
    made = learner(recipe("grpo", warm_start={"steps": 25, "batch_size": 32}))
    preferred, others = sample_comparisons(
        made.recipe, made.tokenizer, made.policy, 30, split=split
    )
    sides = [side.texts(made.tokenizer) for side in (preferred, others)]
    prompts = [
        [
            made.tokenizer.decode(ids[mask])
            for ids, mask in zip(side.prompt_ids, side.prompt_mask, strict=True)
        ]
        for side in (preferred, others)
    ]
    assert prompts[0] == prompts[1]
    assert len(prompts[0]) == 30
    for prompt, better, worse in zip(prompts[0], *sides, strict=True):
        assert Problem(prompt, "").held_out == (split == "test")
        right = eval(prompt.removesuffix("="))
        far = [
            abs(int(text) - right) if text.removeprefix("-").isdecimal() else float("inf")
            for text in (better, worse)
        ]
        assert far[0] < far[1]


def test_the_reward_model_learns_the_preference():
    settings = {"comparisons": 256, "steps": 40, "batch_size": 32, "learning_rate": 3e-3}
    made = learner(
        recipe(
            "ppo",
            warm_start={"steps": 25, "batch_size": 32},
            reward={"source": "reward_model"},
            reward_model=settings,
        )
    )
    judge = made.reward_model
    assert not any(p.requires_grad for p in judge.parameters())
    preferred, others = sample_comparisons(made.recipe, made.tokenizer, made.policy, 200)
    with torch.no_grad():
        right = (judge(preferred) > judge(others)).float().mean().item()
    assert right > 0.5 + 5 * 0.5 / 200**0.5  # five standard errors above a coin
    again = train_reward_model(made.recipe, made.tokenizer, made.policy)
    for ours, theirs in zip(judge.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_activations_are_computed_twice_whatever_transformers_calls_it(monkeypatch):
    asked = recipe("rloo", model={"gradient_checkpointing": True})
    _, model = load_model(asked, "cpu")
    assert model.is_gradient_checkpointing
    given = []  # before 5.23:
    monkeypatch.delattr(PreTrainedModel, "activation_checkpointing_enable", raising=False)
    monkeypatch.setattr(
        PreTrainedModel, "gradient_checkpointing_enable", lambda _, options: given.append(options)
    )
    load_model(asked, "cpu")
    assert given == [{"use_reentrant": False}]


def test_low_precision_is_for_the_products_only():
    made = learner(recipe("grpo", model={"precision": "bfloat16"}))
    ones = torch.ones(2, 2)
    with made.precision():
        assert (ones @ ones).dtype == torch.bfloat16
    assert {p.dtype for p in made.policy.parameters()} == {torch.float32}
    with learner(recipe("grpo")).precision():
        assert (ones @ ones).dtype == torch.float32


def test_a_policy_that_says_nothing_worth_comparing_is_refused(monkeypatch):
    """Without this the search for comparisons would never end."""
    made = learner(recipe("rloo"))
    monkeypatch.setattr(
        "nbcourse.tasks.arithmetic.Arithmetic.preference",
        lambda self, texts, problems: torch.zeros(len(texts)),
    )
    with pytest.raises(ValueError, match="none of 256 pairs of responses was decided"):
        sample_comparisons(made.recipe, made.tokenizer, made.policy, 4)


TEXTS = [
    "Tom has 12 apples.\n#### 12",
    "How many?\n\n  e\u0301 (she's) A'S 1\u00b2",
    "<|endoftext|>",
]


@pytest.mark.parametrize("kind", ["characters", "learned"])
def test_a_tokenizer_comes_back_from_a_folder_as_it_was(tmp_path, kind):
    """Transformers knows how a Qwen2 cuts its texts, and ours only looks like one."""
    made = (
        tiny.tokenizer() if kind == "characters" else bpe.train_tokenizer(TEXTS * 9, vocabulary=290)
    )
    keep_model(tmp_path, made, tiny.model(made, layers=1, width=16, heads=2))
    again, model = loading.load(tmp_path / "model", "cpu")
    assert again.backend_tokenizer.to_str() == made.backend_tokenizer.to_str()
    assert len(again) == len(made) == model.config.vocab_size
    for name in ("eos_token_id", "pad_token_id", "unk_token_id", "padding_side"):
        assert getattr(again, name) == getattr(made, name)
    for text in TEXTS if kind == "learned" else ["1 + 2=", "-3*4"]:
        ids = again(text).input_ids
        assert ids == made(text).input_ids
        assert again.decode(ids) == text
        assert max(ids) < model.config.vocab_size
    keep_model(tmp_path / "second", again, model)
    assert loading.load(tmp_path / "second" / "model", "cpu")[0].get_vocab() == made.get_vocab()


def test_a_model_kept_in_bfloat16_takes_half_the_room_and_is_rounded_once(tmp_path):
    made = tiny.tokenizer()
    model = tiny.model(made, layers=1, width=64, heads=4)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    sizes = {}
    for kind in ("float32", "bfloat16"):
        keep_model(tmp_path / kind, made, model, kind=kind)
        sizes[kind] = (tmp_path / kind / "model" / "model.safetensors").stat().st_size
        again = loading.load(tmp_path / kind / "model", "cpu")[1]
        for name, parameter in again.named_parameters():
            expected = before[name] if kind == "float32" else before[name].bfloat16().float()
            assert torch.equal(parameter, expected), name
    assert 1.9 < sizes["float32"] / sizes["bfloat16"] <= 2.0
    for name, parameter in model.named_parameters():  # the one that learns stays as it is
        assert torch.equal(parameter, before[name])
        assert parameter.dtype == torch.float32


def test_an_adapter_is_kept_by_itself_as_peft_loads_it(tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    made = tiny.tokenizer()
    base = tiny.model(made, layers=1, width=64, heads=4)
    base.save_pretrained(tmp_path / "base")
    lora.add(base, rank=2, seed=0)
    for name, parameter in base.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[3, 4, 5]])
    expected = base(ids).logits.detach()
    keep_model(tmp_path / "run", made, base)
    assert torch.equal(base(ids).logits, expected)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    assert (plain(ids).logits - expected).abs().max() > 0.01
    adapted = PeftModel.from_pretrained(plain, tmp_path / "run" / "adapter").eval()
    torch.testing.assert_close(adapted(ids).logits.detach(), expected)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    torch.testing.assert_close(merged(ids).logits.detach(), expected)
    keep_model(tmp_path / "whole", made, tiny.model(made, layers=1, width=16, heads=2))
    assert not (tmp_path / "whole" / "adapter").exists()


def test_what_a_tokenizer_does_not_know_is_refused_after_a_folder_too(tmp_path):
    made = tiny.tokenizer()
    keep_model(tmp_path, made, tiny.model(made, layers=1, width=16, heads=2))
    again, _ = loading.load(tmp_path / "model", "cpu")
    with pytest.raises(ValueError, match="holds characters that the tokenizer does not know"):
        encode(again, ["1+a="])
