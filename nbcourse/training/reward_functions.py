"""A reward that a reader wrote: a plain function in a file beside the recipe, called as TRL does.

    def score(prompts, completions, answer, **columns):
        return [float(text.endswith(right)) for text, right in zip(completions, answer)]

With `prompt.style = "plain"` prompts and completions are texts, and with "chat" they are messages,
`completion[0]["content"]`, as TRL hands them over for a conversational data set.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from nbcourse.errors import NotFound, UserError, did_you_mean
from nbcourse.lm import prompts
from nbcourse.training.own_code import imported
from nbcourse.training.recipe_sections import PromptSection

GIVEN = ("prompts", "completions", "completion_ids")


def load(source: str) -> Callable[..., Any]:
    """The function that `FILE.py:FUNCTION` names.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: in one line, if it cannot be imported or has no such function.
    """
    file, _, name = source.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise NotFound(
            f"reward.source is {source!r}: there is no file {path.name} in {path.parent}"
        )
    module = imported(path)
    own = [key for key, value in module.items() if callable(value) and not key.startswith("_")]
    if name not in own:
        raise UserError(
            f"reward.source is {source!r}: {path.name} has no function {name!r}; it has "
            f"{', '.join(own) or 'none'}{did_you_mean(name, own)}"
        )
    function: Callable[..., Any] = module[name]
    return function


def pay(
    source: str,
    settings: PromptSection,
    texts: Sequence[str],
    problems: Sequence[Any],
    ids: Sequence[Sequence[int]],
) -> list[float]:
    """What a reader's function pays for each response.

    Args:
        source: `FILE.py:FUNCTION`. It is given what it asks for by name: `prompts`, `completions`,
            `completion_ids`, and each column of the data as a list; all of it if it takes `**`.
        settings: how the questions were put.
        texts: B responses.
        problems: what each of them answers.
        ids: the tokens of each.

    Raises:
        ValueError: if it asks for something else, raises, or returns anything but B numbers.
    """
    function = load(source)
    offered = {
        "prompts": [_prompt(settings, problem) for problem in problems],
        "completions": [_completion(settings, text) for text in texts],
        "completion_ids": [list(row) for row in ids],
        **columns(problems),
    }
    chosen = _asked(function, offered, source)
    try:
        paid = function(**chosen)
    except Exception as error:
        raise UserError(f"reward.source is {source!r}: it raises {error!r:.300}") from error
    return _numbers(paid, len(texts), source)


def columns(problems: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns that all problems have: those of a data set's rows, or else of its fields."""
    rows: list[Mapping[str, Any]] = [
        getattr(problem, "columns", None)
        or {field.name: getattr(problem, field.name) for field in fields(problem)}
        for problem in problems
    ]
    names = [name for name in rows[0] if name not in GIVEN and all(name in row for row in rows)]
    return {name: [row[name] for row in rows] for name in names}


def _prompt(settings: PromptSection, problem: Any) -> Any:
    if settings.style == "plain":
        return problem.prompt
    return prompts.messages(problem.prompt, **settings.said())


def _completion(settings: PromptSection, text: str) -> Any:
    return text if settings.style == "plain" else [{"role": "assistant", "content": text}]


def _asked(function: Callable[..., Any], offered: Mapping[str, Any], source: str) -> dict[str, Any]:
    asked = signature(function).parameters.values()
    everything = any(one.kind is Parameter.VAR_KEYWORD for one in asked)
    plain = [
        one for one in asked if one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    missing = [
        one.name for one in plain if one.default is Parameter.empty and one.name not in offered
    ]
    if missing:
        raise UserError(
            f"reward.source is {source!r}: it asks for {missing[0]!r}, which is not there; on "
            f"offer are {', '.join(offered)}{did_you_mean(missing[0], offered)}"
        )
    names = {one.name for one in plain}
    return {name: value for name, value in offered.items() if everything or name in names}


def _numbers(paid: Any, count: int, source: str) -> list[float]:
    found = paid.tolist() if hasattr(paid, "tolist") else paid
    if not isinstance(found, list | tuple) or len(found) != count:
        what = f"{len(found)} of them" if isinstance(found, list | tuple) else f"{found!r:.80}"
        raise UserError(
            f"reward.source is {source!r}: it returns {what}, expected a list of {count} numbers, "
            "one for each response"
        )
    for i, one in enumerate(found):
        if not isinstance(one, int | float) or not math.isfinite(one):
            raise UserError(
                f"reward.source is {source!r}: it pays {one!r:.80} for response {i + 1} of "
                f"{count}, expected a finite number"
            )
    return [float(one) for one in found]
