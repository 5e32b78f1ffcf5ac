"""What browsers may do: which pages may call the API, and which may not act for whoever sits at the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.http.auth import is_loopback
from gateway.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SENT_HEADERS = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Sessiond-Key"
SHOWN_HEADERS = "Location, Retry-After, X-Request-Id, X-Sessiond-Session, X-Sessiond-Turn"
METHODS = "GET, POST, PUT, PATCH, DELETE"
PREFLIGHT_S = "600"


def cors_headers(origin: str | None, allowed: Sequence[str], *, preflight: bool) -> Mapping[str, str]:
    """The headers of an answer to a page of `origin`; none for an origin that is not configured."""
    if origin is None or origin not in allowed:
        return {"Vary": "Origin"} if allowed else {}
    headers = {"Access-Control-Allow-Origin": origin, "Vary": "Origin", "Access-Control-Expose-Headers": SHOWN_HEADERS}
    if preflight:
        headers |= {
            "Access-Control-Allow-Headers": SENT_HEADERS,
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Max-Age": PREFLIGHT_S,
        }
    return headers


def check_open_access(method: str, host: str | None, origin: str | None, allowed: Sequence[str]) -> None:
    """Without tokens everybody who reaches the daemon is its owner, and so is every web page in the owner's browser.

    Refuses other pages (their requests carry an Origin), and names that a page pointed at this machine (DNS rebinding:
    the Host is not a loopback name). Raises Problem.
    """
    if host is not None and not is_loopback_host(host):
        detail = (
            f"Without tokens the daemon answers to localhost only, not to the name {host[:100]}. "
            "Add a token under auth.tokens, or use http://127.0.0.1."
        )
        raise Problem(403, "Foreign host", detail)
    if origin is None or origin in allowed or method in ("GET", "HEAD", "OPTIONS"):
        return
    if host is None or urlsplit(origin).netloc.lower() != host.lower():
        detail = f"A page of {origin[:100]} may not use this daemon. If it should, add it to server.cors_origins."
        raise Problem(403, "Foreign origin", detail)


def check_own_page(headers: Mapping[str, str], allowed: Sequence[str]) -> None:
    """A form anybody can send must come from a page of ours: else another page could sign its reader in as somebody.

    Browsers say where a form comes from, in `Sec-Fetch-Site` where the connection is safe, else in `Origin`. Who says
    neither is no browser. Raises Problem.
    """
    site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
    if origin is None and site is None:
        return
    if origin in allowed or site in ("same-origin", "none"):
        return
    if site is None and origin is not None and urlsplit(origin).netloc.lower() == headers.get("Host", "").lower():
        return
    detail = (
        f"This form was sent by a page of {(origin or 'another address')[:100]}. Open /console/login here and sign in "
        "there. If a proxy stands before the daemon, let it pass the Host header on, or add the address people use to "
        "server.cors_origins."
    )
    raise Problem(403, "Foreign origin", detail)


def is_loopback_host(host: str) -> bool:
    """Whether a Host header names this machine: localhost, or a loopback address, with or without a port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name) or name.endswith(".localhost")
