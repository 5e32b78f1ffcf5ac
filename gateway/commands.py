"""The commands people type: which there are, how they are read, who may use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from sessions.policy import Policy

if TYPE_CHECKING:
    from sessions.keys import SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInfo:
    """One command of the table. `argument` is how its argument is shown in the help."""

    name: str
    help: str
    argument: str = ""
    ends_session: bool = False


COMMANDS: tuple[CommandInfo, ...] = (
    CommandInfo(
        name="new", argument="[text]", help="start a new session, with the text as first message", ends_session=True
    ),
    CommandInfo(name="reset", help="start a new session", ends_session=True),
    CommandInfo(name="compact", argument="[what to keep]", help="summarise the earlier part of the conversation"),
    CommandInfo(name="status", help="session, model, context, tokens, cost, queue"),
    CommandInfo(name="context", help="what the next prompt consists of, in tokens"),
    CommandInfo(name="usage", argument="[day|week|month]", help="tokens and cost of this chat"),
    CommandInfo(name="stop", help="stop the reply that is being written"),
    CommandInfo(name="model", argument="[name]", help="show or change the model of this chat"),
    CommandInfo(name="resume", argument="[number]", help="list earlier sessions, or go back to one"),
    CommandInfo(name="pin", help="keep the last message word for word through compactions"),
    CommandInfo(name="remember", argument="<fact>", help="remember a fact about you"),
    CommandInfo(name="forget", argument="<words or id>", help="put a memory into the trash"),
    CommandInfo(name="memory", argument="[words]", help="what is remembered about you"),
    CommandInfo(name="help", help="this list"),
)
_BY_NAME = {info.name: info for info in COMMANDS}


ROLES = ("admin", "frontend", "user")


def _check_allowed(allow: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    for role, names in allow.items():
        if role not in ROLES:
            raise ValueError(f"there is no role {role!r}; there are {', '.join(ROLES)}")
        for name in names:
            if name not in _BY_NAME:
                raise ValueError(f"there is no command {name!r}; there are {', '.join(_BY_NAME)}")
    return allow


class CommandsPolicy(Policy):
    """Who may use which commands in groups and channels; in a person's own chats all are open."""

    allow: Annotated[dict[str, tuple[str, ...]], AfterValidator(_check_allowed)] = Field(
        default_factory=dict,
        description="Commands open in groups and channels, by the role of the token a message came with (admin, "
        "frontend, user); a role that is left out may use all, as in `frontend: [status, help]`.",
    )


@dataclass(frozen=True, slots=True)
class Command:
    """A command as typed: its name in lower case, and the rest of the message."""

    name: str
    argument: str = ""

    @property
    def ends_session(self) -> bool:
        return _BY_NAME[self.name].ends_session


def parse_command(text: str) -> Command | None:
    """The command a message is, or None: only an exact word at the very start counts, so `/etc/hosts` is a text."""
    if not text.startswith("/"):
        return None
    word, *rest = text[1:].split(maxsplit=1) or [""]
    if text[1:2].isspace() or word.lower() not in _BY_NAME:
        return None
    return Command(word.lower(), rest[0].strip() if rest else "")


def may_use(policy: CommandsPolicy, command: Command, key: SessionKey, role: str) -> bool:
    """Whether a caller of that role may use a command in this chat."""
    if key.type not in ("group", "channel"):
        return True
    return role not in policy.allow or command.name in policy.allow[role]


def render_help() -> str:
    """The answer to `/help`."""
    return "\n".join(f"/{f'{info.name} {info.argument}'.strip()}: {info.help}" for info in COMMANDS)
