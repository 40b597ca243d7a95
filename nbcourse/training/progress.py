"""A progress bar with the numbers that one watches."""

import math
from types import TracebackType

from nbcourse.training.recipe import Recipe


class Display:
    """Shows the steps of a run as they come, in a terminal or under a notebook's cell."""

    def __init__(self, recipe: Recipe, visible: bool, *, done: int = 0) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            TextColumn(recipe.algorithm.name),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            disable=not visible,
        )
        self.task = self.progress.add_task("", total=recipe.steps, completed=done, numbers="")
        self.held_out = math.nan

    def __enter__(self) -> "Display":
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def show(self, row: dict[str, float]) -> dict[str, float]:
        """Move the bar by a step, and hand the step's numbers on."""
        self.held_out = row.get("held_out", self.held_out)
        numbers = [f"reward {row['reward']:.2f}"]
        if math.isfinite(self.held_out):
            numbers.append(f"held out {self.held_out:.2f}")
        numbers.append(f"KL {row['kl_ref']:.2f}")
        self.progress.update(self.task, advance=1, numbers=" · ".join(numbers))
        return row
