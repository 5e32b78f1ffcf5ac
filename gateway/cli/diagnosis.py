"""What `sessiond doctor` looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway import diagnosis
from gateway.cli.client import Daemon
from gateway.diagnosis import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config import Config


def examine(config: Config, data_dir: Path, url: str | None) -> list[Finding]:
    """All findings; nothing is changed."""
    return [_daemon(url), *diagnosis.examine(config, data_dir)]


def _daemon(url: str | None) -> Finding:
    daemon = Daemon(url)
    if not daemon.reachable():
        return Finding("note", "daemon", f"none answers at {daemon.shown}; start one with: sessiond serve")
    parts = daemon.call("GET", "/readyz")["parts"]
    told = {name: f"{name} is {part['state']} ({part['detail']})" for name, part in parts.items()}
    weak = [told[name] for name, part in parts.items() if part["state"] in ("degraded", "down")]
    early = [told[name] for name, part in parts.items() if part["state"] == "starting"]
    level = "bad" if weak else "note" if early else "ok"
    return Finding(level, "daemon", "; ".join([f"answers at {daemon.shown}", *weak, *early]))
