from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.cli.conftest import CommandLine


async def test_memories_are_kept_found_corrected_and_forgotten_from_the_command_line(line: CommandLine) -> None:
    kept = await line.run("memory", "add", "Ana drinks tea", "--topic", "preferences", "--importance", "7")
    memory = kept.split()[1]
    assert kept.startswith("added: ")
    assert "Ana drinks tea" in await line.run("memory", "search", "tea")
    assert "edited" not in await line.run("memory", "history", memory)
    await line.run("memory", "edit", memory, "--text", "Ana drinks coffee")
    assert "edited" in await line.run("memory", "history", memory)
    assert "Ana drinks tea" in await line.run("memory", "undo", memory)
    await line.run("memory", "delete", memory)
    assert memory not in await line.run("memory", "list")
    assert memory in await line.run("memory", "list", "--state", "trashed")
    await line.run("memory", "restore", memory)
    shown = json.loads(await line.run("memory", "show", memory))
    assert (shown["state"], shown["importance"], shown["topic"]) == ("active", 7, "preferences")
    assert "preferences" in await line.run("memory", "topics")
    await line.run("memory", "purge", memory, "--yes")
    result = await line.end("memory", "show", memory)
    assert (result.exit_code, "Not found" in result.stderr) == (4, True)


async def test_a_pool_is_written_to_a_file_and_taken_over_elsewhere(line: CommandLine, tmp_path: Path) -> None:
    await line.run("memory", "add", "Ana drinks tea", "--topic", "preferences")
    file = tmp_path / "memories.jsonl"
    await line.run("memory", "export", "-o", str(file))
    taken = await line.run("memory", "import", str(file), "--pool", "user:bob")
    assert taken.startswith("1 added, 0 updated, 0 unchanged, 0 forgotten")
    assert "1 unchanged" in await line.run("memory", "import", str(file))
    assert "Ana drinks tea" in await line.run("memory", "list", "--user", "bob")


async def test_projects_and_their_members_are_made_and_changed(line: CommandLine) -> None:
    assert await line.run("projects", "add", "shop", "--member", "ana", "--member", "bob") == "shop: ana, bob\n"
    assert await line.run("projects", "members", "shop", "--remove", "bob", "--add", "eva") == "shop: ana, eva\n"
    await line.run("memory", "add", "It opens in May", "--pool", "project:shop")
    assert (await line.end("projects", "delete", "shop", "--yes")).exit_code == 4
    assert "shop" in await line.run("projects", "list")


async def test_settings_of_a_person_are_shown_set_and_taken_back(line: CommandLine) -> None:
    assert "recall.wait_s" in await line.run("memory", "settings")
    told = await line.run("memory", "settings", "recall.wait_s", "0")
    assert told.splitlines()[1].split() == ["recall.wait_s", "0.0", "5.0", "yes"]
    assert json.loads(await line.run("memory", "settings", "--json"))["recall"]["own"] == ["wait_s"]
    told = await line.run("memory", "settings", "recall.wait_s", "default")
    assert told.splitlines()[1].split() == ["recall.wait_s", "5.0", "5.0"]
    assert (await line.end("memory", "settings", "recall.colour", "1")).exit_code == 2
    assert (await line.end("memory", "settings", "recall.wait_s", "soon")).exit_code == 4
