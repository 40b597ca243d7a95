"""How a check speaks to a student: call the answer, look at what comes back, say what is wrong.

A check goes from the coarse to the fine: is there an answer, does it run, does it have the right
type and shape, is it right on a case worked out by hand, does it have the properties it should. It
stops at the first thing that is wrong. A value is compared with what it should be, and with what
well-known mistakes would make it; where one of those fits, the message names the mistake.
"""

import linecache
import math
import numbers
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Number = int | float


class NotRight(Exception):
    """An answer that is missing or wrong. A notebook shows the message and no stack trace."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


class NotYet(NotRight):
    """The answer has not been written yet."""


class Attempt:
    """A student's answer while it is being checked.

    Args:
        answer: the function that the student wrote.

    Attributes:
        passed: what has been found right so far, in words.
    """

    def __init__(self, answer: Callable[..., Any]) -> None:
        if not callable(answer):
            raise NotRight(
                f"Expected a function, got {_kind(answer)}. Hand in the function itself, by its "
                "name, without calling it."
            )
        self.answer = answer
        self.passed: list[str] = []
        self._asked_for_one_value = False  # by a call without arguments
        self._with_other_numbers: Callable[[], Any] = lambda: None  # the last call again

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The answer's result. It gets copies, so that it cannot change what the check holds."""
        self._with_other_numbers = lambda: self._run(_others(arguments), keywords)
        handed = copied(arguments)
        result = self._run(handed, keywords)
        for number, (before, after) in enumerate(zip(arguments, handed, strict=True), start=1):
            if isinstance(before, Tensor) and not _alike(before, after):
                raise NotRight(
                    f"Your function changed its argument number {number} in place; its caller "
                    "still needs the old values. Work on a copy."
                )
        return result

    def gradient(self, *arguments: Any, wrt: int = 0, **keywords: Any) -> Tensor:
        """∂(sum of the result)/∂(argument number `wrt`, counted from 0)."""
        found = self._gradient(copied(arguments), keywords, wrt)
        self._with_other_numbers = lambda: self._gradient(_others(arguments), keywords, wrt)
        return found

    def _gradient(self, handed: list[Any], keywords: dict[str, Any], wrt: int) -> Tensor:
        handed[wrt].requires_grad_()
        result = self._run(handed, keywords)
        if not isinstance(result, Tensor):
            raise NotRight(
                f"Expected a tensor to differentiate, got {_kind(result)}. A gradient flows "
                "through tensors only; float(), .item(), .tolist() and NumPy end it."
            )
        if not result.requires_grad:
            raise NotRight(
                f"No gradient flows through the result to argument number {wrt + 1}. Likely "
                "mistake: a .detach(), .item() or torch.no_grad() on the way, or a new tensor made "
                "of plain numbers."
            )
        (gradient,) = torch.autograd.grad(result.sum(), handed[wrt], allow_unused=True)
        return torch.zeros_like(handed[wrt]) if gradient is None else gradient

    def _run(self, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        self._asked_for_one_value = not arguments and not keywords
        try:
            return plain(self.answer(*arguments, **keywords))
        except NotImplementedError:
            raise NotYet(
                "Not implemented yet. Put your answer in place of `raise NotImplementedError`."
            ) from None
        except Exception as error:
            raise NotRight(
                f"Your function stopped with {type(error).__name__}: {error}"
                + _place(error, self.answer)
            ) from None

    def tensor(
        self, result: Any, shape: tuple[int, ...], *, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Insist on a tensor of exactly this shape: nothing broadcasts, nothing is squeezed.

        Lists and arrays of numbers stand for tensors, wherever an answer is checked.
        """
        if not shape and isinstance(result, Number) and not isinstance(result, bool):
            result = torch.tensor(result, dtype=dtype or torch.float64)
        result = as_tensor(result)
        if not isinstance(result, Tensor):
            raise NotRight(f"Expected a tensor of shape {shape}, got {_kind(result)}.")
        if tuple(result.shape) != shape:
            raise NotRight(
                f"Expected shape {shape}, got {tuple(result.shape)}. A wrong shape often "
                "broadcasts silently into a wrong number, so it never counts as right."
            )
        if dtype is not None and result.dtype != dtype:
            raise NotRight(f"Expected dtype {dtype}, got {result.dtype}.")
        self._note("shape and type")
        return result

    def number(self, result: Any) -> float:
        """Insist on one number: int, float or a tensor of one element without dimensions."""
        if isinstance(result, Tensor) and result.dim() == 0:
            result = result.item()
        if isinstance(result, bool) or not isinstance(result, Number):
            raise NotRight(f"Expected one number, got {_kind(result)}.")
        return float(result)

    def numbers(self, result: Any, count: int, what: str) -> list[float]:
        """Insist on this many numbers in a list, a tuple or an array; `what` they are, in words."""
        values = result.tolist() if hasattr(result, "tolist") else result
        if not isinstance(values, list | tuple) or len(values) != count:
            raise NotRight(f"Expected {what}, got {result!r:.80}.")
        return [self.number(value) for value in values]

    def equal(
        self,
        result: Any,
        expected: Tensor | Number,
        *,
        case: str,
        mistakes: Mapping[str, Tensor | Number] | None = None,
        tolerance: float = 1e-6,
    ) -> None:
        """Insist on a value. The right one is shown, unless it is all that the exercise asks for.

        Args:
            result: what the student's function returned.
            expected: the right value; a tensor also fixes the shape, and one of truth values the
                type.
            case: which case this is, with its inputs, such as "rewards [1, 0], one prompt".
            mistakes: explanation → the value that this mistake would have led to; NaN stands for
                every result with a NaN in it.
            tolerance: absolute; below 3e-4 relative as well. A larger one stands for the decimals
                that the statement asks for, which are as many for large values.
        """
        if isinstance(expected, Tensor):
            truth = torch.bool if expected.dtype is torch.bool else None
            result = self.tensor(result, tuple(expected.shape), dtype=truth)
        else:
            result = self.number(result)
        relative = tolerance if tolerance < 3e-4 else 0.0
        if _close(result, expected, tolerance, relative=relative):
            self._note(case)
            return
        shown = [] if self._asked_for_one_value else [f"  expected {_show(expected)}"]
        lines = [f"Wrong for {case}:", *shown, f"  got      {_show(result)}"]
        likely = [why for why, v in (mistakes or {}).items() if _comes_of(result, v, tolerance)]
        if likely and self._stays(result):
            lines.append("With other numbers you return the same. If that is no accident:")
        lines += likely_mistakes(likely)
        if not likely:
            lines += _seen_in(result, expected, tolerance, told=bool(shown)) or _apart(
                result, expected, tolerance, relative
            )
        raise NotRight("\n".join(lines))

    def _stays(self, result: Any) -> bool:
        """Whether a result is the same for other numbers: a constant, which shows no mistake."""
        try:
            again = self._with_other_numbers()
            return not self._asked_for_one_value and _close(again, result, 1e-12)
        except Exception:  # other numbers need not make sense, and are not the student's fault
            return False

    def choice(self, result: Any, right: str, among: Mapping[str, str]) -> None:
        """Insist on one word; `among` holds the wrong ones, each with what speaks against it."""
        if result not in (right, *among):
            offered = ", ".join(repr(word) for word in sorted((right, *among)))
            raise NotRight(f"Expected one of {offered}, got {result!r}.")
        if result != right:
            raise NotRight(f"Not {result!r}: {among[result]}")
        self._note(f"the choice {right!r}")

    def choices(
        self, result: Any, right: Mapping[str, str], among: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Insist on a dict of words; `among` holds for each key what it does in `choice`."""
        if not isinstance(result, dict) or set(result) != set(right):
            *names, last = (f'"{name}"' for name in right)
            raise NotRight(
                f"Expected a dict with one word for each of {', '.join(names)} and {last}."
            )
        for name, word in right.items():
            self.choice(result[name], word, among[name])

    def holds(self, condition: bool, what: str, *, otherwise: str) -> None:
        """Insist on a property: `what` in words if it holds, `otherwise` what to tell if not."""
        if not condition:
            raise NotRight(otherwise)
        self._note(what)

    def _note(self, what: str) -> None:
        if what not in self.passed:
            self.passed.append(what)


def plain(value: Any) -> Any:
    """A result with numbers of NumPy, fractions and the like as Python's own, at every level."""
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    if type(value) is dict:
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, bool | int | float | str | Tensor):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # an array without axes
        return value.item()
    return value


def likely_mistakes(explanations: list[str]) -> list[str]:
    """Lines that name what may have led to a value: all of it, for the value does not tell."""
    openings = ["Likely mistake", *["Or, with the same value here"] * len(explanations)]
    return [f"{opening}: {why}" for opening, why in zip(openings, explanations, strict=False)]


def as_tensor(value: Any) -> Any:
    """A list, tuple or array of numbers, at any level, as a tensor; anything else as it is."""
    listed = as_lists(value)
    if isinstance(value, Tensor) or not isinstance(listed, list):
        return value
    try:
        return torch.tensor(listed, dtype=torch.float64 if _with_floats(listed) else None)
    except (TypeError, ValueError, RuntimeError):  # words, or rows of different lengths
        return value


def as_lists(value: Any) -> Any:
    """Tensors, arrays and tuples as lists, at every level."""
    if isinstance(value, list | tuple):
        return [as_lists(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _with_floats(value: Any) -> bool:
    return any(map(_with_floats, value)) if isinstance(value, list) else isinstance(value, float)


def digits(value: float, count: int) -> float:
    """The tolerance of a number that is asked for to so many significant digits."""
    return 0.51 * 10.0 ** (math.floor(math.log10(abs(value))) + 1 - count)


def copied(arguments: Any) -> list[Any]:
    """Arguments that can be changed without a trace."""
    return [a.detach().clone() if isinstance(a, Tensor) else a for a in arguments]


def _others(arguments: Any) -> list[Any]:
    """Arguments of the same kind with other numbers, and other verdicts."""

    def other(value: Any) -> Any:
        if isinstance(value, float):
            return 0.9 * value
        if not isinstance(value, Tensor) or not value.numel():
            return value
        if value.is_floating_point():
            return value.detach() * torch.linspace(0.7, 0.95, value.numel()).view(value.shape)
        return ~value if value.dtype is torch.bool else value

    return [other(value) for value in copied(arguments)]


def _alike(before: Tensor, after: Tensor) -> bool:
    return before.shape == after.shape and torch.equal(before.nan_to_num(), after.nan_to_num())


def _close(
    result: Any, expected: Tensor | Number, tolerance: float, *, relative: float | None = None
) -> bool:
    relative = tolerance if relative is None else relative
    left = torch.as_tensor(result, dtype=torch.float64)
    right = torch.as_tensor(expected, dtype=torch.float64)
    return left.shape == right.shape and torch.allclose(
        left, right, rtol=relative, atol=tolerance, equal_nan=True
    )


def _comes_of(result: Any, mistake: Tensor | Number, tolerance: float) -> bool:
    """Whether a result is what a mistake leads to."""
    if isinstance(mistake, float) and math.isnan(mistake):
        return math.isnan(torch.as_tensor(result, dtype=torch.float64).sum())
    return _close(result, mistake, tolerance)


def _seen_in(result: Any, expected: Any, tolerance: float, *, told: bool) -> list[str]:
    """What all entries of a wrong value have in common, in words, if anything.

    Args:
        result: the wrong value.
        expected: the right one.
        tolerance: absolute and relative.
        told: whether the right value is shown; where it is not, no number may lead to it.
    """
    right, found = (torch.as_tensor(x, dtype=torch.float64) for x in (expected, result))
    if isinstance(expected, Tensor) and expected.dtype is torch.bool:
        return []
    wanted, numbers = right.flatten().tolist(), found.flatten().tolist()
    if not all(map(math.isfinite, [*wanted, *numbers])) or not any(wanted):
        return []

    def is_all(values: list[float]) -> bool:
        pairs = zip(numbers, values, strict=True)
        return all(math.isclose(x, y, rel_tol=tolerance, abs_tol=tolerance) for x, y in pairs)

    if is_all([-x for x in wanted]):
        return ["These are the right numbers with the opposite sign."]
    if max(wanted) - min(wanted) <= 2 * tolerance:  # whatever is said of equal numbers fits
        return []
    ranks = sorted(range(len(wanted)), key=numbers.__getitem__)
    in_order = dict(zip(ranks, sorted(wanted), strict=True))
    if is_all([in_order[i] for i in range(len(wanted))]):
        return ["These are the right numbers in another order."]
    largest = max(range(len(wanted)), key=lambda i: abs(wanted[i]))
    factor, offset = numbers[largest] / wanted[largest], numbers[0] - wanted[0]
    if told and abs(factor) > tolerance and is_all([factor * x for x in wanted]):
        return [f"Each is {factor:.6g} times what it should be."]
    if told and is_all([x + offset for x in wanted]):
        return [f"Each is off by the same {offset:.4g}."]
    return []


def _apart(result: Any, expected: Any, tolerance: float, relative: float) -> list[str]:
    """Which of several numbers are not right, in words, unless none is, or all are not."""
    found, right = (torch.as_tensor(x, dtype=torch.float64) for x in (result, expected))
    close = found.isclose(right, rtol=relative, atol=tolerance)
    wrong = (~(close | (found.isnan() & right.isnan()))).nonzero().tolist()
    if not 0 < len(wrong) < right.numel():
        return []
    where = ", ".join(map(str, wrong[:5])) + (" …" if len(wrong) > 5 else "")
    return [f"Not right are {len(wrong)} of {right.numel()} entries (counted from 0): {where}"]


def _show(value: Any) -> str:
    if isinstance(value, Tensor):
        pictured = value.dtype is torch.bool and value.dim() and value.numel()
        return _drawn(value.tolist()) if pictured else _show(value.tolist())
    if isinstance(value, list):
        return "[" + ", ".join(_show(v) for v in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _drawn(rows: list[Any]) -> str:
    """Truth values as a picture: a row of x for True and · for False."""
    if isinstance(rows[0], list):
        return "\n           ".join(map(_drawn, rows))
    return "".join("x" if entry else "·" for entry in rows)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None:
        return "None (is there a `return`?)"
    return f"{type(value).__name__} {value!r:.80}"


def _place(error: Exception, answer: Callable[..., Any]) -> str:
    """The last line of the student's own file, a cell mostly, that was running."""
    code = getattr(answer, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code and frame.filename == code.co_filename]
    if not own or own[-1].lineno is None:
        return ""
    line = linecache.getline(own[-1].filename, own[-1].lineno).strip()
    return f"\n  in the line: {line}" if line else ""
