"""Log-probs from logits and from hidden states, against log_softmax and gather in float64."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from nbcourse.functional import kl
from nbcourse.lm import log_probs
from nbcourse.lm.log_probs import hidden_divergences, hidden_log_probs, token_log_probs

VOCABULARY, WIDTH = 11, 4


@pytest.fixture(params=[1, 3 * VOCABULARY, 1 << 22], ids=["row by row", "3 rows", "at once"])
def chunk(request, monkeypatch):
    """The size of a piece must not show in the result."""
    monkeypatch.setattr(log_probs, "CHUNK", request.param)


@pytest.fixture(params=[0, 1 << 29], ids=["in pieces", "kept"])
def kept(request, monkeypatch):
    """Whether logits are kept for the backward pass must not show either."""
    monkeypatch.setattr(log_probs, "KEPT", request.param)


def case(*shape: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(*shape, WIDTH, generator=generator, dtype=torch.float64)
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator, dtype=torch.float64)
    tokens = torch.randint(VOCABULARY, shape, generator=generator)
    upstream = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return hidden, weight, tokens, upstream


def plain(logits, tokens, temperature):
    return (logits / temperature).log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("shape", [(7,), (2, 5), (2, 3, 4)], ids=str)
@pytest.mark.usefixtures("chunk")
def test_value_and_gradient_from_logits(shape, temperature):
    hidden, weight, tokens, upstream = case(*shape)
    logits = (hidden @ weight.T).requires_grad_()
    ours, reference = (
        f(logits, tokens)
        for f in (
            lambda z, a: token_log_probs(z, a, temperature=temperature),
            lambda z, a: plain(z, a, temperature),
        )
    )
    assert_close(ours, reference)
    assert_close(
        torch.autograd.grad((ours * upstream).sum(), logits),
        torch.autograd.grad((reference * upstream).sum(), logits),
    )


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.usefixtures("chunk", "kept")
def test_value_and_gradient_from_hidden_states(temperature):
    hidden, weight, tokens, upstream = case(3, 5)
    hidden.requires_grad_()
    weight.requires_grad_()
    ours = hidden_log_probs(hidden, weight, tokens, temperature=temperature)
    reference = plain(hidden @ weight.T, tokens, temperature)
    assert_close(ours, reference)
    assert_close(
        torch.autograd.grad((ours * upstream).sum(), (hidden, weight)),
        torch.autograd.grad((reference * upstream).sum(), (hidden, weight)),
    )


@pytest.mark.usefixtures("kept")
def test_a_frozen_output_matrix_gets_no_gradient():
    hidden, weight, tokens, _ = case(2, 3)
    hidden.requires_grad_()
    hidden_log_probs(hidden, weight, tokens).sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_give_float32_log_probs(dtype):
    """The rounding of the logits is the model's; ours must add nothing that shows in float32."""
    hidden, weight, tokens, upstream = case(4, 6)
    logits = (hidden @ weight.T).to(dtype).requires_grad_()
    ours = token_log_probs(logits, tokens)
    assert ours.dtype == torch.float32
    reference = plain(logits.detach().double(), tokens, 1.0)
    assert_close(ours, reference.float(), atol=1e-6, rtol=1e-6)
    (ours * upstream.float()).sum().backward()
    assert logits.grad.dtype == dtype


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_gradient_of_a_likely_token_is_rounded_once(dtype):
    """1 − π is a thousandth here: the difference of two numbers rounded to bfloat16 would be 0."""
    logits = torch.tensor([[7.0, 0.0]] * 3, dtype=dtype, requires_grad=True)
    token_log_probs(logits, torch.zeros(3, dtype=torch.long)).sum().backward()
    rest = 1 / (1 + torch.tensor(7.0, dtype=torch.float64).exp())
    expected = torch.stack([rest, -rest]).expand(3, 2)
    assert_close(logits.grad.double(), expected, rtol=torch.finfo(dtype).eps, atol=0)


def test_enormous_logits_do_not_overflow():
    logits = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    value = token_log_probs(logits, torch.tensor([1]))
    assert value.item() == -1e4
    value.sum().backward()
    assert_close(logits.grad, torch.tensor([[-1.0, 1.0, 0.0]]))


def test_the_logits_are_left_as_they_were():
    hidden, weight, tokens, _ = case(2, 3)
    logits = (hidden @ weight.T).requires_grad_()
    before = logits.detach().clone()
    token_log_probs(logits, tokens).sum().backward()
    assert torch.equal(logits.detach(), before)


def test_no_rows_at_all():
    logits = torch.zeros(0, 5, VOCABULARY, requires_grad=True)
    value = token_log_probs(logits, torch.zeros(0, 5, dtype=torch.long))
    assert value.shape == (0, 5)
    value.sum().backward()
    assert logits.grad.shape == logits.shape


def test_mistakes_are_named():
    logits, tokens = torch.zeros(2, 3, VOCABULARY), torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match=r"tokens has shape \(2, 2\), expected \(2, 3\)"):
        token_log_probs(logits, tokens[:, :2])
    with pytest.raises(ValueError, match=r"tokens has dtype torch.float32, expected integers"):
        token_log_probs(logits, tokens.float())
    with pytest.raises(ValueError, match=r"temperature is 0, expected a positive number"):
        token_log_probs(logits, tokens, temperature=0)
    with pytest.raises(ValueError, match=r"weight has shape \(11, 5\), expected \(V, 4\)"):
        hidden_log_probs(torch.zeros(2, 3, 4), torch.zeros(11, 5), tokens)


@pytest.mark.usefixtures("chunk")
def test_consumed_logits_give_the_same_gradient_in_their_own_memory():
    hidden, weight, tokens, upstream = case(2, 5)
    weight.requires_grad_()
    gradients = []
    for consume in (False, True):
        logits = hidden @ weight.T
        value = token_log_probs(logits, tokens, temperature=0.8, consume=consume)
        gradients += torch.autograd.grad((value * upstream).sum(), weight)
    assert_close(*gradients)


def test_a_gradient_goes_into_memory_that_fits_and_into_no_other():
    logits = torch.randn(3, 5)
    scratch = log_probs._Scratch(logits, 5, 1.0, 1)
    given = (logits, torch.tensor([0, 4, 2]), torch.ones(3))
    plain = scratch.gradient(*given).clone()
    for there, used in ((torch.empty(3, 5), True), (torch.empty(3, 5).double(), False)):
        found = scratch.gradient(*given, into=there)
        assert (found.data_ptr() == there.data_ptr()) is used
        assert torch.equal(found, plain)


def test_whoever_needs_consumed_logits_again_is_told(monkeypatch):
    """tanh keeps its result for the way back; a gradient written over it must not go unnoticed."""
    monkeypatch.setattr(log_probs, "CHUNK", 1)
    hidden, weight, tokens, _ = case(2, 5)
    weight.requires_grad_()
    value = token_log_probs((hidden @ weight.T).tanh(), tokens, consume=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


@pytest.mark.parametrize(("size", "times"), [(15 * 40 * 2, 1), (15 * 40 * 2 - 1, 2)])
def test_logits_are_computed_again_where_they_would_be_too_large_to_keep(size, times, monkeypatch):
    """15 rows of 40 logits of two bytes; the other products of the way back are one each."""
    monkeypatch.setattr(log_probs, "KEPT", size)
    hidden, weight = torch.randn(15, 16, requires_grad=True), torch.randn(40, 16)
    one = 2 * 15 * 40 * 16
    with FlopCounterMode(display=False) as counter, torch.autocast("cpu", torch.bfloat16):
        found = hidden_log_probs(hidden, weight, torch.zeros(15, dtype=torch.long))
    assert counter.get_total_flops() == one
    with FlopCounterMode(display=False) as counter:
        found.sum().backward()
    assert counter.get_total_flops() == times * one


def test_in_bfloat16_the_way_back_rounds_the_logits_as_the_way_there_did(monkeypatch):
    """The gradient of the same rounded logits, which autograd itself can take, is the oracle."""
    monkeypatch.setattr(log_probs, "KEPT", 0)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 5, 16, generator=generator, requires_grad=True)
    weight = torch.randn(40, 16, generator=generator, requires_grad=True)
    tokens = torch.randint(40, (3, 5), generator=generator)
    with torch.autocast("cpu", torch.bfloat16):
        in_pieces = hidden_log_probs(hidden, weight, tokens)
        whole = token_log_probs(hidden @ weight.T, tokens)
    assert in_pieces.dtype == torch.float32
    torch.testing.assert_close(in_pieces, whole)
    for ours, theirs in zip(
        torch.autograd.grad(in_pieces.sum(), (hidden, weight)),
        torch.autograd.grad(whole.sum(), (hidden, weight)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_bfloat16_matrix_is_summed_in_float32(monkeypatch):
    """Where all four logits are 0, each row adds ¾ to one entry and −¼ to three, all exact.

    Above 256 the next number in bfloat16 is 2 further: a sum in it would stand still there.
    """
    for name, value in {"KEPT": 0, "CHUNK": 1, "ROWS": 1}.items():
        monkeypatch.setattr(log_probs, name, value)
    hidden = torch.ones(600, 2, dtype=torch.bfloat16)
    weight = torch.zeros(4, 2, dtype=torch.bfloat16, requires_grad=True)
    hidden_log_probs(hidden, weight, torch.zeros(600, dtype=torch.long)).sum().backward()
    expected = torch.tensor([450.0, -150.0, -150.0, -150.0], dtype=torch.bfloat16)
    assert torch.equal(weight.grad, expected[:, None].expand(4, 2))


# ---------------------------------------------------------------- divergences from states


def reference_states(*shape):
    """Hidden states of another width, and their output matrix."""
    generator = torch.Generator().manual_seed(7)
    draw = {"generator": generator, "dtype": torch.float64}
    return torch.randn(*shape, 6, **draw), torch.randn(VOCABULARY, 6, **draw)


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.usefixtures("chunk")
def test_divergences_and_their_gradient_are_those_of_whole_logits(temperature):
    hidden, weight, _, upstream = case(3, 5)
    ref_hidden, ref_weight = reference_states(3, 5)
    hidden.requires_grad_()
    weight.requires_grad_()
    ours = hidden_divergences(hidden, weight, ref_hidden, ref_weight, temperature=temperature)
    own, ref = (
        (x @ w.T / temperature).log_softmax(dim=-1)
        for x, w in ((hidden, weight), (ref_hidden, ref_weight))
    )
    reference = (own.exp() * (own - ref)).sum(dim=-1)
    assert_close(ours, reference)
    for found, expected in zip(
        torch.autograd.grad((ours * upstream).sum(), (hidden, weight)),
        torch.autograd.grad((reference * upstream).sum(), (hidden, weight)),
        strict=True,
    ):
        assert_close(found, expected)


def test_the_reference_gets_no_gradient_and_equal_models_have_no_divergence():
    hidden, weight, _, _ = case(2, 3)
    ref_hidden, ref_weight = (x.clone().requires_grad_() for x in (hidden, weight))
    hidden.requires_grad_()
    found = hidden_divergences(hidden, weight, ref_hidden, ref_weight)
    assert_close(found, torch.zeros(2, 3, dtype=torch.float64))
    found.sum().backward()
    assert ref_hidden.grad is ref_weight.grad is None
    assert_close(hidden.grad, torch.zeros_like(hidden))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_divergences_in_bfloat16_are_of_the_rounded_logits(temperature):
    """The product is rounded, and nothing after it: neither the division nor the sum."""
    generator = torch.Generator().manual_seed(0)
    hidden, ref_hidden = torch.randn(2, 3, 5, 16, generator=generator)
    hidden.requires_grad_()
    weight, ref_weight = torch.randn(2, 40, 16, generator=generator)
    with torch.autocast("cpu", torch.bfloat16):
        found = hidden_divergences(hidden, weight, ref_hidden, ref_weight, temperature=temperature)
        logits, ref_logits = hidden @ weight.T, ref_hidden @ ref_weight.T
    assert found.dtype == torch.float32
    whole = kl.exact(logits.float() / temperature, ref_logits.float() / temperature)
    assert_close(found, whole)
    ours, theirs = (torch.autograd.grad(x.sum(), hidden)[0] for x in (found, whole))
    assert_close(ours, theirs)


def test_states_that_do_not_fit_their_matrix_are_named():
    states, weight = torch.zeros(2, 3, 4), torch.zeros(11, 4)
    with pytest.raises(ValueError, match=r"^hidden has shape .* \(11, 5\), expected \(V, 4\)"):
        hidden_divergences(states, torch.zeros(11, 5), states, weight)
    with pytest.raises(ValueError, match=r"^ref_hidden has shape .* expected \(V, 4\)"):
        hidden_divergences(states, weight, states, torch.zeros(11, 5))
    with pytest.raises(ValueError, match=r"for 12 tokens, expected \(2, 3, 'H'\) for 11"):
        hidden_divergences(states, weight, states, torch.zeros(12, 4))
    with pytest.raises(ValueError, match=r"^ref_hidden has shape \(2, 2, 4\) for 11 tokens"):
        hidden_divergences(states, weight, states[:, :2], weight)
    with pytest.raises(ValueError, match="temperature is 0, expected a positive number"):
        hidden_divergences(states, weight, states, weight, temperature=0)


def test_no_padding_goes_through_the_output_matrix():
    """Whatever stands there: it is left out on the way there and on the way back."""
    hidden, weight, tokens, _ = case(2, 3)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    states = hidden.masked_fill(~mask[..., None], torch.nan).requires_grad_()
    weight.requires_grad_()
    rollout = SimpleNamespace(mask=mask, tokens=tokens)
    found = log_probs.state_log_probs(states, weight, rollout, temperature=0.7)
    assert (found[~mask] == 0).all()
    assert_close(found[mask], plain(hidden @ weight.T, tokens, 0.7)[mask])
    found.sum().backward()
    assert (states.grad[~mask] == 0).all()
    assert (states.grad[mask] != 0).any()
    assert weight.grad.isfinite().all()
