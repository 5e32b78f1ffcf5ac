from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.cli.conftest import CommandLine
    from tests.journeys.daemon import Client


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


async def test_a_file_that_is_longer_than_a_body_is_taken_over_and_written_again(
    line: CommandLine, tmp_path: Path
) -> None:
    file, copy = tmp_path / "memories.jsonl", tmp_path / "copy.jsonl"
    texts = [f"fact {n}" for n in range(520)]
    file.write_text("".join(json.dumps({"type": "memory", "text": text}) + " " * 17_000 + "\n" for text in texts))
    assert file.stat().st_size > 8 * 1024 * 1024
    assert (await line.run("memory", "import", str(file))).startswith("520 added")
    await line.run("memory", "export", "-o", str(copy))
    written = [json.loads(one) for one in copy.read_text().splitlines()]
    assert [one["text"] for one in written if one.get("type") == "memory"] == texts
    assert sorted(path.name for path in tmp_path.glob("*.jsonl*")) == ["copy.jsonl", "memories.jsonl"]
    shown = json.loads(await line.run("memory", "list", "--limit", "501", "--json"))
    assert (len({memory["id"] for memory in shown["memories"]}), shown["next"] is None) == (501, False)


async def test_what_cannot_be_written_read_or_asked_for_is_told_in_words(line: CommandLine, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"type":"memory","text":"never"}\n{')
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"type":"memory","text":"never","properties":5}\n')
    nowhere = tmp_path / "nowhere" / "x"
    for words, code, told in (
        (("export", "-o", str(nowhere)), 2, "nowhere/x cannot be written: No such file or directory."),
        (("export", "-o", str(tmp_path)), 2, "cannot be written: Is a directory."),
        (("import", str(nowhere)), 2, "nowhere/x cannot be read: No such file or directory."),
        (("import", str(bad)), 4, "line 2: is no JSON from character 2 on; correct the line"),
        (("import", str(odd)), 4, "line 1: a field holds another kind of value than an export has"),
        (("list", "--limit", "0"), 2, "--limit"),
        (("search", "tea", "--limit", "101"), 2, "--limit"),
        (("add", "tea", "--property", "tenant"), 2, "NAME=VALUE"),
        (("topics", "edit", "nothing", "--bounded"), 4, "There is no topic 'nothing' here. There are decisions"),
        (("topics", "edit", "preferences"), 2, "Say what to change"),
    ):
        result = await line.end("memory", *words)
        assert (result.exit_code, told in result.stderr) == (code, True), (words, result.output)
    assert "never" not in await line.run("memory", "list")


async def test_a_search_is_narrowed_by_topics_and_says_what_it_goes_without(line: CommandLine) -> None:
    await line.run("memory", "add", "Ana drinks tea", "--topic", "preferences")
    await line.run("memory", "add", "Tea is sold by Bob", "--topic", "reference")
    found = await line.run("memory", "search", "tea", "--topic", "preferences")
    assert ("Ana drinks" in found, "Bob" in found) == (True, False)
    found = await line.run("memory", "search", "tea", "--topic", "preferences", "--topic", "reference")
    assert ("Ana drinks" in found, "Bob" in found) == (True, True)
    result = await line.end("memory", "search", "tea", "--mode", "vector")
    assert result.exit_code == 0
    assert "embedding" in result.stderr


async def test_a_search_that_finds_nothing_says_so(line: CommandLine) -> None:
    result = await line.end("memory", "search", "narwhal")
    assert (result.exit_code, result.stdout, "Nothing was found." in result.stderr) == (0, "", True)
    assert json.loads(await line.run("memory", "search", "narwhal", "--json"))["memories"] == []


async def test_a_search_shows_files_with_their_lines(line: CommandLine, client: Client, tmp_path: Path) -> None:
    notes = tmp_path / "data" / "workspaces" / "main" / "MEMORY.md"
    notes.parent.mkdir(parents=True)
    notes.write_text("# Sea\n\nThe narwhal is called Vega.\n", "utf-8")
    client.daemon.parts.workspaces.files.check()
    await client.daemon.parts.workspaces.files.settled()
    await line.run("memory", "add", "Ana saw a narwhal")
    found = await line.run("memory", "search", "narwhal")
    assert "Ana saw a narwhal" in found
    assert found.endswith("main  MEMORY.md:1-3\n> # Sea The narwhal is called Vega.\n"), found
    assert found.endswith(await line.run("search", "narwhal"))


async def test_an_owner_acts_for_a_person(line: CommandLine) -> None:
    kept = await line.run("memory", "add", "Bob drinks tea", "--user", "bob")
    memory, bob = kept.split()[1], ("--user", "bob")
    await line.run("memory", "edit", memory, "--text", "Bob drinks milk", *bob)
    assert "edited" in await line.run("memory", "history", memory, *bob)
    assert "Bob drinks tea" in await line.run("memory", "undo", memory, *bob)
    await line.run("memory", "delete", memory, *bob)
    await line.run("memory", "restore", memory, *bob)
    assert json.loads(await line.run("memory", "show", memory, *bob))["pool"] == "user:bob"
    await line.run("memory", "purge", memory, "--yes", *bob)
    assert memory not in await line.run("memory", "list", *bob)


async def test_properties_keep_memories_apart_from_the_command_line(line: CommandLine) -> None:
    kept = await line.run("memory", "add", "Ana runs it", "--property", "tenant=shop", "--property", "place=a=b")
    memory = kept.split()[1]

    async def properties() -> dict[str, str]:
        return json.loads(await line.run("memory", "show", memory))["properties"]

    assert await properties() == {"tenant": "shop", "place": "a=b"}
    await line.run("memory", "edit", memory, "--property", "tenant=bank")
    assert await properties() == {"tenant": "bank"}
    await line.run("memory", "edit", memory, "--no-properties")
    assert await properties() == {}


async def test_topics_are_made_changed_and_deleted_from_the_command_line(line: CommandLine) -> None:
    await line.run("projects", "add", "shop", "--member", "owner")
    told = await line.run(
        *("memory", "topics", "add", "state", "How it stands", "--bounded", "--scope", "tenant", "--always-on"),
        *("--leave-out", "moods", "--project", "shop"),
    )
    assert told == "state of user:owner: one memory for each scope, only inside shop.\n"
    shown = json.loads(await line.run("memory", "topics", "show", "State"))
    assert (shown["leave_out"], shown["scope_properties"], shown["always_on"]) == ("moods", ["tenant"], True)
    await line.run("memory", "add", "It runs", "--topic", "state", "--property", "tenant=a")
    await line.run(
        *("memory", "topics", "edit", "state", "--name", "news", "--description", "What is new", "--many"),
        *("--no-scope", "--not-always-on", "--leave-out", "", "--project", ""),
    )
    news = json.loads(await line.run("memory", "topics", "show", shown["id"]))
    assert [news[name] for name in ("name", "bounded", "scope_properties", "always_on", "leave_out", "project")] == [
        *("news", False, [], False, None, None)
    ]
    assert "news" in await line.run("memory", "topics", "list")
    await line.run("memory", "topics", "add", "ours", "What is everybody's", "--instance")
    assert "ours" in await line.run("memory", "topics", "--user", "bob")
    assert "1 memories have no topic now" in await line.run("memory", "topics", "delete", "news", "--yes")
    assert "news" not in await line.run("memory", "topics")


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
