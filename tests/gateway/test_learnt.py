from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from structlog.testing import capture_logs

from gateway.learnt import LearntModels
from gateway.models.policy import ModelPolicy
from sessions.files import FaultyFiles
from sessions.usage import Usage

if TYPE_CHECKING:
    from pathlib import Path

CHAT: dict[str, Any] = {"provider": "openai", "model": "gpt-5", "base_url": "http://127.0.0.1:9/v1"}


class Policies:
    def __init__(self, **models: dict[str, Any]) -> None:
        self._models = {name: ModelPolicy.model_validate(one) for name, one in models.items()}

    def policy(self, name: str) -> ModelPolicy | None:
        return self._models.get(name)


def learnt(folder: Path, policies: Policies, files: FaultyFiles | None = None) -> LearntModels:
    return LearntModels(folder / "models.json", policies, files or FaultyFiles())


async def test_what_is_learnt_outlives_a_restart_as_long_as_it_is_the_same_model(tmp_path: Path) -> None:
    before = learnt(tmp_path, Policies(chat=CHAT))
    assert before.of("chat").factor == 1.25
    for _ in range(30):
        before.report("chat", counted=2000, usage=Usage(input_total=4000, cached_read=100))
    before.overflow("chat", counted=4000, tokens=8000, window=7000, known_window=None)
    await before.save()
    after = learnt(tmp_path, Policies(chat=CHAT))
    await after.load()
    assert after.of("chat").window == 7000
    assert after.of("chat").factor == pytest.approx(2.0, abs=0.01)
    assert after.of("chat").caches
    for changed in ({"model": "gpt-6"}, {"base_url": "http://127.0.0.1:8/v1"}, {"window": 9000}):
        other = learnt(tmp_path, Policies(chat={**CHAT, **changed}))
        await other.load()
        assert (other.of("chat").factor, other.of("chat").window) == (1.25, None)


async def test_the_file_tells_no_address(tmp_path: Path) -> None:
    one = learnt(tmp_path, Policies(chat={**CHAT, "base_url": "http://secret.example/v1"}))
    one.report("chat", counted=2000, usage=Usage(input_total=4000))
    await one.save()
    assert b"secret" not in (tmp_path / "models.json").read_bytes()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"models": {"chat": {"of": 1}}}', b'{"models": 3}', b"\xff"])
async def test_a_damaged_file_is_told_and_begun_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "models.json").write_bytes(content)
    one = learnt(tmp_path, Policies(chat=CHAT))
    with capture_logs() as logs:
        await one.load()
    assert [line["event"] for line in logs] == ([] if b"of" in content else ["models.unreadable"])
    assert one.of("chat").factor == 1.25
    one.report("chat", counted=2000, usage=Usage(input_total=4000))
    await one.save()
    assert orjson.loads((tmp_path / "models.json").read_bytes())["models"]["chat"]["factor"] > 1.25


async def test_a_full_disk_delays_it(tmp_path: Path) -> None:
    files = FaultyFiles()
    one = learnt(tmp_path, Policies(chat=CHAT), files)
    one.report("chat", counted=2000, usage=Usage(input_total=4000))
    files.fail("write", errno.ENOSPC)
    await one.save()
    assert not (tmp_path / "models.json").exists()
    files.heal()
    await one.save()
    assert (tmp_path / "models.json").exists()


async def test_a_model_nobody_configured_starts_in_the_middle(tmp_path: Path) -> None:
    assert learnt(tmp_path, Policies()).of("gone").factor == 1.25
