"""A reply as it grows: text, calls, and what was said about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.models.base import ModelError
from sessions.entries import ToolCall
from sessions.usage import MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessions.entries import Finish
    from sessions.usage import Usage


@dataclass(slots=True)
class PartialCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class PartialReply:
    """`begun` once anything of the reply has come, also reasoning that is not shown."""

    model: str
    text: list[str] = field(default_factory=list[str])
    finish: Finish | None = None
    usage: Usage | None = None
    ended: bool = False
    begun: bool = False
    _calls: list[PartialCall] = field(default_factory=list[PartialCall])
    _open: dict[int, PartialCall] = field(default_factory=dict[int, PartialCall])
    _half: str = ""

    def add_text(self, value: object) -> str:
        """The piece that can be shown: half a surrogate pair waits for its other half."""
        if not isinstance(value, str) or not value:
            return ""
        self.begun = True
        piece = self._half + value
        self._half = ""
        if "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        piece = whole_characters(piece)
        if piece:
            self.text.append(piece)
        return piece

    def call_at(self, index: int, id_: str = "") -> PartialCall:
        """The call at an index. A new id at a known index is another call: some servers give every call index 0."""
        self.begun = True
        call = self._open.get(index)
        if call is None or (id_ and call.id and id_ != call.id):
            call = self._open[index] = PartialCall()
            self._calls.append(call)
        call.id = call.id or id_
        return call

    @property
    def shown(self) -> str:
        return "".join(self.text)

    def calls(self, default_id: str) -> tuple[ToolCall, ...]:
        """The calls in order. Ids that are missing or used twice are replaced, so that results can be paired."""
        taken: set[str] = set()
        made: list[ToolCall] = []
        for number, call in enumerate(call for call in self._calls if call.name):
            id_ = call.id if call.id and call.id not in taken else f"{call.id or default_id}_{number}"
            taken.add(id_)
            made.append(ToolCall(id=id_, name=call.name, arguments="".join(call.arguments) or "{}"))
        return tuple(made)


def take_all(
    batch: list[tuple[str, dict[str, Any]]], take: Callable[[str, dict[str, Any]], str]
) -> tuple[str, ModelError | None]:
    """The new text of a batch, and the error that ended it: what came before the error is shown all the same."""
    pieces: list[str] = []
    for name, fields in batch:
        try:
            pieces.append(take(name, fields))
        except ModelError as error:
            return "".join(pieces), error
    return "".join(pieces), None


def whole_characters(text: str) -> str:
    """The text with lone surrogates replaced; pairs become the character they mean."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def number(value: Any) -> int:
    """A token count of a provider; anything that is none counts as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_COUNT else 0


def string(value: Any) -> str:
    """A text of a provider; anything else is no text."""
    return whole_characters(value) if isinstance(value, str) else ""


def fields_of(value: Any) -> dict[str, Any]:
    """An object of a provider; anything else is an empty one."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]
