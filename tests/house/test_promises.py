"""What the documents promise: labels, packages asked for by name, documents, an example."""

import json
import re
from pathlib import Path

import pytest

from nbcourse.cli import training

ROOT = Path(__file__).resolve().parents[2]
TAKE_OVER = (
    'python -c "import json; from pathlib import Path; '
    "cells = json.loads(Path('book/02-sequences.ipynb').read_text())['cells']; "
    "figures = [''.join(o['data']['image/svg+xml']) for c in cells for o in c.get('outputs', []) "
    "if 'image/svg+xml' in o.get('data', {})]; "
    "Path('book/_static/leave-one-out.svg').write_text(figures[1])\""
)


def test_the_readers_requirements_hold_what_the_book_is_built_on():
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    asked = "jupyterlab, torch, transformers, matplotlib, ipywidgets, nbval, jupytext"
    for name in asked.split(", "):
        assert re.search(rf"^{name}==", text, re.M), name


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "LICENSE-TEXT",
        "CITATION.cff",
        "CHANGELOG.md",
        "Makefile",
    ],
)
def test_the_document_is_there(name):
    assert (ROOT / name).stat().st_size > 200


def test_the_readme_lists_every_chapter():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for notebook in (ROOT / "book").glob("*.ipynb"):
        assert f"book/{notebook.name}" in readme


def test_the_run_in_the_readme_is_a_recorded_one(capsys):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    record = ROOT / "book" / "runs" / "arithmetic-grpo-seed0"
    training.tell(record)
    ended, _, _ = capsys.readouterr().out.partition(";")
    assert f"`{ended}`" in readme
    environment, summary = (
        json.loads((record / f"{name}.json").read_text()) for name in ("environment", "summary")
    )
    assert environment["hardware"].endswith(", 2 cores")
    assert f"after a minute of `{environment['command']}` on two cores" in readme
    assert round((summary["seconds_before_first_step"] + summary["seconds_of_steps"]) / 60) == 1


def test_ten_seeds_that_nobody_tuned_to_reach_what_the_change_log_says():
    found = sorted((ROOT / "book" / "runs" / "arithmetic-grpo-seeds").glob("*/summary.json"))
    runs = [json.loads(file.read_text()) for file in found]
    assert [file.parent.name for file in found] == [f"seed{seed}" for seed in range(201, 211)]
    assert min(run["held_out"] for run in runs) > 0.98
    assert max(run["seconds_of_steps"] for run in runs) < 30
    family = (ROOT / "book" / "runs" / "arithmetic-family").glob("grpo-seed*/summary.json")
    before = sorted(json.loads(file.read_text())["held_out"] for file in family)
    assert [round(held_out, 2) for held_out in before] == [0.94, 0.96, 0.99]
    said = (
        "with .98 or more of held-out sums right in ten of ten new seeds; the three runs recorded "
        "after 500 steps end at .94, .96 and .99."
    )
    assert said in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


RUN_TIMES = {
    "5 seconds": "5 s",
    "10 seconds": "10 s",
    "15 seconds": "15 s",
    "20 seconds": "20 s",
    "half a minute": "½ min",
    "a minute": "1 min",
    "a minute and a half": "1½ min",
    "two minutes": "2 min",
    "two minutes and a half": "2½ min",
    "three minutes": "3 min",
}


@pytest.mark.parametrize(
    "text", sorted((ROOT / "book/text").glob("[0-9]*.md")), ids=lambda text: text.stem
)
def test_the_readme_has_the_run_time_that_the_chapter_states(text):
    box = re.search(
        r"\*Run time:\* (?:about|a little over) ([a-z0-9 ]+?) on ", text.read_text("utf-8")
    )
    assert box is not None
    (row,) = (
        line
        for line in (ROOT / "README.md").read_text("utf-8").splitlines()
        if re.match(rf"\| \d+ \| \[.*\]\(book/{text.stem}\.ipynb\) \|", line)
    )
    assert row.endswith(f"| {RUN_TIMES[box[1]]} |")


def test_the_picture_for_previews_is_the_one_in_the_book():
    notebook = json.loads((ROOT / "book/02-sequences.ipynb").read_text(encoding="utf-8"))
    figures = [
        "".join(output["data"]["image/svg+xml"])
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
        if "image/svg+xml" in output.get("data", {})
    ]
    shown = (ROOT / "book/_static/leave-one-out.svg").read_text(encoding="utf-8")
    assert figures[1] == shown, f"take it over:\n{TAKE_OVER}"


USING = ROOT / "book/appendix-h-using.md"


def test_the_readme_is_short():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 90
    assert len(readme.split()) <= 900


def test_the_example_of_the_package_runs():
    (example,) = re.findall(r"```python\n(import.*?)```", USING.read_text("utf-8"), re.S)
    names: dict = {}
    exec(example, names)
    assert names["log_probs"].grad.abs().sum() > 0
    assert (names["log_probs"].grad[~names["mask"]] == 0).all()


def test_the_readers_own_row_is_a_recipe(tmp_path):
    from nbcourse.training.recipe import load

    using = USING.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n# mine\.py\n(.*?)```", using, re.S)
    (recipe,) = re.findall(r"```toml\n# mine\.toml.*?\n(.*?)```", using, re.S)
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(recipe, encoding="utf-8")
    made = load(tmp_path / "mine.toml")
    assert made.settings == {"tilt": 0.3}
    assert made.row is made.own_code.algorithms["tilted"]


def test_questions_and_a_reward_of_ones_own_are_a_recipe(tmp_path, monkeypatch):
    from nbcourse.training.recipe import load
    from nbcourse.training.reward_functions import pay

    using = USING.read_text(encoding="utf-8")
    (recipe,) = re.findall(r"```toml\n# questions\.toml.*?\n(.*?)```", using, re.S)
    (tmp_path / "questions.toml").write_text(recipe, encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        "def score(prompts, completions, **columns):\n"
        "    return [c[0]['content'] == s for c, s in zip(completions, columns['solution'])]\n"
    )
    rows = [{"problem": f"{i} m in cm?", "solution": "200"} for i in range(30)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    made = load("questions.toml")
    problems = made.task.build().listed("train")[:2]
    paid = pay(made.reward.function, made.prompt, ["200", "20"], problems, [[1], [2]])
    assert paid == [1.0, 0.0]
    assert made.prompt.system in str(made.prompt.said())
