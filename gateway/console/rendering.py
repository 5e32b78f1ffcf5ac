"""Pages out of templates, with the headers that keep them safe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from aiohttp import web

from gateway.console.texts import load_texts
from gateway.console.views import count_text, money_text

if TYPE_CHECKING:
    from datetime import datetime

    from jinja2 import Environment

    from sessions.policy import ResetOverride

EVERYBODY = ("admin", "frontend", "user")
# address below /console, the name of its text, and who finds something there
PAGES = (
    ("", "overview", EVERYBODY),
    ("/sessions", "sessions", EVERYBODY),
    ("/memory", "memory", ("admin", "user")),
    ("/jobs", "jobs", ("admin",)),
    ("/usage", "usage", EVERYBODY),
    ("/settings", "settings", ("admin",)),
)
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer a form of ours has the origin null
    "Cache-Control": "no-store",
}


class Pages:
    """All templates. They are loaded at the first page: the daemon does not wait for them at its start."""

    def __init__(self, version: str) -> None:
        self.texts = load_texts()
        self._version = version
        self._environment: Environment | None = None

    def show(self, template: str, status: int = 200, **values: Any) -> web.Response:
        """The page; every value is escaped where it is put in."""
        if self._environment is None:
            self._environment = _environment(self.texts, self._version)
        html = self._environment.get_template(template).render(values)
        return web.Response(text=html, status=status, content_type="text/html", charset="utf-8", headers=HEADERS)


def _environment(texts: dict[str, dict[str, str]], version: str) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from gateway.console.markdown import to_html

    made = Environment(
        loader=PackageLoader("gateway.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    cast("dict[str, Any]", made.globals).update(t=texts, version=version, pages=PAGES)
    cast("dict[str, Any]", made.filters).update(
        markdown=to_html,
        count=count_text,
        money=money_text,
        iso=_iso,
        path=_path,
        percent=_percent,
        override=_override,
        address=_address,
    )
    return made


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def _path(text: str) -> str:
    """A text as one part of an address."""
    return quote(text, safe="")


def _address(parts: tuple[str, ...]) -> str:
    """Parts of a path; one part alone is a whole address of ours."""
    return parts[0] if len(parts) == 1 else "/".join(_path(part) for part in parts)


def _override(reset: ResetOverride | None, name: str) -> str:
    """A setting as it is typed: nothing where it is inherited, `off` where it is switched off."""
    if reset is None or name not in reset.model_fields_set:
        return ""
    value = getattr(reset, name)
    return "off" if value is None else str(value)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
