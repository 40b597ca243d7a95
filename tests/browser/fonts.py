"""A browser on a machine with other fonts, and the faces that it takes letters from."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib

from nbcourse import installation
from tests.conftest import BROWSER_OPTIONS

# Name → the files of a machine that has no others: wide letters, and narrow ones. Matplotlib brings
# both.
SETS = {"wide": "DejaVu*.ttf", "narrow": "STIXGeneral*.ttf"}
FAMILIES = {"wide": {"DejaVu Sans"}, "narrow": {"STIXGeneral"}}  # of what says "sans-serif"
CONFIGURATION = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}</dir><cachedir>{folder}/cache</cachedir></fontconfig>"""


@contextmanager
def browser_with(name: str, browser, folder: Path) -> Iterator:
    """Another browser, as on a machine that has these fonts alone; the folder is for their list."""
    for font in Path(matplotlib.get_data_path(), "fonts", "ttf").glob(SETS[name]):
        (folder / font.name).symlink_to(font)
    configuration = folder / "fonts.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder), encoding="utf-8")
    other = browser.browser_type.launch(
        executable_path=installation.browser(),
        args=BROWSER_OPTIONS,
        env={**os.environ, "FONTCONFIG_FILE": str(configuration)},
    )
    yield other
    other.close()


def faces(page, selector: str) -> tuple[Counter[str], Counter[str]]:
    """How many glyphs of elements come from each face: of the page's own, and of the machine's."""
    tools = page.context.new_cdp_session(page)
    tools.send("DOM.enable")
    tools.send("CSS.enable")
    root = tools.send("DOM.getDocument", {"depth": 0})["root"]["nodeId"]
    found = tools.send("DOM.querySelectorAll", {"nodeId": root, "selector": selector})
    own: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for node in found["nodeIds"]:
        for font in tools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]:
            counts = own if font["isCustomFont"] else others
            counts[font["familyName"]] += int(font["glyphCount"])
    return own, others
