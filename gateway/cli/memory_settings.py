"""What a person has set of memory for themselves: shown, and changed one by one."""

from __future__ import annotations

import json
from typing import Annotated, Any, cast

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.output import USAGE, fail, show_json, show_table

PATH = "/v1/memory-settings"


def settings(
    name: Annotated[str | None, typer.Argument(help="Such as recall.wait_s; all are shown without.")] = None,
    value: Annotated[str | None, typer.Argument(help="The new value; default: as configured again.")] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="The person spoken for, with an administrator's token.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as JSON.")] = False,
    url: Url = None,
) -> None:
    """What you have set of memory for yourself; with a name and a value it is set."""
    daemon, query = Daemon(url), {"user": user}
    found = daemon.call("GET", PATH, query=query)
    rows = _rows(found)
    if name is not None and name not in rows:
        fail(f"There is no setting {name!r}. There are {', '.join(rows)}.", USAGE)
    if name is not None and value is not None:
        body: Any = None if value == "default" else _value(value)
        for part in reversed(name.split(".")):
            body = {part: body}
        found = daemon.call("PATCH", PATH, body, query=query)
        rows = _rows(found)
    if as_json:
        show_json(found)
        return
    shown = rows if name is None else {name: rows[name]}
    show_table([[one, *cells] for one, cells in shown.items()], ["SETTING", "VALUE", "CONFIGURED", "SET"])


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rows(found: dict[str, Any]) -> dict[str, list[str]]:
    """By name: what holds, what is configured, and whether it is the person's own."""
    groups = [name for name, value in found.items() if isinstance(value, dict) and name != "configured"]
    own = {f"{group}.{name}" for group in groups for name in found[group]["own"]}
    holds, configured = _flat({group: found[group] for group in groups}), _flat(found["configured"])
    return {
        name: [json.dumps(holds[name]), json.dumps(value), "yes" if name in own else ""]
        for name, value in configured.items()
    }


def _flat(given: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, value in given.items():
        inner = cast("dict[str, Any]", value) if isinstance(value, dict) else None
        rows |= {f"{prefix}{name}": value} if inner is None else _flat(inner, f"{prefix}{name}.")
    return rows
