"""A panel for a training run: watch it learn, read what it writes, stop it, go on.

In a live notebook it is made of ipywidgets, and the run of a thread; a page without a kernel gets
the state that the run was in when the cell was run, and a slider for its texts in place of buttons.
"""

import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

from nbcourse.display import panel_page
from nbcourse.display.in_page import FILES, STYLE
from nbcourse.errors import UserError
from nbcourse.experiments.background import BackgroundRun, follow
from nbcourse.training.recipe import Recipe

LOOKS = STYLE + "".join(
    f"<style>{(FILES / name).read_text(encoding='utf-8')}</style>"
    for name in ("numbers.css", "panel.css")
)
# In a notebook that is not trusted yet nothing is drawn, and the sentence stays.
STORED = """<div class="nb-explorer" id="%(id)s">Run this cell to see the training run.</div>
<script type="text/html" id="%(id)s-content">%(content)s</script>
<script>(() => {
  const root = document.getElementById("%(id)s");
  root.innerHTML = document.getElementById("%(id)s-content").textContent;
  const slider = root.querySelector("input");
  if (!slider) return;
  const frames = [...root.querySelectorAll(".nb-frame")];
  const mark = root.querySelector(".nb-marked");
  const show = () => {
    const { step, fromFirst } = frames[slider.value].dataset;
    frames.forEach(frame => { frame.hidden = frame.dataset.step !== step; });
    mark.setAttribute("transform", `translate(${mark.dataset.oneStep * fromFirst} 0)`);
    slider.nextElementSibling.textContent = step;
    slider.setAttribute("aria-valuetext", `step ${step}`);
  };
  slider.addEventListener("input", show);
  show();
})();</script>"""
SECONDS = 0.2  # from one drawing to the next: steps may be shorter


def training_panel(
    recipe: Recipe, *, folder: str | Path, compare: Sequence[str | Path] = ()
) -> "TrainingPanel":
    """A panel with the run of a recipe in a folder: start, stop, resume, curves and texts.

    The run goes on in the background while other cells run, and while its page is closed: a cell
    that is run again shows the run at work. A run that was stopped, here or by Ctrl-C under
    `nbcourse train`, goes on as if it had not been; so does a finished one if the recipe asks for
    more steps.

    Args:
        recipe: what to do.
        folder: where records and checkpoints go, as those of `nbcourse train` do.
        compare: other runs that are drawn beside: their folders, or a folder of finished runs.

    Returns:
        A panel to be shown as the last line of a cell. `start`, `stop` and `wait` do in code what
        its buttons do.

    Raises:
        ValueError: if the folder holds a run of another recipe.
        FileNotFoundError: if a folder to compare with holds no run.
    """
    run = follow(recipe, folder)
    return TrainingPanel(run, panel_page.others(compare, own=run.folder))


class TrainingPanel:
    """The buttons, and what they are about; made by `training_panel`."""

    def __init__(self, run: BackgroundRun, beside: Sequence[panel_page.Other]) -> None:
        self.run, self.beside = run, beside
        self.start, self.stop, self.wait = run.start, run.stop, run.wait

    def widget(self) -> Any:
        """The live form: an ipywidgets box that follows the run."""
        return _Live(self.run, self.beside).box

    def html(self) -> str:
        """The stored form: where the run is now."""
        content = LOOKS + panel_page.page(self.run, self.beside)
        identity = "nb-panel-" + sha256(content.encode()).hexdigest()[:8]
        return STORED % {"id": identity, "content": content}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        forms = {"text/plain": "a panel with a training run", "text/html": self.html()}
        return self.widget()._repr_mimebundle_() | forms


class _Live:
    """The widgets, and how they follow a run."""

    def __init__(self, run: BackgroundRun, beside: Sequence[panel_page.Other]) -> None:
        import ipywidgets

        self.run, self.beside = run, beside
        self.drawn = (0.0, "")  # when, in which state
        self.later_drawing: threading.Timer | None = None
        self.drawing_lock = threading.Lock()
        # Three buttons, of which Tab finds those that do something.
        self.buttons = {
            name: ipywidgets.Button(description=name) for name in ("Start", "Stop", "Resume")
        }
        for name, button in self.buttons.items():
            button.on_click(self._stop if name == "Stop" else self._start)
        self.sentence, self.drawing, self.texts = (ipywidgets.HTML() for _ in range(3))
        self.earlier, self.later = (
            ipywidgets.Button(description=name) for name in ("Earlier", "Later")
        )
        self.chosen = ipywidgets.BoundedIntText(
            value=1,
            min=1,
            max=1,
            description="Texts of step",
            style={"description_width": "initial"},
            layout={"width": "190px"},
        )
        self.earlier.on_click(lambda _: self._move(-1))
        self.later.on_click(lambda _: self._move(1))
        self.chosen.observe(self._show_chosen, names="value")
        row = {"flex_flow": "row wrap"}
        choice = ipywidgets.HBox([self.chosen, self.earlier, self.later], layout=row)
        self.reading = ipywidgets.VBox([choice, self.texts])
        self.box = ipywidgets.VBox(
            [
                ipywidgets.HTML(LOOKS, layout={"display": "none"}),
                ipywidgets.HBox([*self.buttons.values()], layout=row),
                self.sentence,
                self.drawing,
                self.reading,
            ]
        )
        self.box.add_class("nb-panel")
        run.listeners.append(self._follow)
        self._draw()

    def _start(self, button: Any) -> None:
        try:
            self.run.start()
        except UserError as error:  # what a button raises is not shown
            shown = panel_page.sentence(self.run, live=True) + panel_page.error_line(error)
            self.sentence.value = _framed(shown)

    def _stop(self, button: Any) -> None:
        self.run.stop()

    def _follow(self) -> None:
        """Something is new: draw it, or where steps come too fast to be read, a little later."""
        when, state = self.drawn
        if state != self.run.state or monotonic() - when > SECONDS:
            self._draw()
        elif self.later_drawing is None:
            self.later_drawing = threading.Timer(SECONDS, self._draw)
            self.later_drawing.daemon = True
            self.later_drawing.start()

    def _draw(self) -> None:
        with self.drawing_lock:
            self.later_drawing = None
            state = self.run.state
            self.drawn = (monotonic(), state)
            started = self.run.step > 0 or state not in ("new", "failed")
            self.buttons["Start"].disabled = started
            self.buttons["Stop"].disabled = state not in ("preparing", "training")
            self.buttons["Resume"].disabled = state not in ("stopped", "failed") or not started
            self.sentence.value = _framed(panel_page.sentence(self.run, live=True))
            kept = sorted(self.run.samples)
            self.reading.layout.display = None if kept else "none"
            if kept:  # readers of the latest texts go on to the next ones
                at_the_end = self.chosen.value >= self.chosen.max
                self.chosen.max, self.chosen.min = kept[-1], kept[0]
                if at_the_end:
                    self.chosen.value = kept[-1]
            self._show_chosen()

    def _move(self, by: int) -> None:
        self.chosen.value += by

    def _show_chosen(self, change: Any = None) -> None:
        step = self.chosen.value
        samples = self.run.samples.get(step)
        self.earlier.disabled = step <= self.chosen.min
        self.later.disabled = step >= self.chosen.max
        drawing = panel_page.curves(self.run, self.beside, marked=step if samples else None)
        self.drawing.value = _framed(drawing + panel_page.runs(self.run, self.beside))
        self.texts.value = _framed(panel_page.texts(step, samples or []))


def _framed(html: str) -> str:
    return f'<div class="nb-explorer">{html}</div>'
