"""The site in a real browser, with every other host refused: complete, rendered, moving."""

import itertools
import json
import re
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nbcourse.publishing import (
    anchors,
    bibliography,
    chapters,
    every_mistake,
    letters,
    numbering,
    printing,
    reference,
    search,
    site,
    slides,
    stored,
)
from tests.browser import fonts
from tests.browser.conftest import OVERLAPS, SIZE
from tests.browser.searches import SEARCHES
from tests.conftest import Watched
from tests.effort import swept

CHAPTERS = [notebook.stem for notebook in chapters.notebooks()]
PAGES = [page.stem for page in (chapters.ROOT / "book").glob("*.md")]  # nothing in them runs
ROOMS = [*reference.ROOMS, reference.BESIDE, reference.COMMAND_LINE]
REFERENCE = [*(f"reference/{room}" for room in ROOMS), every_mistake.NAME, bibliography.NAME]
SHEETS = [f"exercises/{sheet.stem}" for sheet in (chapters.BOOK / "exercises").glob("*.ipynb")]
OTHERS = swept([*SHEETS, *REFERENCE], keep=[SHEETS[0], REFERENCE[0], bibliography.NAME])
# Those with tables, with Python in the page, or with an explorer of their own.
SHOWN = swept(CHAPTERS, keep=[CHAPTERS[number] for number in (1, 2, 5, 10, 12, 16)])
OPENING = swept([name for name in CHAPTERS if name[0].isdigit()], keep=[CHAPTERS[10]])
FORMULA = ".math.notranslate"  # what Sphinx makes of $…$ and $$…$$
NOT_DRAWN = """formulas => formulas.filter(formula => !formula.querySelector("mjx-container"))
  .map(formula => formula.textContent)"""
RAW_TEX = re.compile(r"\$\$|\\\(|\\\[|\\[A-Za-z]{2,}")
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1400, "height": 900}},
    "dark, on a phone": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
}
MOST_BYTES, MOST_REQUESTS = 1_500_000, 25
WIDER_THAN_THE_PAGE = "document.documentElement.scrollWidth > window.innerWidth"
# What can be seen of an explorer: the visible shapes of its drawing, and its read-out.
SEEN = """explorer => [...explorer.querySelectorAll("svg *, .nb-readout")]
  .filter(part => part.checkVisibility()).map(part => part.outerHTML).join()"""

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def built(forked, tmp_path_factory) -> Path:
    return site.build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def address(built, serve) -> Iterator[str]:
    with serve(built) as address:
        yield address


@pytest.fixture(scope="module")
def tab(request, lent, address) -> Iterator[Watched]:
    """The tab with a page, by its name; it is loaded once, and has all its tests in a row."""
    watched = lent(viewport=SIZE)  # the tests between them that open pages have another
    watched.page.goto(f"{address}/{request.param}.html#main-content")  # all of it is laid out
    yield watched
    assert watched.foreign == []
    assert watched.errors == []


@pytest.fixture(scope="module")
def phone(request, lent, address):
    """The page of that name on a phone, laid out to its end, for all of its tests in a row."""
    page = lent(**PHONE, color_scheme="light").page  # others do not name the colours
    page.goto(f"{address}/{request.param}.html#main-content")
    unfold(page)
    return page


def on_pages(*names: str):
    return pytest.mark.parametrize("tab", names, indirect=True)


def unfold(page) -> None:
    """By the switch below the title, where the page has something that goes deeper."""
    for switch in page.get_by_label("Show everything that goes deeper").all():
        switch.check()


def test_every_chapter_has_its_page(built):
    others = {"index", "search", "genindex"}
    assert {page.stem for page in built.glob("*.html")} == {*CHAPTERS, *PAGES, *others}


def test_a_foreign_request_and_an_error_are_noticed(open_tab, serve, tmp_path):
    """The net itself: without this, the tests below could pass because nothing listens."""
    (tmp_path / "page.html").write_text('<img src="http://example.org/x"><script>oops()</script>')
    with serve(tmp_path) as address:
        tab = open_tab()
        tab.page.goto(f"{address}/page.html")
    assert tab.foreign == ["http://example.org/x"]
    assert any("oops" in error for error in tab.errors)


# What waits until nothing else is to do has been done, and what it asked for has been asked for.
# A page that is never idle, or that draws nothing, is asked after half a minute all the same.
NOTHING_TO_DO = """() => new Promise(done => requestIdleCallback(
  () => requestIdleCallback(() => setTimeout(done), { timeout: 30_000 }), { timeout: 30_000 }))"""


def test_the_address_of_the_site_leads_to_the_front_page(lent, address):
    tab = lent()
    tab.page.goto(f"{address}/")
    tab.page.wait_for_url("**/intro.html")
    assert tab.foreign == []
    assert tab.errors == []


@on_pages("intro", "search", "genindex", *SHOWN, *OTHERS)
def test_a_page_needs_nothing_from_elsewhere(tab):
    """As it opens: what comes later, with the tests of a page, is looked at when its tab closes."""
    tab.page.evaluate(NOTHING_TO_DO)
    assert tab.foreign == []
    assert tab.errors == []


@on_pages("intro", *SHOWN, *OTHERS)
def test_a_page_is_light(tab, built):
    """Bytes as it opens, before a figure comes into sight; requests to its very end."""
    opened = {urlsplit(url).path.lstrip("/") for url in tab.requests}
    figures = set(re.findall(r'src="(_images/[^"]+)"', tab.page.content()))
    assert sum((built / file).stat().st_size for file in opened) < MOST_BYTES
    assert len(opened | figures) <= MOST_REQUESTS


@on_pages("intro", *SHOWN)
def test_every_equation_is_drawn(tab):
    page = tab.page
    assert page.locator(FORMULA).evaluate_all(NOT_DRAWN) == []
    assert page.locator("mjx-merror, [data-mjx-error]").count() == 0
    prose = page.locator("article").evaluate(
        "article => { const copy = article.cloneNode(true);"
        " const other = copy.querySelectorAll('pre, code, script, style, .nb-explorer');"
        " other.forEach(node => node.remove()); return copy.textContent; }"
    )
    assert RAW_TEX.findall(prose) == []


WIDTHS = """async images => {
  const widths = [];
  for (const image of images) {
    image.scrollIntoView();  // lazy images load when they come into sight
    await image.decode();
    widths.push(image.naturalWidth);
  }
  return widths;
}"""


@on_pages(*SHOWN)
def test_every_figure_is_there_and_says_what_it_shows(tab):
    unfold(tab.page)
    images = tab.page.locator(".cell_output img")
    texts = anchors.ALT.findall(chapters.text_of(chapter(tab.page)).read_text(encoding="utf-8"))
    assert images.evaluate_all("images => images.map(({ alt }) => alt)") == texts
    assert all(width > 0 for width in images.evaluate_all(WIDTHS))


@on_pages(*SHOWN)
def test_every_explorer_moves_without_a_kernel(tab):
    unfold(tab.page)
    explorers = tab.page.locator(".nb-explorer")
    pages = outputs_of(tab.page, "text/html")
    assert explorers.count() == sum('class="nb-explorer"' in page for page in pages)
    for explorer in explorers.all():
        before = explorer.evaluate(SEEN)
        if explorer.get_by_role("slider").count():
            explorer.get_by_role("slider").first.press("ArrowRight")
        elif explorer.get_by_role("textbox").count():
            explorer.get_by_role("textbox").press_sequentially("or 3")
        elif explorer.locator(".nb-inspector").count():
            explorer.get_by_role("combobox").first.select_option(index=1)
        else:
            explorer.get_by_role("button").first.press("Enter")
        assert explorer.evaluate(SEEN) != before


def objections(page, part: str | None = None, **options) -> list[tuple[str, list[str]]]:
    """What axe objects to in a page, or in a part of it: rules, and where they are broken."""
    from axe_playwright_python.sync_playwright import Axe

    options["resultTypes"] = ["violations"]  # what it describes: all that is well takes as long
    return [
        (rule["id"], node["target"])
        for rule in Axe().run(page, context=part, options=options).response["violations"]
        for node in rule["nodes"]
    ]


# axe looks at places, and what was never in sight has none yet: it seems to lie on what follows.
READ_THROUGH = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight) {
    scrollTo(0, y);
    await new Promise(requestAnimationFrame);  // draws what was in sight before
  }
  await new Promise(requestAnimationFrame);
}"""


# A page of each kind; a chapter and the long lines of the command line on a phone.
LIGHT, DARK = LOOKS
KEPT = [("intro", LIGHT), (CHAPTERS[4], DARK)]
KEPT += [("exercises/02-sequences", LIGHT), (f"reference/{reference.COMMAND_LINE}", DARK)]


@pytest.mark.parametrize(
    ("name", "look"),
    swept(itertools.product([*PAGES, *CHAPTERS, *SHEETS, *REFERENCE], LOOKS), keep=KEPT),
)
def test_a_page_is_there_for_everyone(lent, address, name, look):
    """Nothing that axe objects to, and nothing that pushes a page beyond its window."""
    tab = lent(**LOOKS[look])
    tab.page.goto(f"{address}/{name}.html")
    unfold(tab.page)
    tab.page.mouse.move(0, 0)
    tab.page.evaluate(READ_THROUGH)
    assert objections(tab.page) == []
    assert not tab.page.evaluate(WIDER_THAN_THE_PAGE)


def hover_all(page, selector: str) -> int:
    """Show every element that fits as it looks under the mouse; how many there are."""
    tools = page.context.new_cdp_session(page)
    tools.send("DOM.enable")
    tools.send("CSS.enable")
    root = tools.send("DOM.getDocument", {"depth": 0})["root"]["nodeId"]
    found = tools.send("DOM.querySelectorAll", {"nodeId": root, "selector": selector})["nodeIds"]
    for node in found:
        tools.send("CSS.forcePseudoState", {"nodeId": node, "forcedPseudoClasses": ["hover"]})
    return len(found)


@pytest.mark.parametrize(
    ("name", "look"),
    swept(
        itertools.product(["exercises/02-sequences", CHAPTERS[1]], LOOKS),
        keep=[("exercises/02-sequences", look) for look in LOOKS],
    ),
)
def test_what_is_under_the_mouse_keeps_its_contrast(lent, address, name, look):
    page = lent(**LOOKS[look]).page
    page.goto(f"{address}/{name}.html#main-content")
    unfold(page)
    page.evaluate(READ_THROUGH)
    assert hover_all(page, "a, button, summary, label, h2, h3") > 100
    assert objections(page, runOnly=["color-contrast"]) == []


@pytest.fixture(scope="module")
def found(browser, address) -> Iterator[Watched]:
    """The tab with the page for the search, whose box takes one query after another."""
    watched = Watched(browser)
    watched.page.goto(f"{address}/search.html")
    yield watched
    assert watched.foreign == []
    assert watched.errors == []
    watched.context.close()


# All queries at once, by what the page itself asks: the first results of each.
RANKED = """async queries => {
  const packed = await (await fetch("_static/search-index.bin")).blob();
  const stream = packed.stream().pipeThrough(new DecompressionStream("deflate"));
  const index = nbRanking.opened(await new Response(stream).json());
  return queries.map(query => nbRanking.find(index, query).slice(0, 3).map(({ section }) =>
    `${index.pages[index.sections[section][0]][0]}#${index.sections[section][1]}`));
}"""


def test_forty_searches_lead_to_the_section_that_an_editor_would_name(found):
    ranked = found.page.evaluate(RANKED, list(SEARCHES))
    first = {query: places[0] for query, places in zip(SEARCHES, ranked, strict=True)}
    among = dict(zip(SEARCHES, ranked, strict=True))
    assert len(SEARCHES) == 40
    assert {query: among[query] for query in SEARCHES if SEARCHES[query] not in among[query]} == {}
    assert len([query for query in SEARCHES if first[query] != SEARCHES[query]]) <= 2


def test_every_question_of_readers_leads_to_a_section(built):
    data = json.loads(zlib.decompress((built / "_static" / search.FILE).read_bytes()))
    names = {name for name, *_ in data["definitions"]}
    asked = tomllib.loads((chapters.BOOK / search.QUESTIONS).read_text("utf-8"))
    assert {one for questions in asked.values() for one in questions} <= names


def test_results_come_while_typing_and_a_search_is_light(found, built):
    box = found.page.locator(".nb-search-page input")
    before = len(found.requests)
    box.press_sequentially("leave-one-ou")
    best = found.page.locator(".nb-found a").first
    best.get_by_text("Which baseline?").wait_for()
    assert "leave-one-out" in found.page.locator(".nb-line b").all_inner_texts()
    found.page.keyboard.press("ArrowDown")
    assert best.evaluate("link => link === document.activeElement")
    paths = {urlsplit(url).path.lstrip("/") for url in found.requests[before:]}
    paths.add(f"_static/{search.FILE}")  # which the test before may have asked for
    assert sum((built / path).stat().st_size for path in paths) < 300_000


def test_a_search_arrives_at_the_match_in_its_fold_and_marks_no_other_page(lent, address):
    page = lent().page
    page.goto(f"{address}/{CHAPTERS[4]}.html")
    page.keyboard.press("Control+k")
    page.locator(".search-button__search-container input").press_sequentially(
        "advantage of a dual clip"
    )
    page.locator(".nb-found a").first.wait_for()
    page.goto(f"{address}/05-ppo.html?find=clips+from+above#sec-5-8")
    arrived = page.locator(".nb-arrived")
    arrived.wait_for()
    assert arrived.evaluate("one => one.closest('details').open")
    assert page.url.endswith("/05-ppo.html#sec-5-8")
    page.goto(f"{address}/17-one-gpu.html")
    assert page.locator(".nb-arrived, .highlighted, mark").count() == 0


WHOLLY_SEEN = """part => {
  const { top, bottom } = part.getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight;
}"""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


def test_a_phone_shows_the_explorer_of_the_front_page_and_one_button(lent, address):
    page = lent(**PHONE).page
    page.goto(f"{address}/intro.html")
    picture = page.locator(".nb-explorer svg").bounding_box()
    assert picture["y"] + picture["height"] < 844
    slider = page.locator(".nb-explorer").get_by_role("slider").first
    slider.evaluate("one => one.scrollIntoView({ block: 'end' })")
    assert page.locator(".nb-explorer svg").bounding_box()["y"] >= 0  # it stays in sight
    assert page.locator("a.nb-button").all_inner_texts() == ["Start reading"]
    page.locator("a.nb-button").click()
    page.wait_for_url("**/00-start-here.html")


def test_bars_stay_above_what_they_change_on_a_phone(lent, address):
    page = lent(**PHONE).page
    page.goto(f"{address}/{CHAPTERS[11]}.html#main-content")
    page.locator(".nb-gradients").evaluate("drawn => drawn.scrollIntoView({ block: 'end' })")
    for control in (".nb-bars svg", ".nb-bars input"):
        assert page.locator(control).evaluate(WHOLLY_SEEN)


def on_phones(*names: str):
    return pytest.mark.parametrize("phone", names, indirect=True)


@on_phones(CHAPTERS[10])
def test_the_numbers_of_a_word_stand_in_sight_below_the_words_on_a_phone(phone):
    words, numbers = phone.locator(".nb-tokens"), phone.locator(".nb-inspector .nb-above")
    phone.locator(".nb-inspector").evaluate("all => all.scrollIntoView()")
    phone.evaluate(AT_REST)
    assert words.nth(1).evaluate(WHOLLY_SEEN)
    words.nth(3).evaluate("word => word.scrollIntoView({ block: 'center' })")
    assert numbers.evaluate(WHOLLY_SEEN)
    assert words.nth(3).bounding_box()["y"] < numbers.bounding_box()["y"]


# Formulas that reach over the end of their column and do not move under the finger.
OUT_OF_REACH = """() => [...document.querySelectorAll("article mjx-container:not(table *)")]
  .filter(formula => {
    const end = part => part.getBoundingClientRect().right;
    const scrolls = part => getComputedStyle(part).overflowX === "auto";
    return formula.checkVisibility() && ![formula, formula.parentElement].some(scrolls)
      && end(formula.querySelector("mjx-math")) > end(formula.closest("p, li, dd, div")) + 2;
  }).map(formula => formula.textContent)"""


@on_phones(*swept(CHAPTERS, keep=[CHAPTERS[12]]))
def test_a_formula_that_is_wider_than_a_phone_moves_under_the_finger(phone):
    phone.evaluate(NOTHING_TO_DO)
    assert phone.evaluate(OUT_OF_REACH) == []
    assert f"{CHAPTERS[12]}.html" not in phone.url or phone.locator(".nb-wide").count() > 0


AT_REST = """() => new Promise(done => { let before = -1; const asked = setInterval(() => {
  if (scrollY === before) { clearInterval(asked); done(); } before = scrollY; }, 200); })"""


def swipe(page, slider, across: int, along: int) -> None:
    slider.evaluate("one => one.scrollIntoView({ block: 'end' })")  # below the picture
    page.evaluate(AT_REST)
    slider.click(trial=True)  # nothing lies on it
    box, tools = slider.bounding_box(), page.context.new_cdp_session(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tools.send(
        "Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]}
    )
    for part in range(1, 11):
        point = {"x": x + across * part / 10, "y": y + along * part / 10}
        tools.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
    tools.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@on_phones(CHAPTERS[12])
def test_a_swipe_up_scrolls_past_a_slider_and_one_across_moves_it(phone):
    slider = phone.locator(".nb-explorer").get_by_role("slider").first
    before = slider.input_value()
    swipe(phone, slider, 10, -200)
    at_end = "one => one.getBoundingClientRect().bottom > innerHeight - 100"
    assert not slider.evaluate(at_end)  # the page has scrolled
    assert slider.input_value() == before
    swipe(phone, slider, -100, 3)
    assert slider.input_value() != before


def test_a_chapter_knows_what_was_read_and_the_front_page_leads_back(open_tab, address):
    page = open_tab(**PHONE).page
    page.add_init_script(
        "const clock = performance.now.bind(performance);performance.now = () => 1000 * clock();"
    )  # who reads that fast?
    page.goto(f"{address}/{CHAPTERS[4]}.html")
    bar, here = page.locator(".nb-progress"), page.locator(".nb-here").first
    assert bar.get_attribute("aria-label").startswith("0 of ")
    sections = page.locator("article > section > section")
    for number in range(3):
        sections.nth(number).evaluate("one => one.scrollIntoView()")
        heading = sections.nth(number).locator("h2").inner_text().removesuffix("#")
        page.wait_for_function(
            "([one, text]) => one.textContent === text", arg=[here.element_handle(), heading]
        )
    assert bar.get_attribute("aria-label").startswith("2 of ")
    page.goto(f"{address}/intro.html")
    page.locator(".nb-continue", has_text=heading).click()
    page.wait_for_url(f"**/{CHAPTERS[4]}.html#*")


@on_pages(CHAPTERS[2])
def test_a_chapter_ends_with_an_exercise_that_is_answered_there_and_the_way_to_the_sheet(tab):
    page = tab.page
    ending = page.locator("section", has=page.get_by_role("heading", name="Check yourself")).last
    assert ending.locator(".nb-python").get_by_role("textbox").count() == 1
    (button,) = page.locator("a.nb-button").all()
    assert button.get_attribute("href") == f"exercises/{CHAPTERS[2]}.html"
    assert "minutes" in page.locator(".nb-conditions").inner_text()


ANSWERS = """() => [...document.querySelectorAll(".nb-answers > div")]
  .map(answer => answer.textContent.length > 20)"""


@on_pages(CHAPTERS[5])
def test_on_paper_the_answers_stand_at_the_end(tab):
    page = tab.page
    boxes = page.locator(".admonition.dropdown").filter(has_text="Predict first")
    before = boxes.all_text_contents()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ANSWERS) == [True] * len(before)
    assert all("at the end of the chapter." in text for text in boxes.all_text_contents())
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ANSWERS) == []
    assert [sorted(text) for text in boxes.all_text_contents()] == [sorted(t) for t in before]


@on_pages(CHAPTERS[10])
def test_on_paper_an_explorer_says_where_it_moves(tab):
    page = tab.page
    below = page.locator(".nb-explorer + .nb-moves-at")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert below.count() == page.locator(".nb-explorer").count() > 0
    assert below.first.locator("a").get_attribute("href") == page.url.partition("#")[0]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert below.count() == 0


def test_styles_of_the_title_page_are_kept_though_no_page_has_one(built):
    (styles,) = (built / "_static").glob("book-*.css")
    assert f".{printing.TITLE_PAGE} + article ul" in styles.read_text(encoding="utf-8")


A_LINE = 500  # bytes, compressed: a page with its number alone takes fewer, with two lines more


def drawn_on(pdf: bytes) -> list[int]:
    """How many bytes say what stands on each page of a PDF by Chromium."""
    sizes = re.findall(rb"\n(\d+) 0 obj\n<<[^>]*/Length (\d+)[^>]*>> stream\n", pdf)
    length = {int(number): int(size) for number, size in sizes}
    pages = re.findall(rb"/Type /Page\n.*?/Contents (\d+) 0 R", pdf, re.DOTALL)
    return [length[int(number)] for number in pages]


FACES = """() => [...document.fonts].filter(({ family, status }) =>
  family.includes("MJXTEX") && status === "loaded").length"""


# The faces that letters name. Others have been read besides: the upright one, and several for the
# parts of a brace, of which only one has them.
NAMED = """() => [...new Set([...document.querySelectorAll("mjx-c[class*=TEX]")]
  .map(letter => letter.className.match(/TEX-([\\w]+)/)[1]))]"""
ON_PAPER = {"I": "Math-Italic", "BI": "Math-BoldItalic", "B": "Main-Bold", "MI": "Main-Italic"}
ON_PAPER |= {"A": "AMS-Regular", "C": "Calligraphic-Regular", "T": "Typewriter-Regular"}
ON_PAPER |= {"SS": "SansSerif-Regular"}
ON_PAPER |= {f"S{size}": f"Size{size}-Regular" for size in range(1, 5)}


@on_pages(*swept(CHAPTERS, keep=[CHAPTERS[10]]))
def test_a_chapter_is_printed_with_every_face_and_no_path(built, tab, tmp_path):
    """As many faces of formulas as the page has, laid out to its end; links lead to no folder."""
    printing.write(built / f"{chapter(tab.page).stem}.html", tmp_path / "new" / "page.pdf")
    printed = (tmp_path / "new" / "page.pdf").read_bytes()
    unfold(tab.page)
    tab.page.evaluate("document.fonts.ready")
    faces = set(re.findall(rb"/FontName /(?:[A-Z]{6}\+)?(MathJax[\w-]*)", printed))
    named = {f"MathJax_{ON_PAPER[face]}".encode() for face in tab.page.evaluate(NAMED)}
    assert named <= faces
    assert len(faces) <= tab.page.evaluate(FACES)
    assert b"file:" not in printed
    sheets = printed.count(b"/Type /Page\n")
    assert sheets > (5 if chapter(tab.page).stem[:1].isdecimal() else 3)


@pytest.mark.sweep
def test_the_book_is_printed(built, browser, tmp_path):
    """All chapters, exercises and appendices in one file, and nothing left beside the pages."""
    parts = {name: sorted(built.glob(pattern)) for name, pattern in printing.PARTS.items()}
    printing.write_bound(built, parts, tmp_path / "book.pdf")
    assert b"file:" not in (tmp_path / "book.pdf").read_bytes()
    drawn = drawn_on((tmp_path / "book.pdf").read_bytes())
    assert len(drawn) > 300
    assert [number for number, size in enumerate(drawn, 1) if size < A_LINE] == []  # none is empty
    assert not (built / "whole-book.html").exists()


@on_pages("intro")
def test_the_front_page_has_an_explorer_above_the_fold(tab):
    explorer = tab.page.locator(".nb-explorer")
    assert explorer.bounding_box()["y"] < 400
    before = explorer.evaluate(SEEN)
    explorer.get_by_role("slider").first.press("ArrowRight")
    assert explorer.evaluate(SEEN) != before


@on_pages(CHAPTERS[10])
def test_a_reference_leads_to_the_equation_with_its_number(tab):
    page = tab.page
    place = numbering.places()["eq-aggregation"]
    page.get_by_role("link", name=f"({place.number})", exact=True).first.click()
    page.wait_for_url(f"**/{place.chapter}.html#eq-aggregation")
    equation = page.locator("#eq-aggregation")
    assert equation.locator(".eqno").inner_text().startswith(f"({place.number})")
    page.go_back()


IN_SIGHT = """id => { const { top } = document.getElementById(id).getBoundingClientRect();
  return 0 <= top && top < innerHeight / 2; }"""


@pytest.mark.parametrize("look", swept(LOOKS, keep=[DARK]))
def test_a_link_leads_to_its_place_far_down_the_page(lent, address, look):
    """From the top of the page past sections that were never in sight, from elsewhere, and back."""
    page = lent(**LOOKS[look]).page
    name = CHAPTERS[11]
    anchor = [place.anchor for place in numbering.places().values() if place.chapter == name][-1]
    page.goto(f"{address}/{name}.html")
    assert not page.evaluate(IN_SIGHT, anchor)
    page.evaluate("id => document.querySelector(`a[href='#${id}']`).click()", anchor)
    page.wait_for_function(IN_SIGHT, arg=anchor)
    page.goto("about:blank")
    page.goto(f"{address}/{name}.html#{anchor}")
    page.wait_for_function(IN_SIGHT, arg=anchor)
    page.reload()
    page.wait_for_function(IN_SIGHT, arg=anchor)


@on_pages(*OPENING)
def test_a_chapter_opens_with_a_picture_that_leads_to_its_place(tab):
    page = tab.page
    page.evaluate("scrollTo(0, 0)")
    first = page.locator(".nb-first")
    assert first.bounding_box()["y"] < 0.75 * page.viewport_size["height"]
    assert first.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    link = page.locator(".nb-opening a[href^='#fig-']")
    anchor = link.get_attribute("href").removeprefix("#")
    assert page.locator(f"#{anchor} img").get_attribute("src") == first.get_attribute("src")
    link.click()
    page.wait_for_function(IN_SIGHT, arg=anchor)


SHIFTED = """() => new Promise(done => new PerformanceObserver(list => done(
  list.getEntries().map(({ value, sources }) => [value, sources.map(
    ({ node }) => `${node?.nodeName} ${node?.className}`)])
)).observe({ type: "layout-shift", buffered: true }) ?? setTimeout(() => done([]), 500))"""


@pytest.mark.parametrize("look", swept(LOOKS, keep=[DARK]))
def test_a_first_screen_needs_no_script_and_stays_where_it_is(open_tab, address, look):
    places = []
    for script in (False, True):
        page = open_tab(java_script_enabled=script, **LOOKS[look]).page
        page.goto(f"{address}/{CHAPTERS[9]}.html")
        first = page.locator(".nb-first")
        assert first.evaluate("image => image.complete && image.naturalWidth") > 0
        if script:
            # Where the processor is busy, parts come one by one, and what lies below moves with
            # them for a moment. What moves by design does so each time.
            moves = [page.evaluate(SHIFTED)]
            while sum(v for v, _ in moves[-1]) >= 0.01 and len(moves) < 4:
                page.reload()
                moves.append(page.evaluate(SHIFTED))
            assert sum(v for v, _ in moves[-1]) < 0.01, moves
        places.append(first.bounding_box())
    assert places[0] == places[1]


BESIDE = """id => { const caption = document.querySelector(`#${id} > .nb-caption`);
  const shown = caption.previousElementSibling.getBoundingClientRect();
  const { left, top } = caption.getBoundingClientRect();
  return [left >= shown.right, top >= shown.bottom]; }"""


def test_a_caption_stands_beside_what_it_belongs_to_where_both_have_room(lent, address):
    page = lent().page
    page.goto(f"{address}/{CHAPTERS[10]}.html#main-content")
    for width, figure, table in ((1600, True, True), (1400, False, True), (1000, False, False)):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(BESIDE, "fig-grpo-difficulty") == [figure, not figure]
        assert page.evaluate(BESIDE, "tab-two-groups") == [table, not table]
        assert page.evaluate(BESIDE, "tab-algorithms") == [False, True]
        assert not page.evaluate(WIDER_THAN_THE_PAGE)


LAID_OUT = """() => [...document.querySelectorAll(".bd-article > section > section")].every(one =>
  getComputedStyle(one).contentVisibility === "visible")"""


def test_the_reference_is_laid_out_while_nothing_else_is_to_do(lent, address):
    page = lent().page
    page.goto(f"{address}/reference/functional.html")
    assert page.locator(".nb-from-the-top").count() == 1
    page.wait_for_function(LAID_OUT)


LETTERS = """() => [...document.fonts].filter(({ family, status }) =>
  family.includes("Source Serif") && status === "loaded").length"""


@on_pages(CHAPTERS[1])
def test_the_letters_of_the_text_come_with_the_page(tab):
    tab.page.wait_for_function(f"({LETTERS})() === 3")  # upright, slanted and bold


# Of an explorer: what is wider than its place. (The numbers of words reach over the edge, with all
# of their own width.)
CUT = """explorer => [...explorer.querySelectorAll(":not(svg, svg *, .nb-inspector)")]
  .filter(part => part.checkVisibility() && getComputedStyle(part).display !== "inline"
    && part.scrollWidth > part.clientWidth + 1)
  .map(part => part.outerHTML)"""


@pytest.fixture(scope="module")
def machines(browser, tmp_path_factory):
    """A tab on each of two machines with other fonts, by what those are; opened when asked for."""
    with ExitStack() as open_ones:
        yield cache(
            lambda name: Watched(
                open_ones.enter_context(
                    fonts.browser_with(name, browser, tmp_path_factory.mktemp(name))
                )
            )
        )


@pytest.mark.parametrize(
    ("name", "letters_there"),
    swept(
        itertools.product(["intro", *CHAPTERS], fonts.SETS),
        keep=[(CHAPTERS[11], "wide")],
    ),
)
def test_letters_of_drawings_are_the_sites_and_none_is_cut_off(
    machines, address, name, letters_there
):
    """Greek ones too, on a phone and on a desk, whatever fonts a machine has."""
    page = machines(letters_there).page
    page.goto(f"{address}/{name}.html#main-content")
    unfold(page)
    for width in (390, 1400):
        page.set_viewport_size({"width": width, "height": 844})
        for explorer in page.locator(".nb-explorer").all():
            assert explorer.evaluate(OVERLAPS) == []
            assert explorer.evaluate(CUT) == []
        own, others = fonts.faces(page, ".nb-explorer svg text")
        assert others == {}
        assert own.keys() <= {"Source Serif 4", "Source Serif 4 SemiBold", letters.NAME}
        assert not page.evaluate(WIDER_THAN_THE_PAGE)


@pytest.mark.sweep  # a slow phone costs six processor seconds
def test_a_title_stays_where_it_is_while_its_letters_come(open_tab, address):
    """It moves by .017 where the letters are neither read first nor waited for, by .004 else."""
    page = open_tab(viewport={"width": 412, "height": 823}).page
    tools = page.context.new_cdp_session(page)
    tools.send("Network.enable")
    slow = {"latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 100_000}
    tools.send("Network.emulateNetworkConditions", {"offline": False, **slow})
    tools.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    page.goto(f"{address}/intro.html")
    page.wait_for_load_state("networkidle")
    moved = page.evaluate(SHIFTED)
    assert sum(value for value, _ in moved) < 0.01, moved


PREVIEW = ".nb-preview"


@on_pages("10-grpo")
@pytest.mark.parametrize("label", ["eq-group-relative", "eq-aggregation"])  # here, and in chapter 2
def test_a_reference_shows_under_the_mouse_what_it_leads_to(tab, label):
    page = tab.page
    number = f"({numbering.places()[label].number})"
    page.wait_for_load_state("networkidle")  # nothing moves under the mouse any more
    page.get_by_role("link", name=number, exact=True).first.hover()
    preview = page.locator(PREVIEW)
    preview.locator("mjx-container").first.wait_for()
    assert preview.locator(".eqno").inner_text().startswith(number)
    assert preview.locator("[id], [tabindex]").count() == 0  # nothing is there twice
    page.keyboard.press("Escape")
    assert preview.count() == 0


@on_pages(CHAPTERS[5])
def test_a_reference_shows_its_table(tab):
    page = tab.page
    unfold(page)
    number = numbering.places()["tab-wrong-clips"].number
    link = page.get_by_role("link", name=f"table {number}", exact=True).first
    assert link.count() == 1  # the text still refers to it: without a link we would wait for one
    assert page.locator("#tab-wrong-clips .cell_output table").count() == 1
    link.hover()
    preview = page.locator(PREVIEW)
    preview.locator("table").wait_for()
    assert "max of objectives" in preview.locator("table").inner_text()
    assert preview.locator(".nb-caption").inner_text().startswith(f"Table {number}. The slope")
    assert preview.locator("[id], [tabindex]").count() == 0
    page.keyboard.press("Escape")
    link.click()
    page.wait_for_function(IN_SIGHT, arg="tab-wrong-clips")


def test_an_old_link_finds_what_moved_to_another_page(lent, address):
    page = lent().page
    page.goto(f"{address}/10-grpo.html#eq-cispo")
    page.wait_for_url("**/appendix-i-family.html#eq-cispo")
    page.wait_for_function(IN_SIGHT, arg="eq-cispo")


@on_pages("10-grpo")
def test_a_reference_shows_its_section_to_the_keyboard(tab):
    page = tab.page
    link = page.get_by_role("link", name="section 10.4", exact=True).first
    page.keyboard.press("Tab")  # from here on the keyboard leads
    link.focus()
    assert page.locator(PREVIEW).inner_text().startswith("10.4 ")
    link.blur()
    assert page.locator(PREVIEW).count() == 0


@on_phones(CHAPTERS[10])
def test_what_unfolds_is_as_large_as_a_finger(phone):
    small = """parts => parts.map(part => part.getBoundingClientRect())
      .filter(box => box.width < 44 || box.height < 44).length"""
    parts = phone.locator("article summary:visible, article .toggle-button:visible")
    assert parts.count() > 10
    assert parts.evaluate_all(small) == 0


@pytest.mark.parametrize(
    ("page", "part"),
    [(CHAPTERS[4], "Chapters"), ("exercises/10-grpo", "Exercises"), ("reference/lm", "Reference")],
)
def test_a_page_says_where_it_stands(lent, address, page, part):
    tab = lent(viewport={"width": 900, "height": 900})
    tab.page.goto(f"{address}/{page}.html#main-content")
    book, *rest = tab.page.locator(".nb-breadcrumbs li").all()
    title = tab.page.locator("article h1").inner_text().removesuffix("#")
    assert [item.inner_text() for item in rest] == [part, title]
    buttons = tab.page.locator(".header-article-items__end").bounding_box()
    breadcrumbs = tab.page.locator(".nb-breadcrumbs").bounding_box()
    assert breadcrumbs["x"] + breadcrumbs["width"] <= buttons["x"]
    book.locator("a").click()
    assert tab.page.locator("article h1").inner_text().startswith("Policy Gradients")
    assert tab.page.locator(".nb-breadcrumbs").count() == 0


@on_phones(CHAPTERS[10], "appendix-f-capstone")  # neighbours of long words
def test_a_phone_shows_the_arrows_to_both_neighbours(phone):
    arrows = [arrow.bounding_box() for arrow in phone.locator(".prev-next-area i").all()]
    assert len(arrows) == 2
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in arrows)


def test_a_button_makes_the_text_of_all_pages_larger(lent, address):
    tab = lent(viewport={"width": 390, "height": 844})
    size = "() => parseFloat(getComputedStyle(document.querySelector('section > p')).fontSize)"
    tab.page.goto(f"{address}/{CHAPTERS[17]}.html#main-content")
    button, sizes = tab.page.locator(".nb-text-size"), []
    for label in ("100", "115", "130", "150", "100", "115", "130"):
        assert button.get_attribute("aria-label") == f"Text size: {label} %"
        sizes.append(tab.page.evaluate(size))
        button.click()
    assert sizes == pytest.approx([18, 20.7, 23.4, 27, 18, 20.7, 23.4])
    tab.page.emulate_media(media="print")
    printed = tab.page.evaluate(size)
    tab.page.goto(f"{address}/{CHAPTERS[2]}.html#main-content")
    tab.page.emulate_media(media="screen")
    assert tab.page.evaluate(size) == 27
    assert printed == pytest.approx(11 * 1.125)
    # the largest text on a phone: no button over another, nothing wider than the window
    shown = [one for one in tab.page.locator(".bd-header-article button").all() if one.is_visible()]
    boxes = sorted((one.bounding_box() for one in shown), key=lambda box: box["x"])
    assert len(boxes) == 6
    for left, right in itertools.pairwise(boxes):
        assert left["x"] + left["width"] <= right["x"]
    assert not tab.page.evaluate(WIDER_THAN_THE_PAGE)


@on_phones(*swept([*CHAPTERS, *PAGES], keep=[CHAPTERS[10], CHAPTERS[16]]))
def test_at_the_largest_text_a_phone_shows_all_of_an_explorer(phone):
    """The last test of a page: the text stays large."""
    for _ in range(3):
        phone.locator(".nb-text-size").click()
    phone.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    assert phone.locator(".nb-text-size").get_attribute("aria-label") == "Text size: 150 %"
    assert not phone.evaluate(WIDER_THAN_THE_PAGE)


def test_a_page_leads_to_how_the_book_is_cited(lent, address):
    tab = lent()
    tab.page.goto(f"{address}/exercises/10-grpo.html#main-content")
    tab.page.get_by_role("link", name="How to cite this book").click()
    assert tab.page.locator("details:target summary").inner_text() == "How to cite the book"


def outputs_of(page, kind: str) -> list:
    """The outputs of one kind that are stored in a page's chapter, in order."""
    cells = stored.read(chapter(page)).cells
    data = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    return [one[kind] for one in data if kind in one]


def chapter(page) -> Path:
    """The notebook of a page."""
    return chapters.find(Path(urlsplit(page.url).path).stem)


def test_the_pages_work_straight_from_the_disk(lent, built):
    tab = lent()
    tab.page.goto(f"{built.as_uri()}/{CHAPTERS[10]}.html")
    assert tab.page.locator("mjx-container").count() > 0
    assert tab.foreign == []


STICKS_OUT = """async () => {
  const slide = Reveal.getCurrentSlide(), { width, height } = slide.getBoundingClientRect();
  const pictures = [...slide.querySelectorAll("img")];
  const wide = [...slide.querySelectorAll("mjx-container[display=true], .cell_output")];
  return [
    height > innerHeight + 1 && "too high",
    (await Promise.allSettled(pictures.map((one) => one.decode())))
      .some(({ status }) => status === "rejected") && "a picture is missing",
    wide.some((one) => one.scrollWidth > one.clientWidth + 2) && "too wide",
  ].filter(Boolean).map((what) => `${location.hash}: ${what}`);
}"""


@pytest.mark.parametrize(
    "chapter",
    swept(
        ["01-bandit", "02-sequences", "07-language-model", "10-grpo"],
        keep=["10-grpo"],
    ),
)
def test_slides_show_all_that_they_have(lent, address, built, chapter):
    slides.write(chapter, built)
    page = lent(viewport={"width": 1280, "height": 720}).page
    page.goto(f"{address}/slides/{chapter}.html")
    page.wait_for_load_state("networkidle")
    wrong, polls = [], 0
    while True:
        wrong += page.evaluate(STICKS_OUT)
        if page.evaluate("Reveal.availableFragments().next"):
            polls += 1
            assert not page.locator("section.present .fragment").last.is_visible()
        if page.evaluate("Reveal.isLastSlide() && !Reveal.availableFragments().next"):
            break
        page.keyboard.press("Space")
    assert wrong == []
    assert polls > 1
