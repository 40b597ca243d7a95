"""What a law asks and what it finds; and the answers of files that run in this process."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nbcourse.builds import harness, pieces
from nbcourse.builds.mistakes import MISTAKES
from nbcourse.checks.attempt import plain as plain_value
from nbcourse.mistakes.findings import MISTAKE, Finding


class Bench:
    """The functions of `harness`, in this process or in another one.

    Args:
        ask: calls one of `harness.FUNCTIONS`; what the reader's code raises is raised.
    """

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self._known: dict[tuple[Any, ...], Any] = {}

    def __call__(self, function: str, *arguments: Any) -> Any:
        """The answer of a function."""
        return self._ask(function, *arguments)

    def once(self, key: tuple[Any, ...], *request: Any) -> Any:
        """The same for a question that several laws have: it is asked only once."""
        if key not in self._known:
            self._known[key] = self._ask(*request)
        return self._known[key]


def blamed(name: str, evidence: str) -> Finding:
    """A mistake that was seen.

    Args:
        name: one of `MISTAKES`, or "" where none of them explains it.
        evidence: what was seen.
    """
    return Finding(MISTAKES[name].id if name else "", MISTAKE, evidence)


@dataclass(frozen=True)
class Law:
    """What has to hold of a piece.

    Attributes:
        piece: which one.
        name: of the law, once in a piece.
        sentence: what is asked, in a line.
        section: of the book.
        after: laws of the piece that have to hold before this one can be judged.
        look: what it finds, or None where it holds.
        points: that it is worth.
    """

    piece: str
    name: str
    sentence: str
    section: str
    after: tuple[str, ...]
    look: Callable[[Bench], Finding | None]
    points: int = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """A report takes to another process what a law says, and not how it looks."""
        said = (self.piece, self.name, self.sentence, self.section, self.after)
        return Law, (*said, _looked_elsewhere, self.points)


def laws(piece: str, *rows: tuple[Any, ...]) -> tuple[Law, ...]:
    """Laws of a piece; each row has the other fields, in their order."""
    return tuple(Law(piece, *row) for row in rows)


def _looked_elsewhere(asked: Bench) -> None:
    raise RuntimeError("this law came with a report from the process that examined it")


Runs = Callable[[Mapping[str, str]], AbstractContextManager[Bench]]
"""Runs files and answers, in this process or in another one."""


@contextmanager
def here(sources: Mapping[str, str]) -> Iterator[Bench]:
    """Run files in this process, as a reader does with files of their own."""
    with harness.installed(with_given(sources)):
        yield Bench(_answer)


def _answer(function: str, *arguments: Any) -> Any:
    try:
        return getattr(harness, function)(*arguments)
    except SystemExit as error:  # a mistake of the file, and no wish of its reader
        raise RuntimeError("it ends Python, by sys.exit or SystemExit") from error


def with_given(sources: Mapping[str, str]) -> dict[str, str]:
    """The files with what is given; a reader's own `given.py` is not asked."""
    return {**sources, pieces.GIVEN: pieces.solution(pieces.GIVEN)}


Answer = Callable[[Bench], Any]


def calling(*request: Any) -> Answer:
    """What the functions of `harness` answer to a request."""
    return lambda bench: bench(*request)


def compared(
    bench: Bench, piece: str, answer: Answer, right: Tensor, *, what: str
) -> Finding | None:
    """`named` for what a piece answers."""
    return named(answer(bench), right, with_each_mistake(piece, answer), what=what)


def with_each_mistake(piece: str, answer: Answer) -> Iterator[tuple[str, Any]]:
    """What the book's piece answers with each of its mistakes in it, as far as it answers."""
    book = {other: pieces.solution(other) for other in pieces.NAMES}
    for name, mistake in MISTAKES.items():
        if mistake.piece != piece:
            continue
        try:
            with here(book | {piece: mistake.text()}) as wrong, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # not of the reader's trainer
                found = answer(wrong)
        except Exception:
            continue
        yield name, found


def named(
    found: Any,
    right: Tensor,
    mistakes: Iterable[tuple[str, Any]] = (),
    *,
    what: str,
    tolerance: float = 1e-6,
) -> Finding | None:
    """None if a tensor is the right one, else the mistake that explains all of it, if one does."""
    if not isinstance(found, Tensor):
        return blamed("", f"{what}: expected a tensor, got {type(found).__name__}")
    if found.shape != right.shape:
        return blamed(
            "", f"{what}: expected the shape {tuple(right.shape)}, got {tuple(found.shape)}"
        )
    if close(found, right, tolerance):
        return None
    evidence = f"{what}: off by up to {_worst(found, right):.3g}"
    for name, wrong in mistakes:
        if not isinstance(wrong, Tensor) or wrong.shape != right.shape:
            continue
        if close(found, wrong, tolerance) and not close(wrong, right, tolerance):
            return blamed(name, evidence)
    return blamed("", evidence)


def close(found: Tensor, right: Tensor, tolerance: float) -> bool:
    """Whether two tensors agree, to a share of the largest entry."""
    scale = max(1.0, float(right.abs().max())) if right.numel() else 1.0
    return bool(torch.allclose(found.double(), right.double(), rtol=0.0, atol=tolerance * scale))


def _worst(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right.double()).abs().nan_to_num(float("inf")).max())


def numbers(
    piece: str,
    function: str,
    cases: Sequence[tuple[Any, ...]],
    rule: Callable[..., Any],
    *,
    parts: Sequence[str] = (),
    plain: Callable[[Any], Any] = lambda argument: argument,
) -> Callable[[Bench], Finding | None]:
    """A law: a function's numbers for all cases are those of a rule, as shares of these.

    Args:
        piece: which one.
        function: of the piece.
        cases: the arguments of each call.
        rule: the same arguments → the right number, or one for each part.
        parts: keys of the dict that is returned; none if it is a number.
        plain: makes an argument what readers have.
    """

    def answer(bench: Bench) -> list[Any]:
        found = [bench("call", piece, function, list(map(plain, case))) for case in cases]
        found = [each[part] for each in found for part in parts] if parts else found
        return list(map(_own_number, found))

    def look(bench: Bench) -> Finding | None:
        found = answer(bench)
        for each in found:
            if isinstance(each, bool) or not isinstance(each, int | float):
                return blamed("", f"expected a number, got {type(each).__name__}")
        ruled = [rule(*case) for case in cases]
        right = torch.tensor(ruled, dtype=torch.float64).flatten()
        counts = torch.tensor(ruled).dtype == torch.int64
        unit = torch.where(right == 0, 1.0, right)

        def share(numbers: list[Any]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.float64) / unit

        off = int((share(found) - right / unit).abs().argmax())
        return named(
            share(found),
            right / unit,
            with_each_mistake(piece, lambda asked: share(answer(asked))),
            what=f"{function}: {found[off]:.6g}, expected {float(right[off]):.6g}; as a share",
            # of a count every digit is known; other numbers may be of single precision
            tolerance=1e-9 if counts else 1e-6,
        )

    return look


def _own_number(value: Any) -> Any:
    """A number of NumPy or torch as Python's own, as it comes from a confined process."""
    value = plain_value(value)
    return value.item() if isinstance(value, Tensor) and not value.dim() else value


class Warm:
    """The model that every build begins with, in single and in double precision.

    Args:
        scale: of its last norm, and so of its logits.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    @cached_property
    def single(self) -> dict[str, Tensor]:
        """Name → weights."""
        from safetensors.torch import load_file

        weights = load_file(pieces.WARM)
        return weights | {"model.norm.weight": weights["model.norm.weight"] * self.scale}

    @cached_property
    def double(self) -> dict[str, Tensor]:
        """The same, for comparisons to the last digit."""
        return {name: weight.double() for name, weight in self.single.items()}


WARM = Warm()
RESTLESS = Warm(0.2)  # so unsure of everything that many of its responses are cut off
