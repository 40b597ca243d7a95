"""The book on paper: pages of the site as PDF, by the Chromium or Chrome that is there.

What paper asks for stands in the pages themselves, `book.css` and `print.js` of `book/_static`: so
a reader who prints from a browser gets the same.
"""

import subprocess
from pathlib import Path

from nbcourse import installation
from nbcourse.errors import NotAvailable

# Our own pages, from the disk, need no sandbox (containers offer none).
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
PATIENCE = 60_000  # milliseconds of the page's own clock, until its mathematics is drawn


def write(page: Path, pdf: Path) -> None:
    """Print a page of the built site into a file.

    Raises:
        NotAvailable: if there is no browser, or it does not print.
    """
    browser = installation.browser()
    if browser is None:
        raise NotAvailable("printing needs Chromium or Chrome, and none is found")
    pdf.parent.mkdir(parents=True, exist_ok=True)
    command = [browser, *OPTIONS, f"--virtual-time-budget={PATIENCE}", f"--print-to-pdf={pdf}"]
    done = subprocess.run([*command, page.resolve().as_uri()], capture_output=True, text=True)
    if done.returncode != 0 or not pdf.exists():
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotAvailable(f"{browser} did not print {page.name}: {reason}")
