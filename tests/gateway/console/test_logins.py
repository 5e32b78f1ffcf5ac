"""Browsers that are signed in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gateway.console.logins import LASTS, Logins, csrf_of
from gateway.http.auth import Tokens
from gateway.http.policy import AuthPolicy
from sessions.files import OsFiles

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def logins(path: Path, *secrets: str) -> Logins:
    policy = AuthPolicy.model_validate(
        {"tokens": [{"name": f"t{n}", "token": secret, "role": "admin"} for n, secret in enumerate(secrets)]}
    )
    return Logins(OsFiles(), path / "console.json", Tokens(policy, {}))


def test_a_cookie_outlives_a_restart_and_neither_it_nor_the_token_is_on_disk(tmp_path: Path) -> None:
    cookie = logins(tmp_path, "a-long-token").sign_in("a-long-token", NOW)
    assert cookie is not None
    caller = logins(tmp_path, "a-long-token").caller(cookie, NOW)
    assert caller is not None
    assert caller.name == "t0"
    written = (tmp_path / "console.json").read_text()
    assert cookie not in written
    assert "a-long-token" not in written


def test_no_wrong_token_signs_in(tmp_path: Path) -> None:
    known = logins(tmp_path, "a-long-token")
    assert known.sign_in("another", NOW) is None
    assert known.sign_in("", NOW) is None
    assert known.caller("", NOW) is None
    assert known.caller("\ud800", NOW) is None


def test_a_login_ends_with_its_time_its_token_and_by_signing_out(tmp_path: Path) -> None:
    known = logins(tmp_path, "one", "two")
    first, second = known.sign_in("one", NOW), known.sign_in("two", NOW)
    assert first is not None
    assert second is not None
    assert first != second
    assert known.caller(first, NOW + LASTS) is None
    assert known.caller(first, NOW - timedelta(seconds=1)) is None
    assert logins(tmp_path, "two").caller(first, NOW) is None
    known.sign_out(second)
    assert logins(tmp_path, "one", "two").caller(second, NOW) is None


def test_only_what_is_made_from_the_cookie_is_genuine(tmp_path: Path) -> None:
    known = logins(tmp_path, "one")
    assert known.is_genuine("cookie", csrf_of("cookie"))
    assert not known.is_genuine("cookie", csrf_of("another"))
    assert not known.is_genuine("cookie", "")


def test_a_damaged_file_means_signing_in_again(tmp_path: Path) -> None:
    (tmp_path / "console.json").write_text('{"logins": [{"cookie": 1}]}')
    known = logins(tmp_path, "one")
    cookie = known.sign_in("one", NOW)
    assert cookie is not None
    assert logins(tmp_path, "one").caller(cookie, NOW) is not None
