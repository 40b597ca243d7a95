"""All explorers on one page without a network: links, looks, and numbers equal to the package's.

The programs of KL and downhill have files of their own for what only they can do.
"""

import bisect
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from random import Random
from types import SimpleNamespace

import pytest
import torch

from book.studies import kl_sequences
from nbcourse import display
from nbcourse.budget import machines, prediction, shapes
from nbcourse.budget.prompts import USUAL_PROMPT
from nbcourse.diagnosis.inspection import first_groups, inspect, ratios, rows_for
from nbcourse.diagnosis.suspects import CHECKS
from nbcourse.display.ratios_explorer import CLIPS, RATES
from nbcourse.examine import known
from nbcourse.examine.groups import Groups
from nbcourse.examine.worlds import Prompt
from nbcourse.experiments import evidence, records
from nbcourse.functional import accuracy, advantages, aggregation, kl, returns, surrogates
from nbcourse.lm.log_probs import token_log_probs
from nbcourse.publishing import chapters, stored
from nbcourse.tasks import answers
from nbcourse.toys import bandit, enumeration, regularised
from nbcourse.toys.sequences import exact_gradient
from nbcourse.training import recipe
from nbcourse.training.algorithms import ALGORITHMS
from tests import five_answers
from tests.browser import fonts
from tests.browser.conftest import OVERLAPS
from tests.coin_walk import coin_walk
from tests.conftest import Watched
from tests.effort import swept
from tests.tasks.test_answers import CASES

BATCH = records.RUNS / "smollm2-word-problems-batch"
BENCHMARK = records.RUNS / "silent-failures"
BANDIT = (
    torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64),
    torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64),
)
ANSWERS = {
    "names": ["75", "85", "95", "185", "985"],
    "ref_probs": [0.5, 0.25, 0.15, 0.08, 0.02],
    "rewards": [0, 1, 0, 0, 0],
    "scores": [0.0, 0.8, 0.5, 0.6, 1.0],
}
# An answer's tokens, its log-ratios to the reference, and what a critic says.
CREDIT = (
    ["3", "0", "+", "1", "2", "=", "42", "<eos>"],
    [0.3, -0.2, 0.1, 0.6, -0.1, 0.0, 0.4, 0.1],
    [0.5, 0.55, 0.5, 0.5, 0.2, 0.6, 0.7, 0.9],
)
# One state of a language model; a name that is no HTML.
LOGITS = torch.tensor([0.5, 2.25, -3.0, 1.5, -1.25, 0.125], dtype=torch.float64)
NAMES = ["4", "2", "<eos>", "7", "␣", "&"]
# Episodes of 8, 7 and 6 steps in a table of 9: the first is cut, the others end.
STEPS = torch.tensor([8, 7, 6])
PLAYED = {
    "observations": torch.linspace(-0.2, 0.2, 108, dtype=torch.float64).view(9, 3, 4),
    "rewards": torch.linspace(0.5, 1.8, 27, dtype=torch.float64).view(9, 3),
    "truncated": torch.tensor([[False] * 3] * 7 + [[True, False, False]] + [[False] * 3]),
    "mask": torch.arange(9)[:, None] < STEPS,
}
VALUES = torch.tensor([3.5, 2.25, -1.5, 4.125, 0.5, 2.0, 6.25, 1.0, -0.75, 9.0]).double()
VALUES = VALUES[:, None] + torch.tensor([0.0, 7.0, 0.5])  # of 10 states, each in three columns
# Logits, rewards, 32 samples and as many spare ones.
SAMPLES = (
    torch.tensor([0.5, -1.0, 0.25, 1.5, 0.0, -0.5], dtype=torch.float64),
    torch.tensor([1.0, 0.0, -0.5, 0.25, 2.0, -1.0], dtype=torch.float64),
    *torch.randint(6, (2, 32), generator=torch.Generator().manual_seed(0)),
)
ROWS = [name for name in ALGORITHMS if name not in ("reinforce", "ppo", "reinforce++")]
# name in the link → how it is made, a state that differs from the first, one that cannot be
EXPLORERS: dict[str, tuple[Callable, str, str]] = {
    "baseline": (lambda: display.explore_baseline(*BANDIT), "40", "61"),
    "clip": (lambda: display.explore_clip(clip_high=0.28), "10", "10-1"),
    "lambda": (lambda: explore_a_walk(), "10", "11"),
    "downhill": (display.explore_downhill, "90-1-9-1-100-0-3", "90-1-8-1-100-0-3"),
    "kl": (display.explore_kl, "20-30-50-60-30-10", "20-30-50-60-30-11"),
    "tokens": (lambda: display.explore_tokens(witness()), "2-6-5-3", "2-6-99-3"),
    "group": (display.explore_group, "70-30-2", "70-30-99"),
    "passes": (display.explore_passes, "30-16-4", "30-16-0"),
    "lengths": (display.explore_lengths, "8-8-2-24", "8-8-2-25"),
    "memory": (display.explore_memory, "1-1-0-0-2-1-4-2", "1-1-0-0-2-3-4-2"),
    "beta": (lambda: display.explore_beta(**ANSWERS), "0-100", "51-100"),
    "verifier": (
        lambda: display.explore_verifiers(["#### 18", "#### 18 or 20\n#### 18"]),
        "35-35-35-35-49-56",
        "35-55296",
    ),
    "frozen": (lambda: display.explore_frozen(*kl_problem()), "10-6", "10-33"),
    "mismatch": (lambda: display.explore_mismatch(LOGITS, NAMES), "20-18-3", "20-18-2"),
    "stages": (
        lambda: display.explore_stages(PLAYED, VALUES[:-1], VALUES[1:], columns=(2, 0)),
        "4-90-50-3",
        "5-90-50-3",
    ),
    "ratios": (lambda: display.explore_ratios(*SAMPLES), "4-6-12-2", "4-7-12-2"),
    "updates": (lambda: explore_rows(), "3-6-8-40", "3-6-9-40"),
    "credit": (lambda: display.explore_credit(*CREDIT), "50-30-90", "50-101-90"),
    "guess": (lambda: display.explore_guesses(*recorded()), "0-3", "0-99"),
}
COVERED = f"""async element => {{
  const overlaps = {OVERLAPS}, found = overlaps(element);
  for (const slider of element.querySelectorAll("input[type=range]")) {{
    for (const end of ["min", "max"]) {{
      slider.value = slider[end];
      slider.dispatchEvent(new Event("input", {{ bubbles: true }}));
      await new Promise(requestAnimationFrame);
      found.push(...overlaps(element));
    }}
  }}
  return found;
}}"""
NUMBER = r"[+−]?\d+(?:\.\d+)?"

pytestmark = pytest.mark.browser


def witness():
    return evidence.read(BATCH).witnesses[-1]


def explore_a_walk():
    process, coin, critics = coin_walk()
    return display.explore_lambda(process, coin, critics, start=2)


def kl_problem():
    """One of those that chapter 12's ablations were recorded on: space, reference, rewards."""
    return kl_sequences.problem(kl_sequences.Training((3, 3, None), 0, "none", 1, None))


def recorded():
    """Three runs of the benchmark, one of them healthy, and what was diagnosed of them."""
    results = {row["run"]: row for row in records.read_results(BENCHMARK)}
    runs = {n: evidence.read(BENCHMARK / "logs" / f"{n}.zip") for n in ("006", "010", "012")}
    return runs, {name: results[name] for name in runs}


def explore_rows():
    """Chapter 10's explorer of the rows, all but those that compare with the whole batch."""
    prompt = Prompt(five_answers.SPACE, five_answers.LOGITS, five_answers.RIGHT)
    rows = {
        name: Groups.of(known.row(name, beta=0.0, average=0.3, longest=4), prompt, 3)
        for name in ROWS
    }
    return display.explore_updates(rows, prompt.gradient(), ["0", "1", "2", "3"], axis="ones")


def covered(part) -> list[str]:
    """What lies over what, or is cut off: as an explorer starts, and at the ends of its sliders."""
    return part.evaluate(COVERED)


def numbers(text: str) -> list[float]:
    return [float(number.replace("−", "-")) for number in re.findall(NUMBER, text)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A page with all explorers."""
    parts = [f'<div data-of="{name}">{made[0]().data}</div>' for name, made in EXPLORERS.items()]
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        "<style>body { margin: 8px 20px; }</style>" + "".join(parts),  # as wide as on the site
        encoding="utf-8",
    )
    return file


@pytest.fixture(scope="module")
def opened(browser, file) -> Iterator[SimpleNamespace]:
    """A phone with all explorers on one page, offline."""
    tab = Watched(browser, viewport={"width": 390, "height": 800}, has_touch=True, offline=True)
    tab.page.goto(file.as_uri())
    yield SimpleNamespace(page=tab.page, of=lambda name: tab.page.locator(f"[data-of={name}]"))
    assert tab.errors == []
    assert tab.foreign == []
    tab.context.close()


def follow(opened, name: str, state: str) -> str:
    """Follow a link to a state, and return what the explorer then says."""
    opened.page.mouse.move(0, 0)  # where the page stops, the mouse would lie on some word
    opened.page.evaluate(
        "hash => new Promise(done => {"
        " addEventListener('hashchange', () => setTimeout(done), { once: true });"
        " location.hash = ''; location.hash = hash; })",
        f"{name}-{state}",
    )
    return opened.of(name).locator(".nb-readout").inner_text()


@pytest.mark.parametrize("name", EXPLORERS)
def test_a_link_brings_a_state_back_and_a_wrong_one_does_nothing(opened, name):
    _, state, impossible = EXPLORERS[name]
    part = opened.of(name)
    first = part.locator(".nb-readout").inner_text()
    there = follow(opened, name, state)
    assert there != first
    assert part.locator(".nb-link").get_attribute("href") == f"#{name}-{state}"
    assert follow(opened, name, impossible) == there
    part.get_by_role("button", name="Start again").click()
    assert part.locator(".nb-readout").inner_text() == first


def test_plain_keys_are_the_explorers_and_shortcuts_the_pages(opened):
    opened.page.evaluate(
        "() => { window.heard = [];"
        " document.addEventListener('keydown', event => heard.push(event.key)); }"
    )
    slider = opened.of("group").get_by_role("slider").first
    slider.press("ArrowRight")  # JupyterLab would move to another cell
    slider.press("Control+k")  # the site would search
    heard = opened.page.evaluate("heard")
    assert "k" in heard
    assert "ArrowRight" not in heard


def test_a_finger_hits_every_control_and_nothing_is_wider_than_the_phone(opened):
    controls = "input, select, textarea, button, .nb-link"
    for control in opened.page.locator(controls).all():
        assert control.bounding_box()["height"] >= 44
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390


# ---------------------------------------------------------------- one slider, drawn in advance


@pytest.mark.parametrize("position", [0, 13, 60])
def test_the_variance_of_a_baseline_is_the_packages(opened, position):
    words = follow(opened, "baseline", str(position))
    probs, rewards = BANDIT
    baseline = torch.linspace(-1.4, 6.4, 61, dtype=torch.float64)[position].item()
    exact = bandit.gradient_variance(probs.log(), rewards, baseline=baseline).item()
    assert numbers(words)[:2] == pytest.approx([baseline, exact], abs=0.0051)


@pytest.mark.parametrize("position", [0, 20, 30])
def test_the_push_of_a_ratio_is_the_gradient_of_the_loss(opened, position):
    words = follow(opened, "clip", str(position))
    ratio = 0.125 + 0.05 * position
    for advantage, part in zip((1.0, -1.0), words.split(" · ")[1:], strict=True):
        log_ratio = torch.tensor([[ratio]], dtype=torch.float64).log().requires_grad_()
        zero = torch.zeros_like(log_ratio)
        loss = surrogates.ppo_clip(log_ratio, zero, zero + advantage, clip_low=0.2, clip_high=0.28)
        loss.sum().backward()
        push = -log_ratio.grad.item()
        assert numbers(part)[1] == pytest.approx(-loss.item(), abs=0.00051)
        assert ("no push" in part) == (push == 0)
        assert push == 0 or numbers(part)[2] == pytest.approx(push, abs=0.00051)


def test_a_key_moves_a_slider_and_its_drawing(opened):
    part = opened.of("lambda")
    part.get_by_role("button", name="Start again").click()
    drawing = part.locator("svg").inner_html()
    part.get_by_role("slider").press("ArrowRight")
    assert "2 episodes a batch" in part.locator(".nb-readout").inner_text()
    assert part.locator("svg").inner_html() != drawing


def test_letters_are_legible_on_a_phone(opened):
    sizes = opened.page.locator("svg text").evaluate_all(
        "all => all.map(text => [parseFloat(getComputedStyle(text).fontSize)"
        " * text.getScreenCTM().a, text.closest('[data-of]').dataset.of])"
    )
    assert {whose for size, whose in sizes if size < 12} == set()


# All of them are looked at in wider letters below.
@pytest.mark.parametrize("name", swept(EXPLORERS, keep=["kl", "updates"]))
def test_no_letters_cover_others_on_a_phone(opened, name):
    part = opened.of(name)
    part.get_by_role("button", name="Start again").click()
    assert covered(part) == []
    part.get_by_role("button", name="Start again").click()


@pytest.mark.parametrize("name", swept(fonts.SETS, keep=["wide"]))
def test_no_letters_cover_others_whatever_fonts_a_machine_has(browser, file, tmp_path, name):
    with fonts.browser_with(name, browser, tmp_path) as other:
        tab = Watched(other, viewport={"width": 390, "height": 800}, offline=True)
        tab.page.goto(file.as_uri())
        assert fonts.faces(tab.page, "svg text")[1].keys() == fonts.FAMILIES[name]
        assert [covered(part) for part in tab.page.locator("[data-of]").all()] == [[]] * len(
            EXPLORERS
        )
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390


# ---------------------------------------------------------------- group


@pytest.mark.parametrize(("p", "wrong", "size"), [(25, 0, 3), (90, 0, 4), (40, -10, 2)])
def test_the_variances_of_a_group_are_those_of_every_group(opened, p, wrong, size):
    shown = numbers(follow(opened, "group", f"{p}-{wrong + 20}-{size}"))
    probs = torch.tensor([p / 100, 1 - p / 100], dtype=torch.float64)
    rewards = torch.tensor([wrong / 10 + 1, wrong / 10], dtype=torch.float64)
    members = enumeration.groups(2, size)
    weights = advantages.leave_one_out(rewards[members].view(-1), group_size=size)
    estimates = weights.view(members.shape)[..., None] * bandit.score_vectors(probs.log())[members]
    others = enumeration.variance(enumeration.group_probs(probs, members), estimates.mean(dim=1))
    best = advantages.variance_optimal_baseline(probs, rewards)
    constant = [
        bandit.gradient_variance(probs.log(), rewards, baseline=b)
        for b in (0.0, probs @ rewards, best)
    ]
    expected = [constant[0], probs @ rewards, constant[1], best, constant[2]]
    assert shown[:5] == pytest.approx([float(x) for x in expected], abs=0.0051)
    assert shown[5:7] == pytest.approx([size, size * others.sum().item()], abs=0.00051)


# ---------------------------------------------------------------- pass@k


@pytest.mark.parametrize(("p", "n", "k"), [(10, 8, 8), (30, 6, 2), (50, 4, 5)])
def test_both_estimates_of_pass_at_k_are_those_of_every_outcome(opened, p, n, k):
    shown = numbers(follow(opened, "passes", f"{p}-{n}-{k}"))
    outcomes = torch.tensor(list(itertools.product([False, True], repeat=n)))
    chance = p / 100
    probs = (outcomes * chance + ~outcomes * (1 - chance)).double().prod(dim=1)
    plug_in = 1 - (1 - outcomes.double().mean(dim=1)) ** k
    truth = 1 - (1 - chance) ** k
    expected = []
    for values in ([accuracy.pass_at_k(outcomes, k=k)] if k <= n else []) + [plug_in]:
        mean = enumeration.mean(probs, values).item()
        expected += [mean, enumeration.variance(probs, values).sqrt().item()]
    expected.append(expected[-2] - truth)
    assert shown[2] == pytest.approx(truth, abs=0.00051)
    assert shown[-len(expected) :] == pytest.approx(expected, abs=0.00051)


# ---------------------------------------------------------------- beta


@pytest.mark.parametrize(("position", "score"), [(0, 100), (14, 100), (50, 100), (6, 70), (2, 0)])
def test_the_best_policy_for_a_beta_is_that_of_the_package(opened, position, score):
    shown = numbers(follow(opened, "beta", f"{position}-{score}"))
    ref_probs, rewards = (torch.tensor(ANSWERS[key]).double() for key in ("ref_probs", "rewards"))
    scores = torch.tensor([*ANSWERS["scores"][:-1], score / 100], dtype=torch.float64)

    def best(position):
        return bandit.kl_optimum(ref_probs.log(), scores, beta=10 ** (position / 20 - 1.5))

    probs = best(position)
    kl = probs @ (probs.log() - ref_probs.log())
    worth = [kl, (probs - ref_probs) @ scores, probs @ rewards, ref_probs @ rewards]
    assert shown[:4] == pytest.approx([float(x) for x in worth], abs=0.00051)
    rows = opened.of("beta").locator("tr:has(th[scope=row])").all()
    table = [numbers(row.inner_text()) for row in rows]
    expected = torch.stack([scores, ref_probs, probs], dim=1)
    for row, three in zip(table, expected.tolist(), strict=True):
        assert row[1:] == pytest.approx(three, abs=0.00051)
    share, beta = max((float(best(i) @ rewards), 10 ** (i / 20 - 1.5)) for i in range(51))
    assert shown[-2:] == pytest.approx([beta, share], abs=0.0006 if beta < 1 else 0.051)


# ---------------------------------------------------------------- lengths


@pytest.mark.parametrize("lengths", [(12, 6, 3, 1), (1, 1, 1, 1), (5, 24, 2, 7)])
def test_the_weight_of_a_token_is_the_gradient_of_the_average(opened, lengths):
    follow(opened, "lengths", "-".join(map(str, lengths)))
    rows = opened.of("lengths").locator("tr:has(td + td + td + td):has(small)")
    assert rows.count() == len(aggregation.MODES)
    mask = torch.arange(24) < torch.tensor(lengths)[:, None]
    for row, mode in zip(rows.all(), aggregation.MODES, strict=True):
        losses = torch.zeros(4, 24, requires_grad=True)
        aggregation.aggregate(losses, mask, mode, max_length=24).backward()
        assert row.locator("th").inner_text().startswith(mode)
        shown = [float(text) for text in row.locator("td").all_text_contents()]
        assert shown == pytest.approx(losses.grad[:, 0].tolist(), abs=0.000051)


def test_of_an_answer_the_area_is_its_weight(opened):
    follow(opened, "lengths", "12-6-3-1")
    bars = opened.of("lengths").locator("svg rect")
    areas = [box["width"] * box["height"] for box in (bar.bounding_box() for bar in bars.all())]
    for row, parts in enumerate(([12, 6, 3, 1], [1, 1, 1, 1], [12, 6, 3, 1], [12, 6, 3, 1])):
        found = areas[4 * row : 4 * row + 4]
        assert [area / found[3] for area in found] == pytest.approx(
            [part / parts[3] for part in parts], rel=0.02
        )


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("state", "recipe_name", "changes", "card"),
    [
        ("0-0-1-1-2-2-2-1", "gsm8k-qwen2.5-0.5b-grpo", ["rollouts.prompts_at_once=64"], "RTX 4090"),
        (
            "1-1-0-0-0-1-4-3",
            "gsm8k-qwen2.5-1.5b-ppo",
            [
                "model.precision=float32",
                "model.gradient_checkpointing=false",
                "optimiser.prompts_at_once=1",
                "rollouts.prompts_at_once=16",
                "rollouts.max_new_tokens=1600",
            ],
            "H200",
        ),
        (
            "0-1-1-0-5-0-0-0",
            "gsm8k-qwen2.5-0.5b-ppo",
            [
                "model.gradient_checkpointing=false",
                "optimiser.prompts_at_once=32",
                "rollouts.prompts_at_once=4",
                "rollouts.max_new_tokens=100",
            ],
            "T4",
        ),
        (
            "0-1-1-0-5-0-0-0",
            "gsm8k-qwen2.5-0.5b-ppo",
            [
                "model.precision=float16",
                "model.gradient_checkpointing=false",
                "optimiser.prompts_at_once=32",
                "rollouts.prompts_at_once=4",
                "rollouts.max_new_tokens=100",
            ],
            "T4",
        ),
    ],
)
def test_the_memory_shown_is_that_which_a_plan_foresees(opened, state, recipe_name, changes, card):
    words = follow(opened, "memory", state)
    asked = recipe.load(recipe_name, changes)
    plan = prediction.predict(
        asked,
        shapes.shape_of(asked),
        machines.DATASHEETS[card],
        prompt_tokens=USUAL_PROMPT,
    )
    rows = opened.of("memory").locator("tr:has(th[scope=row])").all()
    table = {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows}
    assert len(table) == 11
    for column, (phase, owners) in enumerate(plan.memory.items()):
        for owner, texts in table.items():
            expected = plan.peaks[phase] if owner == "all" else owners.get(owner, 0)
            assert float(texts[column] or 0) == pytest.approx(expected / 1e9, abs=0.0102)
        assert set(owners) <= set(table)
    assert ("does not fit" in words) == (max(plan.peaks.values()) > plan.machine.memory)


# ---------------------------------------------------------------- verifiers


def of_chapter_13() -> dict:
    """The cells of chapter 13 that define its verifiers, their cases, and pieces of texts."""
    names = ("def found_anywhere", "GOLDEN =", "NAIVE =", "PIECES =", "corpus =")
    cells = stored.read(chapters.find("13-gsm8k")).cells
    defined = {"re": re, "is_correct": answers.is_correct, "extract": answers.extract}
    for cell in cells:
        if cell.cell_type == "code" and any(name in cell.source for name in names):
            exec(re.split(r"\nrandom =|\nrows =", cell.source)[0], defined)
    return defined


def test_each_verdict_is_that_of_the_chapter_and_of_the_parser(opened):
    book = of_chapter_13()
    texts = [text for text, *_ in (*book["GOLDEN"], *book["EXPLOITS"], *CASES)] + book["corpus"]
    texts = [text for text in texts if len(text) <= 300 and "\ud800" not in text]
    random = Random(0)
    odd = ["\\boxed{", "}", "The answer is", "or", "٤٢", "𝟏𝟖", "½", "1_8", "1e1", "inf", "\u200b"]
    pieces = [*book["PIECES"], *odd, "#### 18", "\n", " ", "−", "–"]
    texts += ["".join(random.choices(pieces, k=random.randint(1, 7))) for _ in range(2000)]
    part = opened.of("verifier")
    shown = part.evaluate(
        """(part, texts) => texts.map(text => {
          const area = part.querySelector("textarea");
          area.value = text;
          area.dispatchEvent(new Event("input"));
          return [...part.querySelectorAll("tr")].slice(1).map(row =>
            [...row.querySelectorAll("td")].map(cell => cell.textContent));
        })""",
        texts,
    )
    seen = Counter()
    for text, rows in zip(texts, shown, strict=True):
        verdicts = [book["judge"](v, text, 18) for v in (*book["NAIVE"], book["strict"])]
        read = [answers.extract(text, strict=mode) for mode in (True, False)]
        verdicts.append("pays" if read[1] == 18 else "–")
        assert [verdict for verdict, _ in rows] == verdicts, text
        for (_, says), number in zip(rows[-2:], read, strict=True):
            whole = len(says) < 30 or not says.endswith("…")
            assert not whole or (None if says == "nothing" else Decimal(says)) == number, text
        seen.update(enumerate(verdicts))
    assert all(seen[i, verdict] > 20 for i in range(6) for verdict in ("pays", "–"))
    assert seen[2, "crashes"] > 20


def test_what_a_reader_types_is_a_text_and_no_program(opened):
    hostile = "####<img src=x onerror=x>"
    follow(opened, "verifier", "-".join(str(ord(c)) for c in hostile))
    part = opened.of("verifier")
    assert part.locator("img").count() == 0
    assert "<img" in part.locator("tr").nth(3).inner_text()
    assert part.locator("textarea").input_value() == hostile
    part.locator("textarea").fill("")
    assert part.get_by_label("example").input_value() == ""
    part.get_by_label("example").select_option("1")
    assert part.locator("textarea").input_value() == "#### 18 or 20\n#### 18"
    assert part.locator("tr td:nth-child(2)").all_inner_texts()[-6:] == ["pays"] * 4 + ["–"] * 2


# ---------------------------------------------------------------- frozen penalties


@pytest.mark.parametrize(("rate", "updates"), [(10, 1), (10, 6), (40, 1), (20, 4), (5, 32)])
def test_both_penalties_train_as_the_package_does(opened, rate, updates):
    shown = numbers(follow(opened, "frozen", f"{rate}-{updates}"))
    space, ref, rewards = kl_problem()
    best = regularised.optimum(space, ref, rewards, beta=1.0)
    places = {}
    for form in ("k1 in reward, recomputed", "k1 in reward"):
        logits, places[form] = ref, [0.0]
        for _ in range(30):
            old, shares = logits, space.probs(logits)
            for _ in range(updates):
                logits = logits + rate / 10 * regularised.gradient(
                    space, logits, old, ref, rewards, shares, form=form, beta=1.0
                )
            places[form].append(regularised.divergence(space, logits, ref).item())
        left = regularised.divergence(space, logits, best).item()
        assert shown[-1 if "recomputed" in form else -2] == pytest.approx(left, abs=0.000051)
    scores = torch.func.jacrev(lambda x: space.log_probs(x).sum(dim=1))(best).flatten(1)
    fisher = scores.T @ (space.probs(best)[:, None] * scores)
    largest = torch.linalg.matrix_norm(fisher, 2).item()
    assert shown[0] == pytest.approx(rate / 10 * updates * largest, abs=0.0051)
    lines = (
        opened.of("frozen")
        .locator("polyline")
        .evaluate_all("all => all.map(line => [...line.points].map(({ y }) => y))")
    )
    top = regularised.divergence(space, best, ref).item()
    scale = (lines[1][0] - lines[0][0]) / top  # pixels for a nat
    for drawn, curve in zip(lines[1:], places.values(), strict=True):
        assert [(lines[1][0] - y) / scale for y in drawn] == pytest.approx(curve, abs=0.5 / scale)


# ---------------------------------------------------------------- mismatch


@pytest.mark.parametrize(
    ("sampler", "share", "learner"), [(6, 20, 10), (10, 18, 10), (3, 4, 15), (20, 13, 7)]
)
def test_ratios_and_pushes_are_those_of_sampler_and_learner(opened, sampler, share, learner):
    shown = numbers(follow(opened, "mismatch", f"{sampler}-{share}-{learner}"))
    mu = (LOGITS / (sampler / 10)).softmax(dim=0)
    likeliest, order = mu.sort(descending=True)
    kept = order[likeliest.cumsum(dim=0) - likeliest < share / 20]
    mu = torch.zeros_like(mu).index_add(0, kept, mu[kept])
    mu = mu / mu.sum()
    leaf = LOGITS.clone().requires_grad_()
    every = leaf.expand(len(LOGITS), -1), torch.arange(len(LOGITS))
    log_probs = token_log_probs(*every, temperature=learner / 10)
    (push,) = torch.autograd.grad(mu @ log_probs, leaf)
    pi = log_probs.detach().exp()
    ratio = torch.where(mu > 0, pi / mu, 0.0)
    expected = [mu @ ratio, ratio.max(), mu @ ratio**2, pi[mu == 0].sum()]
    assert shown[:4] == pytest.approx([float(x) for x in expected], abs=0.0051)
    part = opened.of("mismatch")
    assert numbers(part.locator("p:last-child b").first.inner_text()) == pytest.approx(
        [push.max().item()], abs=0.00051
    )
    names = part.locator(".nb-readout i").all_inner_texts()
    assert names == [NAMES[push.argmax()], NAMES[push.argmin()]]
    assert part.locator("svg path").count() == int((mu == 0).sum())
    heights = part.locator("svg circle").evaluate_all("all => all.map(dot => dot.cy.baseVal.value)")
    drawn = ratio[LOGITS.argsort(descending=True)]
    powers = drawn[drawn > 0].log10().tolist()
    pixels = [height - heights[0] for height in heights[1:]]
    above = [power - powers[0] for power in powers[1:]]
    if max(map(abs, above), default=0) < 1e-9:  # at one temperature all ratios are the same
        assert pixels == pytest.approx([0] * len(pixels), abs=0.3)
    else:
        unit = pixels[-1] / above[-1]
        assert pixels == pytest.approx([unit * each for each in above], abs=0.3)


def test_one_policy_is_told_from_two(opened):
    assert "are one policy" in follow(opened, "mismatch", "7-20-7")
    assert "Two policies" in follow(opened, "mismatch", "7-20-8")
    assert "Two policies" in follow(opened, "mismatch", "7-12-7")


# ---------------------------------------------------------------- credit


@pytest.mark.parametrize(("beta", "lam", "gamma"), [(10, 95, 100), (0, 0, 90), (100, 100, 50)])
def test_the_credit_of_a_token_is_that_of_the_package(opened, beta, lam, gamma):
    shown = numbers(follow(opened, "credit", f"{beta}-{lam}-{gamma}").split("\n")[0])
    names, log_ratios, values = CREDIT
    d, v = (torch.tensor([row], dtype=torch.float64) for row in (log_ratios, values))
    mask = torch.ones_like(d, dtype=torch.bool)
    score = torch.ones(1, dtype=torch.float64)
    rewards = kl.rewards_with_kl(score, d, torch.zeros_like(d), mask, beta=beta / 100)
    settings = {"gamma": gamma / 100, "lam": lam / 100}
    found, _ = returns.token_gae(rewards, v, mask, **settings)
    delta, _ = returns.token_gae(rewards, v, mask, gamma=gamma / 100, lam=0.0)
    part = opened.of("credit")
    rows = part.locator("tr:has(th[scope=row])").all()
    assert [row.locator("th").inner_text() for row in rows] == names
    table = [[numbers(cell)[0] for cell in row.locator("td").all_inner_texts()] for row in rows]
    expected = torch.cat([rewards, v, delta, found]).T
    for row, four in zip(table, expected.tolist(), strict=True):
        assert row == pytest.approx(four, abs=0.00051)
    unpaid = torch.zeros(1, dtype=torch.float64)
    rewards = kl.rewards_with_kl(unpaid, d, torch.zeros_like(d), mask, beta=beta / 100)
    reach = found - returns.token_gae(rewards, v, mask, **settings)[0]
    assert shown[-1] == pytest.approx(reach[0, 0].item(), abs=0.00051)
    heights = part.locator("svg rect").evaluate_all("all => all.map(r => r.height.baseVal.value)")
    unit = max(heights) / found.abs().max().item()
    assert heights == pytest.approx([abs(a) * unit for a in found[0].tolist()], abs=0.3)


# ---------------------------------------------------------------- stages


@pytest.mark.parametrize(
    ("stage", "gamma", "lam", "step"),
    [(1, 99, 95, 1), (2, 90, 95, 6), (3, 90, 50, 8), (4, 100, 95, 2), (4, 90, 0, 7), (3, 0, 0, 5)],
)
def test_the_credit_of_each_stage_is_that_of_the_package(opened, stage, gamma, lam, step):
    words = follow(opened, "stages", f"{stage}-{gamma}-{lam}-{step}")
    part = opened.of("stages")
    bars = part.locator("svg rect:not([fill='#222'])").evaluate_all(
        "all => all.map(r => (r.getAttribute('fill') === '#0072B2' ? 1 : -1)"
        " * r.height.baseVal.value)"
    )
    rows = part.locator("tr:has(th[scope=row])").all()
    late, drawn = [], []
    for row, column in zip(rows, (2, 0), strict=True):
        length = int(STEPS[column])
        rewards, cut = (PLAYED[name][:length, [column]] for name in ("rewards", "truncated"))
        values = VALUES[: length + 1, [column]]
        fell = torch.zeros_like(cut)
        fell[-1] = ~cut[-1]
        tables = rewards, values[:-1], values[1:], fell, cut
        to_go = returns.discounted_returns(rewards.T, gamma=gamma / 100).T
        delta, _ = returns.env_gae(*tables, gamma=gamma / 100, lam=0.0)
        summed, _ = returns.env_gae(*tables, gamma=gamma / 100, lam=lam / 100 if stage > 3 else 1.0)
        found = (to_go, to_go - values[:-1], summed, summed)[stage - 1]
        late.append(found[-5:].mean().item())
        drawn += found[:, 0].tolist()
        cells = row.locator("td").all_inner_texts()
        if step > length:
            assert cells == ["is over"]
        else:
            shown = [numbers(cell)[0] for cell in cells]
            expected = torch.cat([values[:-1], to_go, delta, found], dim=1)[step - 1]
            assert shown == pytest.approx(expected.tolist(), abs=0.0051)
    assert numbers(words.split("\n")[0].split("A =")[2]) == pytest.approx(late, abs=0.0051)
    unit = max(map(abs, bars)) / max(map(abs, drawn))
    assert bars == pytest.approx([a * unit for a in drawn], abs=0.01)
    assert part.locator("[data-name=lambda]").is_disabled() == (stage < 4)


def test_the_pole_leans_as_it_did_at_this_step(opened):
    for step in (1, 5, 8):
        follow(opened, "stages", f"1-99-95-{step}")
        poles = (
            opened.of("stages")
            .locator("svg line[stroke-width='6']")
            .evaluate_all(
                "all => all.map(l => [l.x1, l.x2, l.y1, l.y2].map(end => end.baseVal.value))"
            )
        )
        for pole, column in zip(poles, (2, 0), strict=True):
            x, _, angle, _ = PLAYED["observations"][min(step, int(STEPS[column])) - 1, column]
            foot, tip, low, high = pole
            assert foot == pytest.approx(350 + 38 * x.item() / 2.4, abs=0.01)
            assert (tip - foot) / (low - high) == pytest.approx(angle.tan().item(), abs=1e-3)


# ---------------------------------------------------------------- ratios


KINDS = ((1, "k3"), (0, "k3"), (0, "k1"))  # spare, trained, trained


def learn(share: int, rate: float, clip: float):
    """After each of 40 steps: log-probs of all states, and ratios of both kinds of samples."""
    logits, rewards, *samples = SAMPLES
    old, state = logits.log_softmax(dim=0), torch.arange(32) // share
    advantages = (rewards - old.exp() @ rewards)[samples[0]]
    table = logits.repeat(32 // share, 1).requires_grad_()
    optimiser = torch.optim.Adam([table], lr=rate)
    clips = {"clip_low": min(clip, 1.0), "clip_high": clip}
    for _ in range(40):
        now = table.log_softmax(dim=1)[state, samples[0]]
        loss = surrogates.ppo_clip(now, old[samples[0]], advantages, **clips).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        after = table.detach().log_softmax(dim=1)
        pairs = [(old[actions], after[state, actions]) for actions in samples]
        cut = surrogates.clip_fraction(pairs[0][1], pairs[0][0], advantages, **clips)
        yield kl.exact(old.expand_as(after), after).mean(), pairs, cut, advantages


@pytest.mark.parametrize(
    ("rate", "clip", "steps", "doublings"),
    [
        (6, 3, 5, 0),
        (6, 3, 40, 2),
        (6, 5, 40, 2),  # each of these three differs from the one before in one number
        (8, 5, 40, 2),
        (8, 5, 40, 1),
        (8, 6, 12, 1),
        (8, 0, 30, 5),
    ],
)
def test_ratios_and_divergences_are_those_of_the_packages_loss(
    opened, rate, clip, steps, doublings
):
    words = follow(opened, "ratios", f"{rate}-{clip}-{steps}-{doublings}")
    path = list(learn(2**doublings, RATES[rate], CLIPS[clip] or math.inf))
    curves = [
        [exact, *(kl.estimate(*pairs[who], kind).mean() for who, kind in KINDS)]
        for exact, pairs, *_ in path
    ]
    part = opened.of("ratios")
    rows = [
        row.locator("td").all_inner_texts() for row in part.locator("tr:has(th[scope=row])").all()
    ]
    for column, (now, acts) in enumerate(rows):
        assert numbers(now) == pytest.approx([curves[steps - 1][column].item()], abs=0.000051)
        above = [i for i, row in enumerate(curves, start=1) if row[column] > 0.02]
        assert acts == (str(above[0]) if above else "never")
    _, pairs, cut, advantages = path[steps - 1]
    trained, spare = ((now - old).exp() for old, now in pairs)
    expected = [100 * cut, trained.mean(), spare.mean(), trained.max()]
    for shown, number, digits in zip(numbers(words)[:4], expected, (0, 3, 3, 2), strict=True):
        assert shown == pytest.approx(float(number), abs=0.51 * 10**-digits)
    for color, of in (
        ("#0072B2", trained[advantages > 0]),
        ("#D55E00", trained[advantages < 0]),
        ("#8a8a8a", spare),
    ):
        bars = part.locator(f"svg rect[fill='{color}']:not([height='14'])").evaluate_all(
            "all => all.map(r => [r.x, r.height].map(side => side.baseVal.value))"
        )
        counts = torch.histc(of.clamp(max=1.999), bins=40, min=0, max=2)
        assert [round((x - 12.5) / (376 / 40)) for x, _ in bars] == counts.nonzero()[:, 0].tolist()
        unit = bars[0][1] / counts[counts > 0][0].item()
        assert [h / unit for _, h in bars] == pytest.approx(counts[counts > 0].tolist(), abs=0.01)


# ---------------------------------------------------------------- updates


def mulberry32(seed: int) -> Iterator[float]:
    """The page's random numbers, in whole numbers without a sign."""
    low = 2**32 - 1
    while True:
        seed = (seed + 0x6D2B79F5) & low
        mixed = ((seed ^ (seed >> 15)) * (seed | 1)) & low
        mixed ^= (mixed + (mixed ^ (mixed >> 7)) * (mixed | 61)) & low
        yield (mixed ^ (mixed >> 14)) / 2**32


def batch_of(count: int, number: int) -> torch.Tensor:
    """The answers of a batch, groups of three side by side: the page draws unordered groups."""
    members = torch.combinations(torch.arange(5), 3, with_replacement=True)
    chances = [0.0] * len(members)
    shares = five_answers.SPACE.probs(five_answers.LOGITS).tolist()
    for group in itertools.product(range(5), repeat=3):
        place = members.tolist().index(sorted(group))
        chances[place] += math.prod(shares[i] for i in group)
    ends = list(itertools.accumulate(chances))
    drawn = itertools.islice(mulberry32(number), count)
    return members[[bisect.bisect_right(ends, place) for place in drawn]].flatten()


def expected_of(name: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of a row's update of so many groups, at most two if it averages tokens."""
    members = enumeration.groups(5, 3)
    shares = enumeration.group_probs(five_answers.SPACE.probs(five_answers.LOGITS), members)
    alone = torch.stack([five_answers.update(name, group) for group in members])
    if ALGORITHMS[name].aggregation != "token-mean":
        return enumeration.mean(shares, alone), enumeration.variance(shares, alone) / count
    tokens = five_answers.SPACE.mask.sum(dim=1)[members].sum(dim=1)
    chosen = enumeration.groups(len(members), count)
    weights = tokens[chosen][..., None, None].double()
    whole = (weights * alone[chosen]).sum(dim=1) / weights.sum(dim=1)
    probs = enumeration.group_probs(shares, chosen)
    return enumeration.mean(probs, whole), enumeration.variance(probs, whole)


# In pixels: heights over the axis of the bars, the marks and the gradient, and half the whiskers.
HEIGHTS = """svg => {
  const all = name => [...svg.querySelectorAll(name)];
  const level = line => line.y1.baseVal.value;
  const zero = level(svg.querySelector("line[stroke='#777']"));
  const bars = all("rect").map(bar => {
    const edge = bar.getAttribute("stroke-width") / 2;
    const [top, bottom] = [bar.y.baseVal.value - edge,
                           bar.y.baseVal.value + bar.height.baseVal.value + edge];
    return Math.abs(bottom - zero) < 1e-3 ? zero - top : zero - bottom;
  });
  const over = lines => lines.map(line => zero - level(line));
  const whiskers = all("line[stroke='#222']").filter(line =>
    line.x1.baseVal.value === line.x2.baseVal.value);
  return [bars, over(all("line[stroke-width='3.5']")),
          whiskers.map(line => Math.abs(level(line) - line.y2.baseVal.value) / 2),
          over(all("line[stroke-dasharray]"))];
}"""


@pytest.mark.parametrize(
    ("one", "two", "doublings", "number"),
    [
        ("rloo", "grpo", 0, 1),
        ("dapo", "dr-grpo", 1, 8),
        ("reinforce-ema", "cispo", 1, 99),
        ("gspo", "remax", 6, 40),
    ],
)
def test_the_update_of_a_batch_is_that_of_the_trainer(opened, one, two, doublings, number):
    places = [ROWS.index(name) for name in (one, two)]
    follow(opened, "updates", f"{places[0]}-{places[1]}-{doublings}-{number}")
    part, count = opened.of("updates"), 2**doublings
    lines = part.locator("tr:has(th[scope=row])").all()
    cells = [line.locator("td").all_inner_texts() for line in lines]
    p = exact_gradient(five_answers.SPACE, five_answers.LOGITS, five_answers.RIGHT)
    *drawn, dashed = part.locator("svg").evaluate(HEIGHTS)
    unit = dashed[0] / p[0, 0].item()  # pixels
    assert dashed[:4] == pytest.approx((unit * p[:, 0]).tolist(), abs=0.01)
    for column, name in enumerate((one, two)):
        sampled = five_answers.update(name, batch_of(count, number))
        mean, variance = expected_of(name, count)
        size = mean.norm() / p.norm()
        bias = (mean / mean.norm() - p / p.norm()).norm()
        scatter = variance.sum().sqrt() / mean.norm()
        cosines = [(x * p).sum() / (x.norm() * p.norm()) for x in (sampled, mean)]
        rest = [sampled.norm() / p.norm(), size, bias, scatter, (bias**2 + scatter**2).sqrt()]
        shown = [numbers(line[column])[0] for line in cells]
        assert shown[:2] == pytest.approx([float(x) for x in cosines], abs=0.000051)
        assert shown[2:] == pytest.approx([float(x) for x in rest], abs=0.00051)
        for heights, vector in zip(drawn, (sampled, mean, variance.sqrt()), strict=True):
            expected = unit * vector[:, 0] / size
            assert heights[column:8:2] == pytest.approx(expected.tolist(), abs=0.02)


def test_a_slider_is_as_long_for_every_name(opened):
    lengths = set()
    for row in range(len(ROWS)):
        follow(opened, "updates", f"{row}-0-3-1")
        slider = opened.of("updates").get_by_role("slider").first
        lengths.add(slider.bounding_box()["width"])
    assert len(lengths) == 1


def test_an_update_of_groups_without_spread_has_no_direction(opened):
    assert batch_of(2, 7).tolist() == [0] * 6
    follow(opened, "updates", "2-3-1-7")
    lines = opened.of("updates").locator("tr:has(th[scope=row])")
    assert lines.nth(0).locator("td").all_inner_texts() == ["–", "–"]
    assert lines.nth(2).locator("td").all_inner_texts() == ["0.000", "0.000"]


def test_batches_scatter_as_the_table_says():
    """99 batches of 8 groups: their mean squared distance, within four standard errors."""
    mean, variance = expected_of("rloo", 8)
    distances = torch.stack(
        [
            (five_answers.update("rloo", batch_of(8, number)) - mean).square().sum()
            for number in range(1, 100)
        ]
    )
    error = (distances.mean() - variance.sum()).abs()
    assert error < 4 * distances.std() / math.sqrt(99)


# ---------------------------------------------------------------- tokens

# Of each word of a group: its text, what its label says of two rows, and how its halves are drawn.
WORDS = """all => all.map(word => [word.textContent, word.getAttribute("aria-label"),
  word.style.backgroundImage])"""
COLOURS = {"cut": "212, 212, 212", "up": "0, 114, 178", "down": "213, 94, 0"}


def test_each_word_has_the_push_and_the_colour_that_autograd_gives_it(opened):
    batch = first_groups(witness(), 3)
    table = rows_for(batch)
    for one, two in itertools.pairwise([*table, "reinforce"]):
        places = [list(table).index(name) for name in (one, two)]
        follow(opened, "tokens", f"{places[0]}-{places[1]}-17-1")  # the third group
        seen = opened.of("tokens").locator(".nb-tokens span").evaluate_all(WORDS)
        pieces = batch.facts["pieces"][16:24]
        assert [text.replace("↵", "\n") for text, *_ in seen] == [*itertools.chain(*pieces)]
        found = inspect(table[one], batch)
        pushes, cuts = (
            [
                number
                for row, of in zip(every[16:24], pieces, strict=True)
                for number in row[: len(of)]
            ]
            for every in (found.pushes.tolist(), found.cut.tolist())
        )
        least = 0.6e-6 * found.pushes.abs().sum().item()  # shares are stored in millionths
        for (_, said, drawn), push, cut in zip(seen, pushes, cuts, strict=True):
            shown = re.search(rf": {re.escape(one)} (cut|{NUMBER}), {re.escape(two)} ", said)[1]
            assert (shown == "cut") == cut
            assert cut or numbers(shown) == pytest.approx([push], rel=6e-3, abs=least)
            kind = "cut" if cut else ("down" if shown.startswith("−") else "up")
            assert COLOURS[kind] in drawn.split("-gradient")[1]


@pytest.mark.parametrize(
    ("one", "two", "answer", "token"),
    [("grpo", "gspo", 5, 12), ("ppo", "dr-grpo", 1, 30), ("cispo", "reinforce++", 22, 17)],
)
def test_the_inspector_shows_what_the_rows_make_of_a_token(opened, one, two, answer, token):
    batch = first_groups(witness(), 3)
    table = rows_for(batch)
    places = [list(table).index(name) for name in (one, two)]
    said = follow(opened, "tokens", f"{places[0]}-{places[1]}-{answer}-{token}")
    part, i, t = opened.of("tokens"), answer - 1, token - 1
    assert f"“{batch.facts['pieces'][i][t]}”" in said
    words = numbers(said.split("probability")[1])
    chance = batch["last_old_log_probs"][i, t].exp().item()
    assert words[:2] == pytest.approx([chance, ratios(batch)[i, t].item()], rel=6e-3)
    head = part.locator(".nb-group p").nth(i % 8).inner_text()
    assert head.startswith(f"Answer {answer}, reward {batch['scores'][i].item():g}")
    for row, name in zip(part.locator("tbody tr").all(), (one, two), strict=True):
        found = inspect(table[name], batch)
        credit, push, share = row.locator("td").all_text_contents()[1:]
        assert numbers(credit) == pytest.approx([found.advantages[i, t].item()], rel=6e-3)
        if found.cut[i, t]:
            assert push == "cut"
        else:
            assert numbers(push) == pytest.approx([found.pushes[i, t].item()], rel=2e-2)
        total = found.pushes.abs().sum().item() or 1.0  # GSPO may cut all of them
        part_of_all = 100 * found.pushes[i, t].item() / total
        assert numbers(share) == pytest.approx([part_of_all], abs=0.0051)
        whole = 100 * found.pushes[i].sum().item() / total
        shown = re.search(rf"{re.escape(name)}: .*?share ({NUMBER}) %", head)[1]
        assert numbers(shown) == pytest.approx([whole], abs=0.051)


# Of the box with the numbers, while a mouse points at one word after the other.
HEIGHTS_OF_WORDS = """part => [...part.querySelectorAll(".nb-tokens span")].map(word => {
  word.dispatchEvent(new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse" }));
  return part.querySelector(".nb-above").offsetHeight;
})"""


def test_the_numbers_of_a_word_fit_on_a_phone_and_stay_in_sight(opened):
    names = list(rows_for(first_groups(witness(), 3)))
    longest, smallest = names.index("grpo-sequence-mask"), names.index("dr-grpo")
    follow(opened, "tokens", f"{longest}-{smallest}-5-7")
    part = opened.of("tokens")
    table = part.locator("table")
    assert numbers(table.inner_text())[-2] < 1e-4  # a long number
    assert table.bounding_box()["width"] <= part.locator(".nb-group").bounding_box()["width"]
    for cell in table.locator("td").all():
        assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    assert len(set(part.evaluate(HEIGHTS_OF_WORDS))) == 1  # no word moves from under a mouse
    part.locator(".nb-tokens").last.scroll_into_view_if_needed()
    assert part.locator(".nb-above").bounding_box()["y"] >= 0


def test_a_finger_a_mouse_and_keys_reach_a_word(opened):
    part = opened.of("tokens")
    part.get_by_role("button", name="Start again").click()
    strips, said = part.locator(".nb-tokens"), part.locator(".nb-readout p")
    strips.nth(1).locator("span").nth(4).tap()
    chosen = part.locator("[aria-selected=true]")
    assert said.inner_text().startswith("Answer 2, token 5, ")
    strips.nth(2).locator("span").nth(6).hover()
    assert said.inner_text().startswith("Answer 3, token 7, ")
    opened.page.mouse.move(0, 0)  # off the words, wherever the page has scrolled to
    assert said.inner_text().startswith("Answer 2, token 5, ")
    chosen.press("ArrowRight")
    chosen.press("ArrowDown")
    assert said.inner_text().startswith("Answer 3, token 6, ")
    assert chosen.evaluate("word => word === document.activeElement")
    assert part.locator(".nb-tokens [tabindex='0']").count() == 1
    part.get_by_label("and", exact=True).select_option(label="gspo")
    assert "gspo" in part.locator("tbody").inner_text()
    part.get_by_label("problem", exact=True).select_option(label="3")
    assert said.inner_text().startswith("Answer 17, token 1, ")


# ---------------------------------------------------------------- guesses

CHOICES = [None, *(cause for check in CHECKS.values() for cause in check.causes)]


@pytest.mark.parametrize(
    ("said", "named", "told"),
    [  # the runs are healthy, mixed-groups, idle-optimiser
        ((None, "mixed-groups", "idle-optimiser"), 3, 3),
        (("kl-sign", "mixed-groups", "masked-eos"), 1, 2),
        ((None, None, None), 1, 1),
        (("kl-sign", None), 0, 0),
    ],
)
def test_guesses_are_scored_as_diagnoses_are(opened, said, named, told):
    many = len(said)
    follow(opened, "guess", "-".join(str(CHOICES.index(cause)) for cause in said))
    rows = opened.of("guess").locator("tr")
    _, results = recorded()
    truths = [row["cause"] for row in results.values()][:many]
    expected = {"you": (named, told)}
    for basis, who in (("curves", "curves"), ("witness", "witnesses")):
        first = [next(iter(row[basis]), None) for row in results.values()][:many]
        pairs = list(zip(first, truths, strict=True))
        expected[who] = (
            sum(a == b for a, b in pairs),
            sum((a is None) == (b is None) for a, b in pairs),
        )
    assert rows.count() == 5
    for row in rows.all()[1:4]:
        shown = numbers(row.inner_text())
        counts = expected[row.locator("th").inner_text()]
        for count, (right, low, high) in zip(counts, (shown[:3], shown[3:]), strict=True):
            ends = accuracy.wilson_interval(count, many)
            assert right == count
            assert [low, high] == pytest.approx([100 * end for end in ends], abs=0.51)
    assert numbers(rows.nth(4).inner_text()) == pytest.approx(
        [many / len(CHOICES), many / 2], abs=0.051
    )


def test_a_reader_plays_through_and_can_begin_again(opened):
    part = opened.of("guess")
    part.get_by_role("button", name="Start again").click()
    for cause in ("mixed-groups", "mixed-groups", "healthy"):
        assert part.locator(".nb-dials svg").count() == 6
        part.get_by_label("your guess").select_option(label=cause)
        part.get_by_role("button", name="That is my guess").click()
    assert "idle-optimiser" in part.locator(".nb-readout").inner_text()
    assert not part.get_by_role("button", name="That is my guess").is_visible()
    assert numbers(part.locator("tr").nth(1).inner_text())[0] == 1
    part.get_by_role("button", name="Start again").click()
    assert part.get_by_role("button", name="That is my guess").is_visible()


# Last, since it leaves the page as it is on paper, where no control can be hit.
def test_in_the_dark_white_becomes_the_page_and_on_paper_there_is_an_address(opened):
    explorer = opened.page.locator(".nb-explorer").first
    filters = "element => getComputedStyle(element).filter"
    assert explorer.evaluate(filters) == "none"
    opened.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert "invert(1)" in explorer.evaluate(filters)
    opened.page.emulate_media(media="print")
    assert explorer.evaluate(filters) == "none"
    assert not explorer.locator("button").is_visible()
    printed = "link => getComputedStyle(link, '::after').content"
    assert "page.html#baseline-" in explorer.locator(".nb-link").evaluate(printed)
