"""The arithmetic of a run against what PyTorch counts, allocates and saves in real small ones."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from nbcourse.budget import machines, memory, prediction, prompts, shapes
from nbcourse.budget import plan as plans
from nbcourse.budget.machines import DATASHEETS, Machine
from nbcourse.budget.memory import checkpoint_bytes, sampling_bytes, standing_bytes
from nbcourse.budget.passes import (
    activation_bytes,
    cache_bytes,
    decoding_bytes,
    layer_flops,
    output_flops,
    scoring,
)
from nbcourse.budget.plan import Plan
from nbcourse.budget.prompts import prompt_lengths
from nbcourse.budget.shapes import PUBLISHED, Shape
from nbcourse.budget.work import sampling_work
from nbcourse.functional import surrogates
from nbcourse.lm import log_probs as taking
from nbcourse.lm import lora, sampling
from nbcourse.lm.cache import empty_cache
from nbcourse.lm.log_probs import rollout_log_probs, rollout_states
from nbcourse.lm.rollouts import Rollout, with_room
from nbcourse.training import diagnostics, halves, loop, models
from nbcourse.training.algorithms import ALGORITHMS
from nbcourse.training.experience import Experience, add_reference_and_values
from nbcourse.training.learner import CHUNKED_VOCABULARY, Learner, assemble
from nbcourse.training.models import reference_of
from nbcourse.training.recipe import Recipe, check, load
from nbcourse.training.update import Update
from tests.effort import swept
from tests.experiments.test_own_code import CODE, RECIPE
from tests.small import ALONE, base_recipe, recipe

SHAPES = {
    "shared keys": Shape(3, 64, 4, 2, 160, 300, tied=True),
    "own keys": Shape(2, 96, 4, 4, 200, 300, tied=True),
    "untied": Shape(2, 48, 6, 2, 100, 500, tied=False),
}
NAME = "Qwen/Qwen2.5-0.5B-Instruct"
PRECISIONS = ("float32", "bfloat16")
PROMPT, RESPONSE = 24, 40  # tokens
ROOMY = Machine("roomy", 1e15, 1e9, {"float32": 1e9, "bfloat16": 1e9})


def model(shape: Shape, attention: str = "sdpa"):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(
        shape.config(), dtype=torch.float32, attn_implementation=attention
    ).eval()


def rollout(shape: Shape, prompts: int, group_size: int, response: int = RESPONSE) -> Rollout:
    """Responses that all reach the limit; one prompt is shorter, so that there is a mask."""
    source, rows = torch.Generator().manual_seed(0), prompts * group_size
    ids = torch.randint(shape.vocabulary, (prompts, PROMPT), generator=source)
    mask = torch.ones(prompts, PROMPT, dtype=torch.bool)
    mask[0, :3] = False
    return Rollout(
        prompt_ids=ids.repeat_interleave(group_size, 0),
        prompt_mask=mask.repeat_interleave(group_size, 0),
        tokens=torch.randint(shape.vocabulary, (rows, response), generator=source),
        mask=torch.ones(rows, response, dtype=torch.bool),
        log_probs=torch.zeros(rows, response),
        truncated=torch.ones(rows, dtype=torch.bool),
    )


def autocast(precision: str):
    return torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")


def predicted(recipe: Recipe, shape: Shape, machine: Machine = ROOMY, **lengths):
    return prediction.predict(recipe, shape, machine, **{"prompt_tokens": PROMPT, **lengths})


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize(
    "shape", [shape for shape in (*SHAPES.values(), *PUBLISHED.values()) if shape.biased]
)
def test_parameters_are_those_that_transformers_makes(shape):
    with torch.device("meta"):
        real = AutoModelForCausalLM.from_config(shape.config())
    assert Shape.of(real.config) == shape
    assert shape.parameters == sum(parameter.numel() for parameter in real.parameters())


@pytest.mark.parametrize(("steps", "every"), [(25, 20), (20, 20), (101, 100), (3, 10), (1, 1)])
def test_evaluations_are_those_that_the_loop_makes(steps, every):
    asked = sum(step % every == 0 or step == steps for step in range(1, steps + 1))
    once, often = (
        predicted(
            recipe(steps=count, evaluation={"every": each, "problems": 8}), SHAPES["own keys"]
        ).work["evaluate"]
        for count, each in ((1, 1), (steps, every))
    )
    assert [x * steps for x in often] == pytest.approx([x * asked for x in once])


@pytest.mark.parametrize(
    ("steps", "every", "count"),
    # the first step, every so many, and the last
    [(25, 20, 3), (20, 20, 2), (101, 100, 3), (3, 10, 2), (2, 10, 2), (4, 1, 4), (1, 1, 1)],
)
def test_the_kl_of_the_log_is_shared_out_over_the_steps_that_measure_it(steps, every, count):
    asked = recipe(steps=steps, evaluation={"every": every, "problems": 8})
    assert sum(map(asked.measures_kl, range(1, steps + 1))) == count
    found = predicted(asked, SHAPES["own keys"]).work["ask reference"]
    always = recipe(steps=1, evaluation={"problems": 8})
    once = predicted(always, SHAPES["own keys"]).work["ask reference"]
    assert [x * steps for x in found] == pytest.approx([x * count for x in once])


def test_a_reference_that_learning_asks_is_asked_in_every_step():
    often, seldom = (
        predicted(
            recipe(steps=40, kl={"beta": 0.1}, evaluation={"every": every}), SHAPES["own keys"]
        ).work["ask reference"]
        for every in (1, 40)
    )
    assert often == seldom


def test_the_published_shapes_have_the_published_numbers_of_parameters():
    """Model cards: 0.49, 1.54, 0.49 and 0.135 billion; the files hold exactly these."""
    numbers = [shape.parameters for shape in PUBLISHED.values()]
    assert numbers == [494_032_768, 1_543_714_304, 494_032_768, 134_515_008]


def test_a_llama_has_no_biases():
    """SmolLM2-135M-Instruct: the numbers of its file, and of its model card."""
    wanted = PUBLISHED["smollm2"]
    llama = AutoConfig.for_model(
        "llama",
        num_hidden_layers=30,
        hidden_size=576,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=1536,
        vocab_size=49_152,
        tie_word_embeddings=True,
    )
    assert Shape.of(llama) == wanted
    assert wanted.parameters == 134_515_008


@pytest.mark.parametrize("shape", [*SHAPES.values(), *PUBLISHED.values()])
def test_a_configuration_has_the_shape_that_it_was_made_from(shape):
    config = shape.config(end=7)
    assert Shape.of(config) == shape
    assert (config.eos_token_id, config.pad_token_id) == (7, 7)


def test_a_model_of_a_shape_is_the_same_each_time_and_leaves_the_random_state_alone():
    shape, before = SHAPES["shared keys"], torch.get_rng_state()
    one, two = (shapes.random_model(shape, dtype=torch.bfloat16) for _ in range(2))
    assert torch.get_rng_state().equal(before)
    assert all(map(torch.equal, one.parameters(), two.parameters()))
    assert {p.dtype for p in one.parameters()} == {torch.bfloat16}
    assert one.num_parameters() == shape.parameters


def test_prompts_are_counted_once_for_recipes_that_read_the_same(monkeypatch, tmp_path):
    """Another seed, task or vocabulary is another text; so is a task whose file was edited."""
    monkeypatch.setattr(models, "TEXTS", 60)
    monkeypatch.setattr(prompts, "PROMPTS", 100)
    counted = []

    def rendered(*asked):
        counted.append(asked)
        return models.rendered(*asked)

    monkeypatch.setattr(prompts, "rendered", rendered)
    prompts._lengths.cache_clear()
    (tmp_path / "mine.toml").write_text(RECIPE, encoding="utf-8")
    changes = [
        {"pretraining": {"steps": 5}},
        {"seed": 3},
        {"task": {"max_steps": 1}},
        {"model": {"vocabulary": 310}},
    ]
    found = [prompt_lengths(base_recipe(**change)) for change in [{}, *changes]]
    assert len(counted) == 4
    assert found[0] == found[1]
    assert all(other != found[0] for other in found[2:])
    found[0].clear()
    assert prompt_lengths(base_recipe(**changes[2])) == found[3]
    for code in (CODE, f"{CODE}\n# edited\n"):
        (tmp_path / "mine.py").write_text(code, encoding="utf-8")
        prompt_lengths(load(tmp_path / "mine.toml"))
    assert len(counted) == 6


def test_another_architecture_is_refused():
    with pytest.raises(ValueError, match="model_type 'gpt2', expected 'qwen2' or 'llama'"):
        Shape.of(AutoConfig.for_model("gpt2"))


def test_the_shape_of_a_recipe_is_that_of_the_model_it_builds():
    small = recipe(model={"layers": 3, "width": 32, "heads": 4})
    assert shapes.shape_of(small) == Shape(3, 32, 4, 4, 128, 17, tied=True)


def test_the_shape_of_a_folder_is_read_from_its_config(tmp_path):
    SHAPES["untied"].config().save_pretrained(tmp_path)
    asked = check({**recipe().model_dump(), "model": {"source": str(tmp_path)}}, complete=True)
    assert shapes.shape_of(asked) == SHAPES["untied"]


def test_a_published_shape_is_known_without_a_download():
    asked = check({"steps": 1, "algorithm": {"name": "grpo"}, "model": {"source": NAME}})
    assert shapes.shape_of(asked) is PUBLISHED[NAME]


# ---------------------------------------------------------------- the pieces


def allocated(work: Callable[[], object]) -> list[int]:
    """Bytes that the allocator has out, more than before, after each thing it does."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    return list(accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))


def counting() -> FlopCounterMode:
    """PyTorch's counter, told of the product that adds in place, which it does not know."""

    def flops(total, left, right, **_) -> int:
        return 2 * left[0] * left[1] * right[1]

    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: flops})


@pytest.fixture(autouse=True)
def few_weights_of_halves(monkeypatch):
    """Of a batch's halves 12 MB are kept at most, which no plan counts: here that would be much."""
    monkeypatch.setattr(halves, "MOST", 2**10)


@pytest.fixture
def keeping(monkeypatch):
    """keeping(count): logits of at most so many bytes are kept for the backward pass."""

    def keep(count: int) -> None:
        for module in (taking, memory):
            monkeypatch.setattr(module, "KEPT", count)

    return keep


@pytest.mark.parametrize("group_size", [1, 4])
@pytest.mark.parametrize(
    ("chunked", "again"), [(False, False), (True, False), (True, True)], ids=str
)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_flops_are_those_that_pytorch_counts_there_and_back(
    shape, chunked, again, group_size, keeping
):
    """Eager attention, whose products the counter sees; logits in pieces are computed twice."""
    if again:
        keeping(0)
    real, batch = model(shape, "eager"), rollout(shape, 3, group_size)
    with counting() as there:
        log_probs = rollout_log_probs(real, batch, chunked=chunked, group_size=group_size)
    with counting() as back:
        log_probs.sum().backward()
    passes = scoring(3, group_size, PROMPT, RESPONSE, chunked=chunked)
    layers = sum(layer_flops(shape, forward) for forward in passes)
    output = sum(output_flops(shape, forward) for forward in passes)
    assert there.get_total_flops() == layers + output
    assert back.get_total_flops() == 2 * layers + (3 if again else 2) * output


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_cache_holds_as_many_bytes_as_its_tensors(shape, precision):
    """The sampler's in the precision of the products; transformers' own in float32, always."""
    real, tokens = model(shape), torch.zeros(5, 9, dtype=torch.long)
    ours = empty_cache(real)
    with torch.no_grad(), autocast(precision):
        real(tokens, past_key_values=ours, use_cache=True)
        theirs = real(tokens, use_cache=True).past_key_values
    assert cache_bytes(shape, 5, 9, precision) == held(ours)
    assert cache_bytes(shape, 5, 9, "float32") == held(theirs)
    rooms = sum(x.nbytes for layer in ours.layers for x in layer.room)
    assert cache_bytes(shape, 5, with_room(9), precision) == rooms


def test_what_vllm_would_need_is_not_predicted():
    chosen = recipe(rollouts={"engine": "vllm"})
    with pytest.raises(
        ValueError, match=r"rollouts\.engine is 'vllm', and only this package's own"
    ):
        prediction.predict(chosen, SHAPES["shared keys"], DATASHEETS["H200"], prompt_tokens=6)


@pytest.mark.parametrize("engine", ["eager", "static", "static-graphs"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_each_engine_s_cache_has_at_its_largest_the_bytes_foreseen(engine, precision):
    """Of 24 + 49 − 1 columns: the next multiple of 8, or of 64 where shapes are fixed."""
    shape = SHAPES["shared keys"]
    sizes = {"prompts": 2, "group_size": 3, "max_new_tokens": 49, "engine": engine}
    learner, _, plan = setting(shape, model={"precision": precision}, rollouts=sizes)
    seen = []

    def watch(module, args, inputs, output):
        rooms = (getattr(x, "room", (x.keys, x.values)) for x in output.past_key_values.layers)
        seen.append(sum(x.nbytes for room in rooms for x in room))

    learner.policy.register_forward_hook(watch, with_kwargs=True)
    drawing(learner)()
    columns = 72 if engine == "eager" else 128
    assert max(seen) == cache_bytes(shape, 6, columns, precision)
    foreseen = sampling_bytes(plan, 2, 3)
    assert foreseen["keys and values"] == max(seen)


def held(cache) -> int:
    return sum(x.nbytes for layer in cache.layers for x in (layer.keys, layer.values))


class WeightsRead(torch.utils._python_dispatch.TorchDispatchMode):
    """Adds up the bytes of the matrices by which activations are multiplied."""

    moved = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self.moved += args[-1].nbytes
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_one_more_token_moves_the_weights_the_cache_and_the_logits(shape, precision):
    real, token = model(shape), torch.zeros(5, 1, dtype=torch.long)
    with torch.no_grad(), autocast(precision):
        cache = empty_cache(real)
        real(token.expand(5, 9), past_key_values=cache, use_cache=True)
        with WeightsRead() as weights:
            logits = real(token, past_key_values=cache, use_cache=True).logits
    measured = weights.moved + held(cache) + 2 * logits.nbytes
    assert decoding_bytes(shape, 5, 10, precision) == measured


def saved_bytes(real, compute: Callable[[], object]) -> int:
    """Bytes that autograd keeps, apart from the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in real.parameters()}
    found = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage  # kept alive, or its address is used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        compute()
    return sum(storage.nbytes() for storage in found.values())


@pytest.mark.parametrize("group_size", [1, 4])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_activations_are_what_autograd_keeps(shape, precision, group_size):
    """All but the output of the last norm, which only the output matrix keeps: width · size."""
    real, batch = model(shape), rollout(shape, 3, group_size)
    with autocast(precision):
        measured = saved_bytes(real, lambda: rollout_states(real, batch, group_size=group_size))
    if precision == "bfloat16":  # autocast's copies of the weights
        measured -= 2 * shape.layers * shape.layer_matrices
    foreseen = sum(
        activation_bytes(shape, forward, precision)
        - forward.tokens * shape.width * machines.BYTES[precision]
        for forward in scoring(3, group_size, PROMPT, RESPONSE)
    )
    assert foreseen == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_with_checkpointing_only_the_inputs_of_layers_are_kept(precision):
    """What the allocator still has out when the way there is done, the states in float32."""
    shape = Shape(12, 64, 4, 2, 160, 300, tied=True)
    real, batch, states = model(shape), rollout(shape, 6, 1), []
    real.activation_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    real.train()

    def there():
        with autocast(precision):
            states.append(rollout_states(real, batch))

    (forward,) = scoring(6, 1, PROMPT, RESPONSE)
    foreseen = activation_bytes(shape, forward, precision, checkpointing=True)
    foreseen += forward.tokens * shape.width * (4 - machines.BYTES[precision])
    assert foreseen == pytest.approx(allocated(there)[-1], rel=0.03)


# ---------------------------------------------------------------- phases of a step


class NeverEnds:
    """A tokenizer whose end-of-sequence token the model does not know."""

    eos_token_id, unk_token_id = 10**6, None

    def __call__(self, texts, add_special_tokens):
        return SimpleNamespace(input_ids=[[1] * PROMPT for _ in texts])


def setting(shape: Shape, name: str = "grpo", **sections) -> tuple[Learner, Experience, Plan]:
    """A learner with a real model of this shape, a batch for it, and the plan for both."""
    sections = {
        "rollouts": {"prompts": 6, "group_size": 4, "max_new_tokens": RESPONSE},
        "kl": {"beta": 0.1, "placement": "loss"},
        **sections,
    }
    asked = recipe(name, **sections)
    policy = model(shape)
    if rank := asked.model.lora_rank:
        lora.add(policy, rank=rank, seed=0)
    if asked.model.gradient_checkpointing:
        policy.activation_checkpointing_enable({"use_reentrant": False})
    learner = assemble(asked, None, policy, reference_of(policy))
    prompts, group_size = asked.rollouts.prompts, asked.rollouts.group_size
    scores = torch.randn(prompts * group_size, generator=torch.Generator().manual_seed(0))
    responses = rollout(shape, prompts, group_size, asked.rollouts.max_new_tokens)
    batch = Experience(responses, scores, scores)
    return learner, batch, Plan(asked, shape, PROMPT)


def learning(learner: Learner, batch: Experience) -> Callable[[], object]:
    """What a step does once reference and critic have answered."""
    recipe = learner.recipe
    batch = add_reference_and_values(learner, batch, ALONE, reference=True)
    estimate = recipe.row.estimate(
        recipe.settings,
        rewards=batch.rewards(recipe.penalty),
        mask=batch.rollout.mask,
        values=batch.values,
        group_size=recipe.rollouts.group_size,
        greedy_scores=None,
        average=0.0,
    )
    return partial(loop.learn, Update(learner, batch, estimate, recipe.penalty, ALONE), 0)


def drawing(learner: Learner) -> Callable[[], object]:
    """Sampling responses that all reach the limit."""
    settings = learner.recipe.rollouts

    def draw() -> None:
        with learner.precision():
            sampling.sample(
                learner.policy,
                NeverEnds(),
                ["?"] * settings.prompts,
                max_new_tokens=settings.max_new_tokens,
                group_size=settings.group_size,
                generator=torch.Generator().manual_seed(0),
                engine=settings.engine,
            )

    return draw


LARGE = Shape(3, 128, 4, 2, 160, CHUNKED_VOCABULARY, tied=False)
ONE = {"prompts_at_once": 1}
STATIC = {"prompts": 6, "group_size": 4, "max_new_tokens": RESPONSE, "engine": "static"}
TWICE = {"gradient_checkpointing": True}
ADAPTER = {"lora_rank": 8}
HALF = {"precision": "bfloat16"}
EXACT = {"beta": 0.1, "placement": "surrogate", "estimator": "exact"}
CASES = {
    "plain": (SHAPES["shared keys"], "grpo", {}),
    "bfloat16": (SHAPES["shared keys"], "grpo", {"model": {"precision": "bfloat16"}}),
    "whole logits": (Shape(3, 64, 4, 2, 160, 9000, tied=True), "grpo", {}),
    "chunked": (LARGE, "grpo", {"optimiser": ONE}),
    "chunked, bfloat16": (LARGE, "grpo", {"model": {"precision": "bfloat16"}, "optimiser": ONE}),
    "slices": (SHAPES["untied"], "grpo", {"optimiser": {"prompts_at_once": 2}}),
    "shared critic": (SHAPES["own keys"], "ppo", {}),
    "own critic": (SHAPES["own keys"], "ppo", {"critic": {"shared": False}}),
    "checkpointing": (Shape(8, 64, 4, 2, 160, 300, tied=True), "grpo", {"model": TWICE}),
    "checkpointing, chunked": (
        Shape(8, 64, 4, 2, 160, CHUNKED_VOCABULARY, tied=True),
        "grpo",
        {"model": TWICE},
    ),
    "exact KL": (SHAPES["shared keys"], "grpo", {"kl": EXACT}),
    "exact KL, chunked": (LARGE, "grpo", {"kl": EXACT, "optimiser": ONE}),
    "exact KL, bfloat16": (
        LARGE,
        "grpo",
        {"kl": EXACT, "model": {"precision": "bfloat16"}, "optimiser": ONE},
    ),
    "exact KL, checkpointing": (
        Shape(8, 64, 4, 2, 160, CHUNKED_VOCABULARY, tied=True),
        "grpo",
        {"kl": EXACT, "model": TWICE},
    ),
    "adapter": (SHAPES["shared keys"], "grpo", {"model": ADAPTER}),
    "adapter, bfloat16": (SHAPES["shared keys"], "grpo", {"model": ADAPTER | HALF}),
    "adapter, chunked": (LARGE, "grpo", {"model": ADAPTER, "optimiser": ONE}),
    "adapter, chunked, bfloat16": (
        LARGE,
        "grpo",
        {"model": ADAPTER | HALF, "optimiser": ONE},
    ),
    "adapter, checkpointing": (
        Shape(8, 64, 4, 2, 160, 300, tied=True),
        "grpo",
        {"model": ADAPTER | TWICE},
    ),
    "adapter, shared critic": (SHAPES["own keys"], "ppo", {"model": ADAPTER}),
    "adapter, own critic": (
        SHAPES["own keys"],
        "ppo",
        {"model": ADAPTER, "critic": {"shared": False}},
    ),
    "adapter, exact KL": (SHAPES["shared keys"], "grpo", {"model": ADAPTER, "kl": EXACT}),
    "no groups": (
        SHAPES["shared keys"],
        "reinforce",
        {"rollouts": {"prompts": 24, "group_size": 1, "max_new_tokens": RESPONSE}},
    ),
}
CASES |= {
    f"{name}, in pieces": case
    for name, case in CASES.items()
    if name in ("shared critic", "adapter, shared critic") or "chunked" in name or "exact" in name
}


PEAKS = {
    **CASES,
    "static": (SHAPES["shared keys"], "grpo", {"rollouts": STATIC}),
    "static, bfloat16": (
        SHAPES["shared keys"],
        "grpo",
        {"rollouts": STATIC, "model": {"precision": "bfloat16"}},
    ),
    "packed": (SHAPES["untied"], "grpo", {"rollouts": STATIC | {"engine": "packed"}}),
    "packed layers": (SHAPES["untied"], "grpo", {"model": {"forward": "packed"}}),
    "packed layers, bfloat16": (
        SHAPES["shared keys"],
        "grpo",
        {"model": {"forward": "packed", "precision": "bfloat16"}},
    ),
    "packed layers, chunked": (LARGE, "grpo", {"model": {"forward": "packed"}, "optimiser": ONE}),
    "packed, bfloat16": (
        SHAPES["shared keys"],
        "grpo",
        {"rollouts": STATIC | {"engine": "packed"}, "model": {"precision": "bfloat16"}},
    ),
}


@pytest.mark.parametrize(
    "case",
    swept(
        PEAKS,
        keep=[
            *("plain", "static", "packed", "chunked, in pieces", "own critic"),
            "packed layers, bfloat16",
            *("adapter, bfloat16", "adapter, checkpointing"),
        ],
    ),
)
def test_the_peak_of_each_phase_is_what_the_allocator_sees(case, keeping):
    """Within an eighth, and a fourteenth while learning if all activations are kept.

    Packed layers are planned as those of transformers, and keep a little less.

    What is not counted are vectors and the kernels' own small buffers.
    """
    if "in pieces" in case:
        keeping(0)
    shape, name, sections = PEAKS[case]
    learner, batch, plan = setting(shape, name, **sections)
    memory = predicted(plan.recipe, shape).memory
    standing = sum(standing_bytes(plan).values())
    foreseen = {phase: sum(owners.values()) - standing for phase, owners in memory.items()}

    assert foreseen["sample"] == pytest.approx(max(allocated(drawing(learner))), rel=1 / 8)
    asking = partial(add_reference_and_values, learner, batch, ALONE, reference=True)
    assert foreseen["consult"] == pytest.approx(max(allocated(asking)), rel=1 / 8)
    update = learning(learner, batch)
    update()  # makes the moments
    for _, parameter in learner.trained():
        parameter.grad = None
    gradients = sum(parameter.nbytes for _, parameter in learner.trained())
    kept = not plan.checkpointing and plan.recipe.model.forward == "transformers"
    tolerance = 1 / 14 if kept else 1 / 8
    assert foreseen["learn"] + gradients == pytest.approx(max(allocated(update)), rel=tolerance)


@pytest.mark.parametrize("shared", [True, False])
def test_a_critic_that_is_asked_without_a_reference_needs_no_logits(shared):
    """Those that there are belong to the log's KL, which looks at one response of each group."""
    sections = {"critic": {"shared": shared}, "kl": {"beta": 0.0}}
    learner, batch, plan = setting(Shape(3, 64, 4, 2, 160, 9000, tied=True), "ppo", **sections)

    def consult() -> None:
        add_reference_and_values(learner, batch, ALONE, reference=False)
        diagnostics.kl_to_reference(learner, batch)

    memory = predicted(plan.recipe, plan.shape).memory
    foreseen = sum(memory["consult"].values()) - sum(standing_bytes(plan).values())
    assert foreseen == pytest.approx(max(allocated(consult)), rel=1 / 8)


@pytest.mark.parametrize(
    ("case", "times"),
    swept(
        [
            (case, times)
            for case in ("chunked", "chunked, bfloat16", "exact KL, chunked")
            for times in (3, 30)
        ],
        keep=[("chunked", 30), ("exact KL, chunked", 3)],
    ),
)
def test_the_larger_pieces_of_a_card_are_counted(case, times, keeping, monkeypatch):
    """Without a card: pieces are made as large as there, of some rows or of all."""
    keeping(0)
    for module in (taking, plans):
        monkeypatch.setattr(module, "ON_A_CARD", times)
    monkeypatch.setattr(taking, "_piece", lambda _: times * taking.CHUNK)
    shape, name, sections = PEAKS[case]
    learner, batch, plan = setting(shape, name, **{**sections, "optimiser": {"prompts_at_once": 3}})
    update = learning(learner, batch)
    update()  # makes the moments
    for _, parameter in learner.trained():
        parameter.grad = None
    gradients = sum(parameter.nbytes for _, parameter in learner.trained())
    standing = sum(standing_bytes(plan).values())
    measured = max(allocated(update)) - gradients + standing
    on_a_card = predicted(plan.recipe, shape, replace(ROOMY, card=True)).peaks["learn"]
    assert on_a_card == pytest.approx(measured, rel=1 / 14)


STANDING = ("plain", "bfloat16", "whole logits", "slices", "shared critic", "own critic")
STANDING += ("checkpointing", "no groups", "adapter", "adapter, own critic")


@pytest.mark.parametrize("case", swept(CASES, keep=STANDING))
def test_the_standing_bytes_are_those_of_the_models_and_the_optimiser(case):
    """AdamW also keeps a step counter of 4 bytes for each tensor, which is left out."""
    shape, name, sections = CASES[case]
    learner, batch, plan = setting(shape, name, **sections)
    learning(learner, batch)()
    trained = [parameter for _, parameter in learner.trained()]
    moments = [x for state in learner.optimiser.state.values() for x in state.values() if x.dim()]
    modules = [learner.policy, learner.reference, *filter(None, [learner.critic])]
    weights = {parameter for module in modules for parameter in module.parameters()}
    measured = sum(x.nbytes for x in [*weights, *(x.grad for x in trained), *moments])
    assert sum(standing_bytes(plan).values()) == measured
    kept = sum(x.nbytes for x in [*trained, *moments])
    assert checkpoint_bytes(plan) == kept


def test_a_reward_model_stands_beside_the_others():
    """One backbone and a head of width + 1, frozen: 4 bytes each."""
    shape = SHAPES["own keys"]
    asked = recipe(reward={"source": "reward_model"})
    owners = standing_bytes(Plan(asked, shape, PROMPT))
    assert owners["reward model"] == 4 * (shape.parameters + 97)


EAGER = {
    **CASES,
    "epochs and minibatches": (
        SHAPES["shared keys"],
        "grpo",
        {"optimiser": {"epochs": 2, "minibatches": 3}},
    ),
}


@pytest.mark.parametrize(
    "case",
    swept(
        EAGER,
        keep=[
            *("bfloat16", "shared critic", "epochs and minibatches", "no groups"),
            *("adapter, shared critic", "adapter, checkpointing"),
        ],
    ),
)
def test_the_work_of_a_step_is_what_pytorch_counts(case, keeping):
    """Products of value heads, width · 1, are left out: less than two thousandths in all.

    The counter looks at every operation: a dozen tokens, a layer or two, and it has seen each kind.
    """
    if "in pieces" in case:
        keeping(0)
    shape, name, sections = EAGER[case]
    sizes = {"prompts": 6, "group_size": 4, **sections.get("rollouts", {}), "max_new_tokens": 12}
    shape, sections = replace(shape, layers=min(shape.layers, 2)), {**sections, "rollouts": sizes}
    learner, batch, plan = setting(shape, name, **sections)
    for real in (learner.policy, learner.reference, getattr(learner.critic, "backbone", None)):
        if real is not None:
            real.set_attn_implementation("eager")
    work = predicted(plan.recipe, shape).work
    with counting() as seen:
        drawing(learner)()
    drawn = work["read prompts"].flops + work["draw tokens"].flops
    assert drawn == seen.get_total_flops()
    with counting() as seen:
        learner.ref_log_probs(batch.rollout, group_size=plan.recipe.rollouts.group_size)
    assert work["ask reference"].flops == seen.get_total_flops()
    if learner.critic is not None:
        with counting() as seen:
            learner.values(batch.rollout, group_size=plan.recipe.rollouts.group_size)
        assert work["ask critic"].flops == pytest.approx(seen.get_total_flops(), rel=2e-3)
    update = learning(learner, batch)
    with counting() as seen:
        update()
    assert work["learn"].flops == pytest.approx(seen.get_total_flops(), rel=2e-3)


# ---------------------------------------------------------------- machine and roofline


def test_the_roofline_is_the_slower_of_computing_and_moving():
    machine = Machine("m", 1, bandwidth=10.0, speed={"float32": 100.0, "bfloat16": 400.0})
    assert machines.roofline(1000, 50, machine) == 10.0  # 1000 / 100 > 50 / 10
    assert machines.roofline(1000, 500, machine) == 50.0
    assert machines.roofline(1000, 0, machine, "bfloat16") == 2.5


def test_a_machine_is_measured_by_what_it_does_in_the_seconds_it_takes(monkeypatch):
    """With a clock that says half a second to whatever is done."""
    asked = []

    def half_a_second(work, device, lasting=0.1):
        with counting() as seen:
            done = work()
        asked.append((done, seen.get_total_flops()))
        return 0.5

    monkeypatch.setattr(machines, "shortest", half_a_second)
    machine = machines.measure("cpu")
    (copy, _), *products = asked
    assert machine.bandwidth == 2 * copy.nbytes / 0.5  # read once and written once
    tried, timed = products[::2], products[1::2]  # each first, whether it takes long enough
    assert list(machine.speed.values()) == [flops / 0.5 for _, flops in timed]
    assert [f"torch.{name}" for name in machine.speed] == [str(p.dtype) for p, _ in timed]
    assert [flops for _, flops in tried] == [flops for _, flops in timed]
    assert machine.memory > 1e9


def test_this_machine_is_measured_once_and_a_speed_when_it_is_asked_for(monkeypatch):
    """Also that of a precision which another run had."""
    asked = []
    speed = {"float32": 4e9, "bfloat16": 1e9}
    monkeypatch.setattr(
        machines, "product_speed", lambda name, _: asked.append(name) or speed[name]
    )
    monkeypatch.setattr(machines, "this_machine", cache(machines.this_machine.__wrapped__))
    here = machines.this_machine()
    assert not asked
    assert here.bandwidth > 1e8
    for _ in range(2):
        assert machines.roofline(1e9, 0, machines.this_machine(), "bfloat16") == 1.0
    assert asdict(here)["speed"] == {"bfloat16": 1e9}
    assert machines.slower_than_float32("bfloat16") == 4.0
    assert asked == ["bfloat16", "float32"]


def test_products_are_as_large_as_a_clock_wants_them(monkeypatch):
    """2 · 256³ FLOPs take 34 ms at 1 GFLOP/s and 3 ms at 10, where 2 · 512³ take 27.

    What is too small is tried and not timed for long.
    """
    sizes, timed = [], []

    def at(speed):
        def seconds(work, device, lasting=0.1):
            (timed if lasting else sizes).append(len(work.args[0]))
            return 2 * len(work.args[0]) ** 3 / speed

        monkeypatch.setattr(machines, "shortest", seconds)
        return machines.product_speed("float32", torch.device("cpu"))

    assert at(1e9) == pytest.approx(1e9)
    assert at(10e9) == pytest.approx(10e9)
    assert sizes == [256, 256, 512]
    assert timed == [256, 512]


def test_the_shortest_of_several_runs_counts_and_enough_of_them_are_made(monkeypatch):
    """Each run reads the clock before and after; here they take 5, 1, 3 and 1 seconds."""
    times = iter([0.0, 5.0, 6.0, 7.0, 8.0, 11.0, 12.0, 13.0])
    monkeypatch.setattr(machines, "_clock", lambda device: lambda: next(times))
    runs = []
    assert machines.shortest(lambda: runs.append(1), torch.device("cpu"), lasting=9.5) == 1.0
    assert len(runs) == 4
    times = iter([0.0, 5.0, 6.0, 7.0, 8.0, 11.0])
    assert machines.shortest(lambda: runs.append(1), torch.device("cpu"), lasting=0.1) == 1.0
    assert len(runs) == 7  # three at least


def test_what_other_programs_take_of_a_processor_does_not_make_it_slower(monkeypatch):
    """A clock on the wall that stands at a thousand seconds more whenever it is read."""
    times = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(machines, "perf_counter", lambda: next(times))
    assert machines.product_speed("float32", torch.device("cpu")) > 1e8


@pytest.mark.parametrize(
    ("generation", "precision"),
    [(None, "float32"), (7, "float16"), (8, "bfloat16"), (9, "bfloat16")],
    ids=["CPU", "T4", "A100", "H100"],
)
def test_the_precision_is_the_fastest_that_the_machine_multiplies_itself(
    generation, precision, monkeypatch
):
    """By CUDA's compute capability; every card takes tensors of bfloat16, as PyTorch says."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: generation is not None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda device: True)
    card = SimpleNamespace(major=generation)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    assert machines.best_precision() == precision


@pytest.mark.parametrize("machine", DATASHEETS.values(), ids=DATASHEETS)
def test_a_datasheet_has_plausible_units(machine):
    """16 to 200 GB, each read once in 10 to 100 ms; 8 to 1000 TFLOP/s."""
    assert 16e9 <= machine.memory <= 200e9
    assert 0.01 < machine.memory / machine.bandwidth < 0.1
    assert 8e12 < machine.speed["float32"] <= machine.speed["bfloat16"] < 1e15


# ---------------------------------------------------------------- the answer

HALF_BILLION = PUBLISHED[NAME]
SMALL_GPU = DATASHEETS["RTX 4090"]


def on_a_gpu(name: str = "grpo", **sections) -> Recipe:
    """512 responses of up to 512 tokens to each batch of prompts."""
    sections = {
        "model": {"precision": "bfloat16"},
        "rollouts": {"prompts": 64, "group_size": 8, "max_new_tokens": 512},
        "optimiser": {"prompts_at_once": 4},
        "kl": {"beta": 0.01, "placement": "loss"},
        "evaluation": {"problems": 8},
        **sections,
    }
    return recipe(name, **sections)


def test_sixteen_bytes_for_each_parameter_and_four_for_the_reference():
    owners = standing_bytes(Plan(on_a_gpu(), HALF_BILLION, 200))
    assert sum(owners.values()) == 20 * 494_032_768


def test_what_fits_is_said_to_fit():
    answer = predicted(on_a_gpu(), HALF_BILLION, DATASHEETS["H200"], prompt_tokens=200)
    assert answer.fits
    assert answer.verdict.startswith("fits: ")
    assert "GB of 141 GB in phase 'learn'" in answer.verdict


def test_what_does_not_fit_is_said_with_its_largest_item():
    answer = predicted(on_a_gpu(), HALF_BILLION, SMALL_GPU, prompt_tokens=200)
    assert not answer.fits
    assert "does not fit: " in answer.verdict
    assert "largest item is activations" in answer.verdict


@pytest.mark.parametrize(("section", "phase"), [("rollouts", "sample"), ("optimiser", "learn")])
def test_the_advised_setting_is_the_largest_that_fits(section, phase):
    machine = Machine("m", 22.5e9, 1e9, SMALL_GPU.speed)
    advice = predicted(on_a_gpu(), HALF_BILLION, machine, prompt_tokens=200).verdict
    (found,) = re.findall(rf"lower {section}.prompts_at_once to (\d+)", advice)

    def needed(prompts: int) -> int:
        limits = {"prompts": 64, "group_size": 8, "max_new_tokens": 512}
        own = {"prompts_at_once": prompts, **(limits if section == "rollouts" else {})}
        asked = on_a_gpu(**{section: own})
        peaks = predicted(asked, HALF_BILLION, machine, prompt_tokens=200).peaks
        return max(peaks["sample"], peaks["consult"]) if phase == "sample" else peaks["learn"]

    assert needed(int(found)) <= machine.memory < needed(int(found) + 1)


def test_no_setting_is_advised_where_none_helps():
    machine = Machine("m", 8e9, 1e9, SMALL_GPU.speed)  # less than the 9.9 GB that stand
    answer = predicted(on_a_gpu(), HALF_BILLION, machine, prompt_tokens=200)
    assert "rollouts.prompts_at_once = 1 is still too much" in answer.verdict
    assert "optimiser.prompts_at_once = 1 is still too much" in answer.verdict


def test_an_evaluation_that_is_too_large_is_not_blamed_on_the_slices():
    greedy = on_a_gpu(
        model={"precision": "bfloat16"} | TWICE,
        rollouts={"prompts": 64, "group_size": 8, "max_new_tokens": 512, "prompts_at_once": 1},
        optimiser={"prompts_at_once": 1},
        evaluation={"problems": 512},
    )
    machine = Machine("m", 16.5e9, 1e9, SMALL_GPU.speed)
    answer = predicted(greedy, HALF_BILLION, machine, prompt_tokens=200)
    assert "in phase 'evaluate'" in answer.verdict
    assert "lower evaluation.problems to" in answer.verdict


def test_without_a_kl_penalty_the_reference_sees_one_response_of_each_group():
    """For the log's KL, with or without a critic."""
    without = predicted(recipe("dr-grpo"), SHAPES["own keys"])
    assert list(without.memory) == ["sample", "consult", "learn", "evaluate"]
    penalised = predicted(
        recipe("dr-grpo", kl={"beta": 0.1, "placement": "loss"}), SHAPES["own keys"]
    )
    one_of_each, all_of_them = (x.work["ask reference"].flops for x in (without, penalised))
    assert 0 < one_of_each < all_of_them
    assert "ask critic" not in without.work
    critic = predicted(recipe("ppo"), SHAPES["own keys"])
    assert critic.work["ask reference"].flops > 0
    assert critic.work["ask critic"].flops > 0


def test_a_row_that_asks_for_the_reference_costs_as_much_as_a_kl_penalty(monkeypatch):
    """RLOO's passes, whether the penalty or the surrogate wants the reference's log-probs."""

    def near(log_probs, advantages, ref_log_probs):
        return surrogates.policy_gradient(log_probs, advantages)

    row = replace(ALGORITHMS["rloo"], surrogate=near, source="here")
    monkeypatch.setitem(ALGORITHMS, "near", row)
    asking = predicted(recipe("near"), SHAPES["own keys"])
    kl = {"beta": 0.1, "placement": "loss"}
    penalised = predicted(recipe("rloo", kl=kl), SHAPES["own keys"])
    assert asking.work["ask reference"] == penalised.work["ask reference"]
    assert asking.peaks["consult"] == penalised.peaks["consult"]


@pytest.mark.parametrize("prompts", [8, 32])
@pytest.mark.parametrize("at_once", [2, None])
def test_the_memory_of_the_logs_kl_is_that_of_the_plan(prompts, at_once):
    """Bounded by the micro-batch, however many prompts there are."""
    sizes = {"prompts": prompts, "group_size": 4, "max_new_tokens": RESPONSE}
    sections = {"rollouts": sizes, "kl": {}, "optimiser": {"prompts_at_once": at_once}}
    learner, batch, plan = setting(SHAPES["shared keys"], **sections)
    memory = predicted(plan.recipe, plan.shape).memory
    standing = sum(standing_bytes(plan).values())
    foreseen = {phase: sum(owners.values()) - standing for phase, owners in memory.items()}
    measured = max(allocated(partial(diagnostics.kl_to_reference, learner, batch)))
    assert foreseen["consult"] == pytest.approx(measured, rel=1 / 8)
    assert foreseen["consult"] < foreseen["learn"]


def test_a_greedy_baseline_draws_once_more_for_each_prompt():
    asked = recipe("remax", rollouts={"prompts": 6, "group_size": 1, "max_new_tokens": 4})
    work = predicted(asked, SHAPES["own keys"]).work
    drawn = work["read prompts"].flops + work["draw tokens"].flops
    assert work["draw greedily"].flops == drawn


def test_evaluation_is_shared_out_over_the_steps_between():
    """8 greedy responses every 10 steps, where a step draws 6 · 4 by the same passes."""
    asked = recipe(steps=100, evaluation={"problems": 6, "every": 10})
    work = predicted(asked, SHAPES["own keys"]).work
    alone = sampling_work(Plan(asked, SHAPES["own keys"], PROMPT), 6, 1, 4)
    assert 10 * work["evaluate"].flops == pytest.approx(sum(w.flops for w in alone.values()))
    assert 10 * work["evaluate"].moved == pytest.approx(sum(w.moved for w in alone.values()))


def test_bytes_moved_by_hand():
    """A shape and a plan so small that each term can be written down.

    W = 48 with 6 heads of 8, 2 of them for keys: 16 numbers in a key. A layer has
    2 · 48 · (48 + 16) + 3 · 48 · 100 = 20,544 weights, two of them and the output matrix
    500 · 48 = 24,000 make 65,088. P = 24, T = 4, 6 prompts of 4 responses.
    """
    shape = SHAPES["untied"]
    asked = recipe(
        rollouts={"prompts": 6, "group_size": 4, "max_new_tokens": 4, "prompts_at_once": 3},
        kl={"beta": 0.1},
        optimiser={"minibatches": 2, "prompts_at_once": 2},
    )
    work = predicted(asked, shape).work
    token = 2 * 2 * 16 * 4  # keys and values of a token: two layers, float32
    assert work["read prompts"].moved == 2 * 4 * 65_088 + 6 * 24 * token
    cache = sum(24 * columns * token for columns in (25, 26, 27))
    logits = 3 * 24 * 500 * 4 * 2
    assert work["draw tokens"].moved == 3 * 2 * 4 * 65_088 + cache + logits
    # Two parts, in each of which the prompts and then the responses run through the model.
    assert work["ask reference"].moved == 2 * 2 * 4 * 65_088
    kept = sum(activation_bytes(shape, forward, "float32") for forward in scoring(6, 4, PROMPT, 4))
    # Two minibatches of 3 prompts, each in slices of 2 and of 1.
    slices = 4 * (3 * 4 * 65_088 + 8 * shape.parameters)
    slices += 4 * 4 * 65_088  # each reads the weights once more, before the first update
    assert work["learn"].moved == 2 * kept + slices
    assert work["update weights"] == (0, 2 * 28 * shape.parameters)


def test_bytes_moved_with_an_adapter_by_hand():
    """The same shape in bfloat16, with an adapter of rank 8 beside each matrix of both layers.

    Of a layer: 8 · (96 + 64 + 64 + 96 + 3 · 148) = 6,112 weights, of both 12,224. Autocast reads a
    matrix that does not learn in 4 bytes, writes 2 and reads 2; only the sampler keeps its copies.
    """
    shape = SHAPES["untied"]
    sizes = {"prompts": 6, "group_size": 4, "max_new_tokens": 1}
    asked = recipe(model=ADAPTER | HALF, rollouts=sizes, kl={"beta": 0.1})
    work = predicted(asked, shape).work
    token = 2 * 2 * 16 * 2
    assert work["read prompts"].moved == 2 * (65_088 + 12_224) + 6 * 24 * token
    assert work["ask reference"].moved == 2 * 8 * 65_088
    with_adapter = replace(shape, rank=8)
    kept = sum(
        activation_bytes(with_adapter, forward, "bfloat16") for forward in scoring(6, 4, PROMPT, 1)
    )
    there = 8 * 65_088 + 2 * 12_224
    back = 2 * (65_088 + 2 * 12_224)  # each is read, and the adapter's gradient written
    assert work["learn"].moved == 2 * kept + there + back + 8 * 12_224
    assert work["update weights"] == (0, 28 * 12_224)


def test_shorter_responses_cost_less_time_and_as_much_memory():
    longest = predicted(on_a_gpu(), HALF_BILLION)
    shorter = predicted(on_a_gpu(), HALF_BILLION, response_tokens=100)
    assert shorter.memory == longest.memory
    assert shorter.hours < longest.hours / 3


def test_seconds_and_hours_add_up():
    machine = DATASHEETS["A100-80GB"]
    answer = predicted(on_a_gpu(steps=30), HALF_BILLION, machine, prompt_tokens=200)
    for part, work in answer.work.items():
        slowest = max(work.flops / 312e12, work.moved / 2039e9)
        assert answer.seconds[part] == pytest.approx(slowest)
    assert answer.hours == pytest.approx(30 * sum(answer.seconds.values()) / 3600)


@pytest.mark.parametrize("tokens", [0, 513])
def test_a_response_length_that_cannot_be_is_refused(tokens):
    with pytest.raises(ValueError, match=f"response_tokens is {tokens}, expected 1 to .* = 512"):
        predicted(on_a_gpu(), HALF_BILLION, response_tokens=tokens)


def test_a_prompt_without_tokens_is_refused():
    with pytest.raises(ValueError, match="prompt_tokens is 0, expected at least 1"):
        predicted(on_a_gpu(), HALF_BILLION, prompt_tokens=0)
