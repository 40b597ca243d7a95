"""A run with an observer, which sees each step, beside others, and may stop it."""

import pytest

from nbcourse.experiments import records
from nbcourse.experiments.run import train
from nbcourse.training.watch import Together, Watch
from tests.small import recipe, without_costs


class Notes(Watch):
    """Notes what it is shown."""

    def __init__(self) -> None:
        self.seen: list = []
        self.rows: list = []

    def before_updates(self, learner, experience, estimate, penalty, step):
        self.seen.append(("batch", step))

    def tokens(self, rows, batch_mask, log_probs, old_log_probs):
        self.seen.append(("tokens", len(rows)))

    def after_updates(self, learner):
        self.seen.append("updated")

    def after_step(self, metrics):
        self.seen.append(("step", metrics["step"]))
        self.rows.append(metrics)


def steps_of(*numbers):
    """What is shown of steps with one update on all rows."""
    rows = recipe().rollouts.responses
    return [
        each
        for step in numbers
        for each in (("batch", step - 1), ("tokens", rows), "updated", ("step", step))
    ]


@pytest.mark.parametrize("witness", [0, 1])
def test_an_observer_sees_each_step_and_changes_nothing(tmp_path, witness):
    made = recipe(witness={"every": witness}, kl={"beta": 0.1, "placement": "loss"})
    notes, kept = Notes(), Notes()
    _, rows = train(made, progress=False, watch=notes)
    _, in_folder = train(made, folder=tmp_path / "run", progress=False, watch=kept)
    _, alone = train(made, progress=False)
    assert notes.seen == kept.seen == steps_of(1, 2)
    assert notes.rows == rows
    assert kept.rows == in_folder
    assert str(without_costs(rows)) == str(without_costs(in_folder)) == str(without_costs(alone))
    assert len([*(tmp_path / "run").glob("witness/*")]) == 2 * witness


def test_observers_look_on_together_in_their_order():
    first, second = Notes(), Notes()
    second.seen = first.seen
    train(
        recipe(steps=1, kl={"beta": 0.1, "placement": "loss"}),
        progress=False,
        watch=Together(first, second),
    )
    assert first.seen == [each for each in steps_of(1) for _ in range(2)]


def test_a_run_that_is_asked_to_stop_after_its_last_step_is_done(tmp_path):
    for folder in (None, tmp_path / "run"):
        train(recipe(steps=2), folder=folder, stop=iter([False, True]).__next__, progress=False)
    assert records.summarised_steps(folder) == 2


def test_a_run_asks_at_the_end_of_each_step_whether_it_is_to_stop(tmp_path):
    notes = Notes()
    arguments = {"progress": False, "watch": notes, "stop": lambda: len(notes.rows) == 1}
    with pytest.raises(KeyboardInterrupt):
        train(recipe(steps=4), **arguments)
    assert len(notes.rows) == 2
    notes.rows.clear()
    with pytest.raises(KeyboardInterrupt):
        train(recipe(steps=4), folder=tmp_path / "run", **arguments)
    assert len(records.read_metrics(tmp_path / "run")) == 2
    _, rows = train(recipe(steps=4), folder=tmp_path / "run", resume=True, progress=False)
    _, whole = train(recipe(steps=4), progress=False)
    assert str(without_costs(rows)) == str(without_costs(whole))
