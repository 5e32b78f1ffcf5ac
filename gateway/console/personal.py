"""What a person may choose of memory, as the fields of a form: pure, out of the settings themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.personal import PERSONAL, names
from memory.policy import MemoryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One setting. `chosen` None: as configured. `least` and `most` bound a number; None: not bounded."""

    name: str
    help: str
    is_switch: bool
    is_whole: bool
    configured: Any
    chosen: Any
    least: float | None
    most: float | None

    @property
    def text(self) -> str:
        """The name of its label among the texts."""
        return self.name.replace(".", "_")


def choices_of(configured: MemoryPolicy, chosen: Mapping[str, Any]) -> Mapping[str, Sequence[Choice]]:
    """All settings a person may change, by their group."""
    found: dict[str, list[Choice]] = {group: [] for group in PERSONAL}
    for name in names():
        info = _field(name)
        found[name.partition(".")[0]].append(
            Choice(
                name=name,
                help=info.description or "",
                is_switch=info.annotation is bool,
                is_whole=info.annotation is int,
                configured=_value(configured, name),
                chosen=chosen.get(name),
                least=_bound(info, "ge"),
                most=_bound(info, "le"),
            )
        )
    return found


def _field(name: str) -> FieldInfo:
    """The description of a setting by its path."""
    policy: type[BaseModel] = MemoryPolicy
    *outer, last = name.split(".")
    for part in outer:
        inner: Any = policy.model_fields[part].annotation
        policy = inner
    return policy.model_fields[last]


def _value(policy: BaseModel, name: str) -> Any:
    value: Any = policy
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _bound(info: FieldInfo, name: str) -> float | None:
    return next((getattr(one, name) for one in info.metadata if hasattr(one, name)), None)
