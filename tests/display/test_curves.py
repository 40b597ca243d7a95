"""The figure of a controlled experiment: nothing stands on anything else."""

from itertools import combinations

import matplotlib.pyplot as plt
import pytest
import torch

from nbcourse.display import controlled
from nbcourse.experiments.controlled import Experiment, differ

NAMES = ("seq-mean-token-mean", "seq-mean-token-sum-norm", "token-mean")


@pytest.mark.parametrize("numbers", [1, 2, 3])
def test_no_title_and_no_legend_stands_on_anything_else(numbers):
    titles = {str(number): f"number {number}" for number in range(numbers)}
    rising = {number: torch.arange(12.0).view(2, 6) for number in titles}
    made = Experiment(
        differ({name: {"aggregation": name} for name in NAMES}),
        seeds=(0, 1),
        schedule=range(6),
        curves=dict.fromkeys(NAMES, rising),
    )
    fig = controlled(made, titles)
    fig.draw_without_rendering()
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == list(NAMES)
    assert all(axis.get_legend() is None for axis in fig.axes)
    boxes = [legend.get_window_extent()]
    for axis in fig.axes:
        # a title is `_left_title`, as titles stand at the left of their panel
        boxes += [axis.get_window_extent(), axis._left_title.get_window_extent()]
    plt.close(fig)
    assert [
        pair
        for pair in combinations(range(len(boxes)), 2)
        if boxes[pair[0]].overlaps(boxes[pair[1]])
    ] == []
    assert all(box.x0 >= 0 and box.x1 <= fig.bbox.width for box in boxes)
