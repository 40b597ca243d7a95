"""What `benchmarks/pages.py` says of a page whose faults are known."""

import json
import subprocess
import sys

import pytest

from nbcourse import installation
from nbcourse.repository import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.sweep]  # of a benchmark, which is run by hand
SQUARE = '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100"><rect/></svg>'
PAGE = f"""<!doctype html><html lang="en"><title>A page</title>
<meta name="viewport" content="width=device-width"><main style="width: 500px">
<h1>One</h1><h3>Three</h3>
<p style="width: 400px; font: 16px/20px monospace">{"ten chars " * 40}</p>
<img src="square.svg" alt="a square"><img src="square.svg" alt="square.svg">{SQUARE}
<p>Figure 1.2. A square.</p>
<div style="width: 100px; overflow-x: auto"><b style="display: block; width: 300px">wide</b></div>
<div style="width: 100px; overflow: hidden"><b style="display: block; width: 300px">cut</b></div>
<button style="width: 44px; height: 44px">A</button><button style="width: 20px">B</button>
<div id="deaf">C</div><img src="https://elsewhere.invalid/there.svg" alt="a circle">
<img src="https://elsewhere.invalid/not-there.svg" alt="nothing">
<script>document.getElementById("deaf").onclick = () => 0; absent();</script></main></html>"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> dict:
    if installation.browser() is None:
        pytest.skip("no Chromium or Chrome found")
    folder = tmp_path_factory.mktemp("pages")
    (folder / "page.html").write_text(PAGE)
    (folder / "square.svg").write_text(SQUARE)
    (folder / "copies" / "elsewhere.invalid").mkdir(parents=True)
    (folder / "copies" / "elsewhere.invalid" / "there.svg").write_text(SQUARE)
    command = [sys.executable, str(ROOT / "benchmarks" / "pages.py"), f"it={folder}/page.html"]
    command += ["--copies", str(folder / "copies"), "--json", str(folder / "rows.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("|  | it |\n| --- | --- |\n")
    return json.loads((folder / "rows.json").read_text())["it"]


@pytest.mark.parametrize(
    ("row", "value"),
    {
        "requests to other hosts": "2",
        "first-level headings, levels skipped": "1, 1",
        "equations: displayed, numbered, linked to": "0, 0, 0",
        "pictures: all, vector, described; numbered captions": "4, 4, 2, 1",
        "parts that react to a pointer, of them reached by keyboard": "1, 0",
        "390 px: pixels wider than the window": "118",  # 500 and the margin of 8
        "390 px: boxes that scroll, of them in the order of tabs, cut off": "1, 0, 1",
        "390 px: controls in the text, of them 44 px": "2, 1",
        "a dark page for those who ask": "no",
        "opened as a file: formulas drawn, errors": "0 of 0, 1",
        "_errors": ["absent is not defined"],
        "_refused": ["https://elsewhere.invalid/not-there.svg"],
    }.items(),
)
def test_a_page_has_the_faults_that_were_put_into_it(rows, row, value):
    assert rows[row] == value


def test_the_help_teaches():
    script = ROOT / "benchmarks" / "pages.py"
    help_ = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
    assert "python benchmarks/pages.py ours=" in help_.stdout
