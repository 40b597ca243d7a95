"""Appendix G keeps its promise: a session that ends costs little, and the next one goes on."""

import pytest

from nbcourse.budget import machines
from nbcourse.experiments import records
from nbcourse.publishing import chapters, execution, stored

LAUNCH = chapters.BOOK / "appendix-g-launch.ipynb"
TRIAL_FOLDER, LOOKED_AT = 'Path(session.name, "kept")', "machines.best_precision()"
RUN = '"--set", "steps=2")'  # how the session ends that the trial plays


def session(keep, folder, *, card=LOOKED_AT, until=None):
    """Run the notebook's code in a folder, as a session in which `keep` survives does.

    Args:
        keep: the folder that survives.
        folder: where the session starts.
        card: code of the precision that the card of this session asks for.
        until: words in a cell after which the session ends at once.
    """
    notebook, done = stored.read(LAUNCH), []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.source = cell.source.replace(TRIAL_FOLDER, f"Path({str(keep)!r})")
        cell.source = cell.source.replace(LOOKED_AT, card)
        done.append(cell)
        if until and until in cell.source:
            cell.source = cell.source[: cell.source.index(until) + len(until)]
            break
    notebook.cells = done
    execution.execute(notebook, folder=folder)


@pytest.mark.sweep  # minutes; every run executes the notebook once, cell by cell
@pytest.mark.skipif(machines.has_gpu(), reason="there the notebook trains in earnest")
def test_a_second_session_goes_on_where_the_first_one_ended(tmp_path):
    """The first has a card for float16 and dies after two steps, the second has none."""
    keep = tmp_path / "kept"
    base = keep / "runs/smollm2-word-problems-base-seed0/model/model.safetensors"
    run = keep / "runs/smollm2-word-problems-grpo-lora-seed0"
    session(keep, tmp_path, card='"float16"', until=RUN)
    made, begun = base.stat().st_mtime_ns, (run / records.METRICS).read_text().splitlines()
    assert len(begun) == 2
    session(keep, tmp_path)
    assert base.stat().st_mtime_ns == made  # the base is taken, not made again
    lines = (run / records.METRICS).read_text().splitlines()
    assert lines[:2] == begun
    assert len(lines) == records.read_recipe(run).steps == 4
    assert all("loss_scale" in row for row in records.read_metrics(run))  # float16, as it began
    assert (keep / "results.zip").is_file()
