"""One style sheet and two scripts in place of the theme's dozens: a Sphinx extension.

The theme loads what any site may need. Here its files are joined. Rules for classes that no page
and no script names are left out, and so are icons and glyphs that no remaining rule uses. Scripts
are deferred, so that they do not delay drawing. The fonts of the text
are embedded in the style sheet: if they were loaded later, lines would move.
"""

import base64
import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path

import tinycss2
from fontTools import subset
from sphinx.application import Sphinx

from nbcourse.publishing import printing

FILE = r'(?P<up>(?:\.\./)*)_static/(?P<file>[^"?]+\.{})\b[^>]*>'
STYLE = rf'<link\b[^>]*href="{FILE.format("css")}'
SCRIPT = rf'<script\b[^>]*src="{FILE.format("js")}</script>'
SUPERFLUOUS = r'<link rel="preload"[^>]*>'  # of files that are joined now
IMPORT = re.compile(r"""@import\s+(?:url\()?["']?([^"')]+)["']?\)?;""")
SHEET = '<link rel="stylesheet" href="{}">'
PROGRAM = '<script defer src="{}"></script>'

ADDRESS = re.compile(r"url\((?!data:|[\"']|#|/)([^)]*)\)")

# The names in a selector, .class and #id, except those inside :not(.a) or [href=".b"].
NAME = re.compile(r"[.#](-?[A-Za-z_][\w-]*)")
INSIDE = re.compile(r":[\w-]+\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\]")
COMMA = re.compile(r",(?![^()\[]*[)\]])")

# The theme measures each box and sets its `tabIndex` at once, which forces a new layout before the
# next box is measured, and does so again after every change. A ResizeObserver is told the sizes
# when they are known; until then, every box can be focused.
ASKED = re.compile(r"\.forEach\(\(e=>\{(e\.tabIndex=e\.scrollWidth>.*?)\}\)\)")
TOLD = (
    r".forEach((e=>{e.hasAttribute('tabindex')||(e.tabIndex=0),(window.scrolling??="
    r"new ResizeObserver((all=>all.forEach((({target:e})=>{\1}))))).observe(e)}))"
)

LETTERS = re.compile(r"url\((fonts/[^)]+\.(woff2?))\)")

ICONS, FEW_ICONS = "fa-solid-900", "icons.woff"
ICONS_SOURCE = re.compile(rf"src:url\([^)]*{ICONS}\.woff2\)[^;}}]*")


def needed(css: str, words: set[str]) -> str:
    """A style sheet without the rules whose selectors name a class or id that is not in `words`."""
    return "\n".join(_needed(tinycss2.parse_stylesheet(css, True, True), words))


def _needed(rules: Iterable[tinycss2.ast.Node], words: set[str]) -> Iterator[str]:
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = COMMA.split(tinycss2.serialize(rule.prelude).strip())
            kept = [one for one in selectors if set(NAME.findall(INSIDE.sub("", one))) <= words]
            if kept:
                yield f"{','.join(kept)}{{{tinycss2.serialize(rule.content).strip()}}}"
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports"):
            inside = list(_needed(tinycss2.parse_rule_list(rule.content, True, True), words))
            if inside:
                condition = tinycss2.serialize(rule.prelude)
                yield f"@{rule.at_keyword}{condition}{{{''.join(inside)}}}"
        else:
            yield rule.serialize()


def joined(page: str, name: Callable[[list[str], str], str]) -> str:
    """A page with one style sheet, and one script each in its head and its body.

    Args:
        page: its HTML.
        name: files below `_static`, suffix → the name of the file that joins them.
    """
    page = re.sub(SUPERFLUOUS, "", page)
    head, end, body = page.partition("</head>")
    head = _joined(head, STYLE, SHEET, lambda files: name(files, "css"))
    head, body = (
        _joined(part, SCRIPT, PROGRAM, lambda files: name(files, "js")) for part in (head, body)
    )
    return head + end + body


def _joined(part: str, link: str, new: str, name: Callable[[list[str]], str]) -> str:
    """The new link replaces the last one: what is between the links may be needed by it."""
    found = list(re.finditer(link, part))
    if not found:
        return part
    place = f"{found[0]['up']}_static/{name([one['file'] for one in found])}"
    before, after = part[: found[-1].start()], part[found[-1].end() :]
    return re.sub(link, "", before) + new.format(place) + after


def sheet(file: Path, static: Path) -> str:
    """A style sheet with what it imports, and addresses as they are in the folder `static`."""
    folder = file.parent.relative_to(static).as_posix()
    parts = IMPORT.split(file.read_text(encoding="utf-8"))
    parts[::2] = [ADDRESS.sub(lambda found: _rebased(folder, found[1]), css) for css in parts[::2]]
    parts[1::2] = [sheet((file.parent / name).resolve(), static) for name in parts[1::2]]
    return "".join(parts)


def _rebased(folder: str, file: str) -> str:
    return f"url({posixpath.normpath(posixpath.join(folder, file))})"


def with_letters(css: str, static: Path) -> str:
    """A style sheet that has the fonts of the folder `static/fonts` inside."""

    def inside(found: re.Match[str]) -> str:
        letters = base64.b64encode((static / found[1]).read_bytes()).decode()
        return f"url(data:font/{found[2]};base64,{letters})"

    return LETTERS.sub(inside, css)


def few_glyphs(font: Path, css: str) -> bytes:
    """The font, as WOFF, with only the glyphs that a style sheet has in its `content:`.

    A font that has none of them is used only for the height of a line, and is not changed.
    """
    options = subset.Options()
    options.drop_tables += ["FFTM"]  # when the font was made
    few, glyphs = subset.Subsetter(options), subset.load_font(str(font), options)
    text = "".join(re.findall(r'content:\s*"([^"]*)"', css))
    if not set(map(ord, text)) & glyphs.getBestCmap().keys():
        return font.read_bytes()
    few.populate(text=text)
    few.subset(glyphs)
    glyphs.flavor = "woff"
    file = BytesIO()
    glyphs.save(file)
    return file.getvalue()


def write(app: Sphinx, error: Exception | None) -> None:
    """Join the files of every page that was built."""
    if error is not None:
        return
    static = Path(app.outdir, "_static").resolve()
    texts = {page: page.read_text(encoding="utf-8") for page in Path(app.outdir).rglob("*.html")}
    bundles: dict[str, list[str]] = {}

    def name(files: list[str], suffix: str) -> str:
        digest = hashlib.sha256(b"".join((static / file).read_bytes() for file in files))
        bundle = f"book-{digest.hexdigest()[:8]}.{suffix}"
        bundles[bundle] = files
        return bundle

    for page, text in texts.items():
        page.write_text(joined(text, name), encoding="utf-8")
    words = {printing.TITLE_PAGE, *re.findall(r"[\w-]+", "".join(texts.values()))}
    for bundle in sorted(bundles, key=lambda bundle: bundle.endswith("css")):  # scripts first
        files = [static / file for file in bundles[bundle]]
        if bundle.endswith("js"):
            text = ASKED.sub(TOLD, ";\n".join(file.read_text(encoding="utf-8") for file in files))
            words.update(re.findall(r"[\w-]+", text))
        else:
            text = "\n".join(needed(sheet(file, static), words) for file in files)
            text = with_letters(re.sub(r"\n\s+", "\n", text), static)
        (static / bundle).write_text(text, encoding="utf-8")
    _write_fonts(static, [static / bundle for bundle in bundles if bundle.endswith("css")])


def _write_fonts(static: Path, sheets: list[Path]) -> None:
    texts = [sheet.read_text(encoding="utf-8") for sheet in sheets]
    for font in static.rglob(f"{ICONS}.ttf"):
        (static / FEW_ICONS).write_bytes(few_glyphs(font, "".join(texts)))
    for font in static.glob("mathjax/**/*.woff"):
        font.write_bytes(few_glyphs(font, "".join(texts)))
    for sheet, text in zip(sheets, texts, strict=True):
        source = f'src:url({FEW_ICONS}) format("woff")'
        sheet.write_text(ICONS_SOURCE.sub(source, text), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("build-finished", write, priority=900)  # after what changes the pages' text
