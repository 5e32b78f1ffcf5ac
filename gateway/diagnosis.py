"""What can be wrong with a configuration and its data directory: pure but for a look at the disk."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config import Config

LOW_DISK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One part: fine, worth a note, or a problem; the text says what to do."""

    level: Literal["ok", "note", "bad"]
    part: str
    text: str


def examine(config: Config, data_dir: Path) -> list[Finding]:
    """All findings; nothing is changed."""
    return [_disk(data_dir), *_models(config), _tokens(config)]


def _disk(data_dir: Path) -> Finding:
    nearest = next(folder for folder in (data_dir.absolute(), *data_dir.absolute().parents) if folder.exists())
    if not os.access(nearest, os.W_OK):
        return Finding("bad", "data", f"{nearest} cannot be written; change its owner or choose another --data-dir")
    free = shutil.disk_usage(nearest).free
    if free < LOW_DISK_BYTES:
        return Finding("bad", "data", f"only {free // 2**20} MiB are free at {nearest}; messages are refused at 0")
    return Finding("ok", "data", f"{data_dir}, {free // 2**30} GiB free")


def _models(config: Config) -> list[Finding]:
    from gateway.models.pool import found_in, key_of

    policies = dict(config.models) or found_in(os.environ)
    if not policies:
        return [
            Finding("note", "model", "none configured: the offline model answers. Change that with: sessiond setup")
        ]
    findings: list[Finding] = []
    for name, policy in policies.items():
        needs_key = policy.provider != "offline" and policy.base_url is None
        if needs_key and key_of(policy, os.environ) is None:
            findings.append(Finding("bad", f"model {name}", "has no API key; set api_key_env and that variable"))
        else:
            findings.append(Finding("ok", f"model {name}", f"{policy.provider} {policy.model}"))
    return findings


def _tokens(config: Config) -> Finding:
    if not config.auth.tokens:
        return Finding("note", "tokens", "none configured: everybody on this machine is the owner")
    missing = [t.name for t in config.auth.tokens if t.token_env and not os.environ.get(t.token_env)]
    if missing:
        return Finding("bad", "tokens", f"the variables of {', '.join(missing)} are not set")
    return Finding("ok", "tokens", f"{len(config.auth.tokens)} configured")
