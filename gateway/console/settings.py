"""The effective configuration as a page shows it: by section, and what was set apart from what is as delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson

from gateway.config import Config, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting by its path. `is_set`: it is not as delivered."""

    path: str
    value: str
    is_set: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The settings below one name of the file."""

    name: str
    settings: Sequence[Setting]

    @property
    def set_count(self) -> int:
        return sum(one.is_set for one in self.settings)


def settings_of(config: Config) -> list[Section]:
    """All of it but the tokens, which have a table of their own. Secrets are stars."""
    delivered = dict(_flat(shown(Config(), exclude={"auth"})))
    found: dict[str, list[Setting]] = {}
    for path, value in _flat(shown(config, exclude={"auth"})):
        setting = Setting(path=path, value=value, is_set=delivered.get(path) != value)
        found.setdefault(path.partition(".")[0], []).append(setting)
    return [Section(name=name, settings=settings) for name, settings in found.items()]


def _flat(fields: dict[str, Any], place: str = "") -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        path = f"{place}.{name}" if place else name
        if isinstance(value, dict) and value:
            yield from _flat(cast("dict[str, Any]", value), path)
        else:
            yield path, _written(cast("object", value))


def _written(value: object) -> str:
    """As it stands in the file."""
    match value:
        case str():
            return value
        case None:
            return ""
        case list():
            return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() if value else ""
        case _:
            return orjson.dumps(value).decode()
