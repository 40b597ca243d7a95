"""The tables of a recipe that name a row or a task, and set what its signature allows."""

from collections.abc import Mapping
from functools import lru_cache, partial
from math import isfinite
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    PlainValidator,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    create_model,
)

from nbcourse import rows
from nbcourse.errors import did_you_mean
from nbcourse.rows import Setting
from nbcourse.tasks.table import TASKS
from nbcourse.tasks.task import Task
from nbcourse.training import own_code
from nbcourse.training.algorithms import ALGORITHMS
from nbcourse.training.own_code import OwnCode
from nbcourse.training.recipe_sections import Section, explain


class NamedSection(Section):
    """A table that names an entry of a Python table, and sets what that entry's signature allows.

    For each entry a subclass is made whose fields are its settings. Only a recorded recipe whose
    entry is not known here (it came from a file that is gone) stays in this class.
    """

    model_config = ConfigDict(extra="allow")

    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """All keys but the name."""
        return self.model_dump(exclude={"name"})


class AlgorithmSection(NamedSection):
    """Which row of the table, and the settings of its functions."""


class TaskSection(NamedSection):
    """Where prompts come from, and what is right."""

    _kind: type[Task] | None = PrivateAttr(None)

    def build(self) -> Task:
        """The task itself.

        Raises:
            ValueError: if it is not known here, or settings do not go together.
        """
        if self._kind is None:
            raise ValueError(f"task.name is {self.name!r}, which is not known here")
        return self._kind(**self.settings)


NamedKind = TypeVar("NamedKind", bound=NamedSection)


def _of_signature(
    base: type[NamedKind], key: str, given: dict[str, Any], known: Mapping[str, Setting]
) -> NamedKind:
    """A section with the settings of one entry as its fields, and the values that were given.

    Raises:
        ValueError: naming each key that the entry does not have, or whose value it does not take.
    """
    problems = [
        f"{key}.{setting} is not used: {given['name']} has no such setting; its settings: "
        f"{', '.join(known) or 'none'}{did_you_mean(setting, known)}"
        for setting in given
        if setting not in (*known, "name")
    ]
    try:
        if not problems:
            return _section_of(base, key, tuple(known.values())).model_validate(given)
    except ValidationError as error:
        problems = [explain(base, problem, below=(key,)) for problem in error.errors()]
    raise ValueError("\n".join(problems))


@lru_cache
def _section_of(base: type[NamedKind], key: str, known: tuple[Setting, ...]) -> type[NamedKind]:
    """The section whose fields are these settings."""
    fields: dict[str, Any] = {
        setting.name: (
            Annotated[setting.type, AfterValidator(partial(_in_bounds, key, setting))],
            setting.default,
        )
        for setting in known
    }
    return create_model(base.__name__, __base__=base, **fields)


def _in_bounds(key: str, setting: Setting, value: Any) -> Any:
    place = f"{key}.{setting.name}"
    if isinstance(value, float) and not isfinite(value):  # JSON, in which runs are kept, has none
        raise ValueError(f"{place} is {value}, expected a finite number")
    setting.check(value, name=place)
    return value


def _table(key: str, section: Any, *, usual: str | None = None) -> dict[str, Any]:
    """The keys that were given, with the usual name if none was."""
    if isinstance(section, NamedSection):
        section = section.model_dump()
    if not isinstance(section, dict):
        raise ValueError(f"{key} is {section!r}: expected a table")
    if usual is None and "name" not in section:
        raise ValueError(f"{key}.name is missing")
    table = {"name": usual, **section}
    if not isinstance(table["name"], str):
        raise ValueError(f"{key}.name is {table['name']!r}: expected text")
    return table


def _algorithm(section: Any, info: ValidationInfo) -> AlgorithmSection:
    table, own = _table("algorithm", section), _own_code(info)
    if not chosen(info) and table["name"] not in {*ALGORITHMS, *own.algorithms}:
        return AlgorithmSection(**table)
    row = own.algorithm(table["name"])
    return _of_signature(AlgorithmSection, "algorithm", table, row.known_settings)


def _task(section: Any, info: ValidationInfo) -> TaskSection:
    table, own = _table("task", section, usual="arithmetic"), _own_code(info)
    if not chosen(info) and table["name"] not in {*TASKS, *own.tasks}:
        return TaskSection(**table)
    kind = own.task(table["name"])
    made = _of_signature(TaskSection, "task", table, rows.settings_of(kind))
    made._kind = kind
    try:
        made.build()
    except ValueError as error:
        raise ValueError(f"task.{error}") from error
    return made


def _own_code(info: ValidationInfo) -> OwnCode:
    """What the reader's file brings, if the recipe names one."""
    return info.context["code"] if info.context else own_code.NONE


def chosen(info: ValidationInfo) -> bool:
    """Whether the keys that are given were chosen, and are not the complete record of a run."""
    return not (info.context and info.context["complete"])


AnyAlgorithm = Annotated[SerializeAsAny[AlgorithmSection], PlainValidator(_algorithm)]
AnyTask = Annotated[SerializeAsAny[TaskSection], PlainValidator(_task)]
