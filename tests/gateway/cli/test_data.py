from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from tests.journeys.daemon import KEY, config, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.cli.conftest import CommandLine
    from tests.journeys.daemon import Client

OTHER = "agent:main:web:direct:ben"


@pytest.mark.parametrize("form", ["jsonl", "openai"])
async def test_what_is_exported_can_be_imported(line: CommandLine, client: Client, tmp_path: Path, form: str) -> None:
    await client.say("Příliš žluťoučký")
    file = tmp_path / "session"
    await line.run("export", KEY, "--format", form, "--output", str(file))
    assert OTHER in await line.run("import", str(file), "--key", OTHER)
    assert await client.texts(OTHER) == ["Příliš žluťoučký", "echo: Příliš žluťoučký"]


async def test_markdown_is_for_reading(line: CommandLine, client: Client) -> None:
    await client.say("hello")
    assert "echo: hello" in await line.run("export", KEY, "--format", "markdown")


async def test_a_bad_file_imports_nothing_and_names_the_place(line: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text('[{"role": "user", "content": "hi"}, {"role": 7}]')
    refused = await line.end("import", str(file), "--key", OTHER)
    assert refused.exit_code == 4
    assert "2" in refused.stderr
    assert OTHER not in await line.run("sessions", "list")
    assert (await line.end("import", str(tmp_path / "gone"))).exit_code == 2


async def test_a_backup_of_a_running_daemon_opens_and_verifies(
    line: CommandLine, client: Client, tmp_path: Path
) -> None:
    await client.say("hello")
    copy = tmp_path / "copy"
    await line.run("backup", str(copy))
    await client.say("after the backup")
    assert "0 findings" in await line.run("verify", "--data-dir", str(copy))
    async with running(copy, config()) as restored:
        assert await restored.texts() == ["hello", "echo: hello"]
        assert [s["key"] for s in (await restored.get("/v1/sessions"))["sessions"]] == [KEY]
    refused = await line.end("backup", str(copy))
    assert refused.exit_code == 4
    assert "exists already" in refused.stderr


async def test_damage_is_found_and_mended_while_no_daemon_runs(alone: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running(folder, config()) as client:
        await client.say("hello")
        refused = await alone.end("repair", "--data-dir", str(folder))
        assert refused.exit_code == 2
        assert "mends its files by itself" in refused.stderr
    transcript = next((folder / "transcripts").rglob("*.jsonl"))
    with transcript.open("ab") as file:
        file.write(b'{"seq": 3, "type": "us')
    found = await alone.end("verify", "--data-dir", str(folder), "--json")
    assert found.exit_code == 1
    assert len(json.loads(found.stdout)["found"]) == 1
    await alone.run("repair", "--data-dir", str(folder))
    assert "0 findings" in await alone.run("verify", "--data-dir", str(folder))


async def test_everything_on_disk_is_for_its_owner_only(line: CommandLine, client: Client, tmp_path: Path) -> None:
    await client.say("hello")
    await line.run("backup", str(tmp_path / "copy"))
    for top in (tmp_path / "data", tmp_path / "copy"):
        for path in (top, *top.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), f"{path} {mode:o}"


async def test_a_missing_data_directory_is_named(alone: CommandLine, tmp_path: Path) -> None:
    refused = await alone.end("verify", "--data-dir", str(tmp_path / "gone"))
    assert refused.exit_code == 2
    assert "--data-dir" in refused.stderr
