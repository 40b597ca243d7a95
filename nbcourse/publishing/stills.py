"""What explorers show before anybody moves them, for readers that run no script.

A browser opens all of them on one page. Then each drawing becomes a picture of its own, a slider
the value at which it stands, and a choice what was chosen; tables and sentences stay text.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bs4 import BeautifulSoup, Tag

from nbcourse import installation
from nbcourse.errors import NotAvailable
from nbcourse.publishing import printing

FOLDER = "_images"
# A drawing takes its letters along: outside of the page, no style sheet says how large they are.
SCRIPT = """addEventListener("load", () => setTimeout(() => {
  const looks = ["font-size", "font-weight", "font-style", "fill", "paint-order", "stroke",
    "stroke-width"];
  for (const hidden of document.querySelectorAll(".nb-explorer [hidden]")) hidden.remove();
  for (const svg of document.querySelectorAll(".nb-explorer svg")) {
    const { width, height } = svg.getBoundingClientRect(), image = new Image();
    for (const part of svg.querySelectorAll("text, tspan")) {
      const seen = getComputedStyle(part);
      part.setAttribute("style", looks.map(name => `${name}: ${seen.getPropertyValue(name)}`)
        .join("; ") + "; font-family: sans-serif");
    }
    for (const part of [svg, ...svg.querySelectorAll("*")]) {
      for (const { name } of [...part.attributes]) {
        if (/^(aria-|data-|role|tabindex|class)/.test(name)) part.removeAttribute(name);
      }
    }
    image.alt = "What the explorer draws first";
    [image.width, image.height] = [width, height].map(Math.round);
    image.dataset.drawing = btoa(unescape(encodeURIComponent(
      new XMLSerializer().serializeToString(svg))));
    svg.replaceWith(image);
  }
  for (const choice of document.querySelectorAll(".nb-explorer select")) {
    choice.replaceWith(choice.selectedOptions[0]?.textContent ?? "");
  }
  for (const box of document.querySelectorAll(".nb-explorer textarea")) {
    box.replaceWith(Object.assign(document.createElement("pre"), { textContent: box.value }));
  }
  const moved = ".nb-explorer :is(input, button, .nb-link)";
  for (const control of document.querySelectorAll(moved)) control.remove();
}));"""


@dataclass(frozen=True)
class Stills:
    """Explorers as they start.

    Args:
        explorers: the id of each → its element, whose drawings are pictures.
        pictures: path in the book → SVG.
    """

    explorers: dict[str, Tag] = field(default_factory=dict)
    pictures: dict[str, str] = field(default_factory=dict)


def draw(outputs: Iterable[str]) -> Stills:
    """Open explorers in a browser; nothing where none is installed.

    Args:
        outputs: the HTML of each, with its program.

    Raises:
        NotAvailable: if the browser does not open them.
    """
    browser = installation.browser()
    body = "".join(outputs)
    if browser is None or not body:
        return Stills()
    with TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(
            f'<!doctype html><meta charset="utf-8"><script>{SCRIPT}</script>{body}', "utf-8"
        )
        done = printing.opened(page, browser, "--dump-dom")
    stills = Stills()
    for explorer in BeautifulSoup(done.stdout, "html.parser").select(".nb-explorer[id]"):
        for number, image in enumerate(explorer.select("img[data-drawing]")):
            name = f"{FOLDER}/{explorer['id']}-{number}.svg"
            stills.pictures[name] = base64.b64decode(str(image["data-drawing"])).decode()
            image.attrs = {"src": name, **{key: image[key] for key in ("width", "height", "alt")}}
        for said in explorer.select("output"):  # in HTML, a word or two
            said.name = "span" if said.find_parent("label") else "div"
        stills.explorers[str(explorer["id"])] = explorer
    if not stills.explorers:
        raise NotAvailable(f"{browser} did not open the explorers: {printing.reason(done)}")
    return stills
