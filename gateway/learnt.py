"""What is learnt of models from their reports and refusals, kept across restarts in `models.json`."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import structlog

from compaction.tokens import Learnt, start_factor
from gateway.models.cache_terms import is_original
from sessions.files import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.models.policy import ModelPolicy
    from sessions.files import Files
    from sessions.usage import Usage

FORMAT = 1
START = Learnt(factor=1.25)

log = structlog.get_logger()


class Policies(Protocol):
    """Settings of a model by its name; None for one nobody configured."""

    def policy(self, name: str) -> ModelPolicy | None: ...


class LearntModels:
    """By configured name. A model whose settings have changed is learnt anew: it may be another one."""

    def __init__(self, path: Path, policies: Policies, files: Files) -> None:
        self._path = path
        self._policies = policies
        self._files = files
        self._known: dict[str, Learnt] = {}
        self._changed = False

    def of(self, name: str) -> Learnt:
        """What is known of a model now; the start values of its provider when nothing is."""
        known = self._known.get(name)
        if known is None:
            policy = self._policies.policy(name)
            known = START
            if policy is not None:
                known = Learnt(factor=start_factor(policy.provider, original=is_original(policy)))
            self._known[name] = known
        return known

    def report(self, name: str, *, counted: int, usage: Usage) -> None:
        """A reported usage for a prompt that is `counted` tokens by our own count."""
        before = self.of(name)
        self._learn(
            name, before.after_report(counted=counted, reported=usage.input_total, cached=usage.cached_read), before
        )

    def overflow(
        self, name: str, *, counted: int, tokens: int | None, window: int | None, known_window: int | None
    ) -> None:
        """A prompt refused as too long, with the numbers the provider gave."""
        before = self.of(name)
        learnt = before.after_overflow(counted=counted, tokens=tokens, window=window, known=known_window)
        if learnt != before:
            log.warning(
                "model.corrected", model=name, factor=round(learnt.factor, 3), window=learnt.window, was=known_window
            )
        self._learn(name, learnt, before)

    def _learn(self, name: str, learnt: Learnt, before: Learnt) -> None:
        if learnt != before:
            self._known[name] = learnt
            self._changed = True

    async def load(self) -> None:
        """Takes over what was learnt before. A file that cannot be read is told and written anew: it is only advice."""
        try:
            stored = await asyncio.to_thread(self._read)
        except (StorageError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("models.unreadable", path=str(self._path), error=str(error))
            return
        self._known = {**stored, **self._known}

    def _read(self) -> dict[str, Learnt]:
        if self._files.size(self._path) is None:
            return {}
        raw: dict[str, Any] = orjson.loads(self._files.read(self._path))
        return {
            name: Learnt.from_json(one) for name, one in raw["models"].items() if one.get("of") == self._settings(name)
        }

    def _settings(self, name: str) -> str | None:
        """Which model it is about, as a hash: an address may hold a secret."""
        policy = self._policies.policy(name)
        if policy is None:
            return None
        told = f"{policy.provider}\n{policy.model}\n{policy.base_url}\n{policy.window}"
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    async def save(self) -> None:
        """Writes now, if anything has changed. A full disk delays it."""
        if not self._changed:
            return
        self._changed = False
        models = {name: {"of": self._settings(name), **learnt.to_json()} for name, learnt in self._known.items()}
        payload = orjson.dumps({"format": FORMAT, "models": models}, option=orjson.OPT_INDENT_2)
        try:
            await asyncio.to_thread(self._files.replace, self._path, payload)
        except StorageError as error:
            log.warning("models.not_written", error=str(error))
            self._changed = True
