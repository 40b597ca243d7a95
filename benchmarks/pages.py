"""What a reader gets of a page of a book: measured in Chromium, side by side with other books.

    python benchmarks/pages.py                          # this book: it is built first
    python benchmarks/pages.py ours=_build/html/10-grpo.html theirs=/tmp/theirs/html/page.html
    python benchmarks/pages.py theirs=https://example.org/page.html --json pages.json

A page is a file of a site that was built, or an address; a name before it heads its column. A page
from a file asks no network: what it wants of another host is looked for in the folder of --copies,
as HOST/PATH (cdn.jsdelivr.net/npm/mathjax@3/es5/tex-mml-chtml.js), and else refused. Every number
follows from what the browser shows; bytes are counted with texts compressed by gzip, level 6,
whatever a server does. --json keeps the details: which rules of axe, which hosts, which errors.

Nothing here judges: see peers.md for what was measured, and for what only an eye can compare.
"""

import argparse
import gzip
import json
import mimetypes
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, sync_playwright

from nbcourse import installation
from nbcourse.publishing import site

PROBES = Path(__file__).with_name("pages.js").read_text(encoding="utf-8")
DISK = "page.invalid"  # the host that stands for the files of this machine
TEXTS = ("text/", "javascript", "json", "svg", "xml")
SCREEN, PHONE = (1400, 900), (390, 844)
PAPER = (718, 1000)  # A4 with margins of a centimetre
POINTER = {"click", "mousedown", "mousemove", "mouseenter", "mouseover"}
POINTER |= {"pointerdown", "pointermove", "touchstart", "touchmove"}
SHIFTS = """window.shifted = 0; new PerformanceObserver(list => list.getEntries().forEach(one =>
  one.hadRecentInput || (shifted += one.value))).observe({type: "layout-shift", buffered: true})"""
TO_THE_END = """async () => { for (const part of document.querySelectorAll("p, img, svg, canvas")) {
  part.scrollIntoView({behavior: "instant"}); await new Promise(done => setTimeout(done, 5)); } }"""
LISTENING = """[...document.querySelectorAll("body *")]"""


@dataclass
class Tab:
    """A page in a window of its own, and what it asked for."""

    page: Page
    host: str
    sizes: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def ask(self, probe: str) -> Any:
        return self.page.evaluate(f"measure.{probe}()")

    @property
    def weight(self) -> str:
        """Kilobytes and requests, those refused included."""
        kilobytes = sum(self.sizes.values()) / 1000
        return f"{kilobytes:,.0f} kB, {len(self.sizes) + len(self.refused)} requests"

    @property
    def elsewhere(self) -> list[str]:
        """The requests to other hosts than the page's."""
        asked = [*self.sizes, *self.refused]
        return [address for address in asked if urlsplit(address).hostname != self.host]


def _context(browser: Browser, size: tuple[int, int], *, dark: bool) -> BrowserContext:
    return browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        has_touch=size == PHONE,
    )


@contextmanager
def opened(
    browser: Browser,
    address: str,
    copies: Path | None = None,
    *,
    size: tuple[int, int] = SCREEN,
    dark: bool = False,
    alone: bool = False,
) -> Iterator[Tab]:
    """The page, when all that it loads by itself has come.

    Args:
        browser: a Chromium.
        address: of the page.
        copies: a folder with what other hosts would send, by host and path.
        size: width and height of the window.
        dark: whether the reader prefers dark pages.
        alone: refuse all that is asked of other hosts.
    """
    context = _context(browser, size, dark=dark)
    tab = Tab(context.new_page(), urlsplit(address).hostname or "")

    def answer(route: Route, request: Request) -> None:
        asked = urlsplit(request.url)
        foreign = (asked.hostname or "") != tab.host
        file = Path(asked.path) if asked.hostname == DISK else None
        if foreign and copies is not None and not alone:
            file = copies / str(asked.hostname) / asked.path.lstrip("/")
        if file is not None and file.is_file():
            kind = mimetypes.guess_type(file.name)[0] or request.headers.get("accept", "")
            body = file.read_bytes()
            headers = {"Content-Type": kind.split(",")[0], "Access-Control-Allow-Origin": "*"}
            tab.sizes[request.url] = transferred(body, kind)
            route.fulfill(body=body, headers=headers)
        elif asked.scheme != "file" and (tab.host in (DISK, "") or (foreign and alone)):
            tab.refused.append(request.url)
            route.abort()
        else:
            response = route.fetch() if asked.scheme != "file" else None
            body = response.body() if response else b""
            kind = response.headers.get("content-type", "") if response else ""
            tab.sizes[request.url] = transferred(body, kind)
            route.fulfill(response=response) if response else route.continue_()

    context.route("**/*", answer)
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error).splitlines()[0]))
    tab.page.add_init_script(SHIFTS)
    # Asked for a place in it, our page is laid out as a whole.
    tab.page.goto(f"{address}#top", wait_until="load")
    tab.page.wait_for_load_state("networkidle")
    tab.page.evaluate(PROBES)
    tab.ask("drawn")
    tab.page.wait_for_timeout(500)
    try:
        yield tab
    finally:
        context.close()


def transferred(body: bytes, kind: str) -> int:
    """The bytes on the way: texts are compressed."""
    return len(gzip.compress(body, 6)) if any(text in kind for text in TEXTS) else len(body)


def measured(browser: Browser, address: str, copies: Path | None) -> dict[str, str | list[str]]:
    """All rows of a page; what begins with an underscore is a detail."""
    rows: dict[str, str | list[str]] = {}
    with opened(browser, address, copies) as tab:
        rows["words"] = f"{tab.ask('words'):,}"
        rows["first opening"] = tab.weight
        rows["requests to other hosts"] = f"{len(tab.elsewhere)}"
        rows |= {"_elsewhere": tab.elsewhere, "_refused": tab.refused, "_errors": tab.errors}
        rows["layout shift"] = f"{tab.page.evaluate('shifted'):.3f}"
        ways = tab.ask("ways")
        rows["search, skip link, theme switch, notebook, next page"] = yes(ways)
        heads = tab.ask("headings")
        rows["first-level headings, levels skipped"] = f"{heads['first']}, {heads['skipped']}"
        text = tab.ask("text")
        rows["size of the text, characters on a line"] = (
            f"{text['size']:g} px, {text['characters']}"
        )
        maths = tab.ask("equations")
        rows["equations: displayed, numbered, linked to"] = joined(maths)
        rows["a reference shows its target under the mouse"] = "yes" if previews(tab) else "no"
        tab.page.evaluate(TO_THE_END)
        tab.page.wait_for_load_state("networkidle")
        rows["read to the end"] = tab.weight
        rows["pictures: all, vector, described; numbered captions"] = joined(tab.ask("pictures"))
        reach = reachable(tab)
        rows["parts that react to a pointer, of them reached by keyboard"] = joined(reach)
    objections = []
    for dark in (False, True):
        for size in (SCREEN, PHONE):
            with opened(browser, address, copies, size=size, dark=dark) as tab:
                found = Axe().run(tab.page).response["violations"]
                objections.append(sum(len(rule["nodes"]) for rule in found))
                look = f"{'dark' if dark else 'light'}, {size[0]} px"
                rows[f"_axe {look}"] = [f"{one['id']}: {len(one['nodes'])}" for one in found]
                if dark and size == SCREEN:
                    rows["a dark page for those who ask"] = (
                        "yes" if tab.ask("luminance") < 0.2 else "no"
                    )
                if not dark and size == PHONE:
                    rows.update(on_a_phone(tab))
    rows["axe: elements objected to, light 1400 and 390 px, dark 1400 and 390 px"] = ", ".join(
        map(str, objections)
    )
    with opened(browser, address, copies, alone=True) as tab:
        rows["without other hosts: formulas drawn, errors"] = without(tab)
    if urlsplit(address).hostname == DISK:
        with opened(browser, f"file://{urlsplit(address).path}", alone=True) as tab:
            rows["opened as a file: formulas drawn, errors"] = without(tab)
    rows.update(on_paper(browser, address, copies))
    return rows


def yes(answers: Mapping[str, bool]) -> str:
    return ", ".join("yes" if answer else "no" for answer in answers.values())


def joined(numbers: Mapping[str, int]) -> str:
    return ", ".join(map(str, numbers.values()))


def previews(tab: Tab) -> bool:
    """Whether something with words appears over the page when the mouse rests on a reference."""
    if not tab.ask("reference"):
        return False
    before = tab.ask("floating")
    tab.page.locator("[data-hovered]").first.hover(force=True)
    tab.page.wait_for_timeout(1000)
    after = tab.ask("floating")
    tab.page.mouse.move(0, 0)
    return bool(after > before)


def reachable(tab: Tab) -> dict[str, int]:
    """Parts of the page with a listener for the pointer, and those that a keyboard reaches."""
    devtools = tab.page.context.new_cdp_session(tab.page)
    found = devtools.send("Runtime.evaluate", {"expression": LISTENING})["result"]["objectId"]
    parts = devtools.send("Runtime.getProperties", {"objectId": found, "ownProperties": True})
    ours = []
    for part in parts["result"]:
        if (identity := part.get("value", {}).get("objectId")) is None or not part[
            "name"
        ].isdigit():
            continue
        listeners = devtools.send("DOMDebugger.getEventListeners", {"objectId": identity})
        if POINTER & {one["type"] for one in listeners["listeners"]}:
            ours.append({"objectId": identity})
    asked = devtools.send(
        "Runtime.callFunctionOn",
        {
            "functionDeclaration": "function(...parts) { return measure.reach(parts); }",
            "objectId": found,
            "arguments": ours,
            "returnByValue": True,
        },
    )
    return dict(asked["result"]["value"])


def on_a_phone(tab: Tab) -> dict[str, str]:
    boxes, text = tab.ask("boxes"), tab.ask("text")
    return {
        "390 px: pixels wider than the window": f"{max(0, tab.ask('wider'))}",
        "390 px: characters on a line": f"{text['characters']}",
        "390 px: boxes that scroll, of them in the order of tabs, cut off": joined(boxes),
        "390 px: controls in the text, of them 44 px": joined(tab.ask("targets")),
    }


def without(tab: Tab) -> str:
    formulas = tab.ask("drawn")
    return f"{formulas['drawn']} of {formulas['formulas']}, {len(tab.errors)}"


def on_paper(browser: Browser, address: str, copies: Path | None) -> dict[str, str]:
    """What is lost on paper, and how many sheets it takes."""
    with opened(browser, address, copies, size=PAPER) as tab:
        tab.page.emulate_media(media="print")
        tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        paper = tab.ask("paper")
        pdf = tab.page.pdf(format="A4")
        sheets = pdf.count(b"/Type /Page\n")
    return {"on paper: pages, blocks cut off, navigation": f"{sheets}, {joined(paper)}"}


def table(columns: Mapping[str, Mapping[str, str | list[str]]]) -> str:
    """The rows as Markdown, a column for each page."""
    rows = [row for row in next(iter(columns.values())) if not row.startswith("_")]
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[row, *(str(column.get(row, "")) for column in columns.values())] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def addresses(pages: Sequence[str]) -> dict[str, str]:
    """The address of each page by its name, which is that of its file if none is given."""
    named = {}
    for page in pages:
        name, separator, place = page.partition("=")
        name, place = (name, place) if separator else (Path(urlsplit(page).path).stem, page)
        if urlsplit(place).scheme not in ("http", "https"):
            place = f"http://{DISK}{quote(str(Path(place).resolve(strict=True)))}"
        named[name] = place
    return named


def compared(pages: Sequence[str], copies: Path | None) -> dict:
    """All rows of all pages, by the name of the page."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]  # containers have neither; pages are trusted
        browser = playwright.chromium.launch(executable_path=installation.browser(), args=options)
        return {
            name: measured(browser, address, copies) for name, address in addresses(pages).items()
        }


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("pages", nargs="*", metavar="[NAME=]PAGE")
    options.add_argument("--copies", type=Path, help="what other hosts would send")
    options.add_argument("--json", type=Path, help="a file for all rows and details")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pages = chosen.pages or [f"{site.build(Path(folder)) / '10-grpo.html'}"]
        columns = compared(pages, chosen.copies)
    if chosen.json:
        chosen.json.write_text(json.dumps(columns, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(table(columns))


if __name__ == "__main__":
    main()
