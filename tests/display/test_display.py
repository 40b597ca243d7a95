"""What the chapters show: listings, tables, figures with a text, and explorers of one number."""

import itertools
import json
import math
import re

import matplotlib.pyplot as plt
import pytest
import torch

from nbcourse import display
from nbcourse.display import diagrams, figures, listings
from nbcourse.functional import advantages, returns, surrogates
from nbcourse.toys import bandit, chain
from tests.coin_walk import coin_walk

PROBS = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
REWARDS = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)


@pytest.fixture
def shown(monkeypatch) -> list:
    """What the notebook would be asked to display."""
    objects: list = []
    for room in (figures, listings):
        monkeypatch.setattr(room, "display", objects.append)
    return objects


def test_a_listing_is_the_source_without_its_docstring(shown):
    display.show_source(advantages.leave_one_out)
    text = shown[0].data
    assert text.startswith("```python\n@checked\ndef leave_one_out(")
    assert "mean_baseline(rewards, group_size=group_size) * (group_size" in text
    assert '"""' not in text


def test_a_listing_sees_through_decorators(shown):
    display.show_source(returns.token_gae)
    assert "def token_gae(" in shown[0].data


def test_a_table_rounds_and_never_shows_a_negative_zero(shown):
    display.table([["a", 1 / 3, [-1e-9, 2.25]], ["b", -2, [0.5]]], header=["x", "y", "z"])
    assert shown[0].data.splitlines()[1:] == [
        "| --- | ---: | --- |",
        "| a | 0.3333 | (0.00, 2.25) |",
        "| b | −2 | (0.50) |",
    ]


@pytest.mark.parametrize(
    ("column", "printed"),
    [
        ([500.0, 250.0], ["500", "250"]),
        ([500.0, 0.25], ["500.00", "0.25"]),
        ([12.3456, 1.5], ["12.35", "1.50"]),
        ([1234.56, 2000.4], ["1235", "2000"]),
        ([0.33333, 0.5], ["0.3333", "0.5000"]),
        ([1000.0, 0.001234], ["1000", "0.0012"]),
        ([20.13552, 0.00144, 1 - 1e-12, 0.0], ["20.1", "0.0014", "1.00", "0"]),
        ([-999.963, 0.0512], ["−1000", "0.0512"]),
        ([-0.5, float("nan")], ["−0.5", "nan"]),
        ([-1e-9, 0.0], ["0", "0"]),
        ([9.99996, 1.0], ["10", "1"]),
        ([1.0, 0.81234], ["1.000", "0.812"]),
        ([1 - 1e-15, 0.81234], ["1.000", "0.812"]),  # another processor's 1
        ([float("inf")], ["inf"]),
        ([True, -3, "x-1"], ["True", "−3", "x-1"]),
    ],
)
def test_a_column_has_the_digits_that_it_needs(shown, column, printed):
    display.table([[cell] for cell in column], header=["x"])
    assert [line.strip("| ") for line in shown[0].data.splitlines()[2:]] == printed


@pytest.mark.parametrize(
    ("column", "side", "printed"),
    [
        (["-0.5", "+1.25"], "---:", ["−0.5", "+1.25"]),
        (["12.5%", "-3 %"], "---:", ["12.5%", "−3 %"]),
        (["-3.91 to -2.20", "63 to 98"], "---:", ["−3.91 to −2.20", "63 to 98"]),
        (["0.75 ± 0.02", ""], "---:", ["0.75 ± 0.02", ""]),
        (["-0.1 (-0.3 to +0.1)", "nan"], "---:", ["−0.1 (−0.3 to +0.1)", "nan"]),
        (["2 → 7", "1,319"], "---:", ["2 → 7", "1,319"]),
        (["3 of 100", "–"], "---:", ["3 of 100", "–"]),
        (["< 1e-11", "8e-06"], "---:", ["< 1e−11", "8e−06"]),
        (["**-0.5**", 0.25], "---:", ["**−0.5**", "0.25"]),
        (["-0.92, -0.83"], "---", ["−0.92, −0.83"]),  # two numbers, which are no column
        (["1", "word-2"], "---", ["1", "word-2"]),
        (["2026-11-25"], "---", ["2026-11-25"]),
        (["17-25=-8"], "---", ["17-25=-8"]),
        (["`-3`"], "---", ["`-3`"]),
        ([True, False], "---", ["True", "False"]),
        ([float("nan")], "---:", ["nan"]),
    ],
)
def test_numbers_may_come_as_text(shown, column, side, printed):
    display.table([[cell] for cell in column], header=["x"])
    assert [line[2:-2] for line in shown[0].data.splitlines()[1:]] == [side, *printed]


def test_a_table_shows_tokens_that_look_like_elements(shown):
    rows = [["7 <eos>", "`<unk>`"], ["a < b", "ε<sub>high</sub>"], ["</s>", "<!-- x"]]
    display.table(rows, header=["x", "y"])
    assert shown[0].data.splitlines()[2:] == [
        r"| 7 \<eos> | `<unk>` |",
        "| a < b | ε<sub>high</sub> |",
        r"| \</s> | \<!-- x |",
    ]


def test_a_table_without_rows_has_its_header(shown):
    display.table([], header=["x", "y"])
    assert shown[0].data == "| x | y |\n| --- | --- |"


def test_a_ragged_table_is_refused():
    with pytest.raises(ValueError, match="has 1 cells, expected 2"):
        display.table([["a"]], header=["x", "y"])


def test_a_figure_is_a_drawing_that_is_the_same_each_time(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", lambda data, **_: shown.append(data[figures.SVG]))
    for _ in range(2):
        fig, axis = display.figure()
        axis.plot([1, 2], label="a line")
        axis.legend()
        display.show(fig)
    one, two = shown
    assert one == two
    assert one.startswith("<svg ")
    assert "<text" not in one  # letters are shapes
    assert "<dc:date>" not in one
    assert not plt.get_fignums()


@pytest.mark.parametrize(
    ("panels", "options"),
    [((), {}), ((1, 3), {"sharey": True}), ((2, 4), {"height": 5}), ((1, 1), {"squeeze": False})],
)
def test_every_figure_is_as_wide(panels, options):
    fig, _ = display.figure(*panels, **options)
    plt.close(fig)
    assert fig.get_figwidth() * 72 == pytest.approx(600, abs=0.01)
    assert fig.get_figheight() == options.get("height", 3)
    assert len(fig.axes) == math.prod(panels)


def test_a_size_of_its_own_is_refused():
    with pytest.raises(TypeError, match="takes no figsize"):
        display.figure(1, 2, figsize=(8, 3))


def drawn(explorer) -> tuple[list[dict[str, str]], int]:
    """The positions of a slider, with what it shows, the words and the picture; and the first."""
    ((data, start),) = re.findall(r', (\{"label".*\}), (\d+)\);', explorer.data)
    return json.loads(data)["frames"], int(start)


def test_the_baseline_explorer_shows_the_exact_variance_at_each_position():
    found, _ = drawn(display.explore_baseline(PROBS, REWARDS, positions=7))
    assert len(found) == 7
    low, high = REWARDS.min().clamp(max=0).item(), REWARDS.max().item()
    margin = 0.35 * (REWARDS.max() - REWARDS.min()).item()
    for value, frame in zip(torch.linspace(low - margin, high + margin, 7), found, strict=True):
        exact = bandit.gradient_variance(PROBS.log(), REWARDS, baseline=value.item()).item()
        shown = f"{value:.2f}".replace("-", "−")
        assert frame["shown"] == shown
        assert frame["words"].startswith(f"b = {shown} · variance {exact:.3f} (least: ")


@pytest.mark.parametrize(
    "explore", [lambda: display.explore_baseline(PROBS, REWARDS), display.explore_clip]
)
def test_an_explorer_is_the_same_each_time_and_asks_no_other_host(explore):
    one, two = (explore().data for _ in range(2))
    assert one == two
    assert "http" not in one


# ρ → (objective, push) for A = +1 and A = −1: clips at 0.8 and 1.28, cap at 3
CLIP_READOUTS = {
    0.525: ("+0.525, push +0.525", "−0.800, clipped, no push"),
    0.925: ("+0.925, push +0.925", "−0.925, push −0.925"),
    1.225: ("+1.225, push +1.225", "−1.225, push −1.225"),
    1.325: ("+1.280, clipped, no push", "−1.325, push −1.325"),
    3.025: ("+1.280, clipped, no push", "−3.000, clipped, no push"),
}


def test_the_clip_explorer_shows_the_six_cases_and_the_cap():
    found, _ = drawn(display.explore_clip(clip_high=0.28, dual_clip=3.0, largest=3.2))
    by_words = {frame["words"]: frame["picture"] for frame in found}
    for ratio, (good, bad) in CLIP_READOUTS.items():
        words = f"ρ = {ratio:.3f} · A = +1: objective {good} · A = −1: objective {bad}"
        arrows = re.findall("<polygon", by_words[words])
        assert len(arrows) == len(re.findall(r" push [+−]", words))


def test_the_clip_explorer_opens_just_above_the_interval():
    found, start = drawn(display.explore_clip())
    assert 1.2 < float(found[start]["shown"]) < 1.3


def test_the_lambda_explorer_shows_the_exact_best_of_each_critic():
    """A coin walk of three states: with more episodes only the bias of a wrong critic is left."""
    process, coin, critics = coin_walk()
    explorer = display.explore_lambda(process, coin, critics, start=2)
    readouts = [frame["words"] for frame in drawn(explorer)[0]]
    for exponent in (0, 10):
        parts = [f"{2**exponent} episode{'s' if exponent else ''} a batch"]
        for name, critic in critics.items():
            errors = []
            for lam in [i / 40 for i in range(39)] + [0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 1.0]:
                m = chain.gradient_estimator(process, coin, critic, start=2, lam=lam)
                errors.append((m.mean_squared_error(2**exponent), lam, m.gradient.norm().item()))
            least, lam, length = min(errors)
            parts.append(f"{name}: best λ = {lam:.3g}, error {least**0.5 / length:.2f}")
        assert readouts[exponent] == " · ".join(parts)
    best = [float(re.findall(r"nothing: best λ = (\S+),", r)[0]) for r in readouts]
    assert best == sorted(best)
    assert best[0] < 0.9 < best[-1]


def test_the_map_of_the_book_has_six_stages():
    texts = {text.get_text() for text in display.training_loop().axes[0].texts}
    assert {"prompts", "rollouts", "rewards", "advantages", "loss", "update"} <= texts
    assert "ch 7, 13" in texts  # a language model's prompts, and GSM8K's


def test_the_map_of_the_clip_is_what_autograd_finds():
    """In each of its six regions, by its middle, the slope of PPO's objective in log π."""
    fig = diagrams.clip_regions(0.2, 0.3)
    texts = [text.get_text() for text in fig.axes[0].texts]
    effects, slopes = texts[::2], texts[1::2]
    for place, (A, ratio) in enumerate(itertools.product((1.0, -1.0), (0.4, 1.05, 1.65))):
        log_prob = torch.tensor([[math.log(ratio)]], requires_grad=True)
        loss = surrogates.ppo_clip(
            log_prob, torch.zeros(1, 1), torch.full((1, 1), A), clip_low=0.2, clip_high=0.3
        )
        loss.sum().backward()
        slope = -log_prob.grad.item()
        assert effects[place].startswith("left alone") == (slope == 0)
        assert slopes[place] == ("slope 0" if slope == 0 else f"slope {'−' * (A < 0)}ρ")
        assert ("up" in effects[place]) == (A > 0)
    plt.close(fig)


def test_what_is_read_in_a_column_points_at_the_next_token():
    fig = diagrams.read_one_before(["1", "=", "4", "<eos>"], 2, ["a", "b"], reader="critic")
    at = {text.get_text(): text.get_position() for text in fig.axes[0].texts if text.get_text()}
    assert at["a"][0] == at["="][0] == at["4"][0] - 1
    assert at["b"][0] == at["4"][0] == at["<eos>"][0] - 1
    plt.close(fig)


def test_two_judges_say_the_td_errors_and_the_outcome():
    fig = diagrams.two_judges("BCBC", [0.5, 0.75, 0.5, 0.75], 1.0)
    said = [text.get_text() for text in fig.axes[0].texts if text.get_text()]
    errors = ["δ = +0.25", "δ = −0.25", "δ = +0.25", "δ = +0.25"]
    assert said == [*errors, "outcome − critic = +0.50"]
    plt.close(fig)


def test_answers_that_were_paid_more_than_their_group_are_moved_up():
    rewards = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    fig = diagrams.groups_of_answers(rewards, rewards - 0.5, ["easy", "hard"])
    arrows = [text for text in fig.axes[0].texts if not text.get_text()]
    rises = [arrow.xy[1] - arrow.xyann[1] for arrow in arrows]
    assert [rise > 0 for rise in rises] == [True, False, False, True]
    plt.close(fig)
