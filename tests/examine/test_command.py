"""`nbcourse examine` as a user meets it: files, rows, wrong names, broken losses."""

import json
import re
import subprocess
import sys

import pytest

from nbcourse.examine import assert_loss, examine
from nbcourse.repository import ROOT
from tests.command import nbcourse, refused
from tests.effort import PATIENCE, swept

LOSSES = """
import torch

def reinforce(log_probs, advantages, mask):
    return -(log_probs * advantages).masked_fill(~mask, 0.0).sum(dim=1).mean()

def padded(log_probs, advantages, mask):
    return -(log_probs * advantages).masked_fill(~mask, 0.0).mean()

def flat(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    scaled = (groups - groups.mean(1, keepdim=True)) / groups.std(1, keepdim=True)
    return -(log_probs * scaled.view(-1, 1)).masked_fill(~mask, 0.0).sum(dim=1).mean()

def wants_more(log_probs, temperature):
    return log_probs.sum()

def wants_nothing(mask):
    return mask.sum()

def raises(log_probs):
    raise RuntimeError("out of luck")

def returns_a_list(log_probs):
    return [0.0]

def ignores(log_probs, mask):
    return torch.tensor(1.0)

def nan(log_probs):
    return log_probs.sum() * float("nan")

def logarithms_for_probabilities(log_probs, ref_log_probs):
    return torch.nn.functional.kl_div(ref_log_probs, log_probs, reduction="batchmean")

def python_min(log_probs, old_log_probs, advantages):
    ratio = (log_probs - old_log_probs).exp()
    return -min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()

def never_ends(log_probs):
    while True:
        pass

def for_trl(
    per_token_logps, old_per_token_logps, ref_per_token_logps, completion_mask, advantages,
    beta=0.04,
):
    ratio = (per_token_logps - old_per_token_logps).exp()
    signal = advantages.unsqueeze(1)
    losses = -torch.min(ratio * signal, ratio.clamp(0.8, 1.2) * signal)
    d = per_token_logps - ref_per_token_logps
    losses = (losses + beta * (torch.expm1(-d) + d)) * completion_mask
    return (losses.sum(-1) / completion_mask.sum(-1).clamp(min=1.0)).mean()

def for_verl(log_prob, old_log_prob, response_mask, token_level_rewards, index):
    scores = token_level_rewards.sum(dim=-1)
    signal = torch.zeros_like(scores)
    for i, prompt in enumerate(index):
        others = [scores[j] for j, other in enumerate(index) if other == prompt and j != i]
        signal[i] = scores[i] - sum(others) / len(others)
    losses = -(log_prob - old_log_prob).exp() * signal.unsqueeze(-1) * response_mask
    return losses.sum(dim=-1).mean(), {"metric": 0.0}

class PolicyLoss(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, log_probs, old_log_probs, advantages, action_mask=None, dp_size=1):
        ratio = (log_probs - old_log_probs).clamp(min=-20.0, max=20.0).exp()
        held = ratio.clamp(1 - self.eps, 1 + self.eps)
        losses = -torch.min(ratio * advantages, held * advantages)
        return (losses * action_mask).sum() / action_mask.sum(), None

for_openrlhf = PolicyLoss(0.2)

class Told:
    def compute(self, log_probs, advantages, mask):
        return -(log_probs * advantages).masked_fill(~mask, 0.0).sum(dim=1).mean()

def asserts(log_probs, config=None):
    assert config is not None
    return log_probs.sum()

def metrics_first(log_probs):
    return {"kl": 0.0, "objective": log_probs.sum()}, log_probs.sum()

def of_a_script(new_logps, old_logps, ref_logprobs, advantages, completion_mask, eps=0.2):
    return by_token(new_logps, old_logps, ref_logprobs, advantages[:, None], completion_mask, eps)

def by_token(curr_log_probs, old_logp, reference_logps, advantages, loss_mask, eps=0.2):
    ratio = (curr_log_probs - old_logp).exp()
    losses = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)
    d = curr_log_probs - reference_logps
    losses = losses + 0.04 * (torch.expm1(-d) + d)
    return (losses * loss_mask).sum() / loss_mask.sum()

class Anything:
    def __init__(self, *values, **options):
        pass
    def __call__(self, log_probs, advantages, mask):
        return Told().compute(log_probs, advantages, mask)

def trl_names(per_token_logps, advantages, completion_mask, tau):
    return per_token_logps.sum()
number = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "losses.py"
    path.write_text(LOSSES, encoding="utf-8")
    return path


def test_the_verdict_comes_first_and_the_file_has_stable_keys(file, tmp_path):
    said = nbcourse("examine", f"{file}:reinforce", "--json", tmp_path / "out.json")
    assert said.splitlines()[3].startswith("On fresh samples its expected step is ∇J, exactly")
    found = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert found["direction"]["fresh"]["verdict"] == "exact"
    assert found["direction"]["fresh"]["factor"] == pytest.approx(1)
    assert found["kl"]["descends"] == "none"
    assert found["length"]["weight"] == "seq-mean-token-sum"
    assert (found["mask"]["safe"], found["microbatch"]["invariant"]) == (True, True)
    assert found["detached"]
    assert found["finite"]["long"]
    assert found["nearest"]["row"] in ("rloo", "reinforce", "reinforce-ema", "remax")
    assert found["errata"] == []


def test_a_requirement_that_is_not_met_is_named_and_fails(file):
    assert "not met: mask-safe" in nbcourse(
        "examine", f"{file}:padded", "--require", "mask-safe", code=1
    )
    nbcourse("examine", f"{file}:reinforce", "--require", "exact,mask-safe,eos-trained")


def test_a_row_goes_by_its_name():
    said = nbcourse("examine", "dr-grpo")
    assert "the nearest row of the table is dr-grpo, and the steps are those of that row." in said


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("grpoo", "the row is 'grpoo', expected one of reinforce, .*; did you mean 'grpo'?"),
        ("losses.py", "which function of losses.py? Say losses.py:FUNCTION"),
        ("nowhere.py:loss", "there is no file nowhere.py"),
        ("losses.py:reinforc", "defines no function 'reinforc'; .*; did you mean 'reinforce'?"),
        ("losses.py:number", "defines no function 'number'"),
        ("losses.py:wants_more", "wants_more needs 'temperature', which is not offered"),
        ("losses.py:wants_nothing", "wants_nothing takes no log_probs"),
        ("losses.py:raises", "raises raises RuntimeError: out of luck"),
        ("losses.py:returns_a_list", "returns_a_list returns list, expected a scalar"),
        ("losses.py:ignores", "ignores does not depend on log_probs"),
        ("losses.py:nan", "nan returns nan for an ordinary batch"),
        ("losses.py:logarithms_for_probabilities", "returns nan for an ordinary batch"),
        ("losses.py:PolicyLoss", "PolicyLoss is a class, and needs eps to be made: say loss = "),
        ("losses.py:Told", "Told is a class; examine Told.METHOD, one of compute"),
        ("losses.py:Told.forward", "without a method 'forward'; .* one of compute"),
        ("losses.py:asserts", "asserts raises AssertionError: assert config is not None"),
        ("losses.py:metrics_first", "metrics_first returns no 'loss', but kl, objective: expected"),
        ("losses.py:trl_names", "'per_token_logps', .*; a setting can be given"),
        ("losses.py:python_min", "python_min raises RuntimeError: Boolean value of Tensor"),
    ],
)
def test_bad_input_gets_one_line(file, monkeypatch, target, message):
    monkeypatch.chdir(file.parent)

    assert re.search(message.replace("?", r"\?"), refused("examine", target))


@pytest.mark.parametrize(
    ("function", "convention", "expected"),
    [
        ("for_trl", "trl", {"seq-mean-token-mean", "kl-forward"}),
        ("for_verl", "verl", set()),
        ("for_openrlhf", "openrlhf", {"token-mean"}),
    ],
)
def test_losses_in_the_shapes_of_libraries(file, tmp_path, function, convention, expected):
    nbcourse("examine", f"{file}:{function}", "--as", convention, "--json", tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text("utf-8"))
    kinds = {one["id"]: one["kind"] for one in found["findings"]}
    assert {code for code, kind in kinds.items() if kind == "choice"} == expected
    assert "mistake" not in kinds.values()
    if convention == "trl":
        assert found["nearest"] == pytest.approx(
            {"row": "grpo", "same": True, "factor": 1, "gap": 0}
        )
        assert (found["kl"]["descends"], found["kl"]["beta"]) == ("forward", pytest.approx(0.04))
    if convention == "verl":
        assert found["direction"]["fresh"]["verdict"] == "exact"


def test_names_that_a_library_knows_are_said_to_be_its(file):
    said = refused("examine", f"{file}:trl_names", "--given", "tau=1")
    assert said.rstrip().endswith("; all its names are known to --as trl or ms-swift")
    said = refused("examine", f"{file}:of_a_script")
    assert said.rstrip().endswith("--as scripts or scripts-by-token or scripts-by-group")


def test_names_and_shapes_of_peoples_own_programs(file, tmp_path):
    for function, convention in (("of_a_script", "scripts"), ("by_token", "scripts-by-token")):
        out = tmp_path / "out.json"
        nbcourse("examine", f"{file}:{function}", "--as", convention, "--json", out)
        found = json.loads(out.read_text("utf-8"))
        assert found["clip"]["high"] == pytest.approx(1.2, abs=1e-3)
        assert found["kl"]["descends"] == "forward"
        assert {one["id"] for one in found["findings"] if one["kind"] == "mistake"} == set()
    assert "The size of tensor" in refused("examine", f"{file}:by_token", "--as", "scripts")


def test_a_method_is_one_of_an_object_that_is_made(file):
    for name in ("Told.compute", "Anything"):
        assert "its expected step is ∇J, exactly" in nbcourse("examine", f"{file}:{name}")


def test_names_of_another_library_are_refused_with_those_on_offer(file):
    said = refused("examine", f"{file}:reinforce", "--as", "trl")
    assert "needs 'log_probs', which is not offered; on offer are per_token_logps" in said
    assert "did you mean 'verl'?" in refused("examine", f"{file}:reinforce", "--as", "ver")


CODES = [("padded", "padding-in-denominator"), ("flat", "flat-nan")]


@pytest.mark.parametrize(("function", "code"), swept(CODES, keep=CODES[1:]))
def test_a_page_stands_by_itself(file, tmp_path, function, code):
    page = tmp_path / "report.html"
    said = nbcourse(
        "examine", f"{file}:{function}", "--html", page, "--json", tmp_path / "report.json"
    )
    json.loads((tmp_path / "report.json").read_text("utf-8"), parse_constant=pytest.fail)
    text = page.read_text("utf-8")
    assert code in text
    assert " nan " not in said
    assert all(sentence in text for sentence in said.splitlines()[3:5])
    assert text.count("<svg") == 1
    assert 'aria-label="How much a prompt counts' in text
    assert not re.search(r'(src|href)="(?!#)', text)  # nothing is loaded from elsewhere


@pytest.mark.usefixtures("forked")
def test_a_loss_that_never_ends_is_given_up(file):
    command = [sys.executable, "-m", "nbcourse", "examine", f"{file}:never_ends", "--limit", "0.1"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert answer.returncode == 2
    assert answer.stderr.splitlines() == [
        f"nbcourse: {file}:never_ends was still running after 0.1 seconds (--limit)"
    ]


@pytest.fixture(scope="module")
def of_the_example(tmp_path_factory):
    """What is said of the loss that appendix H prints."""
    using = (ROOT / "book/appendix-h-using.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(# my_loss\.py\n.*?)```", using, re.S)
    file = tmp_path_factory.mktemp("example") / "my_loss.py"
    file.write_text(code, encoding="utf-8")
    return nbcourse("examine", f"{file}:grpo_loss")


@pytest.mark.parametrize("page", ["README.md", "book/appendix-h-using.md"])
def test_the_report_that_is_shown_is_what_comes_out(of_the_example, page):
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / page).read_text("utf-8"), re.S)
    beginning, _, rest = shown.rpartition("…")
    assert of_the_example.startswith(beginning.rstrip())
    assert not rest.strip()


def test_an_unknown_requirement_is_refused_before_anything_is_computed(file):
    assert "did you mean 'exact'" in refused("examine", f"{file}:reinforce", "--require", "exakt")


def test_for_tests_there_is_an_assertion():
    def sign(log_probs, advantages, mask):
        return (log_probs * advantages).masked_fill(~mask, 0.0).sum(dim=1).mean()

    with pytest.raises(AssertionError, match="sign is not unbiased"):
        assert_loss(sign, "unbiased")
    assert examine(sign).facts.fresh.factors == pytest.approx({2: -1, 3: -1, 4: -1})
