"""Who is asking, and what that caller may see and do: pure decisions."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.http.policy import AuthPolicy, Role, TokenPolicy
    from sessions.keys import SessionKey


class UnsafeBinding(ValueError):
    """The daemon would listen where strangers reach it, without any token."""


class MissingSecret(ValueError):
    """A token names an environment variable that is not set."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request comes from. `key_prefixes` and `agents` None: not limited by them.

    `projects` are the names of all of Engram's projects, `project` the one of this token.
    """

    name: str
    role: Role
    user: str | None = None
    agents: tuple[str, ...] | None = None
    key_prefixes: tuple[str, ...] | None = None
    project: str | None = None
    projects: frozenset[str] = frozenset()

    def may_speak_for(self, user: str) -> bool:
        """Whether it may name a user, and so reach that user's memories.

        The users of an Engram project, `<project>:<id>`, are for its token, which may name no others.
        """
        match self.role:
            case "admin":
                return True
            case "user":
                return user == self.user
            case "frontend":
                # in NFC, as users are kept: another character may become one of a project's name
                name, colon, _ = unicodedata.normalize("NFC", user).partition(":")
                return (name if colon and name in self.projects else None) == self.project


OWNER = Caller("owner", "admin")


def check_binding(host: str, auth: AuthPolicy) -> None:
    """Raises UnsafeBinding for an address that is not loopback when no token is configured."""
    if auth.tokens or is_loopback(host):
        return
    raise UnsafeBinding(
        f"server.host is {host}, which other machines can reach, and no token is configured. "
        "Add one under auth.tokens, or listen on 127.0.0.1."
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Tokens:
    """The configured tokens, as hashes."""

    def __init__(
        self, policy: AuthPolicy, environ: Mapping[str, str], projects: Mapping[str, str] | None = None
    ) -> None:
        """`projects`: of Engram, by the name of their token. Raises MissingSecret."""
        self._known = [(_digest(token, environ), _caller(token, projects or {})) for token in policy.tokens]

    @property
    def open(self) -> bool:
        """No token is configured: everybody who reaches the loopback address is the owner."""
        return not self._known

    def caller(self, secret: str) -> Caller | None:
        """Compares with every token in constant time. No token has an empty secret."""
        if not secret:
            return None
        return self.by_hash(hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest())

    def by_hash(self, digest: bytes) -> Caller | None:
        """The caller whose token has this SHA-256."""
        found: Caller | None = None
        for known, caller in self._known:
            if hmac.compare_digest(known, digest):
                found = caller
        return found


def _digest(token: TokenPolicy, environ: Mapping[str, str]) -> bytes:
    if token.token_hash is not None:
        return bytes.fromhex(token.token_hash)
    if token.token is not None:
        secret = token.token.get_secret_value()
    else:
        secret = environ.get(token.token_env or "", "")
        if not secret:
            raise MissingSecret(
                f"auth.tokens: {token.name}: the environment variable {token.token_env} is not set or empty."
            )
    return hashlib.sha256(secret.encode()).digest()


def _caller(token: TokenPolicy, projects: Mapping[str, str]) -> Caller:
    return Caller(
        token.name,
        token.role,
        token.user,
        token.agents,
        token.key_prefixes,
        projects.get(token.name),
        frozenset(projects.values()),
    )


def may_see(caller: Caller, key: str, owner: str | None) -> bool:
    """Whether a caller may see a session that exists.

    A person sees their own sessions, and under their token's prefixes those that belong to nobody else.
    """
    if caller.role == "admin":
        return True
    if caller.agents is not None and key.startswith("agent:") and key.split(":", 2)[1] not in caller.agents:
        return False
    if caller.role == "user":
        return owner == caller.user if owner is not None else _under_prefix(caller, key)
    return _under_prefix(caller, key) or (caller.key_prefixes is None and not is_internal(key))


def only_owner(caller: Caller) -> str | None:
    """The one person whose sessions a caller may see, beside those of nobody; None: there are others."""
    return caller.user if caller.role == "user" else None


def may_use_agent(caller: Caller, agent: str) -> bool:
    """Whether a caller may read what belongs to an agent: its name is among those, or in a prefix, of the token."""
    if caller.agents is not None and agent not in caller.agents:
        return False
    if caller.role != "frontend" or caller.key_prefixes is None:
        return True
    return any(f"{prefix.rstrip(':')}:".startswith(f"agent:{agent}:") for prefix in caller.key_prefixes)


def _under_prefix(caller: Caller, key: str) -> bool:
    """Whether a prefix names the key, by whole words: `agent:main:web` does not name `agent:main:web2:group:1`."""
    prefixes = caller.key_prefixes or ()
    return any(f"{key}:".startswith(prefix if prefix.endswith(":") else f"{prefix}:") for prefix in prefixes)


def is_internal(key: str) -> bool:
    """Keys of jobs, hooks and delegated tasks: closed unless a token names them."""
    parts = key.split(":")
    return parts[0] in ("cron", "hook") or (len(parts) > 2 and parts[2] == "sub")


def may_post(
    caller: Caller, key: SessionKey, owner: str | None, identities: Mapping[str, Sequence[str]], *, exists: bool
) -> bool:
    """Whether a caller may write to a key. A person may open chats of their own: direct ones, under their own id."""
    text = str(key)
    if exists or caller.role != "user":
        return may_see(caller, text, owner)
    if caller.agents is not None and text.startswith("agent:") and key.agent not in caller.agents:
        return False
    return _under_prefix(caller, text) or (
        key.type == "direct" and key.peer in own_peers(caller, key.channel or "", identities)
    )


def own_peers(caller: Caller, channel: str, identities: Mapping[str, Sequence[str]]) -> set[str]:
    """The peers that are this person in a channel: the user's id, and what `sessions.identities` joins with it."""
    if caller.user is None:
        return set()
    prefix = f"{channel}:"
    aliases = identities.get(caller.user, ())
    return {caller.user} | {alias[len(prefix) :] for alias in aliases if alias.startswith(prefix)}


def owner_of(
    key: SessionKey, sender: str | None, caller: Caller, identities: Mapping[str, Sequence[str]]
) -> str | None:
    """The person a new session belongs to: a group's belongs to nobody, whoever wrote first."""
    if caller.role == "user":
        return None if key.type in ("group", "channel") else caller.user
    if key.type != "direct" or key.peer is None:
        return None
    alias = f"{key.channel}:{sender or key.peer}"
    person = next((user for user, aliases in identities.items() if alias in aliases), None)
    return person or key.peer


def speaker_of(
    key: SessionKey, sender: str | None, caller: Caller, identities: Mapping[str, Sequence[str]]
) -> str | None:
    """The person a message comes from, whose memories it may reach; None: nobody known, who reaches none.

    Known are people with a token, senders of `sessions.identities`, and the peer of a direct chat. What a frontend
    calls its peer counts inside that channel only: equal ids in two channels need not be one person. Whom the caller
    may not speak for is nobody.
    """
    known = _known_speaker(key, sender, caller, identities)
    return known if known is not None and caller.may_speak_for(known) else None


def _known_speaker(
    key: SessionKey, sender: str | None, caller: Caller, identities: Mapping[str, Sequence[str]]
) -> str | None:
    if key.type in ("cron", "hook", "sub"):
        return None
    if caller.role == "user":
        return caller.user
    if key.type == "main":
        return (caller.user or OWNER.name) if caller.role == "admin" and sender is None else None
    linked = next((user for user, known in identities.items() if f"{key.channel}:{sender or key.peer}" in known), None)
    if linked is not None or key.type != "direct" or key.peer is None:
        return linked
    if key.peer in identities:
        return key.peer if sender is None or (caller.role == "admin" and sender == key.peer) else None
    if sender is not None and sender != key.peer:
        return None
    return key.peer if caller.role == "admin" else f"{key.channel}:{key.peer}"
