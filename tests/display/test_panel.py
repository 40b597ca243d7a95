"""The training panel without a browser: the run in its thread, and what is shown of it."""

import json
import re
import threading
import time

import pytest

from nbcourse.display import panel_page, training_panel
from nbcourse.errors import UserError
from nbcourse.experiments import background, records, run, samples
from nbcourse.experiments.background import BackgroundRun
from nbcourse.training import loop
from tests.effort import PATIENCE
from tests.small import recipe, without_costs

# A bit of everything that a run carries from step to step, and something to read from step 1 on.
CHANGES = {
    "steps": 5,
    "warm_start": {"steps": 60, "batch_size": 32},
    "optimiser": {"epochs": 2, "minibatches": 2, "learning_rate": 1e-3},
    "evaluation": {"every": 2, "problems": 8},
}


def one(**changes):
    return recipe("ppo", **{**CHANGES, **changes})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a run that was not stopped."""
    folder = tmp_path_factory.mktemp("undisturbed") / "whole"
    run.train(one(), folder=folder, progress=False)
    return folder


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    for each in list(background._at_work.values()):  # of a test that failed
        each.stop()
        each.wait()
    left = {thread.name for thread in set(threading.enumerate()) - before if thread.is_alive()}
    assert not {name for name in left if name.startswith("nbcourse")}


def stopping_after(panel, step):
    """Press Stop while a step is at work."""
    panel.run.listeners.append(lambda: panel.run.step == step - 1 and panel.stop())


def pressed(panel):
    """The live form: its three buttons, and which of them can be pressed."""
    buttons = panel.widget().children[1].children
    return {button.description: button for button in buttons}, [
        button.description for button in buttons if not button.disabled
    ]


def test_stopped_and_resumed_equals_undisturbed(undisturbed, tmp_path):
    panel = training_panel(one(), folder=tmp_path / "run")
    buttons, enabled = pressed(panel)
    assert enabled == ["Start"]
    stopping_after(panel, 2)
    buttons["Start"].click()
    panel.wait()
    assert (panel.run.state, panel.run.step) == ("stopped", 2)
    assert len(records.read_metrics(tmp_path / "run")) == 2
    assert pressed(panel)[1] == ["Resume"]
    # A kill leaves lines of steps after the last checkpoint, which come again.
    for name in (records.METRICS, samples.FILE):
        text = (tmp_path / "run" / name).read_text()
        stale = text.splitlines()[-1].replace('"step": 2', '"step": 3')
        (tmp_path / "run" / name).write_text(f"{text}{stale}\n")

    again = training_panel(one(), folder=tmp_path / "run")  # as after a restart of the kernel
    assert (again.run.state, again.run.step, sorted(again.run.samples)) == ("stopped", 3, [1, 2, 3])
    pressed(again)[0]["Resume"].click()
    again.wait()
    assert again.run.state == "finished"
    assert pressed(again)[1] == []
    whole = records.read_metrics(undisturbed)
    assert max(row["reward"] for row in whole) > 0
    kept = records.read_metrics(tmp_path / "run")
    for rows in (kept, again.run.metrics):  # as text, since NaN is not equal to itself
        assert str(without_costs(rows)) == str(without_costs(whole))
    assert again.run.samples == samples.read(tmp_path / "run")
    model = f"{records.MODEL}/model.safetensors"
    assert (tmp_path / "run" / model).read_bytes() == (undisturbed / model).read_bytes()


def test_texts_are_those_of_their_step_and_come_once(tmp_path, monkeypatch):
    collected = {}
    collect = loop.collect

    def noted(learner, draws, processes):
        batch = collect(learner, draws, processes)
        collected[draws.taken] = batch, batch.rollout.texts(learner.tokenizer)
        return batch

    monkeypatch.setattr(loop, "collect", noted)
    changes = {"steps": 3, "checkpoint": {"every": 2}}
    followed = BackgroundRun(one(**changes), tmp_path / "run")
    followed.start()
    followed.wait()
    for step, (batch, written) in collected.items():
        kept = followed.samples[step]
        group = followed.recipe.rollouts.group_size
        assert [s.prompt for s in kept] == [p.prompt for p in batch.problems[::group]]
        assert [s.reward for s in kept] == batch.scores[::group].tolist()
        assert [s.right for s in kept] == batch.correct[::group].bool().tolist()
        assert [s.truncated for s in kept] == batch.rollout.truncated[::group].tolist()
        assert [s.response for s in kept] == written[::group]
    assert samples.read(tmp_path / "run") == followed.samples

    # A kill: steps after the checkpoint come again, and of the last line there is half.
    lines = (tmp_path / "run" / samples.FILE).read_text().splitlines(keepends=True)
    (tmp_path / "run" / samples.FILE).write_text("".join(lines[:2]) + lines[2][:20])
    more = BackgroundRun(one(**{**changes, "steps": 4}), tmp_path / "run")
    assert sorted(more.samples) == [1, 2]
    more.start()
    more.wait()
    text = (tmp_path / "run" / samples.FILE).read_text()
    assert [json.loads(line)["step"] for line in text.splitlines()] == [1, 2, 4]


def test_an_error_is_shown_in_one_line_and_stays(tmp_path, monkeypatch):
    def fail(*args):
        raise FloatingPointError("the policy_loss is nan\nand more")

    panel = training_panel(one(), folder=tmp_path / "run")
    with monkeypatch.context() as broken:
        broken.setattr(loop, "learn", fail)
        panel.start()
        with pytest.raises(FloatingPointError, match="step 1: the policy_loss is nan"):
            panel.wait()
    line = "FloatingPointError: step 1: the policy_loss is nan</p>"
    for html in (panel.html(), panel.widget().children[2].value):
        assert "Failed after step 0 of 5" in html
        assert line in html
        assert "and more" not in html
    assert pressed(panel)[1] == ["Start"]
    panel.start()
    panel.wait()
    assert panel.run.state == "finished"
    assert "nb-error" not in panel.html().split("</style>")[-1]


def test_a_cell_that_is_run_again_shows_the_run_at_work(tmp_path):
    panel, too_late = (training_panel(one(), folder=tmp_path / "run") for _ in range(2))
    box = too_late.widget()
    panel.start()
    box.children[1].children[0].click()  # Start, in a cell that was run before the other's
    assert f"a run is at work in {tmp_path / 'run'} already</p>" in box.children[2].value
    again = training_panel(one(), folder=tmp_path / "run")
    assert again.run is panel.run
    again.start()  # is at work already
    assert sum(thread.name.startswith("nbcourse") for thread in threading.enumerate()) == 1
    with pytest.raises(UserError, match="run of another recipe is at work"):
        training_panel(one(seed=7), folder=tmp_path / "run")
    assert panel.run.state == "stopping"
    panel.wait()
    assert panel.run.state == "stopped"
    with pytest.raises(UserError, match="holds a run of another recipe: seed was 0 and is 7"):
        training_panel(one(seed=7), folder=tmp_path / "run")


def test_a_folder_that_another_program_trains_in_is_refused_in_the_panel(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    panel = training_panel(one(), folder=folder)
    with run.prepared(folder, one(), resume=False, processes=run.connect()):
        panel.start()
        with pytest.raises(UserError):
            panel.wait()
        assert "another process is at work" in panel.html()


def test_who_looks_on_cannot_end_the_run(tmp_path, capsys):
    followed = BackgroundRun(one(steps=2), tmp_path / "run")
    followed.listeners.append(lambda: 1 / 0)
    followed.start()
    followed.wait()
    assert followed.state == "finished"
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1


def test_a_program_that_ends_keeps_the_step(tmp_path):
    followed = BackgroundRun(one(steps=1000), tmp_path / "run")
    followed.start()
    end = time.monotonic() + PATIENCE
    while followed.step < 1 and time.monotonic() < end:
        time.sleep(0.01)
    background._stop_all()
    followed.wait()
    assert followed.state == "stopped"
    assert len(records.read_metrics(tmp_path / "run")) == followed.step


def test_the_stored_form_has_curves_and_texts_and_no_button(undisturbed, tmp_path):
    panel = training_panel(one(), folder=tmp_path / "run", compare=[undisturbed.parent])
    assert "Not started: 5 steps of ppo" in panel.html()
    panel.start()
    panel.wait()
    html = panel.html()
    assert html == panel.html()
    page = html.split("</style>")[-1]
    assert "Finished: 5 steps · reward" in page
    reward, held_out = page.split("<svg viewBox")[1:3]
    assert reward.count("<circle") == 2 * 5  # a point for each step, of both runs
    assert held_out.count("<circle") == 2 * 4  # steps 0, 2 and 4, and the last
    assert re.findall(r"Written in step (\d+)<", page) == ["1", "2", "3", "4", "5"]
    assert "<button" not in page
    forms = panel._repr_mimebundle_()
    assert {"text/html", "application/vnd.jupyter.widget-view+json"} <= set(forms)
    assert "//" not in page

    many = {step: panel.run.samples[1] for step in range(1, 102)}
    panel.run.samples = many
    written = re.findall(r"Written in step (\d+)<", panel.html())
    assert (len(written), written[0], written[-1]) == (35, "1", "101")  # every third, and the last


def test_other_runs_are_named_with_what_is_different(undisturbed, tmp_path):
    other = tmp_path / "runs" / "slow"
    run.train(
        one(steps=2, seed=3, optimiser={**CHANGES["optimiser"], "learning_rate": 1e-4}),
        folder=other,
        progress=False,
    )
    panel = training_panel(one(), folder=undisturbed, compare=[tmp_path / "runs"])
    html = panel.html()
    told = html.split("What is different in slow: ")[1].split(".</p>")[0]
    assert sorted(told.split("; ")) == [
        "optimiser.learning_rate: 0.0001, not 0.001",
        "seed: 3, not 0",
        "steps: 2, not 5",
    ]
    with pytest.raises(FileNotFoundError, match="no run in"):
        training_panel(one(), folder=undisturbed, compare=[tmp_path / "nothing"])
    with pytest.raises(UserError, match="compare has 5 runs, expected at most 4"):
        training_panel(one(), folder=undisturbed, compare=[other] * 5)


def test_the_reader_of_the_latest_texts_goes_on_to_the_next_and_others_stay(undisturbed):
    """The widgets follow the run: its state, its texts, and the step that was chosen."""
    panel = training_panel(one(), folder=undisturbed)
    followed = panel.run
    some = [samples.Sample("1+1=", "2", 1.0, True, False)]
    followed.samples = {1: some, 2: some}
    box = panel.widget()
    reading = box.children[4]
    chosen, earlier, later = reading.children[0].children
    assert (chosen.value, earlier.disabled, later.disabled) == (2, False, True)
    followed.samples = {**followed.samples, 3: some}
    followed.working = True
    followed._tell()
    assert chosen.value == 3
    earlier.click()
    earlier.click()
    followed.samples = {**followed.samples, 4: some}
    followed.working = False
    followed._tell()
    assert (chosen.value, chosen.max) == (1, 4)
    assert "Written in step 1<" in reading.children[1].value
    assert 'class="nb-marked"' in box.children[3].value


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (("1+1=", "2", 1.0, True, False), "<code>2</code></td><td>right<"),
        (
            ("1+1=", "</script><b>", 0.0, False, True),
            "&lt;/script&gt;&lt;b&gt;</code></td><td>wrong",
        ),
        (("1+1=", "3", -0.5, False, True), "wrong, cut off, reward −0.5<"),
        (("1+1=", "", 0.0, False, False), "<em>nothing</em>"),
        (("1" * 400, "2", 1.0, True, False), "1" * 300 + "…<"),
    ],
)
def test_a_text_is_shown_with_its_verdict(sample, words):
    assert words in panel_page.texts(3, [samples.Sample(*sample)])
