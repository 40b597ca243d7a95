"""The registry of appendix B, `book/errata.toml`: what was seen where, as of when, mended when.

The text and the counter-examples stand in the appendix; here is what one can look up: a permalink
for each place, its date, and the commit that mended it.
"""

import re
import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from nbcourse.errors import UserError
from nbcourse.publishing.chapters import BOOK

REGISTRY = BOOK / "errata.toml"
GITHUB = "https://github.com"


@dataclass(frozen=True, kw_only=True)
class Project:
    """Where something was seen: a repository, or a post or paper with its author and link."""

    name: str
    author: str | None = None
    repository: str | None = None
    link: str | None = None
    published: date | None = None
    draft: bool = False

    def __post_init__(self) -> None:
        if self.repository is None and not (self.author and self.link and self.published):
            raise UserError(f"{self.name} has no repository: name its author, link and date")


@dataclass(frozen=True, kw_only=True)
class Mended:
    """The commit, or at least the pull request, that put it right; `partly`: not all of it.

    `removed`: the code it was in is gone; without a commit, `on` is the first release without it.
    """

    on: date
    commit: str | None = None
    pull: int | None = None
    partly: bool = False
    removed: bool = False

    def __post_init__(self) -> None:
        if self.commit is None and self.pull is None:
            raise UserError("what was mended names the commit, or the pull request, that did it")
        _require_full(self.commit)

    def markdown(self, repository: str) -> str:
        """“fixed on 2026-07-28 in 3624df9, #488”, with links."""
        by = []
        if self.commit is not None:
            by.append(f"[{self.commit[:7]}]({GITHUB}/{repository}/commit/{self.commit})")
        if self.pull is not None:
            by.append(f"[#{self.pull}]({GITHUB}/{repository}/pull/{self.pull})")
        done = "removed" if self.removed else "fixed"
        return f"{'partly ' if self.partly else ''}{done} on {self.on} in {', '.join(by)}"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One place in one version: commit, file and lines; or a whole post or paper."""

    project: Project
    note: str = ""
    commit: str | None = None
    release: str | None = None
    as_of: date | None = None
    path: str | None = None
    lines: str | None = None
    mended: Mended | None = None

    def __post_init__(self) -> None:
        _require_full(self.commit)
        version = self.commit or self.release
        if version is None and (self.project.link is None or self.path is not None):
            raise UserError(f"what was seen in {self.project.name} names the commit")
        if version is not None and not (self.as_of and self.path and self.lines):
            raise UserError(f"{self.project.name} at {version} needs as_of, path and lines")
        if self.lines is not None and not re.fullmatch(r"L\d+(-L\d+)?", self.lines):
            raise UserError(f"{self.lines!r} is not of the form L12 or L12-L15")

    @property
    def permalink(self) -> str:
        """The lines in that version; or where the post or the paper is."""
        version = self.commit or self.release
        if version is None:
            assert self.project.link is not None
            return self.project.link
        assert self.path is not None
        return f"{GITHUB}/{self.project.repository}/blob/{version}/{quote(self.path)}#{self.lines}"

    def markdown(self) -> str:
        """“RLHF Book (code), as of 2026-08-21, fixed on …”, with links."""
        name = f"[{self.project.name}]({self.permalink})"
        kind = "draft of " if self.project.draft else ""
        when = f"as of {self.as_of}" if self.as_of else f"{kind}{self.project.published}"
        parts = [f"{name}{f' ({self.note})' if self.note else ''}", when]
        if self.mended is not None:
            assert self.project.repository is not None
            parts.append(f"**{self.mended.markdown(self.project.repository)}**")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A finding: its number in the appendix, its anchor, and the test that would have caught it."""

    number: str
    id: str
    title: str
    what: str
    test: str
    seen: tuple[Seen, ...]

    def __post_init__(self) -> None:
        if not self.seen:
            raise UserError(f"{self.id}: seen is empty, expected at least one place")

    @property
    def open(self) -> tuple[Seen, ...]:
        """Where it still stood in the version that is quoted, and has not been wholly mended."""
        return tuple(seen for seen in self.seen if seen.mended is None or seen.mended.partly)

    @classmethod
    def read(cls, number: str, raw: dict[str, Any], projects: dict[str, Project]) -> Self:
        """Read an entry of the registry."""
        seen = []
        for place in raw["seen"]:
            mended = Mended(**place["mended"]) if "mended" in place else None
            seen.append(Seen(**{**place, "project": projects[place["project"]], "mended": mended}))
        return cls(**{**raw, "number": number, "seen": tuple(seen)})


def read(path: Path = REGISTRY) -> list[Entry]:
    """All entries, B.1, B.2, … in the order of the file.

    Raises:
        UserError: if an entry lacks a date, a commit or a link.
    """
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    projects = {key: Project(**project) for key, project in raw["projects"].items()}
    return [Entry.read(f"B.{n}", entry, projects) for n, entry in enumerate(raw["entries"], 1)]


def _require_full(commit: str | None) -> None:
    """A short hash may come to mean two commits."""
    if commit is not None and not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise UserError(f"{commit!r} is not a full commit: 40 digits")
