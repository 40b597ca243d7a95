"""The book for instructors: the same pages, with solutions, hidden tests, and exams with keys."""

import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from nbcourse.errors import NotFound
from nbcourse.publishing import chapters, site
from nbcourse.repository import ROOT

FOLDER = "_instructor"  # beside _build, so that publishing _build publishes no solution


def build(root: Path = ROOT) -> Path:
    """Build `root`/_instructor/_build/html and return it. All who can read it have the solutions.

    Raises:
        SiteFailed: as `publishing.site.build` does.
        NotFound: if the masters are not there.
    """
    masters = chapters.notebooks(root / "solutions")
    if not masters:
        raise NotFound("solutions/ holds no masters: are they in another repository?")
    with TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(root / "book", copy / "book", ignore=shutil.ignore_patterns(".*"))
        for master in masters:
            shutil.copy(master, copy / "book" / "exercises")
        if (exam := root / "solutions" / "course" / "exam.md").exists():
            shutil.copy(exam, copy / "book" / "appendix-exam.md")  # in the order of the appendices
        shutil.copy(root / "_toc.yml", copy)
        config = (root / "_config.yml").read_text(encoding="utf-8")
        config = re.sub(r"(?m)^(title: .*)$", r"\1 (instructors' edition)", config, count=1)
        (copy / "_config.yml").write_text(config, encoding="utf-8")
        return site.build(root / FOLDER, root=copy)
