"""The static engine against the eager one: the same tokens, log-probs and distribution."""

import copy
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.nn.functional import pad
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from nbcourse.lm import cache, engines, lora, sampling, static, tiny
from nbcourse.lm.log_probs import rollout_log_probs
from nbcourse.lm.static import Static
from tests.effort import swept

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}
PADDED, ALIKE = ["12+34=", "7+8=", "99*1="], ["1+1=", "2+3="]
EXACT = Static(check_every=1, rows=1, columns=1)
"""Looks after each token and computes no row or column too many: what it draws, eager draws."""


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


def shared_keys(tokenizer):
    """Random weights that are neither uniform nor certain; two heads share keys and values."""
    config = tiny.model(tokenizer, layers=2, width=32, heads=4).config
    config.num_key_value_heads = 2
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def adapted(tokenizer):
    """The same with an adapter that has learned."""
    model = shared_keys(tokenizer)
    lora.add(model, rank=3, seed=1)
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3, generator=source)
    return model


@pytest.fixture(scope="module")
def model(tokenizer):
    return shared_keys(tokenizer)


def write(model, tokenizer, engine, prompts=PADDED, *, dtype=None, **options):
    options = {"max_new_tokens": 80, "group_size": 8} | options
    device = model.device
    with torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
        return sampling.sample(
            model,
            tokenizer,
            prompts,
            generator=torch.Generator(device).manual_seed(0),
            engine=engine,
            **options,
        )


def assert_same(one, two):
    for name in ("tokens", "mask", "truncated", "log_probs"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name


# ---------------------------------------------------------------- what comes out


@pytest.mark.parametrize("made", [shared_keys, adapted])
@pytest.mark.parametrize("dtype", PRECISIONS.values(), ids=PRECISIONS)
def test_where_it_computes_no_more_than_eager_it_gives_the_same_bits(tokenizer, dtype, made):
    """Tokens that are drawn and their log-probs; the tied weights and the adapter are cast."""
    model = made(tokenizer)
    eager, exact = (
        write(model, tokenizer, engine, dtype=dtype, temperature=0.9) for engine in ("eager", EXACT)
    )
    lengths = eager.mask.sum(dim=1)
    assert lengths.min() < 32 < 64 < lengths.max()
    assert_same(eager, exact)


def test_without_padding_it_draws_the_same_tokens(model, tokenizer):
    """Transformers then leaves out eager's mask, and attention rounds otherwise."""
    eager, exact = (write(model, tokenizer, engine, ALIKE) for engine in ("eager", EXACT))
    assert torch.equal(exact.tokens, eager.tokens)
    assert torch.equal(exact.mask, eager.mask)
    assert_close(exact.log_probs, eager.log_probs, atol=1e-5, rtol=1e-5)


def test_the_same_bits_where_a_number_a_row_is_drawn(model, tokenizer, monkeypatch):
    monkeypatch.setattr(engines, "LARGE_VOCABULARY", 1)
    assert_same(*(write(model, tokenizer, engine) for engine in ("eager", EXACT)))


IN_BUCKETS = {"static": "static", "static-graphs": "static-graphs", "odd": Static(5, 2, 3)}
PROMPTS = {"padded": PADDED, "alike": ALIKE}


@pytest.mark.parametrize(
    ("prompts", "engine"),
    swept(product(PROMPTS, IN_BUCKETS), keep=[("alike", "static"), ("padded", "odd")]),
)
def test_the_likeliest_tokens_are_the_same_in_buckets(model, tokenizer, prompts, engine):
    """In float32; a sum over more columns is rounded otherwise."""
    eager, other = (
        write(model, tokenizer, e, PROMPTS[prompts], greedy=True, group_size=1)
        for e in ("eager", IN_BUCKETS[engine])
    )
    assert torch.equal(other.tokens, eager.tokens)
    assert torch.equal(other.mask, eager.mask)
    assert torch.equal(other.truncated, eager.truncated)
    assert_close(other.log_probs, eager.log_probs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_the_learner_agrees_with_what_is_drawn_in_buckets(model, tokenizer, temperature):
    rollout = write(model, tokenizer, "static", temperature=temperature)
    lengths = rollout.mask.sum(dim=1)
    assert lengths.min() < 32 < 64 < lengths.max()
    expected = rollout_log_probs(model, rollout, temperature=temperature)
    assert_close(rollout.log_probs[rollout.mask], expected[rollout.mask], atol=1e-5, rtol=1e-5)
    assert (rollout.tokens[~rollout.mask] == tokenizer.eos_token_id).all()
    assert rollout.log_probs[~rollout.mask].abs().sum() == 0


def test_in_bfloat16_it_is_as_far_from_the_learner_as_eager_is(model, tokenizer):
    """The bound: four units in the last place of a logit of up to 4, 2⁻⁶ each; on average one half.

    Logits come in bfloat16, with eight bits, and so do the numbers that they are made of.
    """
    for engine in ("eager", "static"):
        rollout = write(model, tokenizer, engine, dtype=torch.bfloat16)
        with torch.autocast("cpu", torch.bfloat16):
            expected = rollout_log_probs(model, rollout)
        gap = (rollout.log_probs - expected)[rollout.mask].abs()
        assert gap.max() <= 4 * 2**-6
        assert gap.mean() <= 2**-7


def test_whole_responses_come_as_often_as_they_are_likely():
    """All 121 responses of at most 4 tokens over four: χ² within five standard deviations.

    Checks every 2 tokens, and a batch that shrinks to a multiple of 8.
    """
    tokenizer = tiny.tokenizer("ab")
    model = tiny.model(tokenizer, layers=1, width=16, heads=2)
    draws, length, end = 4_000, 4, tokenizer.eos_token_id
    rollout = write(
        model,
        tokenizer,
        Static(check_every=2),
        ["ab"],
        max_new_tokens=length,
        group_size=draws,
    )
    counts: dict[tuple[int, ...], int] = {}
    for tokens, mask in zip(rollout.tokens, rollout.mask, strict=True):
        said = tuple(tokens[mask].tolist())
        counts[said] = counts.get(said, 0) + 1
    others = [token for token in range(4) if token != end]
    whole = [(*said, end) for n in range(length) for said in product(others, repeat=n)]
    whole += list(product(others, repeat=length))
    prompt = tokenizer("ab").input_ids
    expected, seen = [], []
    for said in whole:
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *said]])).logits[0].double()
        steps = logits[len(prompt) - 1 : -1].log_softmax(dim=-1)
        expected.append(draws * steps.gather(1, torch.tensor(said)[:, None]).sum().exp().item())
        seen.append(counts.get(said, 0))
    assert sum(expected) == pytest.approx(draws)
    assert sum(seen) == draws
    often = [(e, s) for e, s in zip(expected, seen, strict=True) if e >= 5]
    often.append((draws - sum(e for e, _ in often), draws - sum(s for _, s in often)))
    free = len(often) - 1
    assert free > 40
    statistic = sum((s - e) ** 2 / e for e, s in often)
    assert abs(statistic - free) < 5 * (2 * free) ** 0.5


@pytest.mark.parametrize("shape", [(1, 4), (24, 17), (5, 9_999)], ids=str)
def test_a_draw_is_that_of_multinomial(shape):
    for seed in range(20):
        logits = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        log_probs = logits.masked_fill(logits > 1, -torch.inf).log_softmax(dim=-1)
        one, two = (torch.Generator().manual_seed(seed) for _ in range(2))
        expected = torch.multinomial(log_probs.exp(), 1, generator=one).squeeze(1)
        assert torch.equal(engines.draw(log_probs, two), expected)
        assert torch.equal(one.get_state(), two.get_state())


# ---------------------------------------------------------------- how it works


def test_shapes_change_at_checks_only_and_are_buckets(model, tokenizer):
    """Rows and columns of each step, from the lengths of the responses that came out.

    Token t is read by step t + 1; before a step whose number is a multiple of 16, those rows go on
    whose responses are longer than that. A prompt has 6 columns, and token t is in column 6 + t.
    """
    seen = []

    def watch(module, args, inputs):
        if inputs["input_ids"].shape[1] == 1:
            seen.append((len(inputs["input_ids"]), inputs["attention_mask"].shape[3]))

    hook = model.register_forward_pre_hook(watch, with_kwargs=True)
    rollout = write(model, tokenizer, Static(16, rows=4, columns=24), group_size=9)
    hook.remove()
    lengths, batch, expected = rollout.mask.sum(dim=1), 27, []
    for step in range(1, 80):
        if step % 16 == 0:
            batch = min(batch, -(-int((lengths > step).sum()) // 4) * 4)
        columns = 6 + min(step - step % 16 + 16, 80) - 1
        expected.append((batch, -(-columns // 24) * 24))
    assert seen == expected
    assert len(set(seen)) > 4


def test_the_host_waits_at_checks_alone(model, tokenizer, monkeypatch):
    """No response ends: at tokens 32 and 64, and when all is written."""
    looks, look = [], static._Now.look

    def counted(self):
        looks.append(int(self.t))
        return look(self)

    monkeypatch.setattr(static._Now, "look", counted)
    monkeypatch.setattr(sampling, "end_tokens", lambda model, tokenizer: [10**6])
    write(model, tokenizer, "static")
    assert looks == [32, 64, 80]


def test_the_first_check_at_which_all_have_ended_is_the_last(model, tokenizer, monkeypatch):
    """Each first token ends its response: the prompts are read, and 31 further tokens written."""
    monkeypatch.setattr(sampling, "end_tokens", lambda model, tokenizer: [*range(17)])
    calls = []
    hook = model.register_forward_hook(lambda *_: calls.append(None))
    rollout = write(model, tokenizer, "static")
    hook.remove()
    assert rollout.mask.shape[1] == 1
    assert len(calls) == 1 + 31


@pytest.mark.parametrize("greedy", [True, False])
def test_a_step_reads_no_number_on_the_host(model, tokenizer, greedy):
    """On PyTorch's device without numbers, where there is nothing to read."""
    job = job_of(model, tokenizer)
    _, prompts = engines.read_prompts(model, job)
    columns = job.prompt_ids.shape[1] + 8
    there = copy.deepcopy(model)
    now = static._Now(there, static.whole(there), job, prompts, columns=columns)
    there.to("meta")
    now.job = replace(job, ends=job.ends.to("meta"))
    if not greedy:  # a generator of that device there is not
        now.job = NoGenerator(**{**vars(now.job), "ends": now.job.ends})
    now.written = engines.Responses(*(x.to("meta") for x in now.written))
    for name, value in list(vars(now).items()):
        if isinstance(value, torch.Tensor):
            setattr(now, name, value.to("meta"))
    for layer in now.layers:
        layer.keys, layer.values = layer.keys.to("meta"), layer.values.to("meta")
        layer.column = now.column
    with torch.no_grad():
        now.step()
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            now.look()


class NoGenerator(engines.Job):
    """Draws, from PyTorch's own generator."""

    def choose(self, logits):
        distribution = logits.float().log_softmax(dim=-1)
        chosen = engines.draw(distribution, None)
        return chosen, distribution.gather(1, chosen[:, None]).squeeze(1)


def job_of(model, tokenizer, **options):
    """What `sample` asks an engine for."""
    found = []

    def keep(model, job):
        found.append(job)
        return engines.eager(model, job)

    write(model, tokenizer, keep, max_new_tokens=1, greedy=True, **options)
    return found[0]


class Tape(TorchDispatchMode):
    """What a CUDA graph does, without CUDA: the operations of one step, noted and done again.

    On the same memory each time, and with nothing of Python between them.
    """

    def __init__(self):
        super().__init__()
        self.notes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.notes.append((function, args, kwargs or {}, result))
        return result

    def replay(self):
        for function, args, kwargs, result in self.notes:
            again = function(*args, **kwargs)
            results, news = (x if isinstance(x, (tuple, list)) else (x,) for x in (result, again))
            for old, new in zip(results, news, strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def taped(replayed):
    """Steps that run once as they are, once noted, and then from the notes, which are counted."""

    def prepare(step, job):
        tape, calls = Tape(), []

        def call():
            calls.append(None)
            if len(calls) == 1:
                step()
            elif len(calls) == 2:
                with tape:
                    step()
            else:
                replayed.append(None)
                tape.replay()

        return call

    return prepare


@pytest.mark.parametrize(
    ("greedy", "precision"),
    swept(product([True, False], PRECISIONS), keep=[(True, "float32"), (False, "bfloat16")]),
)
def test_a_recorded_step_writes_what_the_step_writes(model, tokenizer, precision, greedy):
    """Each new shape is run once as it is, once while it is noted, and then from the notes."""
    replayed = []
    options = {"dtype": PRECISIONS[precision], "greedy": greedy}
    plain = write(model, tokenizer, Static(8, columns=16), **options)
    recorded = Static(8, columns=16, prepare=taped(replayed))
    assert_same(write(model, tokenizer, recorded, **options), plain)
    assert len(replayed) > 50


def test_nothing_is_recorded_of_a_model_that_is_not_on_the_card(model, tokenizer, monkeypatch):
    """A graph of what a CPU does would be empty, and what its replay "writes" is anything."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    plain, recorded = (write(model, tokenizer, engine) for engine in ("static", "static-graphs"))
    assert_same(recorded, plain)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs CUDA")
@pytest.mark.parametrize("dtype", PRECISIONS.values(), ids=PRECISIONS)
@pytest.mark.parametrize("greedy", [True, False])
def test_a_cuda_graph_writes_what_the_step_writes(tokenizer, dtype, greedy):
    model = shared_keys(tokenizer).cuda()
    plain, recorded = (
        write(model, tokenizer, engine, dtype=dtype, greedy=greedy)
        for engine in ("static", "static-graphs")
    )
    assert_same(recorded, plain)


def test_columns_that_hold_nothing_yet_do_not_count(model, tokenizer, monkeypatch):
    plain = write(model, tokenizer, "static")
    monkeypatch.setattr(
        cache, "_wider", lambda x, columns: pad(x, (0, 0, 0, columns - x.shape[2]), value=1e4)
    )
    assert_same(write(model, tokenizer, "static"), plain)


# ---------------------------------------------------------------- what is refused


def poisoned(model, *, call, rows):
    """A hook: from the call of this number on, rows that `rows` picks are not finite."""
    calls = []

    def spoil(module, args, inputs, output):
        calls.append(None)
        if len(calls) > call:
            output.logits[rows(inputs["input_ids"])] = torch.nan

    return model.register_forward_hook(spoil, with_kwargs=True)


OF_ALL = {"eager": "eager", "static": "static", "exact": EXACT}


@pytest.mark.parametrize(
    ("engine", "token", "large"),
    swept(
        product(OF_ALL, [0, 1, 5, 40], [False, True]),
        keep=[
            *product(OF_ALL, [0, 1, 40], [False]),
            *product(OF_ALL, [5], [True]),
        ],
    ),
)
def test_the_first_token_whose_logits_are_not_finite_is_named(
    model, tokenizer, engine, token, large, monkeypatch
):
    monkeypatch.setattr(engines, "LARGE_VOCABULARY", 1 if large else 10_000)
    monkeypatch.setattr(sampling, "end_tokens", lambda model, tokenizer: [10**6])
    hook = poisoned(model, call=token, rows=lambda ids: 0)
    try:
        with pytest.raises(FloatingPointError, match=f"logits at response token {token} are not"):
            write(model, tokenizer, OF_ALL[engine])
    finally:
        hook.remove()


def test_what_a_row_that_has_ended_gives_is_not_looked_at(model, tokenizer):
    end = tokenizer.eos_token_id
    plain = write(model, tokenizer, "static")
    assert (plain.mask.sum(dim=1) < 20).any()
    hook = poisoned(model, call=25, rows=lambda ids: ids[:, -1] == end)
    try:
        assert_same(write(model, tokenizer, "static"), plain)
    finally:
        hook.remove()


def test_what_it_does_not_know_is_refused(tokenizer):
    model = tiny.model(tokenizer, layers=2, width=32)
    with pytest.raises(ValueError, match="engine is 'fast', expected one of eager, static, static"):
        write(model, tokenizer, "fast")
    config = copy.deepcopy(model.config)
    config.layer_types, config.sliding_window = ["full_attention", "sliding_attention"], 8
    config.use_sliding_window = True
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(ValueError, match="layer 1 of the model keeps a DynamicSlidingWindowLayer"):
        write(model, tokenizer, "static")
    model = tiny.model(tokenizer, layers=2, width=32)
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="attention is 'eager', expected 'sdpa'"):
        write(model, tokenizer, "static")
