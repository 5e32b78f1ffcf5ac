"""Who is signed in to the console: browsers by their cookie, kept through restarts as hashes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import orjson
import structlog

from sessions.entries import format_time, parse_time
from sessions.files import StorageError, StorageMissing

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.http.auth import Caller, Tokens
    from sessions.files import Files

log = structlog.get_logger()

LASTS = timedelta(days=30)
MAX_LOGINS = 1_000


@dataclass(frozen=True, slots=True)
class Login:
    """One browser. `token` is the hash of the token it signed in with: when that is gone from the configuration, the
    login is gone, too."""

    token: bytes
    at: datetime


class Logins:
    """Cookies that are known. Making it reads, signing in and out write: blocking, and rare."""

    def __init__(self, files: Files, path: Path, tokens: Tokens) -> None:
        self._files = files
        self._path = path
        self._tokens = tokens
        self._known = _read(files, path)

    def sign_in(self, secret: str, now: datetime) -> str | None:
        """A new cookie for whoever knows a token; None for any other text. Raises StorageError."""
        if self._tokens.caller(secret) is None:
            return None
        cookie = secrets.token_urlsafe(32)
        known = {name: login for name, login in self._known.items() if now - login.at < LASTS}
        known[_name(cookie)] = Login(hashlib.sha256(secret.encode()).digest(), now)
        self._save(dict(list(known.items())[-MAX_LOGINS:]))
        return cookie

    def sign_out(self, cookie: str) -> None:
        """Forgets a cookie. Raises StorageError."""
        known = dict(self._known)
        if known.pop(_name(cookie), None) is not None:
            self._save(known)

    def caller(self, cookie: str, now: datetime) -> Caller | None:
        """Who a cookie stands for; None when it is unknown, too old, or its token is no longer configured."""
        login = self._known.get(_name(cookie)) if cookie else None
        if login is None or not timedelta(0) <= now - login.at < LASTS:
            return None
        return self._tokens.by_hash(login.token)

    def _save(self, known: dict[str, Login]) -> None:
        rows = [
            {"cookie": name, "token": login.token.hex(), "at": format_time(login.at)} for name, login in known.items()
        ]
        self._files.replace(self._path, orjson.dumps({"logins": rows}, option=orjson.OPT_INDENT_2))
        self._known = known

    def is_genuine(self, cookie: str, sent: str) -> bool:
        """Whether a change comes from a page of ours."""
        return hmac.compare_digest(csrf_of(cookie).encode(), sent.encode("utf-8", "surrogatepass"))


def csrf_of(cookie: str) -> str:
    """What a page must send with every change: no other site can know it, and it dies with the cookie."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def _name(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()


def _read(files: Files, path: Path) -> dict[str, Login]:
    """A file that cannot be used means that everybody signs in again."""
    try:
        rows = cast("dict[str, Any]", orjson.loads(files.read(path)))["logins"]
        return {
            str(row["cookie"]): Login(bytes.fromhex(row["token"]), parse_time(row["at"]).astimezone(UTC))
            for row in rows
        }
    except StorageMissing:
        return {}
    except (StorageError, ValueError, KeyError, TypeError) as error:
        log.warning("console.logins_not_read", error=str(error))
        return {}
