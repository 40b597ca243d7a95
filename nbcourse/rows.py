"""Functions as entries of a table: their signatures say what they need and what may be set.

A parameter *without* a default is a need, a quantity that has to be offered under this name. A
parameter *with* a default is a setting: a recipe may change it, within the bounds that its
annotation states. The tables of algorithms, of agents and of tasks are read in this way, so that
whatever is said about a row (its keys in a recipe, its help, its place in a chapter) is said once.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import Parameter, signature
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval

from nbcourse.errors import did_you_mean
from nbcourse.functional.arguments import bounds_of, in_words, within


@dataclass(frozen=True)
class Setting:
    """A parameter that may be set.

    Attributes:
        name: of the parameter.
        default: what it is if nothing is said.
        type: its annotation without the bounds; the default's type where there is no annotation.
        bounds: of the number, if there are any.
    """

    name: str
    default: Any
    type: Any
    bounds: Interval | None

    def check(self, value: Any, *, name: str) -> None:
        """Require a value that the parameter takes.

        Raises:
            ValueError: naming the setting, the value and what is expected.
        """
        if self.bounds is None or (value is None and type(None) in get_args(self.type)):
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} is {value!r}, expected {in_words(self.bounds)}")
        within(value, self.bounds, name=name)

    def __str__(self) -> str:
        """Such as `clip_low = 0.2 (a number from 0 to 1)`."""
        return f"{self.name} = {self.default}" + (
            f" ({in_words(self.bounds)})" if self.bounds else ""
        )


@lru_cache
def settings_of(function: Callable) -> Mapping[str, Setting]:
    """The settings of a function, or of a dataclass, by name."""
    hints = get_type_hints(function, include_extras=True)
    found = {}
    for parameter in _parameters(function):
        if parameter.default is not Parameter.empty:
            if not isinstance(parameter.default, bool | int | float | str | None):
                raise ValueError(
                    f"{function.__name__!r} has {parameter}, expected a number, a text, True, "
                    "False or None as a default: that is what a recipe can say"
                )
            hint = hints.get(parameter.name, type(parameter.default))
            found[parameter.name] = Setting(
                parameter.name, parameter.default, _plain(hint), bounds_of(hint)
            )
    return found


@lru_cache
def needs_of(function: Callable) -> tuple[str, ...]:
    """What a function has to be given."""
    return tuple(p.name for p in _parameters(function) if p.default is Parameter.empty)


def call(function: Callable, settings: Mapping[str, Any], offered: Mapping[str, Any]) -> Any:
    """Call a function with what it needs of what is offered, and with its part of the settings."""
    chosen = {name: settings[name] for name in settings_of(function) if name in settings}
    return function(**{name: offered[name] for name in needs_of(function)}, **chosen)


class Row:
    """What every row of a table of functions has; a dataclass brings the fields.

    Attributes:
        offers: for each field that holds a function, what it may ask for.
        settings: the row's own defaults, where they are not those of its functions.
    """

    offers: ClassVar[Mapping[str, Collection[str]]]
    settings: Mapping[str, Any]

    def check_functions(self) -> None:
        """Require that every need is offered, and that the settings are the functions'.

        Raises:
            ValueError: naming the function and the need, or the setting.
        """
        for field, offered in self.offers.items():
            function = getattr(self, field)
            for name in needs_of(function):
                if name not in offered:
                    raise ValueError(
                        f"{field} {function.__name__!r} needs {name!r}, which is not offered; "
                        f"on offer are {', '.join(map(repr, offered))}"
                        f"{did_you_mean(name, offered)}"
                    )
        known = self.known_settings
        for name, value in self.settings.items():
            if name not in known:
                raise ValueError(
                    f"a name in settings is {name!r}, expected one of "
                    f"{', '.join(map(repr, known))}{did_you_mean(name, known)}"
                )
            known[name].check(value, name=name)

    @property
    def known_settings(self) -> dict[str, Setting]:
        """Every setting of the row's functions, with the row's own default."""
        found: dict[str, Setting] = {}
        for field in self.offers:
            found |= settings_of(getattr(self, field))
        return {
            name: Setting(name, self.settings.get(name, s.default), s.type, s.bounds)
            for name, s in found.items()
        }

    @property
    def all_settings(self) -> dict[str, Any]:
        """Every setting with the value it has if nothing is said."""
        return {name: setting.default for name, setting in self.known_settings.items()}

    def with_settings(self, **settings: Any) -> Self:
        """A copy with these settings changed, such as `row.with_settings(lam=0.0)`.

        Raises:
            ValueError: if a setting is none of the functions' or out of its bounds.
        """
        changed = {**self.settings, **settings}
        return replace(self, settings=changed)  # type: ignore[type-var]  # a dataclass, see above

    def needs(self, quantity: str) -> bool:
        """Whether one of the row's functions is computed from this quantity."""
        return any(quantity in needs_of(getattr(self, field)) for field in self.offers)


def _parameters(function: Callable) -> list[Parameter]:
    parameters = list(signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise ValueError(
                f"{function.__name__!r} takes {parameter}, expected every quantity and every "
                "setting by its name: the signature is what says what a row needs"
            )
    return parameters


def _plain(hint: Any) -> Any:
    """An annotation without its bounds: `Annotated[float, …] | None` → `float | None`."""
    if get_origin(hint) is Annotated:
        return get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(map(_plain, get_args(hint)))]  # noqa: UP007  of types known only now
    return hint
